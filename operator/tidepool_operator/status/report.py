"""What follows for the user: phases, conditions and figures, derived from what the agents report. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidepool_api import (
    BorrowerState,
    Condition,
    ConditionType,
    HitShares,
    LenderState,
    MemoryPairing,
    PairingPhase,
    PairingStatus,
    PoolPhase,
    PoolStatus,
    Reason,
    Status,
    condition,
    find,
    format_ratio,
    merge,
    to_mib,
    without,
)
from tidepool_api.fields import total
from tidepool_api.names import DRY_RUN_ANNOTATION
from tidepool_operator.planning import identities
from tidepool_operator.planning.selection import Problem, ProblemReason

if TYPE_CHECKING:
    from tidepool_api import ApiObject, GuestStatus, MemoryPool, Ref
    from tidepool_operator.planning.planner import Plan

AS_EXPECTED = "AsExpected"
NAMED_AT_MOST = 5  # pairings, or guests, in one message
REFUSALS_AT_MOST = 3  # in one message
REFUSED = "RefusedByApiServer"
# A lender refuses a borrower also while one of the two has just been loaded anew or been given the other's identity.
REJECTED_AFTER = timedelta(seconds=15)
# A path, or an agent, that takes longer than this will not come by itself.
WAITING_AFTER = timedelta(minutes=5)
# What is wrong where the borrower's module says one of these words (kernel-module/ABI.md), as said of the lender.
_REFUSALS = {
    "NotALender": "{place} is somebody's who does not lend: two guests may have that address",
    "VersionMismatch": "it speaks another version of the protocol: both guests need the module of one version",
    "OtherIdentity": "{place} is a lender with another identity: two guests may have that address",
    "UnknownIdentity": "it does not know the borrower's identity; see status.lender, and whether its agent runs",
    "Disabled": "it does not lend to the borrower now; see status.lender",
    "Full": "it has no room for another connection; fewer borrowers of one lender may help",
    "BadLimits": "one of the two allows nothing, or too much, at once: both guests need the module of one version",
}
REJECTED = "HandshakeRejected"  # where the module has no word for it

SPEC_COMPLETE = ConditionType.SPEC_COMPLETE
_EXPLAINING = tuple(dict.fromkeys(reason.condition for reason in ProblemReason))


# --- one pairing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A pairing in one word, with the reason."""

    phase: PairingPhase
    ready: Status
    reason: str
    message: str
    patience: timedelta | None = None
    """How long it may be so before it is a failure, where it is one in the end."""
    late: datetime | None = None
    """From when on it is."""

    @property
    def failed(self) -> Verdict:
        """The same when it has been so for too long."""
        lasts = (
            f"; this takes longer than {WAITING_AFTER.seconds // 60} minutes" if self.patience == WAITING_AFTER else ""
        )
        return replace(self, phase=PairingPhase.FAILED, message=f"{self.message}{lasts}", late=None)


def judge(pairing: MemoryPairing, silent: Collection[str] = (), paused: Collection[Ref] = ()) -> Verdict:
    """What the two ends together mean at a moment; `Waits` has what it means that they have done so for long.

    `silent` are the nodes whose agent does not answer, `paused` the guests whose virtual machine is paused.
    """
    if pairing.terminating:
        left = ", ".join(name.rsplit("/", 1)[1] for name in pairing.metadata.finalizers)
        return Verdict(PairingPhase.TERMINATING, Status.FALSE, "Terminating", f"waiting for the agent of: {left}")
    return _pause(pairing, paused) or _failure(pairing) or _progress(pairing, silent)


def _pause(pairing: MemoryPairing, paused: Collection[Ref]) -> Verdict | None:
    ends = (("lender", pairing.lender_ref), ("borrower", pairing.borrower_ref))
    found = [f"{side} {guest}" for side, guest in ends if guest in paused]
    if not found:
        return None
    message = f"paused: {' and '.join(found)}; what is lent stays for about a minute, later it begins anew"
    return Verdict(PairingPhase.PAUSED, Status.FALSE, Reason.PAUSED, message)


def _failure(pairing: MemoryPairing) -> Verdict | None:
    lender, borrower = pairing.status.lender, pairing.status.borrower
    if lender and lender.state is LenderState.FAILED:
        return _failed("lender", pairing.lender_ref, lender.conditions)
    if borrower and borrower.state is BorrowerState.FAILED:
        return _failed("borrower", pairing.borrower_ref, borrower.conditions)
    return None


