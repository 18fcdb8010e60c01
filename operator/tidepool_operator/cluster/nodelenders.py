"""Nodes that lend their free memory to the pools that name them.

Each is a MemoryGuest of the release's namespace, where agents report none but their own node's. It is no guest of that
namespace, so that no selector of guests matches it. A guest is one pool's; a node is shared by all that may have it,
and nobody is promised what somebody else was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidepool_api import GuestKey
from tidepool_operator.cluster.planned import Planned, comes_before, of_others, sizes_by_pool
from tidepool_operator.cluster.quotas import counted
from tidepool_operator.planning.placement import Promise
from tidepool_operator.planning.quotas import Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Ref
    from tidepool_operator.cluster.state import State
    from tidepool_operator.planning.planner import Plan


class NodeLenders:
    """Which nodes lend to whom, and how much of them is promised."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._planned: Planned[str] = Planned(state)  # bytes, by node
        self._paired: Planned[str] = Planned(state)  # borrowers, likewise
        self._present: dict[str, list[MemoryPairing]] | None = None

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
        borrowers: Counter[str] = Counter()
        for one in plan.assignments:
            lender = GuestKey.meant(one.lender, pool.namespace)
            if lender.namespace == self._state.home:
                sums[lender.name] += one.size
                borrowers[lender.name] += 1
        self._planned.count(pool.key, sums)
        self._paired.count(pool.key, borrowers)

    def forget_gone(self) -> None:
        """Drops what was planned for pools that no longer exist."""
        self._planned.forget_gone()
        self._paired.forget_gone()

    def _promise(self, pool: MemoryPool, node: str) -> Promise:
        present = self._lent().get(node, [])
        each = of_others(pool, sizes_by_pool(present), self._planned.of(node))
        older = sum(size for other, size in each.items() if comes_before(other, pool, self._state))
        borrowers = of_others(pool, Counter(one.pool for one in present), self._paired.of(node))
        return Promise(sum(each.values()), older, sum(borrowers.values()))

    def _lent(self) -> Mapping[str, list[MemoryPairing]]:
        """The pairings of each node, be they still on their way out."""
        if self._present is None:
            self._present = defaultdict(list)
            for one in counted((Side.LENT, self._state.home), self._state):
                self._present[one.lender.name].append(one)
        return self._present
