"""How much each borrower should have of what there is, by what it brings. Pure.

Everybody gets the minimum first. The rest goes where a byte answers most reads a second, as far as curves are known:
each curve is taken by its concave hull, so that the best next piece of any of them is the best next piece of all. Who
has no curve gets its fair share, by weight, and what nobody with a curve would gain by.

A lender that has lent more than it could lend anew is overdrawn: it needs the rest itself by now. Nobody else could
have a byte of it before all that is too much has come back. So what it has lent stays with those that have it, and is
not shared out, unless somebody lacks the minimum and can have it so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
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
    waits: bool = False  # it cannot take part now, and nobody gives anything up for it
    held: int = 0  # of lenders that are not shared out

    @property
    def base(self) -> int:
        """What it has before the rest is shared out."""
        return min(self.most, max(self.least, self.held))

    @property
    def turn(self) -> tuple[int, int, Ref]:
        """Who comes first to the minimum sorts first."""
        return -self.rank, -self.weight, self.borrower


@dataclass(frozen=True, eq=False)
class Stock:
    """What a lender could lend anew in all, and what each borrower has of it; sizes in bytes."""

    lender: Ref
    anew: int
    lent: Mapping[Ref, int]

    @cached_property
    def lends(self) -> int:
        """What it lends already."""
        return sum(self.lent.values())

    @cached_property
    def overdrawn(self) -> int:
        """What has to come back before anybody else can have something."""
        return max(0, self.lends - self.anew)

    @property
    def most(self) -> int:
        """What it can give in all: what it has for others, or what it lends already."""
        return self.anew + self.overdrawn

    def within(self, part: int) -> Stock:
        """The same of one that may lend no more than this."""
        lent = max(part, self.lends) or 1
        left = {name: size * part // lent // MIB * MIB for name, size in self.lent.items()}
        return Stock(self.lender, min(self.anew, part), left)


class _Piece(NamedTuple):
    """A stretch of a curve's hull; the steepest sorts first."""

    minus_slope: float
    borrower: Ref
    begin: int
    length: int


class Shares(NamedTuple):
    """The size of each borrower, what nobody has, and the lenders whose memory stays where it is; sizes in bytes."""

    sizes: dict[Ref, int]
    left: int
    closed: frozenset[Ref]


def share(stocks: Iterable[Stock], claims: Sequence[Claim]) -> Shares:
    """The shares of what these lenders have; those whose minimum is not to be had keep what is no one else's.

    Of the same rank and weight, those that have their minimum already come before newcomers.
    """
    stocks = list(stocks)
    has: Counter[Ref] = Counter()
    for stock in stocks:
        has.update(stock.lent)
    least = _Minimums(stocks)
    for one in sorted(claims, key=lambda one: (*one.turn[:2], has[one.borrower] < one.least, one.borrower)):
        least.serve(one)
    served = [replace(one, held=least.held[one.borrower]) for one in claims if one.borrower in least.served]
    more = _more(least.rest, served)
    sizes = {one.borrower: min(one.most, least.held[one.borrower]) for one in claims}
    sizes |= {one.borrower: one.base + more[one.borrower] for one in served}
    return Shares(sizes, least.rest - sum(more.values()), frozenset(one.lender for one in least.closed))


class _Minimums:
    """Who gets the minimum, one after the other, while those before keep theirs; and what is shared out for that."""

    def __init__(self, stocks: Iterable[Stock]) -> None:
        self.served: dict[Ref, int] = {}  # borrower -> its minimum
        self.held: Counter[Ref] = Counter()  # what borrowers have of lenders that are not shared out
        self.rest = 0  # what is left of the others
        self.closed: list[Stock] = []  # lenders that are not shared out, those first of which least would be lost
        self._hopeless: int | None = None  # so much cannot be had
        for one in sorted(stocks, key=lambda one: one.overdrawn):
            if one.overdrawn:
                self.closed.append(one)
                self.held.update(one.lent)
            else:
                self.rest += one.anew

    def serve(self, claim: Claim) -> None:
        """Gives a borrower its minimum if it is to be had."""
        self.served[claim.borrower] = claim.least
        missing = self._missing(claim.borrower)
        opened = self._opened(claim, missing)
        if opened is None:
            del self.served[claim.borrower]
            return
        self.rest -= missing
        for one in opened:
            self.rest += self._gain(one, Counter())
            self.held.subtract(one.lent)
            self.closed.remove(one)

    def _opened(self, claim: Claim, missing: int) -> list[Stock] | None:
        """Lenders that are shared out so that it has what it is missing; None: it is not to be had."""
        if missing <= self.rest:
            return []
        lacking = missing - self.rest
        is_less_than_a_pairing = missing < GRAIN and self.held[claim.borrower] > 0
        if claim.waits or is_less_than_a_pairing or (self._hopeless is not None and lacking >= self._hopeless):
            return None
        found = self._together(lacking) or self._alone(lacking)
        if not found:
            self._hopeless = lacking
        return found or None

    def _alone(self, lacking: int) -> list[Stock]:
        """The lender that has so much for others by itself and gives up least for it, if there is one."""
        return next(([one] for one in self.closed if self._gain(one, Counter()) >= lacking), [])

    def _together(self, lacking: int) -> list[Stock]:
        """Lenders that together have so much for others, none too many; empty if the first ones are not enough."""
        found: list[tuple[Stock, int]] = []
        taken: Counter[Ref] = Counter()
        for one in self.closed:
            gain = self._gain(one, taken)
            if gain > 0:
                found.append((one, gain))
                taken.update(one.lent)
                lacking -= gain
            if lacking <= 0:
                return _needed(found, -lacking)
        return []

    def _gain(self, stock: Stock, taken: Mapping[Ref, int]) -> int:
        """What a lender has for others beside the minimum of its borrowers, when so much more is taken of these."""
        holders = ((name, size) for name, size in stock.lent.items() if name in self.served)
        return stock.anew - sum(
            self._missing(name, taken.get(name, 0) + size) - self._missing(name, taken.get(name, 0))
            for name, size in holders
        )

    def _missing(self, borrower: Ref, taken: int = 0) -> int:
        """What a borrower needs for its minimum beside what it holds, less what is taken of that."""
        return max(0, self.served[borrower] - self.held[borrower] + taken)