def is_rejected(pairing: MemoryPairing) -> bool:
    """Whether the lender refuses the borrower although each has been given the other's identity."""
    borrower = pairing.status.borrower
    return bool(borrower and borrower.state is BorrowerState.REJECTED) and not identities.gap(pairing)


def _rejection(pairing: MemoryPairing) -> tuple[str, str]:
    """Why the lender refuses: reason and message."""
    reason = (pairing.status.borrower and pairing.status.borrower.reason) or REJECTED
    place = pairing.spec.lender.place
    why = _REFUSALS.get(reason, "the borrower's kernel log says why").format(place=place)
    who = f"lender {pairing.lender_ref} refuses borrower {pairing.borrower_ref}"
    return reason, f"{who}: {why}; the borrower tries again by itself"


def _failed(side: str, guest: Ref, conditions: Iterable[Condition]) -> Verdict:
    why = find(conditions, ConditionType.CONFIGURED)
    reason, message = (why.reason, why.message) if why else ("Failed", "its agent gives no reason")
    return Verdict(PairingPhase.FAILED, Status.FALSE, reason, f"{side} {guest}: {message}")


def _progress(pairing: MemoryPairing, silent: Collection[str]) -> Verdict:
    phase = _phase(pairing)
    quiet = sorted({pairing.spec.lender.node_name, pairing.spec.borrower.node_name} & set(silent))
    if quiet:
        message = (
            f"no heartbeat of the Tidepool agent on {', '.join(quiet)}: what is shown may be old, pages still flow; "
            f"look at the agent's pod there"
        )
        return Verdict(phase, Status.UNKNOWN, Reason.AGENT_NOT_RESPONDING, message)
    if why := _instability(pairing, phase):
        message = f"borrower {pairing.borrower_ref}: {why}"
        return Verdict(PairingPhase.UNSTABLE, Status.FALSE, Reason.CONNECTION_UNSTABLE, message)
    if phase is PairingPhase.CONNECTED:
        return Verdict(phase, Status.TRUE, "Connected", f"{pairing.borrower_ref} reaches its lender")
    if missing := identities.gap(pairing):
        return Verdict(PairingPhase.PENDING, Status.FALSE, missing.reason, missing.message)
    if is_rejected(pairing):
        return Verdict(PairingPhase.CONNECTING, Status.FALSE, *_rejection(pairing), REJECTED_AFTER)
    return _connecting(pairing) if phase is PairingPhase.CONNECTING else _setting_up(pairing)


def _connecting(pairing: MemoryPairing) -> Verdict:
    reason = (pairing.status.borrower and pairing.status.borrower.reason) or "Connecting"
    place = pairing.spec.lender.place
    message = f"{pairing.borrower_ref} connects to {place}; if this lasts, see whether the network lets it"
    return Verdict(PairingPhase.CONNECTING, Status.FALSE, reason, message, WAITING_AFTER)


def _setting_up(pairing: MemoryPairing) -> Verdict:
    lender, borrower = pairing.status.lender, pairing.status.borrower
    lends = lender and lender.state not in (LenderState.PENDING, LenderState.DISABLED)
    borrows = borrower and borrower.state is not BorrowerState.PENDING
    ends = (("lender", pairing.lender_ref, lends), ("borrower", pairing.borrower_ref, borrows))
    slow = [f"{name} {guest}" for name, guest, ready in ends if not ready]
    message = f"waiting for the agent to set up {' and '.join(slow) or 'both'}"
    return Verdict(PairingPhase.PENDING, Status.FALSE, "SettingUp", message, WAITING_AFTER)


def _instability(pairing: MemoryPairing, phase: PairingPhase) -> str:
    """What its agent says of a connection that is lost between looks; empty if it lasts, or is only to be made."""
    borrower = pairing.status.borrower
    if borrower is None or phase not in (PairingPhase.CONNECTING, PairingPhase.CONNECTED):
        return ""
    said = find(borrower.conditions, ConditionType.CONFIGURED)
    return said.message if said and said.reason == Reason.CONNECTION_UNSTABLE else ""


def _phase(pairing: MemoryPairing) -> PairingPhase:
    lender, borrower = pairing.status.lender, pairing.status.borrower
    if borrower and borrower.state is BorrowerState.CONNECTED:
        return PairingPhase.CONNECTED
    if borrower and borrower.state is BorrowerState.CONNECTING and lender and lender.state is LenderState.LISTENING:
        return PairingPhase.CONNECTING
    return PairingPhase.PENDING


