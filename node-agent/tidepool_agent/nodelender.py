"""The node itself as a lender: what its daemon is told, and what is said of it as a MemoryGuest. Pure.

The daemon (node-lender/) keeps pages and knows no cluster. It is told who may borrow how much in a file, and answers
`state` with what there is. What is reported of its ends of pairings is what is reported of a guest's, by `report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidepool_agent import answers, needs, report
from tidepool_agent.addresses import reachable
from tidepool_agent.errors import ConfigureFailed, GuestError, Nonsense, Unreachable
from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.plan import Key, Want
from tidepool_agent.provider import Machine
from tidepool_agent.report import Finding
from tidepool_api import (
    Condition,
    ConditionType,
    GuestSpec,
    GuestStatus,
    MemoryGuest,
    NodeTerms,
    Provider,
    VirtualMachine,
    condition,
    is_identity,
    merge,
    names,
    printable,
    without,
)
from tidepool_api.base import ObjectMeta, OwnerReference
from tidepool_api.defaults import MOST_BORROWERS
from tidepool_api.fields import LEAST_MEMORY, MOST_BYTES, readable, total
from tidepool_api.units import parse_quantity

COMPONENT = "node-lender"
FOLDER = ("run", "tidepool")  # of its container, where it is told and asked
CONFIG, CONTROL = "node-lender.toml", "control.sock"
UNFIT = frozenset({"NodeHasSwap", "LimitBelowMaxLend", "NoLimit"})  # what a node lender says that its node lacks
LEAST = parse_quantity(LEAST_MEMORY)
# Of a limit that is below what the chart lets it lend, the daemon needs such a part for itself.
OWN_PART = 16

_NAME = re.compile(r"[A-Za-z0-9-]{1,63}")  # of a pairing: its UID
_MEMORY = re.compile(r"(MemTotal|MemAvailable):\s+([0-9]{1,13}) kB")
# What the daemon says of a borrower for which pages are kept while it has no connection is no state of a pairing.
_STATES = {"Lingering": "Listening"}


@dataclass(frozen=True)
class Terms:
    """What the chart lets each node lend; sizes in bytes."""

    max_lend: int
    reserve: int
    port: int = names.DEFAULT_PORT
    metrics_port: int = names.NODE_LENDER_METRICS_PORT


@dataclass(frozen=True)
class Place:
    """Where the daemon of this node runs: its container, or why it runs in none."""

    container: str = ""
    addresses: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class Node:
    """What matters of the node."""

    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    drained: bool = False
    """Whether it takes no new pods: whoever drains it wants nothing new on it."""


@dataclass(frozen=True)
class Memory:
    """The node's memory, and what else its kernel says of itself; sizes in bytes."""

    total: int
    available: int
    release: str = ""
    boot_id: str = ""
    gathered: int = 0
    """What balloons of guests hold for it: part of what is available."""


@dataclass(frozen=True)
class State:
    """What the daemon says of itself."""

    identity: str
    limit: int | None = None
    """Bytes of memory that its cgroup lets it have; None if that has no limit."""
    spare: bool = True
    conditions: tuple[tuple[str, str], ...] = ()
    borrowers: Mapping[str, Peer] = field(default_factory=dict)


class NotRunning(Unreachable):
    """The daemon is not there, or does not answer."""


class NothingToLend(GuestError):
    """The node has not what the chart says that it should keep."""

    reason = "ReserveTooLarge"


# ------------------------------------------------------------------------------------------------- what is there


def meminfo(text: str) -> tuple[int, int]:
    """All memory and what is available of it, in bytes, as /proc/meminfo has it; pages that are lent are available."""
    found = {name: int(size) * 1024 for name, size in _MEMORY.findall(text)}
    return found.get("MemTotal", 0), found.get("MemAvailable", 0)


def place(pods: Iterable[Mapping[str, Any]], namespace: str, node: str) -> Place:
    """Where the daemon runs, by the pods of this node that are called so; others' namespaces have none."""
    there = [one for one in pods if one["metadata"].get("namespace") == namespace]
    there.sort(key=lambda one: "deletionTimestamp" in one["metadata"])
    if not there:
        advice = f"kubectl -n {namespace} describe daemonset -l app.kubernetes.io/component={COMPONENT}"
        return Place(trouble=f"no pod of the node lender is on node {node}: {advice}")
    name, status = there[0]["metadata"]["name"], there[0].get("status", {})
    addresses = tuple(str(one["ip"]) for one in status.get("podIPs", []))
    for one in status.get("containerStatuses", []):
        if one["name"] == COMPONENT and "running" in one.get("state", {}):
            missing = "" if addresses else f"pod {name} of the node lender has no IP address yet"
            return Place(str(one.get("containerID", "")).rpartition("/")[2], addresses, missing)
    why = printable(_waiting(status)[:256])
    return Place(trouble=f"pod {name} of the node lender does not run{why}: kubectl -n {namespace} logs {name}")


