"""`kubectl tidepool plan`: what memory is worth to the guests of a pool, now and at other sizes. Pure.

What is spared now is measured, or else read off the guest's curve. What another size would spare is always read off it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from tidepool_api import (
    GuestKey,
    GuestStatus,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    MemoryQuota,
    ObjectKey,
    PoolKey,
    Role,
    Status,
)
from tidepool_api.curve import ENOUGH_REFERENCES
from tidepool_api.defaults import MOST_BORROWERS
from tidepool_api.worth import Guests, Worth, of_pool, sizes_of
from tidepool_kubectl.snapshot import Fleet

APART, LEAST_APART = 2, 50  # so many times and so many reads a second: what is spared is not what the curve says


@dataclass(frozen=True)
class Row:
    """A guest that borrows or could; None is not known."""

    name: str
    reads: int | None
    """Reads a second that its page cache cannot answer."""
    io_wait: int | None = None
    """Percent of the time in which some task of it waits for I/O."""
    size_bytes: int | None = None
    """What it may have with its lenders; None where it does not borrow."""
    used_bytes: int | None = None
    """What it has there."""
    spared: float | None = None
    """Reads a second that its lenders answer."""
    is_measured: bool = False
    """Whether that was counted; else it is what its curve says."""
    forecast: tuple[float | None, ...] = ()
    """What each of the plan's sizes would spare."""
    instead_bytes: int | None = None
    """What it would need to have itself for as few reads, without a pool."""
    doubt: str = ""
    """Why there is no forecast, or how little it is to be trusted."""