def pairing_status(
    pairing: MemoryPairing, verdict: Verdict, exchange: Condition, refused: Sequence[str] = ()
) -> PairingStatus:
    """The operator's part of a pairing's status.

    `exchange` is what there is to say of the guests' identities, `refused` what could not be written.
    """
    generation = pairing.metadata.generation
    ready = condition(
        ConditionType.READY, verdict.ready, verdict.reason, verdict.message, observed_generation=generation
    )
    conditions = _renewed(pairing.status.conditions, ready, exchange, *_write_refused(pairing, refused))
    return PairingStatus(phase=verdict.phase, observed_generation=generation, conditions=conditions)


# --- the pool ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A pairing and what became of it."""

    pairing: MemoryPairing
    verdict: Verdict


def pool_status(
    pool: MemoryPool,
    plan: Plan,
    pairings: Sequence[Judged],
    pending: str | None = None,
    *,
    borrowers: Sequence[GuestStatus] = (),
    refused: Sequence[str] = (),
) -> PoolStatus:
    """The status of a pool that is planned and whose pairings are judged.

    `pending` is what would change if the pool were not held, `borrowers` how those are that borrow, `refused` what
    could not be written.
    """
    live = [one for one in pairings if not one.pairing.terminating]
    connected = [one for one in live if one.verdict.phase.has_pages]
    figures = [one.pairing.status.borrower for one in connected if one.pairing.status.borrower]
    hits = sum(one.hits or 0 for one in figures)
    conditions = _summary(pool, plan, live, pending, refused)
    # What a pool has that is not complete was made of what its class gave it last.
    given = (pool.source.class_name or None, pool.source.given if pool.source.class_name else None)
    class_name, from_class = given if pool.source.lack is None else (pool.status.class_name, pool.status.from_class)
    return PoolStatus(
        observed_generation=pool.metadata.generation,
        class_name=class_name,
        from_class=from_class,
        phase=_pool_phase(conditions, pending),
        lenders=len(plan.lenders),
        borrowers=len(plan.borrowers),
        pairings=len(live),
        ready_pairings=sum(one.verdict.phase is PairingPhase.CONNECTED for one in connected),
        lent_bytes=to_mib(total(one.pairing.spec.size_bytes for one in connected)),
        used_bytes=to_mib(total(one.used_bytes or 0 for one in figures)),
        hit_ratio=format_ratio(hits, hits + sum(one.misses or 0 for one in figures)),
        **_beside_files(borrowers, hits),
        roles=pool.status.roles if pool.is_held else plan.roles or None,
        conditions=_renewed(pool.status.conditions, *conditions),
    )


def stuck_status(present: PoolStatus, reason: str, text: str) -> PoolStatus:
    """The status of a pool that cannot be gone over, and stays as it is."""
    ready, degraded = (
        condition(ConditionType.READY, False, reason, text),
        condition(ConditionType.DEGRADED, True, reason, text),
    )
    conditions = merge(present.conditions, ready, degraded)
    return present.model_copy(update={"phase": PoolPhase.DEGRADED, "conditions": conditions})


def _beside_files(borrowers: Sequence[GuestStatus], hits: int) -> dict[str, Any]:
    """What borrowers have beside files, and what the hits are of; nothing where they have files alone."""
    devices = [device for one in borrowers for device in one.devices if device.lent]
    swap = [one.swap for one in borrowers if one.swap and one.swap.lent]
    programs = [one.applications for one in borrowers if one.applications]
    if not devices and not swap and not programs:
        return {}
    of = {"devices": sum(one.hits for one in devices), "swap": sum(one.hits for one in swap)}
    of |= {"applications": sum(one.page_hits for one in programs)} if programs else {}
    return {
        "devices": len(devices) or None,
        "swap_bytes": total(one.size_bytes for one in swap) or None,
        "applications_bytes": total(one.used_bytes for one in programs) if programs else None,
        "hit_shares": _hit_shares(hits, of),
    }


def _hit_shares(hits: int, of: Mapping[str, int]) -> HitShares | None:
    """Which parts of all hits are of what; the rest is of files. None without hits."""
    every = max(hits, sum(of.values()))  # agents count them one after the other
    parts = {"files": every - sum(of.values()), **of}
    shares = {name: format_ratio(part, every) for name, part in parts.items()}
    return HitShares.model_validate(shares) if every else None


