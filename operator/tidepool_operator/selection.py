"""Which guests take part in a pool, in which role, and what is said about those that cannot. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tidepool_api import ConditionType, MemoryGuest, MemoryPool, Reason, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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


@dataclass(frozen=True)
class Selection:
    """The guests of a pool by role, and those that can take part now."""

    lenders: Mapping[str, MemoryGuest]
    borrowers: Mapping[str, MemoryGuest]
    unready: Mapping[str, str]  # name -> why
    problems: tuple[Problem, ...]


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
            f"{listed(conflicting)} left out, selected both as lender and as borrower: no guest is both at a time; "
            f"change the labels or the selectors so that only one matches",
            tuple(conflicting),
        )


def _claims(taken: list[str], claimed: Mapping[str, str]) -> Iterable[Problem]:
    if taken:
        pools = sorted({claimed[name] for name in taken})
        yield Problem(
            ProblemReason.GUEST_CLAIMED,
            f"{listed(taken)} left out: the older pool {', '.join(pools)} has them already; "
            f"change the selectors so that a guest belongs to one pool",
            tuple(taken),
        )


def _unready_guests(unready: Mapping[str, str]) -> Iterable[Problem]:
    if unready:
        shown = [f"{name} ({why})" for name, why in sorted(unready.items())[:NAMED_AT_MOST]]
        more = f" and {len(unready) - len(shown)} more" if len(unready) > len(shown) else ""
        yield Problem(ProblemReason.GUEST_NOT_READY, f"not ready: {'; '.join(shown)}{more}", tuple(sorted(unready)))


def listed(names: list[str]) -> str:
    """`guest a`, `guests a, b`, and no more than anyone reads."""
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return f"guest{'s' if len(names) > 1 else ''} {', '.join(names[:NAMED_AT_MOST])}{more}"
