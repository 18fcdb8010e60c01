"""Which of several operators acts: the one that holds a Lease. The others watch, and take over when it is not renewed.

A Lease of coordination.k8s.io, as Kubernetes' own controllers use it, rather than kopf's peering: it needs no CRD of
its own and rights on one object only, and taking it is a single write that the API server lets only one of them make.
Ages are measured by this machine's clock from when a renewal was first seen, so that clocks need not agree. Whoever
cannot renew stops well before another one may begin. A write that is under way then does no harm: creations have names
that follow from what they are for, deletions and finalizers are bound to the version that was seen, and patches say the
same whoever plans them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidepool_api import names
from tidepool_api.kube import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tidepool_operator.cluster.api import Cluster

log = logging.getLogger(__name__)

Body = dict[str, Any]

LEASE_SECONDS = 15  # from when on a Lease that was not renewed may be taken
GIVE_UP_SECONDS = 10  # without a renewal, after which its holder stops to act
RENEW_SECONDS = 2


def lease_name(namespaces: Sequence[str]) -> str:
    """The Lease for those who serve these namespaces, or all of the cluster; others do not compete with them."""
    digest = hashlib.sha256(",".join(namespaces).encode()).hexdigest()[:10]
    return f"{names.OPERATOR_LEASE}-{digest}" if namespaces else names.OPERATOR_LEASE


@dataclass
class Rival:
    """What was last seen of the Lease, and since when it has been so."""

    holder: str = ""
    renewed: str = ""
    since: float = 0.0

    def look(self, spec: Body, now: float) -> None:
        """Takes in what the Lease says."""
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if (holder, renewed) != (self.holder, self.renewed):
            self.holder, self.renewed, self.since = holder, renewed, now

    def is_gone(self, now: float) -> bool:
        """Whether nobody holds it any more."""
        return not self.holder or now - self.since > LEASE_SECONDS


class Election:
    """One candidate."""

    def __init__(
        self, cluster: Cluster, namespace: str, name: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._namespace, self._name, self._clock = cluster, namespace, name, clock
        self.identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._acting: asyncio.Task[None] | None = None
        self._rival = Rival()
        self._renewed = 0.0  # when this one last succeeded

    async def run(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Takes part for ever; `act` runs while this one leads, and is cancelled when it does no more."""
        try:
            while True:
                held = await self._try()
                if held and not self.is_leader:
                    log.info("leading: %s holds the lease %s", self.identity, self._name)
                    self._acting = asyncio.create_task(act())
                elif self.is_leader and self._is_over(held=held):
                    log.warning("no longer leading: %s lost the lease %s", self.identity, self._name)
                    await self._end()
                await asyncio.sleep(RENEW_SECONDS)
        finally:
            await self._end()

    @property
    def is_leader(self) -> bool:
        """Whether this one acts."""
        return self._acting is not None

    @property
    def alive(self) -> bool:
        """Whether it does what it should: acts, if it leads."""
        return self._acting is None or not self._acting.done()

    async def _end(self) -> None:
        acting, self._acting = self._acting, None
        if acting is not None:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)

    def _is_over(self, *, held: bool | None) -> bool:
        """Whether to stop: somebody else has it, or it could not be renewed for long."""
        return held is False or self._clock() - self._renewed > GIVE_UP_SECONDS

    async def resign(self) -> None:
        """Lets another one take over at once, if this one had the Lease."""
        try:
            lease = await self._cluster.get_lease(self._namespace, self._name)
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                await self._cluster.replace_lease(self._spec_of(lease, holder=""))
        except Refused as refusal:
            log.warning("the lease %s is not given back: %s", self._name, refusal)

    async def _try(self) -> bool | None:
        """Takes or renews the Lease; None when that could not be found out."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                held = await self._take()
        except (Refused, TimeoutError) as error:
            if isinstance(error, Refused) and error.is_conflict:  # somebody else was faster
                return False if not self.is_leader else None
            log.warning("cannot use the lease %s/%s: %s", self._namespace, self._name, error)
            return None
        if held:
            self._renewed = self._clock()
        return held

    async def _take(self) -> bool:
        try:
            lease = await self._cluster.get_lease(self._namespace, self._name)
        except Refused as refusal:
            if not refusal.is_gone:
                raise
            metadata = {"name": self._name, "namespace": self._namespace}
            await self._cluster.create_lease(self._spec_of({"metadata": metadata}, holder=self.identity))
            return True
        self._rival.look(lease.get("spec") or {}, self._clock())
        if self._rival.holder != self.identity and not self._rival.is_gone(self._clock()):
            return False
        await self._cluster.replace_lease(self._spec_of(lease, holder=self.identity))
        return True

    def _spec_of(self, lease: Body, *, holder: str) -> Body:
        """The Lease as this one would have it; its resourceVersion makes sure that nobody else changed it."""
        before = lease.get("spec") or {}
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_new = before.get("holderIdentity") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": at,
            "acquireTime": at if is_new else before.get("acquireTime", at),
            "leaseTransitions": before.get("leaseTransitions", 0) + is_new,
        }
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        return {**head, "metadata": lease["metadata"], "spec": spec}
