"""The MemoryQuotas that hold for a pool, with what other pools have of them, be it in other namespaces."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidepool_api import GuestKey
from tidepool_operator.cluster.planned import Planned, comes_before, of_others, sizes_by_pool
from tidepool_operator.cluster.state import LENT_ELSEWHERE
from tidepool_operator.planning.quotas import Bound, Limits, Side, room, smallest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidepool_api import MemoryPairing, MemoryPool, PoolKey
    from tidepool_operator.cluster.state import State
    from tidepool_operator.planning.planner import Plan

Account = tuple[Side, str]  # one side of a namespace


def counted(account: Account, state: State) -> Iterable[MemoryPairing]:
    """The pairings whose sizes count, be they still on their way out."""
    side, namespace = account
    found = state.pairings.in_namespace(namespace)
    if side is Side.LENT:
        found = [one for one in found if one.lender.namespace == namespace]
        found += state.pairings.in_group(LENT_ELSEWHERE, namespace)
    return (one for one in found if not one.is_taken_down)


class Quotas:
    """What quotas leave to pools."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._planned: Planned[Account] = Planned(state)
        self._present: dict[Account, Counter[PoolKey]] = {}

    def look(self) -> None:
        """Has what there is counted anew; until then limits rest on what was there."""
        self._present.clear()

    def limits(self, pool: MemoryPool) -> Limits:
        """The bounds within which a pool is planned."""
        namespaces = {pool.namespace, *self._state.lending(pool)}
        each = {name: bound for name in namespaces if (bound := self._bound((Side.LENT, name), pool))}
        lent = {"" if name == pool.namespace else name: bound for name, bound in each.items()}
        return Limits(self._bound((Side.BORROWED, pool.namespace), pool), lent)

    def count(self, pool: MemoryPool, plan: Plan) -> None:
        """Counts what is planned for a pool, until it is planned anew."""
        sums: Counter[Account] = Counter()
        for one in plan.assignments:
            sums[Side.BORROWED, pool.namespace] += one.size
            sums[Side.LENT, GuestKey.meant(one.lender, pool.namespace).namespace] += one.size
        self._planned.count(pool.key, sums)

    def forget_gone(self) -> None:
        """Drops what was planned for pools that no longer exist."""
        self._planned.forget_gone()

    def _bound(self, account: Account, pool: MemoryPool) -> Bound | None:
        side, namespace = account
        found = smallest(self._state.quotas.in_namespace(namespace), side)
        if found is None:
            return None
        most, quota = found
        present, planned = self._present_of(account), self._planned.of(account)
        each = of_others(pool, present, planned)
        older = sum(planned.get(other, size) for other, size in each.items() if comes_before(other, pool, self._state))
        others = sum(each.values())
        allowed = room(most, present[pool.key], older=older, others=others)
        return Bound(quota, namespace, side, most, others, allowed)

    def _present_of(self, account: Account) -> Counter[PoolKey]:
        """What each pool has."""
        if account not in self._present:
            self._present[account] = sizes_by_pool(counted(account, self._state))
        return self._present[account]
