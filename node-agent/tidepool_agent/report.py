"""What the agent says about a guest and about its ends of pairings: pure, from what was found to API objects.

A status is written when something changes that a person or the planner acts on. Amounts of memory are rounded, and
when nothing but figures has moved the last status stands until it is old enough (see `worth_writing`), which takes
longer in a large cluster and for a guest without a pairing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from tidepool_agent import applicationreport, backing, balloonreport, devicereport, needs
from tidepool_agent.addresses import distinct, reachable
from tidepool_agent.devicereport import Standing
from tidepool_agent.errors import Frozen, GuestError
from tidepool_agent.guestfs import PAGE, Observation, Peer, Side
from tidepool_agent.losses import Reach
from tidepool_agent.needs import Rates, rounded, settled
from tidepool_agent.plan import Key, Source, Want
from tidepool_agent.provider import Machine
from tidepool_api import (
    ApiModel,
    BorrowerState,
    BorrowerStatus,
    Condition,
    ConditionType,
    GuestMemory,
    GuestPeer,
    GuestSpec,
    GuestStatus,
    Interface,
    LenderState,
    LenderStatus,
    MemoryGuest,
    Reason,
    Role,
    VirtualMachine,
    cadence,
    condition,
    format_ratio,
    merge,
    names,
    printable,
    without,
)
from tidepool_api.base import ObjectMeta, OwnerReference
from tidepool_api.fields import MOST_COUNT, readable, total
from tidepool_api.guest import MOST_PEERS

NAMED_AT_MOST = 5  # directories in one message
FIGURES = frozenset(
    {"memory", "pressure", "curve", "curveReferences", "missesPerSecond", "lentBytes", "usedBytes", "hitRatio"}
    | {"peers", "morePeers", "devices", "swap", "applications", "gatheredBytes", "gathered"}
)
# Written along with others, never on their own:
RESTLESS = frozenset(
    {"observedAt", "hits", "misses", "puts", "lost", "pageHits", "values", "pools", "opened"}
    | {"localHits", "frontBytes", "diskReads"}
)


@dataclass(frozen=True)
class Finding:
    """What is known about a guest after a look at it."""

    seen: Observation | None = None
    """The last state that was seen; kept while the guest does not answer."""
    rates: Rates = field(default_factory=Rates)
    """What goes on in it each second."""
    unreachable: GuestError | None = None
    """Why no command can be given now."""
    source: Source = Source.STORE
    """Where the module for its kernel comes from, if there is one."""
    unavailable: GuestError | None = None
    """Why there is no module that the guest's kernel would take."""
    refused: GuestError | None = None
    """Why the guest's kernel refused the module."""
    rejected: GuestError | None = None
    """Why another build of the module is not used."""
    rebooted: bool = False
    """Whether it has rebooted and is not set up again yet."""
    failed: Mapping[tuple[Side, str], GuestError] = field(default_factory=dict)
    """Why a peer could not be set up."""
    left_alone: bool = False
    """Whether nothing of ours is in it, and no command is given to it; `unreachable` says why."""
    paired: frozenset[str] = frozenset()
    """The directories of peers that its pairings account for."""
    losing: Mapping[Key, Reach | None] = field(default_factory=dict)
    """The lenders that are lost again and again, each with how large a packet gets there, if that is known."""
    block: Standing = field(default_factory=Standing)
    """How far it is with its block devices."""
    programs: applicationreport.Standing = field(default_factory=applicationreport.Standing)
    """How far it is with the memory of its programs."""
    balloon: balloonreport.Standing | None = None
    """How far it is with its balloon; None where that is not known, or there is nothing to say of it."""


# ---------------------------------------------------------------------------------------------------------- MemoryGuest


def guest(
    machine: Machine, node: str, found: Finding, wants: tuple[Want, ...], before: GuestStatus | None
) -> MemoryGuest:
    """The MemoryGuest of a machine; `before` is the status it has now."""
    owners = (OwnerReference.model_validate(machine.owner),) if machine.owner else ()
    return MemoryGuest(
        metadata=ObjectMeta(
            name=machine.name, namespace=machine.namespace, labels=dict(machine.labels), owner_references=owners
        ),
        spec=GuestSpec(
            provider=machine.provider,
            vm=VirtualMachine(name=machine.title or machine.name, uid=machine.uid),
            node_name=node,
        ),
        status=balloonreport.shown(
            _status(machine, found, wants, before or GuestStatus()), found.balloon, before or GuestStatus()
        ),
    )