def terminating_status(
    pool: MemoryPool, left: Sequence[MemoryPairing], marked: Collection[str] = (), refused: Sequence[str] = ()
) -> PoolStatus:
    """The status of a pool that is being deleted.

    `left` are its pairings, `marked` the guests from which memory is still to be gathered, as far as their agents know,
    and `refused` is what could not be written.
    """
    waits = [f"{count(len(left), 'pairing')} to be taken down: {named(one.name for one in left)}"] if left else []
    told = f"{count(len(marked), 'guest')} to be told that nothing is gathered any more: {named(marked)}"
    waits += [told] if marked else []
    message = f"waiting for {' and for '.join(waits)}" if waits else "nothing is left of it"
    ready = _condition(pool, ConditionType.READY, Status.FALSE, "Terminating", message)
    progressing = _condition(pool, ConditionType.PROGRESSING, Status.TRUE, "Terminating", message)
    update = {
        "observed_generation": pool.metadata.generation,
        "phase": PoolPhase.TERMINATING,
        "pairings": len(left),
        "ready_pairings": 0,
        "conditions": _renewed(pool.status.conditions, ready, progressing, *_write_refused(pool, refused)),
    }
    return pool.status.model_copy(update=update)


def _renewed(present: Iterable[Condition], *fresh: Condition) -> tuple[Condition, ...]:
    """The present conditions with fresh ones in their places, and of those for a while only the fresh ones."""
    over = {ConditionType.CHANGES_PENDING, ConditionType.WRITE_REFUSED} - {one.type for one in fresh}
    return merge(without(present, *over), *fresh)


def _write_refused(one: ApiObject, refused: Sequence[str]) -> Iterable[Condition]:
    if refused:
        generation, message = one.metadata.generation, _refusals(refused)
        yield condition(ConditionType.WRITE_REFUSED, True, REFUSED, message, observed_generation=generation)


def _refusals(refused: Sequence[str]) -> str:
    more = f"; and {len(refused) - REFUSALS_AT_MOST} more" if len(refused) > REFUSALS_AT_MOST else ""
    return f"{'; '.join(refused[:REFUSALS_AT_MOST])}{more}"


def _summary(
    pool: MemoryPool, plan: Plan, live: Sequence[Judged], pending: str | None, refused: Sequence[str]
) -> tuple[Condition, ...]:
    problems = [one for one in plan.problems if one.leaves_out(plan.unserved)]
    troubles = [(one.reason.value, one.message) for one in problems] + list(_pairing_troubles(live))
    troubles += [(ConditionType.WRITE_REFUSED.value, _refusals(refused))] if refused else []
    steps = [*([] if pool.is_held else _planned_steps(pool, plan, live)), *_steps(live)]
    return (
        _ready(pool, troubles, steps, live, pending),
        _progressing(pool, steps),
        _degraded(pool, troubles),
        *(_explaining(pool, type_, plan.problems) for type_ in _EXPLAINING),
        *([_changes_pending(pool, pending)] if pending is not None else []),
        *_write_refused(pool, refused),
    )


def _ready(
    pool: MemoryPool, troubles: list[tuple[str, str]], steps: list[str], live: Sequence[Judged], pending: str | None
) -> Condition:
    if troubles:
        return _condition(pool, ConditionType.READY, Status.FALSE, troubles[0][0], _joined(troubles))
    if pending:
        message = "it stays as it is, and is not what its spec asks for; the condition ChangesPending says what is not"
        return _condition(pool, ConditionType.READY, Status.FALSE, _holding(pool), message)
    if steps:
        return _condition(pool, ConditionType.READY, Status.FALSE, "Progressing", "; ".join(steps))
    unknown = [one for one in live if one.verdict.ready is Status.UNKNOWN]
    if unknown:
        verdict = unknown[0].verdict
        return _condition(pool, ConditionType.READY, Status.UNKNOWN, verdict.reason, verdict.message)
    return _condition(pool, ConditionType.READY, Status.TRUE, "Connected", _connected(live))


def _connected(live: Sequence[Judged]) -> str:
    paused = [one.pairing.name for one in live if one.verdict.phase is PairingPhase.PAUSED]
    said = f"{count(len(live) - len(paused), 'pairing')} connected"
    return f"{said}; paused: {named(paused)}" if paused else said


def _progressing(pool: MemoryPool, steps: list[str]) -> Condition:
    if steps:
        return _condition(pool, ConditionType.PROGRESSING, Status.TRUE, "PairingsChange", "; ".join(steps))
    return _condition(pool, ConditionType.PROGRESSING, Status.FALSE, AS_EXPECTED, "nothing is under way")