def _waiting(status: Mapping[str, Any]) -> str:
    states = [one.get("state", {}) for one in status.get("containerStatuses", []) if one["name"] == COMPONENT]
    found = [one for state in states for one in state.values() if "reason" in one]
    return "".join(f" ({one['reason']}{': ' if one.get('message') else ''}{one.get('message', '')})" for one in found)


def parse(text: str) -> State:
    """What the daemon has answered; raises Nonsense where that is not what it says."""
    try:
        said: Any = answers.document(text)
        identity = said["identity"]
        conditions = tuple((str(one["reason"]), str(one["message"])) for one in said["conditions"])
        borrowers = {str(one["name"]): _peer(one) for one in said["borrowers"]}
        limit = None if said.get("limit_bytes") is None else min(int(said["limit_bytes"]), MOST_BYTES)
    except (ValueError, TypeError, KeyError) as error:
        raise Nonsense(f"the node lender's state is not what it says: {error!r}") from None
    if not isinstance(identity, str) or not is_identity(identity):
        raise Nonsense("the node lender's identity is none")
    return State(identity, limit, bool(said.get("spare", True)), conditions, borrowers)


def _peer(said: Mapping[str, Any]) -> Peer:
    """A borrower, in the words in which a guest's module speaks of one."""
    state = str(said["state"])
    attributes = {"state": _STATES.get(state, state), "enabled": "0" if state == "Disabled" else "1"}
    counts = {"lent_pages": "lent_pages", "granted_bytes": "granted_bytes", "reclaimed": "reclaimed"}
    stats = {name: min(int(said[told]), MOST_BYTES) for name, told in counts.items()}
    return Peer(attributes | {"identity": str(said["identity"])}, stats)


# ---------------------------------------------------------------------------------------- what the daemon is told


def most(terms: Terms, total_bytes: int) -> int:
    """What this node may lend at most; raises NothingToLend where that is nothing."""
    left = total_bytes - terms.reserve
    if left < LEAST:
        raise NothingToLend(
            f"nodeLender.reserve, the chart's value, is {readable(terms.reserve)}, and the node has "
            f"{readable(total_bytes)}: lower it, or keep the node lender off such nodes by nodeLender.nodeSelector"
        )
    return min(terms.max_lend, left)


def config(terms: Terms, total_bytes: int, wants: Sequence[Want], addresses: Sequence[str], *, hold: bool) -> str:
    """The daemon's file. What is in it was checked: nothing in it is anybody else's text."""
    host = "[::]" if any(":" in one for one in addresses) else "0.0.0.0"
    lines = [
        "# Written by Tidepool's agent, and by nobody else.",
        f'listen = "{host}:{terms.port}"',
        f'metrics = "{host}:{terms.metrics_port}"',
        f'control = "{CONTROL}"',  # beside the file: the daemon runs in that folder
        f"max_lend = {most(terms, total_bytes)}",
        f"reserve = {terms.reserve}",
        f"hold = {str(hold).lower()}",
    ]
    left_out = unfit(wants)
    for want in wants:
        if want.is_known and want.key not in left_out:
            identity, quota = want.attributes["identity"], int(want.attributes["quota_bytes"])
            lines += ["", f'[borrowers."{want.name}"]', f'identity = "{identity}"', f"quota = {quota}"]
    return "\n".join(lines) + "\n"


def unfit(wants: Sequence[Want]) -> dict[Key, GuestError]:
    """The borrowers that cannot be told of, each with why."""
    found: dict[Key, GuestError] = {}
    seen: set[str] = set()
    for want in wants:
        identity = want.attributes.get("identity", "")
        if not want.is_known:
            continue
        if not (_NAME.fullmatch(want.name) and is_identity(identity)):
            found[want.key] = ConfigureFailed("the pairing's UID or its borrower's identity is not of their form")
        elif identity in seen:
            found[want.key] = ConfigureFailed("another borrower has its identity; that guest was copied: reboot it")
        elif len(seen) == MOST_BORROWERS:
            found[want.key] = ConfigureFailed(
                f"a node lends to {MOST_BORROWERS} borrowers at most, and this is one more: let others lend, too"
            )
        else:
            seen.add(identity)
    return found


