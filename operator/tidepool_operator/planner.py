"""Which guest lends how much to which: a pure function of what is known, without I/O, clock or chance.

    plan(pool, guests, pairings, claimed=…, silent=…) -> Plan

The same facts in any order give the same plan, and a plan that was carried out is planned again unchanged. A pairing
that exists stays while both guests are selected and the lender can hold it; only what is missing is placed anew. What
cannot be had is data (`Problem`), for the user to read on the pool, and never in the way of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api import format_quantity
from tidepool_api.units import MIB
from tidepool_operator.placement import Assignment, Ledger, keep, open_ledger, serve
from tidepool_operator.selection import Problem, ProblemReason, Selection, listed, select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool

ROUGHLY = 64 * MIB


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
    ledger = open_ledger(pool, selection)
    keep(ledger, pool.name, selection, sorted(pairings, key=lambda one: one.name))
    for borrower in selection.borrowers:
        if borrower not in selection.unready:
            serve(ledger, borrower)
    unserved = [name for name in selection.borrowers if ledger.missing(name) > 0]
    wanting = [name for name in unserved if name not in selection.unready]
    room_is_coming = any(ledger.leaving[name] for name in selection.lenders)
    return Plan(
        assignments=ledger.assignments(),
        lenders=tuple(selection.lenders),
        borrowers=tuple(selection.borrowers),
        unserved=tuple(unserved),
        waiting=tuple(wanting) if room_is_coming else (),
        problems=selection.problems + (() if room_is_coming else _shortage(pool, selection, ledger, wanting)),
    )


def _shortage(pool: MemoryPool, selection: Selection, ledger: Ledger, short: list[str]) -> tuple[Problem, ...]:
    if not short or not selection.lenders:
        return ()
    lenders, borrowers = pool.spec.lenders, pool.spec.borrowers
    message = (
        f"not enough for {listed(short)}: each should get {borrowers.size}, and the lenders selected "
        f"({len(selection.lenders)}) have {_left(ledger)} left; lower spec.borrowers.size, raise spec.lenders.maxLend "
        f"({lenders.max_lend}), lower spec.lenders.reserve ({lenders.reserve}), or label more guests as lenders"
    )
    return (Problem(ProblemReason.INSUFFICIENT_CAPACITY, message, tuple(short)),)


def _left(ledger: Ledger) -> str:
    """What is left to lend, roughly: free memory moves all the time, and the message should not."""
    free = [ledger.free(name) // ROUGHLY * ROUGHLY for name in ledger.spare]
    if not free:
        return "nothing, as none of them is ready,"
    return f"about {format_quantity(max(free))} in one and {format_quantity(sum(free))} in all"
