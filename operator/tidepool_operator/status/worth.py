"""What memory is worth in each pool, for Prometheus: the figures that `kubectl tidepool plan` shows.

By the guests' curves alone. What lenders answer now is counted by the agents, and the chart's rules add that up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api.worth import FACTORS, Guests, known_sum, of_pool, sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidepool_api import MemoryPairing, MemoryPool, PoolKey
    from tidepool_operator.cluster.state import State


@dataclass(frozen=True)
class PoolWorth:
    """What memory is worth in a pool; what nobody knows is left out."""

    forecast: Mapping[float, float]
    """Reads a second that disks would be spared if each guest had so many times what the pool says."""
    unneeded_bytes: int | None
    """What borrowers would need of their own for as few reads, in all."""


async def of_pools(state: State) -> dict[PoolKey, PoolWorth]:
    """That of all pools."""
    found = {}
    for namespace in state.pools.namespaces():
        guests = Guests(state.guests.in_namespace(namespace))
        for pool in state.pools.in_namespace(namespace):
            await asyncio.sleep(0)  # others' work goes on between two of many pools
            found[pool.key] = pool_worth(pool, guests, state.pairings.in_group(*pool.key))
    return found


def pool_worth(pool: MemoryPool, guests: Guests, pairings: Iterable[MemoryPairing]) -> PoolWorth:
    """That of one; `guests` are those of its namespace."""
    each = of_pool(pool, guests, pairings, sizes_of(pool)).values()
    sums = {factor: known_sum(one.forecast[at] for one in each) for at, factor in enumerate(FACTORS)}
    unneeded = known_sum(one.instead_bytes for one in each)
    forecast = {factor: reads for factor, reads in sums.items() if reads is not None}
    return PoolWorth(forecast, None if unneeded is None else int(unneeded))