def _needed(found: list[tuple[Stock, int]], spare: int) -> list[Stock]:
    """Those lenders without which it would not be enough; so much is to spare."""
    needed = []
    for one, gain in found:
        if gain > spare:
            needed.append(one)
        else:
            spare -= gain
    return needed


def _more(rest: int, claims: Sequence[Claim]) -> dict[Ref, int]:
    """What each gets beyond its base."""
    known = [one for one in claims if one.curve]
    unknown = [one for one in claims if not one.curve]
    beyond = sum(one.base - one.least for one in claims)
    theirs = sum(one.base - one.least for one in unknown)
    total = sum(one.weight for one in claims) or 1
    part = (rest + beyond) * sum(one.weight for one in unknown) // total - theirs
    fair = _fair(min(rest, max(0, part)), unknown)
    best = _best(rest - sum(fair.values()), known)
    return best | _fair(rest - sum(best.values()), unknown)


def _fair(amount: int, claims: Sequence[Claim]) -> dict[Ref, int]:
    """So much shared out to those that have least by weight, beyond the base and up to the maximum of each."""
    level = level_of(amount, [(one.base - one.least, one.most - one.least, one.weight) for one in claims])
    given: dict[Ref, int] = {}
    carried = 0
    for one in sorted(claims, key=lambda one: ((one.most - one.least) / one.weight, one.borrower)):
        exact = min(one.most, round(level * one.weight) + one.least) - one.base
        if exact <= 0:
            given[one.borrower] = 0
            continue
        part = _grained(min(one.most - one.base, exact + carried, amount), one)
        carried += exact - part
        amount -= part
        given[one.borrower] = part
    return given


def level_of(amount: float, vessels: Iterable[tuple[int, int, int]]) -> float:
    """How high so much stands in vessels with these floors, brims and widths."""
    width, at = 0, 0.0
    edges = [edge for floor, brim, wide in vessels for edge in ((floor / wide, wide), (brim / wide, -wide))]
    for edge, wider in sorted(edges):
        if width and amount <= (edge - at) * width:
            return at + amount / width
        amount -= (edge - at) * width
        at, width = edge, width + wider
    return at


def _best(amount: int, claims: Iterable[Claim]) -> dict[Ref, int]:
    """So much given piece by piece to where it answers most reads, beyond the base of each."""
    by_name = {one.borrower: one for one in claims}
    given = dict.fromkeys(by_name, 0)
    for piece in sorted(piece for one in by_name.values() for piece in _pieces(one)):
        part = min(piece.length, amount)
        given[piece.borrower] += part
        amount -= part
    return {name: _grained(size, by_name[name]) for name, size in given.items()}


def _grained(extra: int, one: Claim) -> int:
    """What is given beyond the base, in whole grains unless it is all."""
    return extra if extra == one.most - one.base else extra // GRAIN * GRAIN


def _pieces(one: Claim) -> Iterable[_Piece]:
    """The stretches beyond the base in which more memory answers more reads."""
    inner = [point for point in one.curve if one.base < point.size < one.most]
    points = [Point(size, value_at(one.curve, size)) for size in (one.base, one.most)]
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


def steady(due: Shares, present: Mapping[Ref, int], claims: Sequence[Claim]) -> dict[Ref, int]:
    """The sizes due, but those that are near enough to what is present as they are, as long as there is enough."""
    wanted = {one.borrower: _settled(due.sizes[one.borrower], present.get(one.borrower, 0), one) for one in claims}
    if sum(wanted.values()) <= sum(due.sizes.values()) + due.left:
        return wanted
    return {name: min(size, due.sizes[name]) for name, size in wanted.items()}


def _settled(size: int, now: int, claim: Claim) -> int:
    is_near = abs(size - now) * 8 <= now and size > 0
    return now if is_near and claim.least <= now <= claim.most else size
