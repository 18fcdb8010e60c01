"""Which guest lends how much to which: a pure function of what is known, without I/O, clock or chance.

    plan(pool, inventory, claimed=…, granted=…, at=…) -> Plan

The same facts in any order give the same plan, and a plan that was carried out is planned again unchanged. First each
guest has a role (`roles`, `selection`) and each borrower a size (`sizing`, `shares`). A pairing that exists stays while
both guests are selected and the lender can hold it, and is cut down in its turn (`disruption`); only what is missing is
placed anew (`placement`, `ranking`). What cannot be had is data (`Problem`), for the user to read on the pool, and
never in the way of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidepool_api import Role, format_quantity
from tidepool_api.defaults import MOST_BORROWERS
from tidepool_api.units import MIB
from tidepool_operator.planning.beside_files import not_as_asked
from tidepool_operator.planning.disruption import Disruption
from tidepool_operator.planning.placement import Assignment, Ledger, Placing, Promise, keep, open_ledger
from tidepool_operator.planning.quotas import Limits
from tidepool_operator.planning.roles import Turn, remembered, settle, until_due
from tidepool_operator.planning.selection import (
    Problem,
    ProblemReason,
    Selection,
    how_ended,
    listed,
    not_promised,
    off_the_network,
    on_cordoned_nodes,
    on_their_way,
    select,
    under_pressure,
    with_short,
)
from tidepool_operator.planning.sizing import is_sized, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from tidepool_api import GuestRole, Lack, MemoryGuest, MemoryPool, Ref
    from tidepool_operator.planning.inventory import Inventory

ROUGHLY = 64 * MIB
UNLIMITED = Limits()


@dataclass(frozen=True)
class Plan:
    """What should be."""

    assignments: tuple[Assignment, ...] = ()
    lenders: tuple[Ref, ...] = ()
    borrowers: tuple[Ref, ...] = ()
    unserved: tuple[Ref, ...] = ()  # borrowers that get less than they should
    waiting: tuple[Ref, ...] = ()  # those of them for whom former pairings may make room, once they are gone
    expecting: tuple[Ref, ...] = ()  # those of them who may get it when a live migration has ended
    deferred: tuple[Ref, ...] = ()  # borrowers that keep what they have until others are settled
    problems: tuple[Problem, ...] = ()
    roles: tuple[GuestRole, ...] = ()  # what is to be remembered of them
    turns: tuple[Turn, ...] = ()  # roles that change now
    ports: Mapping[Ref, int] = field(default_factory=dict)  # of lenders that keep another than the pool's for now
    again: float | None = None  # seconds after which a cool-down is over

    @property
    def claims(self) -> frozenset[Ref]:
        """The guests that no other pool may use."""
        return frozenset(self.lenders) | frozenset(self.borrowers) | self.assigned

    @property
    def assigned(self) -> frozenset[Ref]:
        """The guests that have a part in a pairing."""
        return frozenset(name for one in self.assignments for name in (one.lender, one.borrower))


def plan(
    pool: MemoryPool,
    inventory: Inventory,
    *,
    at: datetime,
    claimed: Mapping[Ref, str] | None = None,
    granted: Mapping[Ref, MemoryGuest] | None = None,
    ended: Mapping[Ref, MemoryGuest] | None = None,
    ungranted: Collection[str] = (),
    limits: Limits = UNLIMITED,
    promised: Mapping[Ref, Promise] | None = None,
) -> Plan:
    """What should be for this pool.

    `inventory` has the guests and pairings of its namespace, `claimed` the guests that another pool has (guest ->
    pool), `granted` the guests of other namespaces that lend to this pool, `ended` those that would, were their
    machines running, `ungranted` those namespaces that give it nothing, `limits` what quotas leave to it, `promised`
    what others have of lenders that it shares with them, and `at` is the time.
    """
    if pool.source.lack is not None:
        return _as_it_is(pool, inventory, pool.source.lack)
    selection = select(pool, inventory, granted or {}, claimed or {}, at, ended or {}, ungranted)
    disruption = Disruption(pool, inventory, selection)
    turning = {name for name in selection.borrowers if inventory.has_role(name, Role.LENDER)}
    ledger = open_ledger(pool, inventory, selection, limits, promised or {})
    _place(ledger, pool, inventory, selection, disruption, turning)
    unserved = [name for name in selection.borrowers if sum(ledger.sizes[name].values()) < pool.spec.least_bytes]
    absent = selection.absent
    wanting = [name for name in unserved if name not in absent]
    is_room_coming = bool(ledger.surplus) or _is_room_coming(ledger, inventory, selection)
    waiting = turning | ledger.allowance.waiting
    elsewhere = waiting | ledger.allowance.lacking
    short = [] if is_room_coming else [name for name in wanting if name not in elsewhere]
    is_lender_coming = not selection.migrating.isdisjoint(selection.lenders)
    expecting = [name for name in unserved if name in selection.migrating or (is_lender_coming and name in short)]
    short = [name for name in short if name not in expecting]
    paired = {name for by in (ledger.lent, ledger.sizes) for name, amount in by.items() if amount}
    settle(selection.roles, paired)
    kept = remembered(pool, selection.roles, paired, at)
    return Plan(
        assignments=ledger.assignments(),
        lenders=tuple(selection.lenders),
        borrowers=tuple(selection.borrowers),
        unserved=(*unserved, *sorted(selection.missed)),
        waiting=tuple(name for name in wanting if is_room_coming or name in waiting),
        expecting=tuple(expecting),
        deferred=tuple(sorted(disruption.deferred)),
        problems=(
            *with_short(selection.problems, short),
            *(on_cordoned_nodes(selection.cordoned) if unserved else ()),
            *(on_their_way(selection) if expecting else ()),
            *off_the_network(pool, selection, short),
            *_shortages(pool, selection, ledger, short, at),
            *ledger.allowance.problems(),
            *not_as_asked(selection.borrowers),
        ),
        roles=kept,
        turns=tuple(selection.roles.turns),
        ports=disruption.ports,
        again=until_due(pool, [*(one.since for one in kept), *selection.roles.held], at),
    )


def _as_it_is(pool: MemoryPool, inventory: Inventory, lack: Lack) -> Plan:
    """What there is to say of a pool whose spec is not complete: it is held, and nothing is planned for it."""
    by_role: dict[Role, set[Ref]] = {Role.LENDER: set(), Role.BORROWER: set()}
    for name, role in inventory.roles_in(pool.name):
        by_role[role].add(name)
    lenders, borrowers = (tuple(sorted(by_role[role])) for role in (Role.LENDER, Role.BORROWER))
    return Plan(lenders=lenders, borrowers=borrowers, problems=(Problem(ProblemReason(lack.reason), lack.message),))


def _place(
    ledger: Ledger,
    pool: MemoryPool,
    inventory: Inventory,
    selection: Selection,
    disruption: Disruption,
    turning: Collection[Ref],
) -> None:
    """Enters who has what: first what is kept of the present, then what the borrowers lack, but for those `turning`."""
    absent = selection.absent | set(turning)
    size(pool, inventory, selection, ledger, absent)
    keep(ledger, inventory, pool.name, selection, disruption)
    placing = Placing(ledger, in_part=is_sized(pool))
    for borrower in ledger.first(selection.borrowers):
        if borrower not in absent:
            placing.serve(borrower)


def _is_room_coming(ledger: Ledger, inventory: Inventory, selection: Selection) -> bool:
    """Whether a lender gets memory back soon, or has just begun to be one."""
    return any(ledger.leaving[name] or inventory.has_role(name, Role.BORROWER) for name in selection.lenders)


def _shortages(
    pool: MemoryPool, selection: Selection, ledger: Ledger, short: list[Ref], at: datetime
) -> Iterable[Problem]:
    """Why somebody is not served: for want of memory, or of memory where the pool wants it."""
    reach = ledger.reach() if pool.spec.placement.to_dict() else 0
    kept_away = [name for name in short if pool.spec.least_bytes - sum(ledger.sizes[name].values()) <= reach]
    rest = sorted(set(short) - set(kept_away))
    if kept_away:
        yield _misplaced(pool, ledger, kept_away)
    if rest and selection.lenders:
        yield _shortage(pool, selection, ledger, rest, at)


def _misplaced(pool: MemoryPool, ledger: Ledger, short: list[Ref]) -> Problem:
    message = (
        f"not enough for {listed(short)}: {pool.origin('placement')} ({pool.spec.placement}) keeps them from lenders "
        f"that have {_left(ledger)} left; label guests as lenders where they are allowed, or ask for less there"
    )
    return Problem(ProblemReason.NOBODY_WHERE_REQUIRED, message, tuple(short))


def _shortage(pool: MemoryPool, selection: Selection, ledger: Ledger, short: list[Ref], at: datetime) -> Problem:
    field, least = ("minimum", "at least ") if is_sized(pool) else ("size", "")
    said = (
        f"not enough for {listed(short)}: each should get {least}{format_quantity(pool.spec.least_bytes)}, and the "
        f"lenders selected ({len(selection.lenders)}) have {_left(ledger)} left"
    )
    pressed = under_pressure(pool, selection.roles, at)
    advice = _advice(pool, field, is_passing=bool(pressed) and not ledger.spare)
    known = [*how_ended(selection.ended), *pressed, *not_promised(pool, selection.lenders), *_full(ledger)]
    message = "; ".join([said, *known, advice])
    return Problem(ProblemReason.INSUFFICIENT_CAPACITY, message, tuple(short))


def _full(ledger: Ledger) -> list[str]:
    """That nodes have as many borrowers as they take, whatever else they have left."""
    full = sorted(name for name in ledger.spare if ledger.is_full(name))
    word = "node" if len(full) == 1 else "nodes"
    return [f"{len(full)} {word} ({full[0]}, …) with the {MOST_BORROWERS} borrowers that one takes"] if full else []


def _advice(pool: MemoryPool, field: str, *, is_passing: bool) -> str:
    """What to do about a shortage; other figures are of no help where nobody lends for the moment."""
    if is_passing:
        return "wait for that, or label more guests as lenders"
    lenders, nodes = pool.spec.lenders, pool.spec.lenders.nodes
    raised = [f"spec.lenders.maxLend ({lenders.max_lend})"] if pool.spec.needs_max_lend else []
    lowered = [f"spec.lenders.reserve ({lenders.reserve})"] if pool.spec.needs_max_lend else []
    raised += [f"spec.lenders.nodes.maxLend ({nodes.max_lend})"] if nodes else []
    lowered += [f"spec.lenders.nodes.reserve ({nodes.reserve})"] if nodes else []
    return (
        f"lower spec.borrowers.{field}, raise {' or '.join(raised)}, lower {' or '.join(lowered)}, or label more "
        f"{'guests' if pool.spec.needs_max_lend else 'nodes'} as lenders"
    )


def _left(ledger: Ledger) -> str:
    """What is left to lend, roughly: free memory moves all the time, and the message should not."""
    free = [ledger.free(name) // ROUGHLY * ROUGHLY for name in ledger.spare]
    if not free:
        return "nothing, as none of them takes more now,"
    return f"about {format_quantity(max(free))} in one and {format_quantity(sum(free))} in all"
