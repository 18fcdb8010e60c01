"""The MemoryQuotas that hold for a pool, with what other pools have of them, be it in other namespaces.

Namespaces are gone over at the same time, and what one plan makes is not there yet when the next is made. So what was
planned last for a pool counts as well as what it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidepool_api import GuestKey
from tidepool_operator.cluster.cross_namespace import age
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
        self._planned: dict[Account, Counter[PoolKey]] = defaultdict(Counter)
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
        key = pool.key
        for account in sums.keys() | {account for account, by in self._planned.items() if key in by}:
            self._planned[account][key] = sums[account]

    def forget_gone(self) -> None:
        """Drops what was planned for pools that no longer exist."""
        for by_pool in self._planned.values():
            for key in [key for key in by_pool if not self._state.pools.get(*key)]:
                del by_pool[key]

    def _bound(self, account: Account, pool: MemoryPool) -> Bound | None:
        side, namespace = account
        found = smallest(self._state.quotas.in_namespace(namespace), side)
        if found is None:
            return None
        most, quota = found
        present, key = self._present_of(account), pool.key
        planned = {other: size for other, size in self._planned[account].items() if self._is_acted_on(other)}
        each = {other: max(present[other], planned.get(other, 0)) for other in present | planned if other != key}
        older = sum(planned.get(other, size) for other, size in each.items() if self._comes_before(other, pool))
        others = sum(each.values())
        allowed = room(most, present[key], older=older, others=others)
        return Bound(quota, namespace, side, most, others, allowed)

    def _present_of(self, account: Account) -> Counter[PoolKey]:
        """What each pool has."""
        if account not in self._present:
            sums = self._present[account] = Counter()
            for one in counted(account, self._state):
                sums[one.pool] += one.spec.size_bytes
        return self._present[account]

    def _is_acted_on(self, pool: PoolKey) -> bool:
        """Whether what is planned for a pool is done."""
        found = self._state.pools.get(*pool)
        return found is not None and not (found.terminating or found.is_held)

    def _comes_before(self, other: PoolKey, pool: MemoryPool) -> bool:
        """Whether another pool keeps what it has before this one does; one that is on its way out does not."""
        found = self._state.pools.get(*other)
        return found is not None and not found.terminating and age(found) < age(pool)
