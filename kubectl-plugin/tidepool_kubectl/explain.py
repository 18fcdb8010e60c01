"""`kubectl tidepool explain GUEST`: why a guest lends, borrows or does neither, step by step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidepool_api import (
    Condition,
    ConditionType,
    GuestKey,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    PairingPhase,
    Reason,
    Role,
    Selector,
    Status,
    find,
    names,
)
from tidepool_api.fields import readable
from tidepool_kubectl.snapshot import Snapshot
from tidepool_kubectl.verdict import Step, bad, good, unknown


def explain(key: GuestKey, snapshot: Snapshot) -> list[Step]:
    """The steps from a virtual machine to page traffic; those after one that is in the way are left out."""
    guest = next((one for one in snapshot.guests if one.key == key), None)
    if guest is None:
        return [_absent(key, snapshot)]
    steps = [good(f"the agent of node {guest.spec.node_name} has found {key} ({guest.spec.provider})")]
    found_out = (_agent(guest, snapshot), _guest(guest), _pools(guest, snapshot), _pairings(guest, snapshot))
    for part in (*found_out, _devices(guest)):
        found = list(part)
        steps += found
        if any(step.mark != "✓" for step in found):
            break
    return steps


def _absent(key: GuestKey, snapshot: Snapshot) -> Step:
    """Why there is no MemoryGuest."""
    node = snapshot.machines.get(key)
    if node is None:
        others = sorted(one.name for one in snapshot.guests if one.namespace == key.namespace)
        known = f"those known there are {', '.join(others[:10])}" if others else "none is known there"
        return bad(f"no MemoryGuest {key}; {known}", "`kubectl get vmi` says whether it runs, and where")
    if not node:
        return bad(f"{key} does not run yet: it has no node", "`kubectl describe vmi` says why")
    if snapshot.is_silent(node):
        advice = f"look at the agent's pod on node {node}; if there is none, a taint wants agent.tolerations"
        return bad(f"{key} runs on node {node}, and no agent is alive there", advice)
    return unknown(f"{key} runs on node {node}, whose agent has not listed it yet", "wait a minute")


def _agent(guest: MemoryGuest, snapshot: Snapshot) -> Iterator[Step]:
    node = guest.spec.node_name
    if snapshot.heartbeats is None:
        return
    silence = snapshot.silence(node)
    if not snapshot.is_silent(node):
        yield good(f"that agent is alive, last heard {silence:.0f} s ago")
        return
    heard = "was never heard" if silence is None else f"was last heard {silence:.0f} s ago"
    yield bad(f"that agent {heard}: what follows would be old news", f"look at the agent's pod on node {node}")


_GUEST = {
    ConditionType.GUEST_AGENT_READY: "the guest's QEMU guest agent carries out commands",
    ConditionType.MODULE_AVAILABLE: "there is a module for its kernel",
    ConditionType.READY: "it can lend or borrow",
}


_NODE = {
    ConditionType.LENDER_RUNNING: "its node lender answers",
    ConditionType.READY: "it can lend",
}


def _guest(guest: MemoryGuest) -> Iterator[Step]:
    if guest.has_ended:
        yield _of(guest.ready, "its virtual machine runs")
        return
    kernel = guest.status.kernel_release
    for type_, text in (_NODE if guest.is_node else _GUEST).items():
        about = f" {kernel}" if type_ is ConditionType.MODULE_AVAILABLE and kernel else ""
        step = _of(find(guest.status.conditions, type_), text + about)
        yield step
        if step.mark != "✓":
            return
    if guest.status.module_version:
        identity = guest.status.identity or "not reported"
        yield good(f"the module is loaded, version {guest.status.module_version}; its identity: {identity}")


def _of(condition: Condition | None, text: str) -> Step:
    if condition is None:
        return unknown(f"not known yet whether {text}", "its agent has not looked at it yet")
    if condition.status is Status.TRUE:
        return good(text)
    said = f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    return (bad if condition.status is Status.FALSE else unknown)(f"not so: {text}", said)


def _pools(guest: MemoryGuest, snapshot: Snapshot) -> Iterator[Step]:
    pools = [one for one in snapshot.pools if _is_asked(one, guest)]
    chosen = [(one, roles) for one in pools if (roles := _roles(one, guest))]
    if not chosen and guest.status.role is Role.LENDER:
        yield good("a pool of another namespace borrows from it, as a MemoryGrant of this one allows")
    elif not chosen:
        yield bad(f"no pool selects it ({_labels(guest)})", "; ".join(_asked(pools)) or _NO_POOL)
        return
    for pool, roles in chosen:
        yield from _chosen(pool, roles, guest)


def _is_asked(pool: MemoryPool, guest: MemoryGuest) -> bool:
    """Whether a pool asks for guests of its namespace at all, or for nodes."""
    if guest.is_node:
        return pool.spec.lenders.nodes is not None
    return guest.namespace in (pool.namespace, *pool.spec.lenders.namespaces)


_BORROWER = "borrower"
_AUTO = "lender, borrower or neither, by its need"
_NO_POOL = "there is no MemoryPool in its namespace: write one"


def _chosen(pool: MemoryPool, roles: list[str], guest: MemoryGuest) -> Iterator[Step]:
    if len(roles) > 1:
        yield bad(f"pool {pool.name} selects it as lender and as borrower", "change the labels so that one matches")
        return
    yield good(f"pool {pool.name} selects it as {roles[0]}")
    if pool.source.class_name:
        yield good(f"what pool {pool.name} leaves out: {pool.source.note}")
    network = pool.spec.network
    if network and roles == ["lender"] and not guest.status.addresses_on(network):
        advice = "give it an interface there; `status.interfaces` of its MemoryGuest has those that are known"
        yield bad(f"it has no address on the network of pool {pool.name} ({network})", advice)
        return
    yield from _given(pool, guest)
    less = 0 if roles[0] == _BORROWER else pool.spec.left_out(guest.status)
    if less:
        yield good(f"as a lender it counts {readable(less)} less than it has, for its pod does not request that much")
    quota = find(pool.status.conditions, ConditionType.QUOTA_SUFFICIENT)
    if quota and quota.status is Status.FALSE:
        yield good(f"a quota bounds pool {pool.name}: {quota.message}")
    degraded = find(pool.status.conditions, ConditionType.DEGRADED)
    if degraded and degraded.status is Status.TRUE:
        yield bad(f"pool {pool.name} is degraded", degraded.message)


def _given(pool: MemoryPool, guest: MemoryGuest) -> Iterator[Step]:
    """The role that a pool has given to the guest for a time."""
    for one in pool.status.roles or ():
        if one.guest == guest.key.seen_from(pool.namespace):
            yield good(f"since {one.since:%Y-%m-%d %H:%M} UTC its role there is {one.role} ({one.reason})")


def _roles(pool: MemoryPool, guest: MemoryGuest) -> list[str]:
    """What a pool selects the guest as; one with role Auto sees for itself what it is to be."""
    spec = pool.spec
    if guest.is_node:
        return ["lender"] if spec.lenders.nodes and spec.lenders.nodes.matches(guest.metadata.labels) else []
    sides = (("lender", spec.lenders.selector), (_BORROWER, spec.borrowers.selector), (_AUTO, spec.selector))
    return [role for role, selector in sides if _selects(selector, guest)]


def _selects(selector: Selector | None, guest: MemoryGuest) -> bool:
    return selector is not None and selector.matches(guest.metadata.labels)


def _asked(pools: Iterable[MemoryPool]) -> Iterator[str]:
    for pool in pools:
        if pool.spec.selector is not None:
            yield f"pool {pool.name} chooses among {pool.spec.selector}"
        else:
            nodes = pool.spec.lenders.nodes
            each = [pool.spec.lenders.selector, nodes and f"nodes {nodes.selector or ''}".strip()]
            lenders = " and ".join(str(one) for one in each if one)
            yield f"pool {pool.name} lends from {lenders} to {pool.spec.borrowers.selector}"


def _labels(guest: MemoryGuest) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in sorted(guest.metadata.labels.items()))
    return f"its labels: {labels or 'none'}"


def _pairings(guest: MemoryGuest, snapshot: Snapshot) -> Iterator[Step]:
    pairings = snapshot.pairings_of(guest)
    if not pairings and guest.status.role is not Role.NONE:
        yield good("its pairings are in the namespaces of those that borrow from it")
    elif not pairings:
        yield unknown("it is in no pairing", "its pool needs no more than it has, or has not been gone over yet")
    for one in pairings:
        yield _pairing(one, guest)


def _pairing(one: MemoryPairing, guest: MemoryGuest) -> Step:
    borrows = guest.key == one.borrower
    peer = (one.lender if borrows else one.borrower).seen_from(guest.namespace)
    does = f"borrows from {peer}" if borrows else f"lends to {peer}"
    phase = one.status.phase or PairingPhase.PENDING
    ready = find(one.status.conditions, ConditionType.READY)
    said = f"{ready.reason}: {ready.message}" if ready else "the operator has not looked at it yet"
    text = f"pairing {one.name}, in which it {does}, is {phase}"
    if phase is PairingPhase.FAILED:
        return bad(text, said)
    if why := strangers(one):
        return bad(f"{text}, for the two do not know each other", why)
    if why := unstable(one):
        return bad(f"{text}: its connection does not last", why)
    if phase is not PairingPhase.CONNECTED or ready is None or ready.status is not Status.TRUE:
        return unknown(text, said)
    return good(text + _figures(one))


_DEVICES = {
    ConditionType.DEVICES_READY: "its devices are as the pool asks",
    ConditionType.SWAP_READY: "its swap is as the pool asks",
    ConditionType.APPLICATIONS_READY: "its programs have the memory that the pool gives them",
}


def _devices(guest: MemoryGuest) -> Iterator[Step]:
    """What there is beside files, if there is any."""
    for type_, text in _DEVICES.items():
        if one := find(guest.status.conditions, type_):
            yield good(f"{text}: {one.message}") if one.status is Status.TRUE else _of(one, text)


def strangers(one: MemoryPairing) -> str:
    """Why two guests that should know each other by now do not; empty if they do, or may need a moment more."""
    exchange = find(one.status.conditions, ConditionType.IDENTITIES_EXCHANGED)
    return exchange.message if exchange and exchange.reason == Reason.OVERDUE else ""


def unstable(one: MemoryPairing) -> str:
    """Why a connection that is there at a look is lost between looks.

    Empty if it lasts, is not to be there, or nobody has looked of late.
    """
    ready = find(one.status.conditions, ConditionType.READY)
    if ready is not None and ready.reason == Reason.AGENT_NOT_RESPONDING:
        return ""
    phase = one.status.phase
    if phase is None or not (phase.has_pages or phase is PairingPhase.CONNECTING) or one.status.borrower is None:
        return ""
    configured = find(one.status.borrower.conditions, ConditionType.CONFIGURED)
    if configured is None or configured.reason != Reason.CONNECTION_UNSTABLE:
        return ""
    return f"{configured.message}; see TidepoolPairingFlapping"


def _figures(one: MemoryPairing) -> str:
    borrower = one.status.borrower
    if borrower is None or borrower.hit_ratio is None:
        return f"; nothing was read back yet (port {one.spec.lender.port or names.DEFAULT_PORT})"
    return f"; {float(borrower.hit_ratio):.0%} of the reads of its pages came from there"