def ended(present: MemoryGuest, words: str) -> MemoryGuest:
    """A MemoryGuest whose machine has ended: nothing that was true of it is any more."""
    ready = condition(ConditionType.READY, False, Reason.ENDED, words)
    conditions = merge([one for one in present.status.conditions if one.type == ready.type], ready)
    return present.model_copy(update={"status": GuestStatus(conditions=conditions)})


def head(guest: MemoryGuest) -> tuple[object, ...]:
    """What a MemoryGuest says beside its status."""
    meta = guest.metadata
    return guest.spec, meta.labels, meta.owner_references, names.LEAVING_ANNOTATION in meta.annotations


def _status(machine: Machine, found: Finding, wants: tuple[Want, ...], before: GuestStatus) -> GuestStatus:
    seen = found.seen
    if found.left_alone:
        gone = (ConditionType.MEMORY_BACKED, *devicereport.KINDS, applicationreport.KIND)
        conditions = merge(without(before.conditions, *gone), *_conditions(machine, found))
        return GuestStatus(**_reached(machine), conditions=conditions, observed_at=before.observed_at)
    if seen is None:  # an agent that has just started and a guest that is silent: what is known still is
        changes = {
            **_reached(machine, before.interfaces),
            "role": role(wants),
            **still_shared(machine, wants, before),
        }
        return before.model_copy(
            update=changes | {"conditions": merge(before.conditions, *_conditions(machine, found))}
        )
    curve, references = needs.curve(seen, before)
    return GuestStatus(
        **_reached(machine, seen.interfaces),
        kernel_release=seen.release,
        boot_id=seen.boot_id,
        module_version=seen.module.version if seen.module else None,
        identity=seen.module.identity if seen.module else None,
        memory=_memory(seen, before),
        backing=backing.described(machine.request_bytes, seen.host),
        pressure=needs.pressure(seen, found.rates, before.pressure),
        curve=curve,
        curve_references=references,
        misses_per_second=needs.rate(found.rates.misses, before.misses_per_second),
        role=role(wants),
        **shared(machine, seen, wants, before),
        **devicereport.described(seen, found.block.wanted, before),
        applications=applicationreport.described(seen.app, before.applications),
        conditions=_renewed(before, machine, found, seen),
        observed_at=before.observed_at,
    )


def _renewed(before: GuestStatus, machine: Machine, found: Finding, seen: Observation) -> tuple[Condition, ...]:
    """The conditions, those of devices and of programs' memory among them only while there are some."""
    passing = [
        *devicereport.conditions(seen, found.block, before),
        *applicationreport.conditions(seen.app, found.programs),
    ]
    over = {*devicereport.KINDS, applicationreport.KIND} - {one.type for one in passing}
    return merge(without(before.conditions, *over), *_conditions(machine, found), *passing)


def _reached(machine: Machine, said: tuple[Interface, ...] = ()) -> dict[str, Any]:
    """Where others reach it, by what its provider knows, else by what the guest itself has `said`; if it is leaving."""
    addresses = reachable(machine.addresses) or reachable(_all_of(said))
    interfaces = distinct((*machine.interfaces, *said))
    return {"addresses": addresses, "interfaces": interfaces, "migrating": machine.migrating or None}


def _all_of(interfaces: tuple[Interface, ...]) -> Iterator[str]:
    return (address for one in interfaces for address in one.addresses)


def role(wants: tuple[Want, ...]) -> Role:
    """What a guest does by its pairings."""
    if any(want.side is Side.BORROWERS for want in wants):
        return Role.LENDER
    return Role.BORROWER if wants else Role.NONE


class PeerName(NamedTuple):
    """What tells an entry of a status' peers from others."""

    namespace: str
    guest: str | None
    role: Role

    @classmethod
    def of(cls, one: GuestPeer) -> PeerName:
        """The name of an entry that there is."""
        return cls(one.namespace, one.guest, one.role)


def _named(machine: Machine, want: Want) -> PeerName:
    """The other end of a pairing, as the status names it.

    A pairing is in its borrower's namespace. Who may read it there knows both ends; who may read its lender in another
    namespace does not, so that such borrowers are one entry without a name.
    """
    lends = want.side is Side.BORROWERS
    other = want.pairing.borrower if lends else want.pairing.lender
    name = other.name if want.pairing.namespace == machine.namespace else None
    return PeerName(other.namespace, name, Role.BORROWER if lends else Role.LENDER)


def still_shared(machine: Machine, wants: tuple[Want, ...], before: GuestStatus) -> dict[str, Any]:
    """With whom it shared memory when it was last heard of, and is to share it."""
    present = {_named(machine, want) for want in wants}
    left = tuple(one for one in before.peers if PeerName.of(one) in present)
    return {"peers": left, "more_peers": before.more_peers if left else None}


