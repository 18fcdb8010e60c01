"""Writes to objects, keeps what the answers say, tells users by Events, and has turns for what can wait."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tidepool_api.kube import Refused
from tidepool_operator.cluster.slots import Slots
from tidepool_operator.planning import build, figures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidepool_api import ApiObject, MemoryGuest, MemoryPairing, MemoryPool
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.state import Objects

log = logging.getLogger(__name__)

EVENT_SECONDS = 2.0  # after which an Event hangs, and nobody waits for its slot

_NUMBERS = re.compile(r"(?<![\w.-])[0-9]+([KMGT]i)?\b")  # but not those in names


def gist(message: str) -> str:
    """A message without its numbers, which move all the time."""
    return _NUMBERS.sub("", message)


class Turns:
    """Turns to write what can wait, so many a second for all together."""

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock = 1 / per_second, clock
        self._next = 0.0
        self._turns: dict[str, float] = {}

    def keep(self, alive: Collection[str]) -> None:
        """Forgets the turns of all objects but these, by UID."""
        self._turns = {uid: at for uid, at in self._turns.items() if uid in alive}

    def wait(self, uid: str) -> float:
        """The seconds until it is an object's turn; 0 when it is now, for which it is over then."""
        moment = self._clock()
        if uid not in self._turns:
            self._turns[uid] = max(self._next, moment)
            self._next = self._turns[uid] + self._every
        left = self._turns[uid] - moment
        if left <= 0:
            del self._turns[uid]
        return max(0.0, left)


class Writer:
    """What has gone meanwhile is no failure but is known then; any other refusal is raised as `Refused`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, tuple[str, str]] = {}  # UID -> what the last Event about it said
        self._events: dict[str, Slots] = defaultdict(Slots)  # namespace -> slots for its Events

    def keep(self, alive: Collection[str]) -> None:
        """Forgets what was said about all objects but these, by UID."""
        self._said = {uid: said for uid, said in self._said.items() if uid in alive}

    def end(self) -> None:
        """Forgets all, and cancels the Events that have no answer: whoever writes now is another."""
        for slots in self._events.values():
            slots.end()
        self._events.clear()
        self._said.clear()

    async def patch(
        self,
        objects: Objects[Any],
        one: MemoryPool | MemoryPairing | MemoryGuest,
        patch: build.Body,
        *,
        status: bool = False,
        wakes: bool = True,
    ) -> Any:
        """Patches an object, and knows its new version at once; None when it is gone.

        `wakes`: whether its own event is to have the namespace gone over again, though it tells nothing new.
        """
        try:
            answer = await self._cluster.patch(objects.plural, one.namespace, one.name, patch, status=status)
        except Refused as refusal:
            if not refusal.is_gone:
                raise
            objects.remove(one.namespace, one.name, one.metadata.uid)
            return None
        before, fresh = objects.get(one.namespace, one.name), objects.put(answer)
        if not wakes and before is not fresh and figures.are_ours(before, fresh):
            objects.expect_echo(answer["metadata"]["resourceVersion"])
        return fresh

    async def set_finalizers(self, objects: Objects[Any], one: ApiObject, finalizers: tuple[str, ...]) -> bool:
        """Sets the finalizers, provided that nobody changed the object in the meantime; else False."""
        metadata = {"finalizers": list(finalizers), "resourceVersion": one.metadata.resource_version}
        try:
            answer = await self._cluster.patch(objects.plural, one.namespace, one.name, {"metadata": metadata})
        except Refused as refusal:
            if refusal.is_conflict:
                return False
            if not refusal.is_gone:
                raise
            objects.remove(one.namespace, one.name, one.metadata.uid)
            return True
        if one.terminating and not finalizers:
            objects.remove(one.namespace, one.name, one.metadata.uid)
        else:
            objects.put(answer)
        return True

    async def say(self, about: MemoryPool | MemoryPairing, kind: str, reason: str, message: str) -> None:
        """Posts an Event, unless the last one said the same but for some number. Nothing depends on it.

        Nor does anything wait until it is posted; while some of its namespace hang, others are lost.
        """
        uid, said = about.metadata.uid, (reason, gist(message))
        if self._said.get(uid) == said:
            return
        self._said[uid] = said
        slots = self._events[about.namespace]
        if await slots.wait("", EVENT_SECONDS):
            log.warning("event %s about %s is lost: others there have no answer", reason, about.key)
            return
        event = slots.take("", self._post(about, kind, reason, message))
        asyncio.get_running_loop().call_later(EVENT_SECONDS, slots.hangs, event)

    async def _post(self, about: MemoryPool | MemoryPairing, kind: str, reason: str, message: str) -> None:
        try:
            await self._cluster.create_event(build.event(about, kind, reason, message))
        except Refused as refusal:
            log.warning("event %s about %s is lost: %s", reason, about.key, refusal)