@dataclass(frozen=True)
class Lenders:
    """What those that lend to a pool, or could, have to spare."""

    guests: int = 0
    reluctant: int = 0
    """Those of them that take nobody new: not ready, out of reach, short of memory themselves, or relieved lately."""
    promised_bytes: int = 0
    """What the pool's borrowers may have."""
    free_bytes: int = 0
    """What is left for more."""
    left_out_bytes: int = 0
    """What they do not lend because nobody has promised it to them."""
    forbidden_bytes: int = 0
    """What they would have for more, and quotas forbid."""
    seats: int = 0
    """How many borrowers more the nodes among them take."""
    guests_bytes: int = 0
    """What the guests among them have for more: they take as many borrowers as come."""

    def turned_away(self, newcomers: int, each: int) -> int:
        """How many of those that borrow nothing yet find no lender that takes them, however much memory there is."""
        return max(0, newcomers - self.seats - self.guests_bytes // max(1, each))


@dataclass(frozen=True)
class Plan:
    """A pool: who gains what, and who gives it."""

    pool: PoolKey
    sizes: tuple[int, ...]
    rows: tuple[Row, ...]
    lenders: Lenders
    hidden: tuple[str, ...] = ()
    """Namespaces whose guests may lend, and may not be listed."""
    from_class: str = ""
    """What the pool's class gives, in words."""
    placement: str = ""
    """Where the pool asks its lenders to be, in words."""


def plan(pool: MemoryPool, fleet: Fleet, spared: Mapping[ObjectKey, float], sizes: Iterable[int] = ()) -> Plan:
    """What a pool is worth and would be at these sizes; `spared` are the reads a second that each pairing answers."""
    chosen = sizes_of(pool, sizes)
    guests = {one.key: one for one in fleet.guests}
    each = of_pool(pool, Guests(fleet.guests), fleet.pairings, chosen, spared)
    rows = [_row(key.name, guests.get(key), worth) for key, worth in each.items()]
    rows.sort(key=lambda row: (-(row.spared or 0), -max((one or 0 for one in row.forecast), default=0), row.name))
    nodes = {fleet.home} if pool.spec.lenders.nodes else set()
    hidden = set(fleet.hidden) & ({*pool.spec.lenders.namespaces} | nodes)
    lenders = _lenders(pool, fleet, each)
    placement = f"{pool.origin('placement')} ({pool.spec.placement})" if pool.spec.placement.to_dict() else ""
    return Plan(pool.key, chosen, tuple(rows), lenders, tuple(sorted(hidden)), pool.source.note, placement)


def _pairings(pool: MemoryPool, fleet: Fleet) -> list[MemoryPairing]:
    return [one for one in fleet.pairings if one.pool == pool.key and not one.terminating]


# --- borrowers --------------------------------------------------------------------------------------------------------


def _row(name: str, guest: MemoryGuest | None, worth: Worth) -> Row:
    status = guest.status if guest else GuestStatus()
    return Row(
        name=name,
        reads=status.misses_per_second,
        io_wait=status.pressure.io_some if status.pressure else None,
        size_bytes=worth.size_bytes,
        used_bytes=worth.used_bytes,
        spared=worth.spared,
        is_measured=worth.counted is not None,
        forecast=worth.forecast,
        instead_bytes=worth.instead_bytes,
        doubt=doubt(status, worth.size_bytes is not None) or _difference(worth.counted, worth.promised),
    )


def doubt(status: GuestStatus, borrows: bool) -> str:
    """Why the curve of a guest says nothing."""
    references = status.curve_references or 0
    if status.misses_per_second is None:
        return "how much it reads is not known yet"
    if status.misses_per_second and not status.curve:
        wait = "one is measured only while a guest borrows nothing" if borrows else "its module has measured none yet"
        return f"no curve: {wait}"
    if status.misses_per_second and references < ENOUGH_REFERENCES:
        return f"its curve rests on {references} reads, and says nothing below {ENOUGH_REFERENCES}"
    return ""


def _difference(counted: float | None, promised: float | None) -> str:
    """Whether what is spared is far from what the curve says, which is older than the pairing."""
    if counted is None or promised is None or abs(counted - promised) < LEAST_APART:
        return ""
    if max(counted, promised) < APART * min(counted, promised):
        return ""
    expected = f"by that {promised:,.0f} would be spared"
    return f"it reads in another way now than its curve, of before it borrowed, has it: {expected}"


# --- lenders ----------------------------------------------------------------------------------------------------------


def _lenders(pool: MemoryPool, fleet: Fleet, borrowers: Iterable[GuestKey]) -> Lenders:
    pairings = _pairings(pool, fleet)
    promised: dict[GuestKey, int] = defaultdict(int)
    for one in fleet.pairings:
        promised[one.lender] += one.spec.size_bytes
    lending = {one.lender for one in pairings}
    busy = set(chain(promised, borrowers)) - lending
    guests = [
        one
        for one in fleet.guests
        if one.key in lending or ((one.is_node or one.key not in busy) and _may_lend(pool, one, fleet))
    ]
    seats = _seats(guests, fleet.pairings)
    willing = [one for one in guests if _takes_more(pool, one) and (one.key in lending or seats.get(one.key, 1))]
    left = {one.key: _free(pool, one, promised[one.key]) for one in willing}
    spare: dict[str, int] = defaultdict(int)
    for key, size in left.items():
        spare[key.namespace] += size
    free = _within_quotas(pool, spare, fleet.quotas)
    return Lenders(
        guests=len(lending | {one.key for one in guests}),
        reluctant=len(guests) - len(willing),
        promised_bytes=sum(one.spec.size_bytes for one in pairings),
        free_bytes=free,
        left_out_bytes=sum(pool.spec.left_out(one.status) for one in guests),
        forbidden_bytes=sum(spare.values()) - free,
        seats=sum(seats.get(key, 0) for key, size in left.items() if size),
        guests_bytes=sum(size for key, size in left.items() if key not in seats),
    )


def _seats(lenders: Iterable[MemoryGuest], pairings: Iterable[MemoryPairing]) -> dict[GuestKey, int]:
    """How many borrowers more each node takes: by its pairings, and by what it says, for one may not list all."""
    taken = Counter(one.lender for one in pairings)
    said = {one.key: one.status.node.borrowers or 0 if one.status.node else 0 for one in lenders if one.is_node}
    return {key: max(0, MOST_BORROWERS - max(taken[key], count)) for key, count in said.items()}


def _within_quotas(pool: MemoryPool, spare: Mapping[str, int], quotas: Iterable[MemoryQuota]) -> int:
    """What lenders have for more, by their namespaces, as far as quotas allow it."""
    to_lend = dict(spare)
    to_borrow = sum(spare.values())
    for one in quotas:
        if one.namespace in to_lend and (left := one.left_to_lend) is not None:
            to_lend[one.namespace] = min(to_lend[one.namespace], left)
        if one.namespace == pool.namespace and (left := one.left_to_borrow) is not None:
            to_borrow = min(to_borrow, left)
    return min(to_borrow, sum(to_lend.values()))


def _may_lend(pool: MemoryPool, guest: MemoryGuest, fleet: Fleet) -> bool:
    """Whether a guest that lends nothing could lend to a pool."""
    if guest.is_node:
        return _may_have(pool, guest, fleet)
    selector, labels = pool.spec.lenders.selector or pool.spec.selector, guest.metadata.labels
    is_out = guest.is_excluded or guest.has_ended or guest.status.role is not Role.NONE
    if is_out or selector is None or not selector.matches(labels):
        return False
    if guest.namespace == pool.namespace:
        return True
    granted = (one for one in fleet.grants if one.namespace == guest.namespace)
    is_named = guest.namespace in pool.spec.lenders.namespaces
    return is_named and any(one.allows(pool.namespace, pool.name, labels) for one in granted)


def _may_have(pool: MemoryPool, node: MemoryGuest, fleet: Fleet) -> bool:
    """Whether a pool asks for a node, and a grant gives it; several may have it."""
    nodes, labels = pool.spec.lenders.nodes, node.metadata.labels
    if nodes is None or not nodes.matches(labels):
        return False
    granted = (one for one in fleet.grants if one.namespace == node.namespace)
    return node.namespace == pool.namespace or any(one.allows(pool.namespace, pool.name, labels) for one in granted)


def _takes_more(pool: MemoryPool, guest: MemoryGuest) -> bool:
    name = guest.key.seen_from(pool.namespace)
    is_resting = any((one.guest, one.role) == (name, Role.NONE) for one in pool.status.roles or ())
    pressure = guest.status.pressure
    is_ready = guest.ready is not None and guest.ready.status is Status.TRUE
    return is_ready and _is_reached(pool, guest) and not is_resting and (pressure is None or pressure.is_calm)


def _is_reached(pool: MemoryPool, guest: MemoryGuest) -> bool:
    """Whether a new borrower would find it: it stays where it is, on the pool's network, and at the pool's port."""
    status = guest.status
    port = status.node.port if status.node else pool.spec.port
    return not status.migrating and bool(status.addresses_on(pool.spec.network)) and port == pool.spec.port


def _free(pool: MemoryPool, guest: MemoryGuest, promised: int) -> int:
    """What a lender has for more, beside its own use and what it lends already."""
    memory, spec, kept = guest.status.memory, pool.spec, pool.spec.reserve_of(guest.status)
    if memory is None:
        return 0
    bound = min(spec.max_lend_of(guest.status), memory.total_bytes - kept)
    able = min(bound, memory.spare_bytes - kept - spec.margin_bytes)
    return max(0, able - max(promised, memory.lent_bytes))