def shared(machine: Machine, seen: Observation, wants: tuple[Want, ...], before: GuestStatus) -> dict[str, Any]:
    """With whom it shares memory, as the status has it."""
    held = Counter[PeerName]()
    for want in wants:
        peer = seen.peers.get(want.key)
        lends = want.side is Side.BORROWERS
        held[_named(machine, want)] += 0 if peer is None else lent(peer) if lends else used(peer)
    old = {PeerName.of(one): one.held_bytes for one in before.peers}
    peers = [
        GuestPeer(**name._asdict(), held_bytes=settled(total((size,)), old.get(name))) for name, size in held.items()
    ]
    peers.sort(key=lambda one: (-one.held_bytes, one.role, one.namespace, one.guest or ""))
    return {"peers": tuple(peers[:MOST_PEERS]), "more_peers": len(peers[MOST_PEERS:]) or None}


def _memory(seen: Observation, before: GuestStatus) -> GuestMemory:
    borrowers, lenders = seen.side(Side.BORROWERS).values(), seen.side(Side.LENDERS).values()
    return needs.memory(seen, before.memory, lent=total(map(lent, borrowers)), borrowed=total(map(used, lenders)))


def _conditions(machine: Machine, found: Finding) -> list[Condition]:
    if found.seen is None and isinstance(found.unreachable, Frozen):
        return [_agent_ready(found)]  # an agent that has just started: what the one before it said still holds
    parts = [_agent_ready(found), _module_available(found), _module_loaded(found)]
    return [*parts, _ready(machine, found, parts), *_lending_paired(found), *_memory_backed(machine, found)]


def _agent_ready(found: Finding) -> Condition:
    """A guest agent that a backup has frozen is there, and the guest lends and borrows as before."""
    if isinstance(found.unreachable, Frozen):
        return condition(ConditionType.GUEST_AGENT_READY, True, found.unreachable.reason, str(found.unreachable))
    if found.unreachable:
        status = None if found.left_alone else False
        return condition(ConditionType.GUEST_AGENT_READY, status, found.unreachable.reason, str(found.unreachable))
    return condition(ConditionType.GUEST_AGENT_READY, True, "Answering")


_AVAILABLE = {Source.INSTALLED: "InstalledInGuest", Source.STORE: "InStore", Source.DKMS: "CanBeBuilt"}


def _module_available(found: Finding) -> Condition:
    kind = ConditionType.MODULE_AVAILABLE
    if found.left_alone and found.unreachable:
        return condition(kind, None, found.unreachable.reason, str(found.unreachable))
    if found.seen is None:
        return condition(kind, None, "KernelUnknown", "the guest has not answered yet, so its kernel is not known")
    if found.unavailable:
        return condition(kind, False, found.unavailable.reason, str(found.unavailable))
    return condition(kind, True, _AVAILABLE[found.source])


def _module_loaded(found: Finding) -> Condition:
    kind = ConditionType.MODULE_LOADED
    loaded = found.seen is not None and found.seen.module is not None
    if found.refused:
        return condition(kind, loaded, found.refused.reason, str(found.refused))
    if found.seen and found.seen.module and found.rejected:
        return condition(kind, True, found.rejected.reason, f"{found.seen.module.srcversion} stays: {found.rejected}")
    if found.seen and found.seen.module:
        return condition(kind, True, "Loaded", f"version {found.seen.module.version}, {found.seen.module.srcversion}")
    return condition(kind, False, "NotNeeded", "it is loaded while a pairing wants it")


def _lending_paired(found: Finding) -> list[Condition]:
    """Whether every borrower in the module has its pairing; nothing while that is not known."""
    kind = ConditionType.LENDING_PAIRED
    if found.seen is None and not found.left_alone:
        return []
    borrowers = found.seen.side(Side.BORROWERS) if found.seen else {}
    strays = {name: lent(peer) for name, peer in borrowers.items() if name not in found.paired}
    if not strays:
        return [condition(kind, True, "Paired")]
    shown = ", ".join(sorted(strays)[:NAMED_AT_MOST]) + (", …" if len(strays) > NAMED_AT_MOST else "")
    size = readable(total(strays.values()))
    message = f"it holds {size} for borrowers that no MemoryPairing names: tidepool/borrowers/ has {shown}"
    return [condition(kind, False, "WithoutPairing", message)]


