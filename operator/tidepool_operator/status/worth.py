"""What memory is worth in each pool, for Prometheus: the figures that `kubectl tidepool plan` shows.

By the guests' curves alone. What lenders answer now is counted by the agents, and the chart's rules add that up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api.worth import known_sum, of_pool, sizes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidepool_api import MemoryPool, PoolKey
    from tidepool_operator.cluster.state import State


@dataclass(frozen=True)
class PoolWorth:
    """What memory is worth in a pool; what nobody knows is left out."""

    forecast: Mapping[int, float]
    """Reads a second that disks would be spared, by the size that each guest would have, in bytes."""
    unneeded_bytes: int | None
    """What borrowers would need of their own for as few reads, in all."""


async def of_pools(state: State) -> dict[PoolKey, PoolWorth]:
    """That of all pools."""
    found = {}
    for namespace in state.pools.namespaces():
        for pool in state.pools.in_namespace(namespace):
            await asyncio.sleep(0)  # others' work goes on between two of many pools
            found[pool.key] = pool_worth(pool, state)
    return found


def pool_worth(pool: MemoryPool, state: State) -> PoolWorth:
    """That of one."""
    sizes = sizes_of(pool)
    guests, pairings = state.guests.in_namespace(pool.namespace), state.pairings.in_group(*pool.key)
    each = of_pool(pool, guests, pairings, sizes).values()
    sums = {size: known_sum(one.forecast[at] for one in each) for at, size in enumerate(sizes)}
    unneeded = known_sum(one.instead_bytes for one in each)
    forecast = {size: reads for size, reads in sums.items() if reads is not None}
    return PoolWorth(forecast, None if unneeded is None else int(unneeded))
