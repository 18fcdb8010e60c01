"""How much each borrower should have of what there is, by what it brings. Pure.

Everybody gets the minimum first. The rest goes where a byte answers most reads a second, as far as curves are known:
each curve is taken by its concave hull, so that the best next piece of any of them is the best next piece of all. Who
has no curve gets its fair share, by weight, and what nobody with a curve would gain by.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidepool_api.curve import Point, value_at
from tidepool_api.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidepool_api import Ref

GRAIN = 16 * MIB  # sizes are multiples of it, but for the bounds


@dataclass(frozen=True)
class Claim:
    """A borrower, and between which bounds it may have memory; sizes in bytes."""

    borrower: Ref
    least: int
    most: int
    weight: int = 1
    curve: tuple[Point, ...] = ()  # by size; empty when nothing is known
    rank: int = 0  # who has more gets its minimum first


class _Piece(NamedTuple):
    """A stretch of a curve's hull; the steepest sorts first."""

    minus_slope: float
    borrower: Ref
    begin: int
    length: int


def share(capacity: int, claims: Sequence[Claim]) -> dict[Ref, int]:
    """The size of each borrower, in bytes; 0 for those whose minimum is not to be had."""
    sizes = _least(capacity, claims)
    served = [one for one in claims if sizes[one.borrower]]
    rest = capacity - sum(sizes.values())
    known = [one for one in served if one.curve]
    unknown = [one for one in served if not one.curve]
    total = sum(one.weight for one in served) or 1
    fair = _fair(rest * sum(one.weight for one in unknown) // total, unknown)
    best = _best(rest - sum(fair.values()), known)
    more = best | _fair(rest - sum(best.values()), unknown)
    return {name: size + more.get(name, 0) for name, size in sizes.items()}


def _least(capacity: int, claims: Iterable[Claim]) -> dict[Ref, int]:
    """The minimum for as many as it lasts, those of the highest rank first, and of these the weightiest."""
    sizes: dict[Ref, int] = {}
    for one in sorted(claims, key=lambda one: (-one.rank, -one.weight, one.borrower)):
        sizes[one.borrower] = one.least if one.least <= capacity else 0
        capacity -= sizes[one.borrower]
    return sizes


def _fair(amount: int, claims: Iterable[Claim]) -> dict[Ref, int]:
    """So much shared out by weight, beyond the minimum and up to the maximum of each."""
    given: dict[Ref, int] = {}
    weight = sum(one.weight for one in claims)
    for one in sorted(claims, key=lambda one: ((one.most - one.least) / one.weight, one.borrower)):
        part = _grained(min(one.most - one.least, amount * one.weight // weight), one)
        given[one.borrower] = part
        amount -= part
        weight -= one.weight
    return given


def _best(amount: int, claims: Iterable[Claim]) -> dict[Ref, int]:
    """So much given piece by piece to where it answers most reads, beyond the minimum of each."""
    by_name = {one.borrower: one for one in claims}
    given = dict.fromkeys(by_name, 0)
    for piece in sorted(piece for one in by_name.values() for piece in _pieces(one)):
        part = min(piece.length, amount)
        given[piece.borrower] += part
        amount -= part
    return {name: _grained(size, by_name[name]) for name, size in given.items()}


def _grained(extra: int, one: Claim) -> int:
    """What is given beyond the minimum, in whole grains unless it is all."""
    return extra if extra == one.most - one.least else extra // GRAIN * GRAIN


def _pieces(one: Claim) -> Iterable[_Piece]:
    """The stretches beyond the minimum in which more memory answers more reads."""
    inner = [point for point in one.curve if one.least < point.size < one.most]
    points = [Point(size, value_at(one.curve, size)) for size in (one.least, one.most)]
    hull = _hull([points[0], *inner, points[1]])
    for begin, end in pairwise(hull):
        slope = (end.reads - begin.reads) / max(1, end.size - begin.size)
        if slope > 0:
            yield _Piece(-slope * one.weight, one.borrower, begin.size, end.size - begin.size)


def _hull(points: Iterable[Point]) -> list[Point]:
    """The upper concave hull of points that come by size."""
    hull: list[Point] = []
    for point in points:
        while len(hull) > 1 and _bulges_not(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _bulges_not(left: Point, middle: Point, right: Point) -> bool:
    rise, run = middle.reads - left.reads, middle.size - left.size
    return rise * (right.size - left.size) <= (right.reads - left.reads) * run


def steady(wanted: Mapping[Ref, int], present: Mapping[Ref, int], claims: Iterable[Claim]) -> dict[Ref, int]:
    """The sizes wanted, but those that are near enough to what is present as they are."""
    bounds = {one.borrower: one for one in claims}

    def settled(name: Ref, size: int) -> int:
        now, claim = present.get(name, 0), bounds[name]
        is_near = abs(size - now) * 8 <= now and size > 0
        return now if is_near and claim.least <= now <= claim.most else size

    return {name: settled(name, size) for name, size in wanted.items()}
