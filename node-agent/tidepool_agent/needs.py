"""What a planner decides on: a guest's memory, how short of it the guest is, and what more would bring.

These figures never rest. A status keeps the last one until the new one is so far away that somebody might decide
otherwise, so that a guest which does what it always does causes no writes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidepool_agent.guestfs import GHOST_OFF, Observation, Side
from tidepool_api import CurvePoint, GuestMemory, GuestPressure, GuestStatus
from tidepool_api.curve import ENOUGH_REFERENCES
from tidepool_api.fields import MOST_COUNT

GRAIN = 16 << 20
PART_OF_MEMORY = 32
PERCENT_STEP = 3
LEAST_RATE_STEP = 16
RATIO_STEP = 0.05
WINDOW_SECONDS, LEAST_SECONDS = 60.0, 5.0


@dataclass(frozen=True)
class Rates:
    """What goes on in a guest each second, over about the last minute; None while that is not known."""

    refaults: int | None = None
    misses: int | None = None


class Rate:
    """How fast a counter grows."""

    def __init__(self) -> None:
        self._series = ""
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, series: str, at: float, count: int | None) -> int | None:
        """Takes in a count at a moment (in seconds), and says how much a second it has grown by in the last minute.

        None while that is not known: another series begins anew, and so does one whose count or time went back.
        """
        last = self._marks[-1] if self._marks else (at, 0)
        if count is None or series != self._series or at < last[0] or count < last[1]:
            self._series = series
            self._marks.clear()
        if count is None:
            return None
        self._marks.append((at, count))
        while len(self._marks) > 2 and self._marks[1][0] <= at - WINDOW_SECONDS:
            self._marks.popleft()
        begin, first = self._marks[0]
        return round((count - first) / (at - begin)) if at - begin >= LEAST_SECONDS else None


class Trend:
    """The rates of one guest."""

    def __init__(self) -> None:
        self._refaults, self._misses = Rate(), Rate()

    def add(self, seen: Observation) -> Rates:
        """The rates after another look."""
        kind, missed = _missed(seen)
        return Rates(
            self._refaults.add(seen.boot_id, seen.uptime, seen.refaults),
            self._misses.add(f"{seen.boot_id} {kind}", seen.uptime, missed),
        )


def _missed(seen: Observation) -> tuple[str, int | None]:
    """Pages that the page cache lacked, and by which of the module's counters."""
    module, lenders = seen.module, seen.side(Side.LENDERS)
    if module and module.ghost not in ("", GHOST_OFF):
        return "ghost", module.references
    if module and lenders:
        hits = sum(peer.stats.get("get_hits", 0) for peer in lenders.values())
        return "pool", min(module.stats.get("misses", 0) + hits, MOST_COUNT)
    return "unknown", None


def memory(seen: Observation, before: GuestMemory | None, *, lent: int, borrowed: int) -> GuestMemory:
    """The guest's memory, as far as it has changed since what was said before."""
    step = max(GRAIN, seen.total_bytes // PART_OF_MEMORY)
    working_set, known = seen.working_set_bytes, before.working_set_bytes if before else None
    return GuestMemory(
        total_bytes=seen.total_bytes,
        available_bytes=settled(seen.available_bytes, before.available_bytes if before else None, step),
        working_set_bytes=None if working_set is None else settled(working_set, known, step),
        lent_bytes=settled(lent, before.lent_bytes if before else None),
        borrowed_bytes=settled(borrowed, before.borrowed_bytes if before else None),
    )


def pressure(seen: Observation, rates: Rates, before: GuestPressure | None) -> GuestPressure:
    """How short of memory the guest is, as far as it has changed since what was said before."""
    old = before or GuestPressure()
    return GuestPressure(
        memory_some=_percent(seen.stalls.get("memory some"), old.memory_some),
        memory_full=_percent(seen.stalls.get("memory full"), old.memory_full),
        io_some=_percent(seen.stalls.get("io some"), old.io_some),
        io_full=_percent(seen.stalls.get("io full"), old.io_full),
        refaults_per_second=rate(rates.refaults, old.refaults_per_second),
    )


def curve(seen: Observation, before: GuestStatus) -> tuple[tuple[CurvePoint, ...], int | None]:
    """What borrowing would bring, and how many reads that rests on.

    A curve that is known stays until there is a sounder one: while the guest borrows, and while a module that has just
    been loaded has not seen enough.
    """
    module = seen.module
    known = before.curve_references or 0
    references = module.sampled_references if module else 0
    if not module or not references or references < min(known, ENOUGH_REFERENCES):
        return before.curve, before.curve_references
    fresh = tuple(CurvePoint(size_bytes=size, hit_ratio=f"{ratio:.2f}") for size, ratio in module.curve)
    return (before.curve if _alike(fresh, before.curve) else fresh), _magnitude(references)


def rate(new: int | None, old: int | None) -> int | None:
    """A rate with two digits, if it is not about what it was."""
    if new is None:
        return None
    if old is not None and abs(new - old) < max(LEAST_RATE_STEP, old // 4):
        return old
    return int(float(f"{new:.1e}"))


def rounded(size: int) -> int:
    """Memory as a status shows it."""
    return size // GRAIN * GRAIN


def settled(new: int, old: int | None, step: int = GRAIN) -> int:
    """Memory as a status shows it: what it showed before, unless it has changed by a step."""
    return old if old and new and abs(new - old) < step else rounded(new)


def _percent(new: int | None, old: int | None) -> int | None:
    return old if new is not None and old is not None and abs(new - old) < PERCENT_STEP else new


def _alike(new: tuple[CurvePoint, ...], old: tuple[CurvePoint, ...]) -> bool:
    if [point.size_bytes for point in new] != [point.size_bytes for point in old]:
        return False
    pairs = zip(new, old, strict=True)
    return all(abs(float(one.hit_ratio) - float(other.hit_ratio)) < RATIO_STEP for one, other in pairs)


def _magnitude(count: int) -> int:
    """The largest of 1, 2, 5, 10, 20, 50 … that is not larger: a count that only grows is written seldom."""
    power = int("1" + "0" * (len(str(count)) - 1))
    return max(step * power for step in (1, 2, 5) if step * power <= count)
