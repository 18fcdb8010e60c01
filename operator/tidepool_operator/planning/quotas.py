"""What MemoryQuotas leave to a pool: bounds on what it borrows, and on what the guests of each namespace lend it. Pure.

What a pool has it keeps before older ones get more. Where there is too much since a quota was lowered, the youngest
pools give up first, each in the steps of its `maxUnavailable`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tidepool_api import format_quantity
from tidepool_api.fields import MOST_BYTES
from tidepool_operator.planning.selection import Problem, ProblemReason, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidepool_api import MemoryQuota, Ref


class Side(StrEnum):
    """What a quota bounds."""

    BORROWED = "borrows"
    LENT = "lends"

    @property
    def field(self) -> str:
        """The field of a MemoryQuota."""
        return "maxBorrowed" if self is Side.BORROWED else "maxLent"


@dataclass(frozen=True, eq=False)  # told apart by which one it is: they are looked up often
class Bound:
    """The most of one side of a namespace, and what one pool may have of that; sizes in bytes."""

    quota: str
    namespace: str
    side: Side
    most: int
    others: int = 0  # what other pools have, or are about to
    room: int = 0  # for this pool


@dataclass(frozen=True)
class Limits:
    """The bounds of a pool; those on lending by the namespace of the lender as in its name, empty at home."""

    borrowed: Bound | None = None
    lent: Mapping[str, Bound] = field(default_factory=dict)


def smallest(quotas: Iterable[MemoryQuota], side: Side) -> tuple[int, str] | None:
    """The smallest bound of several quotas, with the name of that one; None if none bounds this side."""
    each = ((_most(one, side), one.name) for one in quotas if not one.terminating)
    return min(((most, name) for most, name in each if most is not None), default=None)


def _most(quota: MemoryQuota, side: Side) -> int | None:
    return quota.spec.max_borrowed_bytes if side is Side.BORROWED else quota.spec.max_lent_bytes


def room(most: int, present: int, *, older: int, others: int) -> int:
    """What a pool may have: what it has, as far as older pools leave it, and more only beside all others."""
    return max(0, most - others, min(present, most - older))


def home(lender: Ref) -> str:
    """The namespace in a lender's name; empty for one of the pool's own."""
    return lender.rpartition("/")[0]


class Allowance:
    """What quotas still allow, while a plan is being made."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: set[Ref] = set()  # borrowers that get theirs when what is on its way out is gone
        self._taken: Counter[Bound] = Counter()
        self._leaving: Counter[Bound] = Counter()
        self._lacking: dict[Bound, set[Ref]] = defaultdict(set)

    @property
    def lacking(self) -> set[Ref]:
        """The borrowers that would have more without a quota."""
        return {name for some in self._lacking.values() for name in some}

    def take(self, lender: Ref, size: int) -> None:
        """Counts a pairing, or what it gets more."""
        self._taken.update(dict.fromkeys(self._bounds(lender), size))

    def leave(self, lender: Ref, size: int) -> None:
        """Counts a pairing that is on its way out, once all that stay are counted."""
        self._leaving.update(dict.fromkeys(self._bounds(lender), size))

    def left(self, lender: Ref) -> int:
        """What a pairing with a lender may still get."""
        return min((self.of(one) for one in self._bounds(lender)), default=MOST_BYTES)

    def of(self, bound: Bound | None) -> int:
        """What is left within one bound."""
        return MOST_BYTES if bound is None else max(0, bound.room - self._taken[bound] - self._leaving[bound])

    def lack(self, borrower: Ref, bounds: Iterable[Bound]) -> None:
        """Notes that a borrower would have more but for these."""
        for bound in bounds:
            self._lacking[bound].add(borrower)

    def miss(self, borrower: Ref, bound: Bound, missing: int) -> None:
        """Notes that a borrower does not get what it misses: it waits for what is leaving, or lacks it."""
        if self.of(bound) + self._leaving[bound] >= missing:
            self.waiting.add(borrower)
        else:
            self.lack(borrower, [bound])

    def cut(self, lender: Ref, borrower: Ref, size: int) -> int:
        """So much of a pairing as may stay; whose pairing is cut down is noted."""
        for one in self._bounds(lender):
            if self.of(one) < size:
                self.lack(borrower, [one])
        return min(size, self.left(lender))

    def problems(self) -> Iterable[Problem]:
        """Which quotas bound, and whom."""
        for bound, borrowers in sorted(self._lacking.items(), key=lambda one: (one[0].namespace, one[0].side)):
            used = bound.others + self._taken[bound] + self._leaving[bound]
            message = (
                f"MemoryQuota {bound.quota} limits: namespace {bound.namespace} {bound.side} {format_quantity(used)} "
                f"of at most {format_quantity(bound.most)}; {listed(sorted(borrowers))} would have more; "
                f"have its spec.{bound.side.field} raised, or ask for less"
            )
            yield Problem(ProblemReason.QUOTA_REACHED, message, tuple(sorted(borrowers)))

    def _bounds(self, lender: Ref) -> list[Bound]:
        both = (self.limits.borrowed, self.limits.lent.get(home(lender)))
        return [one for one in both if one is not None]
