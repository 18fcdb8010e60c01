"""What a pool is worth to a guest, by the curve that its module's ghost mode has measured. Pure.

Between its points a curve is a straight line, from nothing where there is no pool; beyond the last point it is flat.
More memory never answers fewer reads: where a point lies below that of a smaller size, the smaller one's holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tidepool_api.guest import GuestStatus

ENOUGH_REFERENCES = 1000  # for a curve to be believed


class Point(NamedTuple):
    """What a size would bring."""

    size: int
    reads: float  # a second that need not go to the disk


def curve_of(status: GuestStatus) -> tuple[Point, ...]:
    """The reads a second that pools of several sizes would answer, by size; nothing where that is not known."""
    misses = status.misses_per_second
    if not misses or (status.curve_references or 0) < ENOUGH_REFERENCES:
        return ()
    measured = sorted((one.size_bytes, float(one.hit_ratio)) for one in status.curve if one.size_bytes)
    best = accumulate((ratio for _, ratio in measured), max)
    return tuple(Point(size, ratio * misses) for (size, _), ratio in zip(measured, best, strict=True))


def value_at(curve: Sequence[Point], size: int) -> float:
    """The reads a second that a pool of one size would answer."""
    before = Point(0, 0.0)
    for point in curve:
        if point.size >= size:
            part = (size - before.size) / (point.size - before.size)
            return before.reads + part * (point.reads - before.reads)
        before = point
    return before.reads


def size_for(curve: Sequence[Point], reads: float) -> int:
    """The least size that would answer so many reads a second, or as many as any size would."""
    wanted = min(reads, curve[-1].reads) if curve else 0.0
    before = Point(0, 0.0)
    for point in curve:
        if before.reads >= wanted:
            break
        if point.reads >= wanted:
            part = (wanted - before.reads) / (point.reads - before.reads)
            return before.size + math.ceil(part * (point.size - before.size))
        before = point
    return before.size
