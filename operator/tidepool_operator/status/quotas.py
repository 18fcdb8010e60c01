"""Says on each MemoryQuota what counts against it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidepool_api import QuotaStatus, cadence, format_quantity
from tidepool_api.fields import total
from tidepool_operator.cluster.quotas import counted
from tidepool_operator.planning import build
from tidepool_operator.planning.quotas import Side

if TYPE_CHECKING:
    from tidepool_api import MemoryQuota
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.state import State
    from tidepool_operator.status.outcome import Outcome


async def tell(cluster: Cluster, state: State, outcome: Outcome) -> None:
    """Writes on all quotas what is new; one that is refused, or hangs, does not hold up the others."""
    for namespace in state.quotas.namespaces():
        fresh = status(namespace, state)
        for quota in state.quotas.in_namespace(namespace):
            patch = build.replacement(quota.status.to_dict(), fresh.to_dict())
            if not patch:
                continue
            await asyncio.sleep(1 / cadence.QUOTA_WRITES)
            what, write = f"say on quota {quota.key} what counts", partial(_write, cluster, state, quota, patch)
            await outcome.attempt(namespace, quota.metadata.uid, what, None, write)


async def _write(cluster: Cluster, state: State, quota: MemoryQuota, patch: build.Body) -> None:
    state.quotas.put(
        await cluster.patch(state.quotas.plural, quota.namespace, quota.name, {"status": patch}, status=True)
    )


def status(namespace: str, state: State) -> QuotaStatus:
    """What the guests of a namespace borrow and lend in all."""
    borrowed, lent = (
        format_quantity(total(one.spec.size_bytes for one in counted((side, namespace), state)))
        for side in (Side.BORROWED, Side.LENT)
    )
    return QuotaStatus(borrowed=borrowed, lent=lent)
