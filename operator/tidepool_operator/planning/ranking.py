"""Which lenders have most to give, near and far, without looking at all of them each time. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_api import Ref

EVERYWHERE = "everywhere"


class Ranking:
    """Lenders by what they have, in groups: a node, a zone, everywhere.

    Each group is a heap with entries that may be out of date: they are told by their amount, and dropped on the way.
    """

    def __init__(
        self, free: Mapping[Ref, int], groups: Mapping[Ref, Iterable[str]], sites: Mapping[Ref, str] | None = None
    ) -> None:
        """`free` gives what each lender has, in bytes, and `groups` those that each belongs to.

        Of those with the same site, by default each its own, one at most is found at a time.
        """
        self._free = dict(free)
        self._sites = sites or {}
        self._groups = {lender: tuple(groups[lender]) for lender in free}
        self._heaps: dict[str, list[tuple[int, Ref]]] = defaultdict(list)
        for lender, amount in self._free.items():
            for group in self._groups[lender]:
                self._heaps[group].append((-amount, lender))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def set(self, lender: Ref, amount: int) -> None:
        """What a lender has now."""
        if self._free[lender] == amount:
            return
        self._free[lender] = amount
        for group in self._groups[lender]:
            heapq.heappush(self._heaps[group], (-amount, lender))

    def best(self, group: str, count: int, without: Collection[str]) -> list[Ref]:
        """The lenders of a group that have most, at most so many and none that has nothing; by name where equal.

        `without` are lenders and sites that are not wanted.
        """
        heap = self._heaps.get(group, [])
        seen: dict[Ref, tuple[int, Ref]] = {}
        used = set(without)
        found: list[Ref] = []
        while heap and len(found) < count and heap[0][0] < 0:
            entry = heapq.heappop(heap)
            amount, lender = entry
            if lender in seen or -amount != self._free[lender]:
                continue
            seen[lender] = entry
            site = self._sites.get(lender, lender)
            if used.isdisjoint((lender, site)):
                used.add(site)
                found.append(lender)
        for entry in seen.values():
            heapq.heappush(heap, entry)
        return found