# ------------------------------------------------------------------------------------------------- what is reported


def machine(namespace: str, name: str, node: Node, addresses: tuple[str, ...]) -> Machine:
    """The node as what pairings name."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
    return Machine(
        provider=Provider.NODE,
        namespace=namespace,
        name=name,
        uid=node.uid,
        domain="",
        place="",
        addresses=addresses,
        labels=node.labels,
        owner=owner,
    )


def observation(state: State, memory: Memory) -> Observation:
    """The daemon and its node, as a guest's module and its guest are seen."""
    return Observation(
        boot_id=memory.boot_id,
        release=memory.release,
        total_bytes=memory.total,
        available_bytes=memory.available,
        module=Module(version="", srcversion="", identity=state.identity),
        peers={(Side.BORROWERS, name): peer for name, peer in state.borrowers.items()},
    )


def guest(
    one: Machine,
    terms: Terms,
    memory: Memory,
    found: Finding,
    state: State | None,
    wants: tuple[Want, ...],
    before: GuestStatus | None,
) -> MemoryGuest:
    """The MemoryGuest of the node; `before` is the status that it has now."""
    return MemoryGuest(
        metadata=ObjectMeta(
            name=one.name,
            namespace=one.namespace,
            labels=dict(one.labels),
            owner_references=(OwnerReference.model_validate(one.owner),),
        ),
        spec=GuestSpec(provider=one.provider, vm=VirtualMachine(name=one.name, uid=one.uid), node_name=one.name),
        status=_status(one, terms, memory, found, state, wants, before or GuestStatus()),
    )


def _status(
    one: Machine,
    terms: Terms,
    memory: Memory,
    found: Finding,
    state: State | None,
    wants: tuple[Want, ...],
    before: GuestStatus,
) -> GuestStatus:
    known = {
        "addresses": reachable(one.addresses) or before.addresses,
        "node": _terms(terms, memory, state, wants, before.node),
        "role": report.role(wants),
        "conditions": _conditions(one, found, state, before),
    }
    if found.seen is None or state is None:
        return before.model_copy(update=known | report.still_shared(one, wants, before))
    lent = total(map(report.lent, found.seen.side(Side.BORROWERS).values()))
    return GuestStatus(
        **known,
        **report.shared(one, found.seen, wants, before),
        kernel_release=memory.release or None,
        boot_id=memory.boot_id or None,
        identity=state.identity,
        memory=needs.memory(found.seen, before.memory, lent=lent, borrowed=0),
        observed_at=before.observed_at,
    )


def _terms(
    terms: Terms, memory: Memory, state: State | None, wants: Sequence[Want], before: NodeTerms | None
) -> NodeTerms:
    left = max(0, memory.total - terms.reserve)
    if state is None:
        left = min(left, before.max_lend_bytes if before else left)
    elif state.limit is not None and state.limit < terms.max_lend:
        left = min(left, state.limit - state.limit // OWN_PART)
    gathered = needs.settled(memory.gathered, before.gathered_bytes if before else None)
    return NodeTerms(
        max_lend_bytes=min(terms.max_lend, left),
        reserve_bytes=terms.reserve,
        port=terms.port,
        gathered_bytes=gathered or None,
        borrowers=len(wants) or None,
    )


def _conditions(one: Machine, found: Finding, state: State | None, before: GuestStatus) -> tuple[Condition, ...]:
    running = _running(found)
    parts = [running, *_fit(state), _ready(one, running)]
    return merge(without(before.conditions, ConditionType.LENDING_PAIRED), *parts)


def _running(found: Finding) -> Condition:
    why = found.unreachable or found.refused
    if why:
        return condition(ConditionType.LENDER_RUNNING, False, why.reason, str(why))
    return condition(ConditionType.LENDER_RUNNING, True, "Answering")


def _fit(state: State | None) -> list[Condition]:
    """What the daemon says that its administrator should know; nothing while it says nothing."""
    if state is None:
        return []
    if not state.conditions:
        return [condition(ConditionType.LENDER_FIT, True, "Fit")]
    reason, _ = state.conditions[0]
    message = printable("; ".join(message for _, message in state.conditions))
    return [condition(ConditionType.LENDER_FIT, False, reason if reason in UNFIT else "NotFit", message)]


def _ready(one: Machine, running: Condition) -> Condition:
    kind = ConditionType.READY
    if running.status != "True":
        return condition(kind, False, running.reason, running.message)
    if not reachable(one.addresses):
        return condition(kind, False, "NoAddress", "the pod of the node lender has no IP address yet")
    return condition(kind, True, "Ready")
