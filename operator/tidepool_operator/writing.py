"""Writes to objects, keeps what the answers say, and tells users by Events."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from tidepool_operator import build
from tidepool_operator.cluster import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidepool_api import ApiObject, MemoryPairing, MemoryPool
    from tidepool_operator.cluster import Cluster
    from tidepool_operator.state import Objects

log = logging.getLogger(__name__)

_NUMBERS = re.compile(r"(?<![\w.-])[0-9]+([KMGT]i)?\b")  # but not those in names


class Writer:
    """What has gone meanwhile is no failure but is known then; any other refusal is raised as `Refused`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, tuple[str, str]] = {}  # UID -> what the last Event about it said

    def keep(self, alive: Collection[str]) -> None:
        """Forgets what was said about all objects but these, by UID."""
        self._said = {uid: said for uid, said in self._said.items() if uid in alive}

    async def patch(
        self, objects: Objects[Any], one: MemoryPool | MemoryPairing, patch: build.Body, *, status: bool = False
    ) -> Any:
        """Patches an object, and knows its new version at once; None when it is gone."""
        try:
            answer = await self._cluster.patch(objects.plural, one.namespace, one.name, patch, status=status)
        except Refused as refusal:
            if not refusal.is_gone:
                raise
            objects.remove(one.namespace, one.name, one.metadata.uid)
            return None
        return objects.put(answer)

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
        """Posts an Event, unless the last one said the same but for some number. Nothing depends on it."""
        uid, gist = about.metadata.uid, _NUMBERS.sub("", message)
        if self._said.get(uid) == (reason, gist):
            return
        self._said[uid] = (reason, gist)
        try:
            await self._cluster.create_event(build.event(about, kind, reason, message))
        except Refused as refusal:
            log.warning("event %s about %s/%s is lost: %s", reason, about.namespace, about.name, refusal)