def _memory_backed(machine: Machine, found: Finding) -> list[Condition]:
    """Whether the host has promised all of the guest's memory to it; nothing while that is not known."""
    kind, request = ConditionType.MEMORY_BACKED, machine.request_bytes
    host = found.seen.host if found.seen else None
    if host is None:
        return []
    if host.huge_pages:
        return [condition(kind, True, "HugePages")]
    if request is None:
        message = "no pod requests memory for it: whether the host has it all is not known, and not looked at"
        return [condition(kind, None, "NoRequest", message)]
    if not (less := backing.overcommitted(request, host)):
        return [condition(kind, True, "Requested")]
    message = (
        f"it has {readable(host.size_bytes)}, and its pod requests {readable(request)}, "
        f"{readable(backing.LAUNCHER_BYTES)} of that for virt-launcher: {readable(less)} are not lent, "
        f"unless a pool has spec.lenders.overcommitted: Lend"
    )
    return [condition(kind, False, "Overcommitted", message)]


def _ready(machine: Machine, found: Finding, parts: list[Condition]) -> Condition:
    """Whether the guest can lend or borrow: the first thing that is in the way, or none."""
    kind = ConditionType.READY
    if found.rebooted and not found.unreachable:
        return condition(kind, False, "GuestRebooted", "the guest has rebooted and is being set up again")
    if found.refused and not found.unreachable and not (found.seen and found.seen.module):
        return condition(kind, False, found.refused.reason, str(found.refused))
    for part in parts[:2]:
        if part.status != "True":
            return condition(kind, False, part.reason, part.message)
    if not reachable((*machine.addresses, *_all_of(found.seen.interfaces if found.seen else ()))):
        return condition(kind, False, "NoAddress", _no_address(machine))
    return condition(kind, True, "Ready")


def _no_address(machine: Machine) -> str:
    useless = printable(", ".join(machine.addresses)[:256])
    left_out = f"; of no use to them: {useless}" if useless else ""
    return f"the virtual machine has no IP address that others could reach yet{left_out}"


# ------------------------------------------------------------------------------------------------------------- pairings


def end(want: Want, found: Finding) -> LenderStatus | BorrowerStatus:
    """This guest's end of a pairing."""
    status = want.pairing.status
    lends = want.side is Side.BORROWERS
    before = (status.lender or LenderStatus()) if lends else (status.borrower or BorrowerStatus())
    if found.left_alone:
        before = type(before).model_validate({"state": "Failed", "conditions": before.conditions})
    if found.seen is None:
        return before.model_copy(update={"conditions": merge(before.conditions, _end_condition(want, found, None))})
    return _lender_end(want, found, before) if isinstance(before, LenderStatus) else _borrower_end(want, found, before)


def _lender_end(want: Want, found: Finding, before: LenderStatus) -> LenderStatus:
    peer = _peer(want, found)
    return LenderStatus(
        boot_id=found.seen.boot_id if found.seen else None,
        state=LenderState(_state(want, found, peer, before.state, LenderState)),
        lent_bytes=rounded(lent(peer)) if peer else None,
        observed_generation=want.pairing.metadata.generation
        if _configured(want, found, peer)
        else before.observed_generation,
        peer_identity=peer.identity if peer else None,
        conditions=merge(before.conditions, _end_condition(want, found, peer)),
    )


def _borrower_end(want: Want, found: Finding, before: BorrowerStatus) -> BorrowerStatus:
    peer = _peer(want, found)
    stats = peer.stats if peer else {}
    hits, misses = stats.get("get_hits", 0), missed(stats)
    return BorrowerStatus(
        boot_id=found.seen.boot_id if found.seen else None,
        state=BorrowerState(_state(want, found, peer, before.state, BorrowerState)),
        reason=peer.reason if peer else None,
        used_bytes=rounded(used(peer)) if peer else None,
        hits=hits if peer else None,
        misses=misses if peer else None,
        hit_ratio=format_ratio(hits, hits + misses),
        observed_generation=want.pairing.metadata.generation
        if _configured(want, found, peer)
        else before.observed_generation,
        peer_identity=peer.identity if peer else None,
        conditions=merge(before.conditions, _end_condition(want, found, peer)),
    )


def _peer(want: Want, found: Finding) -> Peer | None:
    return found.seen.peers.get(want.key) if found.seen else None


def _configured(want: Want, found: Finding, peer: Peer | None) -> bool:
    return peer is not None and peer.enabled and not found.unreachable and want.key not in found.failed


def _state(want: Want, found: Finding, peer: Peer | None, before: str, known: type[LenderState | BorrowerState]) -> str:
    """The module's own word where there is one; while the guest does not answer, the last one."""
    if found.unreachable:
        return before
    if want.key in found.failed or found.refused or found.unavailable:
        return "Failed"
    return peer.state if peer and peer.state in set(known) else "Pending"


