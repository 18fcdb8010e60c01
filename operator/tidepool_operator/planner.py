"""Which guest lends how much to which: a pure function of what is known, without I/O, clock or chance.

    plan(pool, guests, pairings, claimed=…, silent=…) -> Plan

The same facts in any order give the same plan, and a plan that was carried out is planned again unchanged. A pairing
that exists stays while both guests are selected and the lender can hold it; only what is missing is placed anew. What
cannot be had is data (`Problem`), for the user to read on the pool, and never in the way of the rest.

Capacity has two bounds. What exists may fill `min(maxLend, MemTotal - reserve)`: a lender that is busy for a while gets
its pages back from its module at once, and tearing pairings down for it would lose more. What is new must fit into
`min(maxLend, MemAvailable - reserve)`, that is, what the lender's own use leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidepool_api import (
    ConditionType,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    Reason,
    Status,
    format_quantity,
    parse_quantity,
)
from tidepool_api.fields import LEAST_MEMORY
from tidepool_api.pool import MOST_LENDERS
from tidepool_api.units import MIB

LEAST = parse_quantity(LEAST_MEMORY)
NAMED_AT_MOST = 10  # guests in one message


class ProblemReason(StrEnum):
    """What can be in the way of a pool."""

    NO_LENDERS = "NoLenders"
    NO_BORROWERS = "NoBorrowers"
    ROLE_CONFLICT = "RoleConflict"
    GUEST_CLAIMED = "GuestClaimed"
    GUEST_NOT_READY = "GuestNotReady"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"

    @property
    def condition(self) -> ConditionType:
        """The condition of the pool that this makes False."""
        return _CONDITIONS[self]


_CONDITIONS = {
    ProblemReason.NO_LENDERS: ConditionType.LENDERS_FOUND,
    ProblemReason.NO_BORROWERS: ConditionType.BORROWERS_FOUND,
    ProblemReason.ROLE_CONFLICT: ConditionType.ROLES_CONSISTENT,
    ProblemReason.GUEST_CLAIMED: ConditionType.ROLES_CONSISTENT,
    ProblemReason.GUEST_NOT_READY: ConditionType.GUESTS_READY,
    ProblemReason.INSUFFICIENT_CAPACITY: ConditionType.CAPACITY_SUFFICIENT,
}


@dataclass(frozen=True)
class Problem:
    """Something that the user has to know, and what to do about it."""

    reason: ProblemReason
    message: str
    guests: tuple[str, ...] = ()


@dataclass(frozen=True, order=True)
class Assignment:
    """So much memory of the lender for the borrower."""

    borrower: str
    lender: str
    size: int


@dataclass(frozen=True)
class Plan:
    """What should be."""

    assignments: tuple[Assignment, ...] = ()
    lenders: tuple[str, ...] = ()
    borrowers: tuple[str, ...] = ()
    unserved: tuple[str, ...] = ()  # borrowers that get less than they should
    waiting: tuple[str, ...] = ()  # those of them for whom former pairings may make room, once they are gone
    problems: tuple[Problem, ...] = ()

    @property
    def claims(self) -> frozenset[str]:
        """The guests that no other pool may use."""
        return frozenset(self.lenders) | frozenset(self.borrowers)


@dataclass(frozen=True)
class Selection:
    """The guests of a pool by role, and those that can take part now."""

    lenders: Mapping[str, MemoryGuest]
    borrowers: Mapping[str, MemoryGuest]
    unready: Mapping[str, str]  # name -> why
    problems: tuple[Problem, ...]


def plan(
    pool: MemoryPool,
    guests: Iterable[MemoryGuest],
    pairings: Iterable[MemoryPairing],
    *,
    claimed: Mapping[str, str] | None = None,
    silent: Collection[str] = (),
) -> Plan:
    """What should be for this pool.

    `guests` and `pairings` are those of its namespace, `claimed` the guests that another pool has (guest -> pool),
    `silent` the nodes whose agent does not answer.
    """
    selection = select(pool, guests, claimed or {}, silent)
    ledger = _keep(pool, selection, sorted(pairings, key=lambda one: one.name))
    unserved = [name for name in sorted(selection.borrowers) if not _serve(pool, selection, ledger, name)]
    wanting = [name for name in unserved if name not in selection.unready]
    room_is_coming = any(ledger.leaving[name] for name in selection.lenders)
    return Plan(
        assignments=ledger.assignments(),
        lenders=tuple(sorted(selection.lenders)),
        borrowers=tuple(sorted(selection.borrowers)),
        unserved=tuple(unserved),
        waiting=tuple(wanting) if room_is_coming else (),
        problems=selection.problems + (() if room_is_coming else _shortage(pool, selection, ledger, wanting)),
    )


# --- who takes part ---------------------------------------------------------------------------------------------------


def select(
    pool: MemoryPool, guests: Iterable[MemoryGuest], claimed: Mapping[str, str], silent: Collection[str]
) -> Selection:
    """Sorts the guests into roles; those that are wanted twice are left out and named."""
    known = {one.name: one for one in sorted(guests, key=lambda one: one.name) if not one.terminating}
    lending = {name for name, one in known.items() if pool.spec.lenders.selector.matches(one.metadata.labels)}
    borrowing = {name for name, one in known.items() if pool.spec.borrowers.selector.matches(one.metadata.labels)}
    conflicting = lending & borrowing
    taken = {name for name in lending | borrowing if claimed.get(name, pool.name) != pool.name}
    left_out = conflicting | taken
    lenders = {name: known[name] for name in sorted(lending - left_out)}
    borrowers = {name: known[name] for name in sorted(borrowing - left_out)}
    unready = {
        name: why
        for role, group in (("lender", lenders), ("borrower", borrowers))
        for name, one in group.items()
        if (why := _unready(one, role, silent))
    }
    problems = (
        *_not_found(pool, bool(known), lending, borrowing),
        *_conflicts(sorted(conflicting)),
        *_claims(sorted(taken), claimed),
        *_unready_guests(unready),
    )
    return Selection(lenders, borrowers, unready, problems)


def _unready(guest: MemoryGuest, role: str, silent: Collection[str]) -> str:
    """Why this guest cannot take part now; empty if it can."""
    if guest.spec.node_name in silent:
        return (
            f"{Reason.AGENT_NOT_RESPONDING}: no heartbeat of the Tidepool agent on node {guest.spec.node_name}; "
            f"look at its pod there"
        )
    ready = guest.ready
    if ready is None:
        return "NoReport: its agent has not looked at it yet"
    if ready.status is not Status.TRUE:
        return f"{ready.reason}: {ready.message}" if ready.message else ready.reason
    if role == "lender" and guest.status.memory is None:
        return "NoReport: its memory is not known yet"
    if role == "lender" and not guest.status.addresses:
        return "NoAddress: it has no IP address that borrowers could reach; give it a network interface"
    return ""


def _not_found(pool: MemoryPool, any_guest: bool, lending: set[str], borrowing: set[str]) -> Iterable[Problem]:
    for reason, found, field_name, selector in (
        (ProblemReason.NO_LENDERS, lending, "lenders", pool.spec.lenders.selector),
        (ProblemReason.NO_BORROWERS, borrowing, "borrowers", pool.spec.borrowers.selector),
    ):
        if not found:
            advice = (
                f"label a virtual machine so, or correct spec.{field_name}.selector"
                if any_guest
                else "there is no MemoryGuest at all: start a virtual machine on a node where the Tidepool agent runs"
            )
            where = f"namespace {pool.namespace} matches spec.{field_name}.selector ({selector})"
            yield Problem(reason, f"no MemoryGuest of {where}; {advice}")


def _conflicts(conflicting: list[str]) -> Iterable[Problem]:
    if conflicting:
        yield Problem(
            ProblemReason.ROLE_CONFLICT,
            f"{_listed(conflicting)} left out, selected both as lender and as borrower: no guest is both at a time; "
            f"change the labels or the selectors so that only one matches",
            tuple(conflicting),
        )


def _claims(taken: list[str], claimed: Mapping[str, str]) -> Iterable[Problem]:
    if taken:
        pools = sorted({claimed[name] for name in taken})
        yield Problem(
            ProblemReason.GUEST_CLAIMED,
            f"{_listed(taken)} left out: the older pool {', '.join(pools)} has them already; "
            f"change the selectors so that a guest belongs to one pool",
            tuple(taken),
        )


def _unready_guests(unready: Mapping[str, str]) -> Iterable[Problem]:
    if unready:
        shown = [f"{name} ({why})" for name, why in sorted(unready.items())[:NAMED_AT_MOST]]
        more = f" and {len(unready) - len(shown)} more" if len(unready) > len(shown) else ""
        yield Problem(ProblemReason.GUEST_NOT_READY, f"not ready: {'; '.join(shown)}{more}", tuple(sorted(unready)))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return f"guest{'s' if len(names) > 1 else ''} {', '.join(names[:NAMED_AT_MOST])}{more}"


# --- what exists ------------------------------------------------------------------------------------------------------


@dataclass
class _Ledger:
    """Who has what, while a plan is being made."""

    sizes: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # borrower -> lender -> bytes
    lent: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # lender -> bytes, the sum of these
    leaving: dict[str, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # lender -> bytes, until it is rid of them
    blocked: set[tuple[str, str]] = field(default_factory=set)  # borrower and lender with a pairing that must go first

    def add(self, borrower: str, lender: str, size: int) -> None:
        """Assigns so much more."""
        self.sizes[borrower][lender] = self.sizes[borrower].get(lender, 0) + size
        self.lent[lender] += size

    def total(self, borrower: str) -> int:
        """What a borrower has in all."""
        return sum(self.sizes[borrower].values())

    def assignments(self) -> tuple[Assignment, ...]:
        """All of it, in order."""
        found = (Assignment(name, one, size) for name, by in self.sizes.items() for one, size in by.items())
        return tuple(sorted(found))


def _keep(pool: MemoryPool, selection: Selection, pairings: list[MemoryPairing]) -> _Ledger:
    """The ledger with every existing pairing that is still right, cut down where it no longer fits."""
    ledger = _Ledger()
    for one in pairings:
        borrower, lender = one.spec.borrower.guest, one.spec.lender.guest
        size = _kept_size(pool, selection, ledger, one)
        if size >= LEAST:
            ledger.add(borrower, lender, size)
        else:
            ledger.leaving[lender] += one.spec.size_bytes
            ledger.blocked.add((borrower, lender))
    return ledger


def _kept_size(pool: MemoryPool, selection: Selection, ledger: _Ledger, one: MemoryPairing) -> int:
    """How much of an existing pairing is still wanted and possible; 0 for one that is on its way out."""
    borrower, lender = one.spec.borrower.guest, one.spec.lender.guest
    if one.terminating or one.spec.pool != pool.name:
        return 0
    if borrower not in selection.borrowers or lender not in selection.lenders:
        return 0
    wanted = pool.spec.size_bytes - ledger.total(borrower)
    room = _bound(pool, selection.lenders[lender]) - ledger.lent[lender]
    return min(one.spec.size_bytes, wanted, room)


def _bound(pool: MemoryPool, lender: MemoryGuest) -> int:
    """What existing pairings may fill."""
    memory = lender.status.memory
    if memory is None:
        return pool.spec.max_lend_bytes
    return min(pool.spec.max_lend_bytes, memory.total_bytes - pool.spec.reserve_bytes)


# --- what is missing --------------------------------------------------------------------------------------------------


def _serve(pool: MemoryPool, selection: Selection, ledger: _Ledger, borrower: str) -> bool:
    """Places what a borrower lacks, all of it or none; returns whether it has all now."""
    missing = pool.spec.size_bytes - ledger.total(borrower)
    if missing <= 0:
        return True
    if borrower in selection.unready:
        return False
    for lender, size in _place(missing, _offers(pool, selection, ledger, borrower), len(ledger.sizes[borrower])):
        ledger.add(borrower, lender, size)
    return ledger.total(borrower) >= pool.spec.size_bytes


@dataclass(frozen=True)
class _Offer:
    """What one lender could give a borrower."""

    lender: str
    free: int
    is_known: bool  # lends to this borrower already
    is_near: bool  # on the same node

    @property
    def rank(self) -> tuple[bool, bool, int, str]:
        """The best first: no further pairing, short way, much to spare; the name so that order never matters."""
        return (not self.is_known, not self.is_near, -self.free, self.lender)


def _offers(pool: MemoryPool, selection: Selection, ledger: _Ledger, borrower: str) -> list[_Offer]:
    """What every lender has for this borrower, the best first."""
    node = selection.borrowers[borrower].spec.node_name
    present = ledger.sizes[borrower]
    offers = [
        _Offer(name, free, name in present, one.spec.node_name == node)
        for name, one in selection.lenders.items()
        if name not in selection.unready
        and (borrower, name) not in ledger.blocked
        and (free := _free(pool, one, ledger)) > 0
    ]
    return sorted((one for one in offers if one.is_known or one.free >= LEAST), key=lambda one: one.rank)


def _free(pool: MemoryPool, lender: MemoryGuest, ledger: _Ledger) -> int:
    """What a lender has for new pairings, in whole MiB."""
    memory = lender.status.memory
    spare = 0 if memory is None else memory.available_bytes - pool.spec.reserve_bytes
    free = min(_bound(pool, lender), spare) - ledger.lent[lender.name] - ledger.leaving[lender.name]
    return max(0, free // MIB * MIB)


def _place(missing: int, offers: list[_Offer], present: int) -> list[tuple[str, int]]:
    """Takes all from one lender if one has it, else from as few as it takes beside the present ones, else nothing."""
    whole = next((one for one in offers if one.free >= missing and (one.is_known or missing >= LEAST)), None)
    if whole is not None and (whole.is_known or present < MOST_LENDERS):
        return [(whole.lender, missing)]
    largest_first = sorted(offers, key=lambda one: (-one.free, one.rank))
    taken: list[tuple[str, int]] = []
    strangers = MOST_LENDERS - present
    for one in largest_first:
        if not missing or (strangers == 0 and not one.is_known):
            continue
        size = _share(missing, one.free)
        if size < (1 if one.is_known else LEAST):
            continue
        taken.append((one.lender, size))
        missing -= size
        strangers -= not one.is_known
    return [] if missing else taken


def _share(missing: int, free: int) -> int:
    """What to take of `free`, so that what is left to take elsewhere is nothing or enough for a pairing."""
    if free >= missing:
        return missing
    return free if missing - free >= LEAST else missing - LEAST


def _shortage(pool: MemoryPool, selection: Selection, ledger: _Ledger, short: list[str]) -> tuple[Problem, ...]:
    ready = [one for name, one in selection.lenders.items() if name not in selection.unready]
    if not short or not selection.lenders:
        return ()
    free = sorted((_free(pool, one, ledger) for one in ready), reverse=True)
    have = (
        f"at most {format_quantity(free[0])} in one and {format_quantity(sum(free))} in all" if free else "none ready"
    )
    return (
        Problem(
            ProblemReason.INSUFFICIENT_CAPACITY,
            f"not enough for {_listed(short)}: each should get {pool.spec.borrowers.size}, "
            f"and the lenders selected ({len(selection.lenders)}) have {have} left; lower spec.borrowers.size, "
            f"raise spec.lenders.maxLend ({pool.spec.lenders.max_lend}), "
            f"lower spec.lenders.reserve ({pool.spec.lenders.reserve}), or label more guests as lenders",
            tuple(short),
        ),
    )
