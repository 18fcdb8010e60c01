"""Nodes that lend their free memory to the pools that name them.

Each is a MemoryGuest of the release's namespace, where agents report none but their own node's. It is no guest of that
namespace, so that no selector of guests matches it. A guest is one pool's; a node is shared by all that may have it.
Namespaces are gone over at the same time, and what one plan makes is not there yet when the next is made. So what was
planned last for a pool counts as well as what it has: nobody is promised what somebody else was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidepool_api import GuestKey
from tidepool_operator.cluster.cross_namespace import age
from tidepool_operator.cluster.state import LENT_ELSEWHERE
from tidepool_operator.planning.placement import Promise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidepool_api import MemoryGuest, MemoryPool, PoolKey, Ref
    from tidepool_operator.cluster.state import State
    from tidepool_operator.planning.planner import Plan


class NodeLenders:
    """Which nodes lend to whom, and how much of them is promised."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._planned: dict[str, Counter[PoolKey]] = defaultdict(Counter)  # by node
        self._present: dict[str, Counter[PoolKey]] | None = None

    def look(self) -> None:
        """Has what there is counted anew."""
        self._present = None

    def of(self, pool: MemoryPool) -> dict[Ref, MemoryGuest]:
        """The nodes that a pool asks for and may have."""
        wanted, home = pool.spec.lenders.nodes, self._state.home
        if wanted is None:
            return {}
        grants = None if pool.namespace == home else self._state.grants.in_namespace(home)
        found = (one for one in self._state.node_lenders() if wanted.matches(one.metadata.labels))
        if grants is not None:
            found = (
                one
                for one in found
                if any(grant.allows(pool.namespace, pool.name, one.metadata.labels) for grant in grants)
            )
        return {one.key.seen_from(pool.namespace): one for one in found}

    def promises(self, pool: MemoryPool, nodes: Iterable[MemoryGuest]) -> Mapping[Ref, Promise]:
        """What other pools have of these nodes, or are about to have."""
        return {one.key.seen_from(pool.namespace): self._promise(pool, one.name) for one in nodes}

    def count(self, pool: MemoryPool, plan: Plan) -> None:
        """Counts what is planned for a pool, until it is planned anew."""
        sums: Counter[str] = Counter()
        for one in plan.assignments:
            lender = GuestKey.meant(one.lender, pool.namespace)
            if lender.namespace == self._state.home:
                sums[lender.name] += one.size
        key = pool.key
        for node in sums.keys() | {node for node, by in self._planned.items() if key in by}:
            self._planned[node][key] = sums[node]

    def forget_gone(self) -> None:
        """Drops what was planned for pools that no longer exist."""
        for by_pool in self._planned.values():
            for key in [key for key in by_pool if not self._state.pools.get(*key)]:
                del by_pool[key]

    def _promise(self, pool: MemoryPool, node: str) -> Promise:
        present, planned = self._lent().get(node, Counter()), self._planned.get(node, Counter())
        key = pool.key
        each = {
            other: max(present[other], planned[other] if self._is_acted_on(other) else 0)
            for other in present.keys() | planned.keys()
            if other != key
        }
        older = sum(size for other, size in each.items() if self._comes_before(other, pool))
        return Promise(sum(each.values()), older)

    def _lent(self) -> Mapping[str, Counter[PoolKey]]:
        """What each pool has of each node, be it still on its way out."""
        if self._present is None:
            self._present = defaultdict(Counter)
            home = self._state.home
            at_home = self._state.pairings.in_namespace(home)
            for one in (*at_home, *self._state.pairings.in_group(LENT_ELSEWHERE, home)):
                if one.lender.namespace == home and not one.is_taken_down:
                    self._present[one.lender.name][one.pool] += one.spec.size_bytes
        return self._present

    def _is_acted_on(self, pool: PoolKey) -> bool:
        """Whether what is planned for a pool is done."""
        found = self._state.pools.get(*pool)
        return found is not None and not (found.terminating or found.is_held)

    def _comes_before(self, other: PoolKey, pool: MemoryPool) -> bool:
        """Whether another pool keeps what it has before this one does."""
        found = self._state.pools.get(*other)
        return found is not None and not found.terminating and age(found) < age(pool)
