"""Keeps a copy of the objects of one kind: list once, then follow the watch, for ever.

Each copy has a thread, because reading a watch blocks; what it learns is handed to the event loop, which alone
touches the copy. A watch that ends goes on from its last resource version; one whose version has expired lists anew.
A copy that was complete once is emptied by a list or by events only: whatever an error says, what is there still is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Generic, TypeVar

from tidepool_api.keys import ObjectKey
from tidepool_api.kube.client import Api, Object, Part, Refused, whole
from tidepool_api.kube.resources import Resource

log = logging.getLogger(__name__)

FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
# Who ends a watch sooner that brought nothing, such as a proxy in the API server's place, is asked again after a pause.
LEAST_SECONDS = 1.0

K = TypeVar("K", bound=ObjectKey)

# Called in the event loop with the old and the new object; one of them is None when it appears or disappears.
Changed = Callable[[Object | None, Object | None], None]


def _version(item: Object) -> int:
    """Versions of one object can be compared: Kubernetes lets clients rely on that."""
    return int(item["metadata"]["resourceVersion"])


class Copy(Generic[K]):
    """The objects of one kind in all namespaces, narrowed by a selector, by the keys that the kind has."""

    def __init__(
        self, key: type[K], api: Api, resource: Resource, changed: Changed, *, part: Part = whole, **query: str
    ) -> None:
        """`part` leaves out of an object what nobody looks at: an author may make his own as large as he likes."""
        self.objects: dict[K, Object] = {}
        self.synced = asyncio.Event()
        self._key, self._api, self._resource, self._query, self._changed = key, api, resource, query, changed
        self._part = part
        self._path = resource.path()
        self._listed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to follow."""
        threading.Thread(target=self._follow, args=(loop,), name=f"watch {self._path}", daemon=True).start()

    def absorb(self, item: Object) -> None:
        """Takes in what the API server answered, unless the watch has removed the object, or was quicker, meanwhile."""
        present = self.objects.get(self._key.of(item))
        if present is None or present["metadata"]["uid"] != item["metadata"]["uid"]:
            return
        if _version(item) > _version(present):
            self._put(item)

    def _put(self, item: Object) -> None:
        old = self.objects.get(self._key.of(item))
        self.objects[self._key.of(item)] = item
        self._changed(old, item)

    def _replace(self, items: list[Object]) -> None:
        fresh = {self._key.of(item): item for item in items}
        for key in self.objects.keys() - fresh.keys():
            self._remove(key)
        for item in fresh.values():
            self._put(item)
        self.synced.set()

    def _remove(self, key: K) -> None:
        old = self.objects.pop(key, None)
        if old is not None:
            self._changed(old, None)

    def _event(self, event: Object) -> None:
        if event["type"] == "DELETED":
            self._remove(self._key.of(event["object"]))
        else:
            self._put(event["object"])

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        version, pause = "", FIRST_PAUSE
        while not loop.is_closed():
            try:
                start = version or self._list(loop)
                begun = time.monotonic()
                version = self._watch(loop, start)
                if version != start or time.monotonic() - begun >= LEAST_SECONDS:
                    pause = FIRST_PAUSE
                    continue
                log.warning("the watch of %s ended at once, and brought nothing", self._path)
            except Refused as error:
                version = "" if error.status else version
                log.log(logging.DEBUG if error.status == HTTPStatus.GONE else logging.WARNING, "%s", error)
                if error.status == HTTPStatus.NOT_FOUND:
                    self._doubt(loop)
            except Exception:
                if loop.is_closed():
                    return
                version = ""
                log.exception("watch of %s", self._path)
            time.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(2 * pause, LAST_PAUSE)

    def _doubt(self, loop: asyncio.AbstractEventLoop) -> None:
        """There are none if the kind is not installed; the API server says so in its lists of kinds alone."""
        if self._listed:  # the loop may not have come to it yet
            return
        try:
            if not self._api.offers(self._resource):
                loop.call_soon_threadsafe(self._replace, [])
        except Refused as error:
            log.warning("%s", error)

    def _list(self, loop: asyncio.AbstractEventLoop) -> str:
        found = self._api.list_all(self._path, self._part, **self._query)
        self._listed = True
        loop.call_soon_threadsafe(self._replace, found.items)
        return found.version

    def _watch(self, loop: asyncio.AbstractEventLoop, version: str) -> str:
        for event in self._api.watch(self._path, resourceVersion=version, **self._query):
            if event["type"] == "ERROR":
                raise _ended(event["object"])
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                loop.call_soon_threadsafe(self._event, {**event, "object": self._part(event["object"])})
        return version


def _ended(status: Object) -> Refused:
    """Why the API server ends a watch."""
    return Refused(int(status.get("code", HTTPStatus.GONE)), "watch", str(status.get("message", "no reason given")))
