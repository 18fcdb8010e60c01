"""What was planned last for pools, of whatever several of them share.

Namespaces are gone over at the same time, and what one plan makes is not there yet when the next is made. So what was
planned last for a pool counts as well as what it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Generic, TypeVar

from tidepool_operator.cluster.cross_namespace import age

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from tidepool_api import MemoryPairing, MemoryPool, PoolKey
    from tidepool_operator.cluster.state import State

Account = TypeVar("Account", bound="Hashable")


class Planned(Generic[Account]):
    """What was planned last for each pool, by account: whatever pools share."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._sizes: dict[Account, Counter[PoolKey]] = defaultdict(Counter)

    def count(self, pool: PoolKey, sums: Counter[Account]) -> None:
        """Counts what is planned for a pool, until it is planned anew."""
        for account in sums.keys() | {account for account, by in self._sizes.items() if pool in by}:
            self._sizes[account][pool] = sums[account]

    def forget_gone(self) -> None:
        """Drops what was planned for pools that no longer exist."""
        for by_pool in self._sizes.values():
            for key in [key for key in by_pool if not self._state.pools.get(*key)]:
                del by_pool[key]

    def of(self, account: Account) -> Mapping[PoolKey, int]:
        """What was planned of an account for those pools for which it is done."""
        by_pool = self._sizes.get(account, Counter())
        return {pool: size for pool, size in by_pool.items() if self._is_acted_on(pool)}

    def _is_acted_on(self, pool: PoolKey) -> bool:
        found = self._state.pools.get(*pool)
        return found is not None and not (found.terminating or found.is_held)


def sizes_by_pool(pairings: Iterable[MemoryPairing]) -> Counter[PoolKey]:
    """What each pool has in pairings."""
    sums: Counter[PoolKey] = Counter()
    for one in pairings:
        sums[one.pool] += one.spec.size_bytes
    return sums


def of_others(pool: MemoryPool, present: Counter[PoolKey], planned: Mapping[PoolKey, int]) -> dict[PoolKey, int]:
    """What each other pool has, or is about to have where that is more."""
    others = (present.keys() | planned.keys()) - {pool.key}
    return {other: max(present[other], planned.get(other, 0)) for other in others}


def comes_before(other: PoolKey, pool: MemoryPool, state: State) -> bool:
    """Whether another pool keeps what it has before this one does; one that is on its way out does not."""
    found = state.pools.get(*other)
    return found is not None and not found.terminating and age(found) < age(pool)