def _end_condition(want: Want, found: Finding, peer: Peer | None) -> Condition:
    kind, generation = ConditionType.CONFIGURED, want.pairing.metadata.generation
    if found.unreachable:
        status, reason, message = None, found.unreachable.reason, str(found.unreachable)
    elif found.rebooted:
        status, reason, message = False, "GuestRebooted", "the guest has rebooted and is being set up again"
    elif found.unavailable:
        status, reason, message = False, found.unavailable.reason, str(found.unavailable)
    elif found.refused:
        status, reason, message = False, found.refused.reason, str(found.refused)
    elif want.key in found.failed:
        status, reason, message = False, found.failed[want.key].reason, str(found.failed[want.key])
    elif not want.is_known:
        status, reason, message = False, "PeerUnknown", _stranger(want)
    elif _configured(want, found, peer):
        status, reason, message = True, *(_unstable(want, found) if want.key in found.losing else ("Configured", ""))
    else:
        status, reason, message = False, "Configuring", "the guest is being set up"
    return condition(kind, status, reason, message, observed_generation=generation)


def _unstable(want: Want, found: Finding) -> tuple[str, str]:
    """Reason and message where a connection does not last, as far as packets of several sizes have told why."""
    reach = found.losing[want.key]
    place = printable(reach.address) if reach else ""
    if reach is None:
        why = ", as where large packets are dropped on the way (MTU)"
    elif reach.passes < reach.most:
        why = (
            f": packets of more than {reach.passes} bytes do not get to {place}, and the guest's network card "
            f"sends up to {reach.most}; give the guests' network an MTU of {reach.passes}"
        )
    else:
        why = f", though packets of {reach.most} bytes, the largest of the guest's network card, get to {place}"
    return Reason.CONNECTION_UNSTABLE, f"the connection to the lender is lost again and again{why}"


def _stranger(want: Want) -> str:
    spec = want.pairing.spec
    peer = spec.borrower if want.side is Side.BORROWERS else spec.lender
    if peer.identity:
        return f"none of the addresses of {peer.guest} means anything to others: {spec.lender.place}"
    return f"the identity of {peer.guest} is not known yet: the agent of node {peer.node_name} reports it"


# -------------------------------------------------------------------------------------------------------------- figures


def lent(peer: Peer) -> int:
    """Bytes that a lender holds for this borrower."""
    return total((peer.stats.get("lent_pages", 0) * PAGE,))


def used(peer: Peer) -> int:
    """Bytes that a borrower believes this lender to hold."""
    return total((peer.stats.get("catalog_pages", 0) * PAGE,))


_MISSED = ("misses", "late", "errors", "corrupt", "incomplete", "unasked", "skipped", "skipped_sequential")


def missed(stats: Mapping[str, int]) -> int:
    """Reads of pages that the lender was believed to have, and that went to the disk after all; see ABI.md."""
    return min(sum(stats.get(f"get_{reason}", 0) for reason in _MISSED), MOST_COUNT)


def guest_wait(wants: tuple[Want, ...], wait: timedelta) -> timedelta:
    """How long the figures of a guest wait where those of a pairing wait so long."""
    return wait if wants else max(wait, timedelta(seconds=cadence.IDLE_SECONDS))


def worth_writing(fresh: ApiModel, present: ApiModel | None, since: timedelta, wait: timedelta) -> bool:
    """Whether a status should be written: at once for what matters, for mere figures only after a wait.

    `since` is the time since it was written last.
    """
    if present is None:
        return True
    new, old = fresh.to_dict(), present.to_dict()
    if _without(FIGURES | RESTLESS, new) != _without(FIGURES | RESTLESS, old):
        return True
    if isinstance(fresh, GuestStatus) and isinstance(present, GuestStatus) and _severe(fresh) != _severe(present):
        return True
    return since >= wait and _without(RESTLESS, new) != _without(RESTLESS, old)


def _severe(status: GuestStatus) -> bool:
    return status.pressure is not None and status.pressure.is_severe


def _without(names: frozenset[str], status: dict[str, Any]) -> dict[str, Any]:
    """What a status says beside some fields, which those of its devices have, too."""
    return {name: _pruned(names, value) for name, value in status.items() if name not in names}


def _pruned(names: frozenset[str], value: Any) -> Any:
    if isinstance(value, dict):
        return _without(names, value)
    return [_pruned(names, one) for one in value] if isinstance(value, list) else value
