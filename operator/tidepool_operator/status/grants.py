"""Says on each MemoryGrant who makes use of it: those who wrote it may not look where the pairings are.

Added up for all grants at a time, from the pairings that are known, and written where it has clearly changed, one after
the other: whoever writes many grants has no more written for that, and others wait a little longer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from tidepool_api import GrantStatus, GrantUse, cadence
from tidepool_api.fields import readable, total
from tidepool_api.grant import MOST_USES
from tidepool_operator.planning import build

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidepool_api import MemoryGrant, MemoryPairing, PoolKey
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.state import State
    from tidepool_operator.status.outcome import Outcome

PART = 16  # of what may be taken: a change of what is lent that is less is not written


async def tell(cluster: Cluster, state: State, outcome: Outcome) -> None:
    """Writes on all grants what is new; one that is refused, or hangs, does not hold up the others."""
    found = borrowed(one for namespace in state.pairings.namespaces() for one in state.pairings.in_namespace(namespace))
    for namespace in state.grants.namespaces():
        for grant in state.grants.in_namespace(namespace):
            await asyncio.sleep(0)  # others' work goes on between two of many grants
            fresh = status(grant, found.get(namespace, {}), state)
            if not worth_writing(fresh, grant.status):
                continue
            await asyncio.sleep(1 / cadence.GRANT_WRITES)
            patch = build.replacement(grant.status.to_dict(), fresh.to_dict())
            what, write = f"say on grant {grant.key} who uses it", partial(_write, cluster, state, grant, patch)
            await outcome.attempt(namespace, grant.metadata.uid, what, None, write)


async def _write(cluster: Cluster, state: State, grant: MemoryGrant, patch: build.Body) -> None:
    state.grants.put(
        await cluster.patch(state.grants.plural, grant.namespace, grant.name, {"status": patch}, status=True)
    )


def borrowed(pairings: Iterable[MemoryPairing]) -> Mapping[str, Mapping[PoolKey, list[MemoryPairing]]]:
    """The pairings that borrow from other namespaces, by the lender's namespace and then by their pool."""
    found: dict[str, dict[PoolKey, list[MemoryPairing]]] = defaultdict(lambda: defaultdict(list))
    for one in pairings:
        if one.lender.namespace != one.namespace and not one.is_taken_down:
            found[one.lender.namespace][one.pool].append(one)
    return found


def status(grant: MemoryGrant, found: Mapping[PoolKey, Iterable[MemoryPairing]], state: State) -> GrantStatus:
    """What is lent under a grant; `found` are the pairings that borrow from its namespace."""
    meant = [(pool, pairings) for pool, pairings in found.items() if grant.is_for(*pool)]
    uses = [use for pool, pairings in meant if (use := _use(pool, _allowed(grant, pairings, state))).pairings]
    uses.sort(key=lambda one: (-one.size_bytes, one.namespace, one.pool))
    return GrantStatus(
        pairings=sum(one.pairings for one in uses),
        lent=readable(total(one.lent_bytes for one in uses)),
        uses=tuple(uses[:MOST_USES]),
    )


def _allowed(grant: MemoryGrant, pairings: Iterable[MemoryPairing], state: State) -> Iterator[MemoryPairing]:
    for one in pairings:
        lender = state.guests.get(grant.namespace, one.spec.lender.guest)
        if grant.allows(one.namespace, one.spec.pool, lender.metadata.labels if lender else None):
            yield one


def _use(pool: PoolKey, pairings: Iterator[MemoryPairing]) -> GrantUse:
    each = list(pairings)
    lent = total(one.status.lender.lent_bytes or 0 for one in each if one.status.lender)
    size = total(one.spec.size_bytes for one in each)
    return GrantUse(namespace=pool.namespace, pool=pool.name, pairings=len(each), size_bytes=size, lent_bytes=lent)


def worth_writing(fresh: GrantStatus, present: GrantStatus) -> bool:
    """Whether another use, or a figure that has clearly moved, is to be told."""
    if fresh.pairings != present.pairings or [_but_lent(one) for one in fresh.uses] != [
        _but_lent(one) for one in present.uses
    ]:
        return True
    moved = zip(fresh.uses, present.uses, strict=True)
    return any(abs(new.lent_bytes - old.lent_bytes) > new.size_bytes // PART for new, old in moved)


def _but_lent(use: GrantUse) -> GrantUse:
    return use.model_copy(update={"lent_bytes": 0})
