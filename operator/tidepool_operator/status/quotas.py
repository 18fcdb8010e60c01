"""Says on each MemoryQuota what counts against it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidepool_api import QuotaStatus, cadence, format_quantity
from tidepool_api.fields import total
from tidepool_api.kube import Refused
from tidepool_operator.cluster.quotas import counted
from tidepool_operator.planning import build
from tidepool_operator.planning.quotas import Side

if TYPE_CHECKING:
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.state import State

log = logging.getLogger(__name__)


async def tell(cluster: Cluster, state: State) -> None:
    """Writes on all quotas what is new; one that is refused does not hold up the others."""
    for namespace in state.quotas.namespaces():
        fresh = status(namespace, state)
        for quota in state.quotas.in_namespace(namespace):
            patch = build.replacement(quota.status.to_dict(), fresh.to_dict())
            if not patch:
                continue
            await asyncio.sleep(1 / cadence.QUOTA_WRITES)
            try:
                answer = await cluster.patch(state.quotas.plural, namespace, quota.name, {"status": patch}, status=True)
            except Refused as refusal:
                log.warning("cannot say on quota %s what counts: %s", quota.key, refusal)
            else:
                state.quotas.put(answer)


def status(namespace: str, state: State) -> QuotaStatus:
    """What the guests of a namespace borrow and lend in all."""
    borrowed, lent = (
        format_quantity(total(one.spec.size_bytes for one in counted((side, namespace), state)))
        for side in (Side.BORROWED, Side.LENT)
    )
    return QuotaStatus(borrowed=borrowed, lent=lent)
