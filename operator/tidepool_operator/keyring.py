"""Makes the Secrets with the pairings' keys, has them replaced in time, and drops those that are done with."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidepool_api import ConditionType, Reason, find, now
from tidepool_operator import build, keys
from tidepool_operator.cluster import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidepool_api import MemoryPairing, MemoryPool
    from tidepool_operator.cluster import Cluster
    from tidepool_operator.state import State
    from tidepool_operator.writing import Writer

log = logging.getLogger(__name__)


class Keyring:
    """A Secret is written once and never read; that there is one is remembered, not looked up."""

    def __init__(self, cluster: Cluster, state: State, writer: Writer) -> None:
        self._cluster, self._state, self._writer = cluster, state, writer
        self._made: set[str] = set()  # UIDs of pairings whose Secret was made sure of

    def keep(self, alive: Collection[str]) -> None:
        """Forgets all pairings but these, by UID."""
        self._made.intersection_update(alive)

    async def ensure(self, pairing: MemoryPairing) -> None:
        """Creates the pre-shared key unless that was done, and again when an agent says that it is missing."""
        uid = pairing.metadata.uid
        if uid in self._made and not _is_missed(pairing):
            return
        await self._try(pairing, pairing.spec.key_secret.name)
        self._made.add(uid)

    async def make(self, pairing: MemoryPairing, name: str) -> None:
        """Creates a key in place of what has its name: a former pairing's, which would go away under it, or older."""
        if not await self._try(pairing, name):
            await self._drop(pairing, name)
            await self._try(pairing, name)
        self._made.add(pairing.metadata.uid)

    async def tend(self, pool: MemoryPool, pairing: MemoryPairing) -> float | None:
        """Replaces a key that is too old; its Secret goes when both guests have the next one.

        Returns after how many seconds there is something to be done, if there will be.
        """
        secret, at = pairing.spec.key_secret, now()
        if secret.former and not keys.behind(pairing):
            await self._drop(pairing, secret.former)
            await self._name(pairing, {"former": None})
            text = f"both guests have the key of the Secret {secret.name}"
            await self._writer.say(pairing, "Normal", "KeyReplaced", text)
            return None
        expiry = keys.expiry(pool, pairing)
        if expiry is not None and expiry <= at:
            fresh = keys.successor(pairing, at)
            await self.make(pairing, fresh.name)
            await self._name(pairing, fresh.to_dict())
            log.info("pairing %s/%s gets the key of the Secret %s", pairing.namespace, pairing.name, fresh.name)
            return None
        moments = (expiry, keys.overdue_at(pairing))
        return min(((one - at).total_seconds() for one in moments if one is not None and one > at), default=None)

    async def _name(self, pairing: MemoryPairing, secret: build.Body) -> None:
        await self._writer.patch(self._state.pairings, pairing, {"spec": {"keySecret": secret}})

    async def _try(self, pairing: MemoryPairing, name: str) -> bool:
        """Creates a key unless there is one."""
        try:
            await self._cluster.create_secret(build.key_secret(pairing, name))
        except Refused as refusal:
            if not refusal.is_conflict:
                raise
            return False
        return True

    async def _drop(self, pairing: MemoryPairing, name: str) -> None:
        try:
            await self._cluster.delete_secret(pairing.namespace, name)
        except Refused as refusal:
            if not refusal.is_gone:
                raise


def _is_missed(pairing: MemoryPairing) -> bool:
    """Whether an agent cannot find the Secret."""
    sides = (pairing.status.lender, pairing.status.borrower)
    found = (find(side.conditions, ConditionType.CONFIGURED) for side in sides if side)
    return any(one is not None and one.reason == Reason.KEY_MISSING for one in found)
