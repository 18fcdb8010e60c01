"""What memory is worth to the guests of a pool, now and at other sizes, for whoever shows it. Pure.

What is spared now is counted where somebody counts it, or else read off the guest's curve. What another size would
spare is always read off it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidepool_api.curve import Point, curve_of, size_for, value_at
from tidepool_api.guest import GuestStatus, MemoryGuest
from tidepool_api.keys import GuestKey, ObjectKey
from tidepool_api.labels import Labelled
from tidepool_api.names import Role, RoleChoice
from tidepool_api.pairing import MemoryPairing
from tidepool_api.pool import MemoryPool

FACTORS = (0.5, 1, 2)  # of the pool's own size, where no other is asked for


@dataclass(frozen=True)
class Worth:
    """What memory is worth to one guest that borrows or could; None is not known."""

    size_bytes: int | None = None
    """What it may have with its lenders; None where it does not borrow."""
    used_bytes: int | None = None
    """What it has there."""
    spared: float | None = None
    """Reads a second that its lenders answer."""
    counted: float | None = None
    """The same, where somebody has counted it."""
    promised: float | None = None
    """The same, by its curve."""
    forecast: tuple[float | None, ...] = ()
    """What each of some sizes would spare."""
    instead_bytes: int | None = None
    """What it would need to have itself for as few reads, without a pool."""


def sizes_of(pool: MemoryPool, sizes: Iterable[int] = ()) -> tuple[int, ...]:
    """The sizes that are looked at: these, or some about the pool's own; in bytes."""
    return tuple(sorted(set(sizes))) or tuple(int(pool.spec.most_bytes * factor) for factor in FACTORS)


class Guests:
    """The guests of some namespaces; those that do nothing now are found by their labels. For many pools."""

    def __init__(self, guests: Iterable[MemoryGuest]) -> None:
        self._known = {one.key: one for one in guests}
        idle: dict[str, list[tuple[GuestKey, dict[str, str]]]] = defaultdict(list)
        for key, one in self._known.items():
            if one.status.role is Role.NONE and not (one.is_excluded or one.has_ended):
                idle[one.namespace].append((key, one.metadata.labels))
        self._idle = {namespace: Labelled(found) for namespace, found in idle.items()}

    def status(self, guest: GuestKey) -> GuestStatus:
        """What is reported of one; nothing of one that is not known."""
        known = self._known.get(guest)
        return known.status if known else GuestStatus()

    def that_may_borrow(self, pool: MemoryPool) -> set[GuestKey]:
        """Those that do nothing now and would borrow: they are selected to, or an Auto pool would see a gain."""
        selector, idle = pool.spec.borrowers.selector or pool.spec.selector, self._idle.get(pool.namespace)
        if selector is None or idle is None:
            return set()
        found = idle.matching(selector)
        return found if pool.spec.role is RoleChoice.SELECTED else {one for one in found if self._would_gain(one)}

    def _would_gain(self, guest: GuestKey) -> bool:
        curve = curve_of(self.status(guest))
        return bool(curve) and curve[-1].reads > 0


def of_pool(
    pool: MemoryPool,
    guests: Guests,
    pairings: Iterable[MemoryPairing],
    sizes: Sequence[int],
    counted: Mapping[ObjectKey, float] | None = None,
) -> dict[GuestKey, Worth]:
    """What a pool is worth to each guest that borrows in it or could, and would be at these sizes.

    `pairings` may be others', too; `counted` are the reads a second that pairings answer.
    """
    borrowed: dict[GuestKey, list[MemoryPairing]] = defaultdict(list)
    for one in pairings:
        if one.pool == pool.key and not one.terminating:
            borrowed[one.borrower].append(one)
    found = ((key, guests.status(key)) for key in borrowed.keys() | guests.that_may_borrow(pool))
    return {key: _worth(status, borrowed.get(key, ()), counted or {}, sizes) for key, status in found}


def known_sum(figures: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [one for one in figures if one is not None]
    return sum(known) if known else None


def _worth(
    status: GuestStatus, pairings: Sequence[MemoryPairing], counted: Mapping[ObjectKey, float], sizes: Iterable[int]
) -> Worth:
    curve, size = curve_of(status), sum(one.spec.size_bytes for one in pairings)
    answered = known_sum(counted.get(one.key) for one in pairings)
    promised = _promised(status, curve, pairings)
    now = promised if answered is None else answered
    return Worth(
        size_bytes=size if pairings else None,
        used_bytes=_used(pairings),
        spared=now if pairings else None,
        counted=answered,
        promised=promised,
        forecast=tuple(forecast(status, curve, one) for one in sizes),
        instead_bytes=min(size, size_for(curve, now)) if pairings and curve and now is not None else None,
    )


def forecast(status: GuestStatus, curve: Sequence[Point], size: int) -> float | None:
    """The reads a second that a pool of one size would spare a guest; None where its curve says nothing."""
    if curve:
        return value_at(curve, size)
    return 0.0 if status.misses_per_second == 0 or size == 0 else None


def _promised(status: GuestStatus, curve: Sequence[Point], pairings: Iterable[MemoryPairing]) -> float | None:
    """What the curve says of the memory that a guest has with its lenders now."""
    connected = [one for one in pairings if one.status.phase and one.status.phase.has_pages]
    used = _used(connected) if connected else 0
    return None if used is None else forecast(status, curve, used)


def _used(pairings: Iterable[MemoryPairing]) -> int | None:
    reported = [one.status.borrower.used_bytes for one in pairings if one.status.borrower]
    known = [used for used in reported if used is not None]
    return sum(known) if known else None