def _degraded(pool: MemoryPool, troubles: list[tuple[str, str]]) -> Condition:
    if troubles:
        return _condition(pool, ConditionType.DEGRADED, Status.TRUE, troubles[0][0], _joined(troubles))
    return _condition(pool, ConditionType.DEGRADED, Status.FALSE, AS_EXPECTED, "nothing is wrong")


def _explaining(pool: MemoryPool, type_: ConditionType, problems: Iterable[Problem]) -> Condition:
    found = [(one.reason.value, one.message) for one in problems if one.reason.condition is type_]
    if found:
        return _condition(pool, type_, Status.FALSE, found[0][0], _joined(found))
    return _condition(pool, type_, Status.TRUE, AS_EXPECTED, pool.source.note if type_ is SPEC_COMPLETE else "")


def _pairing_troubles(live: Sequence[Judged]) -> Iterable[tuple[str, str]]:
    for phase, reason, words in (
        (PairingPhase.FAILED, "PairingFailed", "failed"),
        (PairingPhase.UNSTABLE, Reason.CONNECTION_UNSTABLE.value, "unstable"),
    ):
        if found := [one for one in live if one.verdict.phase is phase]:
            names = named(one.pairing.name for one in found)
            yield reason, f"{words}: {names}; the first because: {found[0].verdict.message}"


def _changes_pending(pool: MemoryPool, pending: str) -> Condition:
    message = pending or "nothing would change"
    if pool.dry_run not in (None, "true"):
        message = f'{message}; {DRY_RUN_ANNOTATION} is "{pool.dry_run[:40]}", which is taken for "true"'
    return _condition(pool, ConditionType.CHANGES_PENDING, Status.of(bool(pending)), _holding(pool), message)


def _holding(pool: MemoryPool) -> str:
    """Why a pool is held."""
    return "Paused" if pool.spec.paused else "DryRun"


def _planned_steps(pool: MemoryPool, plan: Plan, live: Sequence[Judged]) -> Iterable[str]:
    """What is still to be begun."""
    present = {(one.pairing.borrower_ref, one.pairing.lender_ref) for one in live}
    coming = [one for one in plan.assignments if (one.borrower, one.lender) not in present]
    if coming:
        yield f"{count(len(coming), 'pairing')} to be made"
    if plan.deferred:
        yield (
            f"{named(plan.deferred)} to be changed when others are connected again "
            f"(spec.maxUnavailable: {pool.spec.max_unavailable})"
        )
    if plan.expecting:
        yield f"{named(plan.expecting)} waiting for the end of a live migration"
    if plan.waiting:
        yield f"{named(plan.waiting)} waiting for the memory of former pairings, which are being taken down"


def _steps(live: Sequence[Judged]) -> Iterable[str]:
    """What is under way."""
    under_way = [one for one in live if one.verdict.phase in (PairingPhase.PENDING, PairingPhase.CONNECTING)]
    if under_way:
        first = under_way[0]
        yield f"{named(one.pairing.name for one in under_way)} not connected yet; {first.verdict.message}"


def _pool_phase(conditions: Iterable[Condition], pending: str | None) -> PoolPhase:
    by_type = {one.type: one.status for one in conditions}
    if by_type[ConditionType.DEGRADED] is Status.TRUE:
        return PoolPhase.DEGRADED
    if pending:
        return PoolPhase.PAUSED
    return PoolPhase.READY if by_type[ConditionType.READY] is Status.TRUE else PoolPhase.PENDING


def _condition(pool: MemoryPool, type_: ConditionType, status: Status, reason: str, message: str = "") -> Condition:
    return condition(type_, status, reason, message, observed_generation=pool.metadata.generation)


def _joined(troubles: Sequence[tuple[str, str]]) -> str:
    """The messages of all; the condition's reason is that of the first."""
    return " | ".join([troubles[0][1], *(f"{reason}: {message}" for reason, message in troubles[1:])])


def count(number: int, thing: str) -> str:
    """`1 pairing`, `2 pairings`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def named(each: Iterable[str]) -> str:
    """Some of them by their names, and how many more there are."""
    every = sorted(each)
    more = f" and {len(every) - NAMED_AT_MOST} more" if len(every) > NAMED_AT_MOST else ""
    return ", ".join(every[:NAMED_AT_MOST]) + more
