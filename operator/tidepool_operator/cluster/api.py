"""The API server, as far as the operator uses it: calls run in threads, answers are plain dictionaries."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import GuestKey, ObjectKey, names
from tidepool_api.kube import Access, Api, Refused, ours
from tidepool_api.kube.resources import EVENTS, LEASES, NODES
from tidepool_api.turns import AT_ONCE, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Body = dict[str, Any]
T = TypeVar("T")

PATIENCE_SECONDS = 20.0
WRITES_AT_ONCE = 24  # of all namespaces: with a server that takes a tenth of a second for each, 240 a second
EVENTS_AT_ONCE = 8  # beside these, so that no guest waits for what is only told
# When the API server gives a write up. A webhook has ten seconds unless it asks for more, and may be one to do without.
WRITE_SECONDS = 12
PLACE_SECONDS = 1.0  # after which a write makes room for another, and goes on
UNANSWERED_AT_MOST = 64  # writes
WITHIN = {"timeout": f"{WRITE_SECONDS}s"}
OURS = {"fieldManager": names.OPERATOR_FIELD_MANAGER}


def _kept(body: Body) -> Body:
    """A body without what is never looked at, and as large as those make it who write it."""
    meta = {name: value for name, value in body["metadata"].items() if name not in ("managedFields", "annotations")}
    said = body["metadata"].get("annotations", {})
    meta["annotations"] = {key: text for key, text in said.items() if key.startswith(f"{names.GROUP}/")}
    return body | {"metadata": meta}


class Cluster:
    """A client; `on_write` is told of every object that was written.

    A write may hang, for a webhook is asked that never answers. So writes have threads of their own: what is read, and
    the Leases by which this operator leads, never wait for one.
    """

    def __init__(
        self, access: Access, *, namespaces: Sequence[str] = (), on_write: Callable[[str], None] = lambda _: None
    ) -> None:
        self._namespaces = tuple(namespaces)
        self._on_write = on_write
        self._api = Api(access, patience=PATIENCE_SECONDS, connections=AT_ONCE + UNANSWERED_AT_MOST)
        self._pool = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="api")
        self._writing = ThreadPoolExecutor(max_workers=UNANSWERED_AT_MOST, thread_name_prefix="write")
        self._slots, self._for_events = asyncio.Semaphore(WRITES_AT_ONCE), asyncio.Semaphore(EVENTS_AT_ONCE)
        self.waited = 0.0
        """The seconds that the last write waited for others, before the API server was asked."""

    def close(self) -> None:
        """Waits for no call that has not begun."""
        for pool in (self._pool, self._writing):
            pool.shutdown(wait=False, cancel_futures=True)

    async def list_all(self, plural: str) -> tuple[list[Body], int]:
        """All objects of a kind, and the resource version at which they were all there."""
        if not self._namespaces or plural == names.CLASSES:
            return await self._list(ours(plural).path())
        answers = [await self._list(ours(plural).path(namespace)) for namespace in self._namespaces]
        return [one for items, _ in answers for one in items], min(at for _, at in answers)

    async def list_nodes(self) -> list[Body]:
        """The nodes of the cluster."""
        items, _ = await self._list(NODES.path())
        return items

    async def list_leases(self, namespace: str) -> list[Body]:
        """The leases of the agents."""
        selector = ",".join(f"{key}={value}" for key, value in names.LEASE_LABELS.items())
        items, _ = await self._list(LEASES.path(namespace), labelSelector=selector)
        return items

    async def get_lease(self, namespace: str, name: str) -> Body:
        """One Lease."""
        return await self._do(self._api.get, LEASES.path(namespace, name))

    async def create_lease(self, body: Body) -> None:
        """Creates a Lease."""
        await self._do(self._api.create, LEASES.path(body["metadata"]["namespace"]), body)

    async def replace_lease(self, body: Body) -> None:
        """Replaces a Lease, unless somebody else has changed it meanwhile."""
        await self._do(self._api.replace, LEASES.path(*ObjectKey.of(body)), body)

    async def create(self, plural: str, body: Body) -> Body:
        """Creates one of our objects."""
        return await self._write(plural, self._api.create, ours(plural).path(body["metadata"]["namespace"]), body)

    async def patch(self, plural: str, namespace: str, name: str, body: Body, *, status: bool = False) -> Body:
        """Merges fields into one of our objects, or into its status."""
        path = ours(plural).path(namespace, name, "status" if status else "")
        return await self._write(plural, self._api.merge, path, body)

    async def delete(self, plural: str, namespace: str, name: str, uid: str) -> Body:
        """Deletes an object if it is still the one that we know."""
        return await self._write(plural, self._api.delete, ours(plural).path(namespace, name), uid=uid)

    async def offer(self, body: Body) -> None:
        """Applies a MemoryGuest in its agent's name, unless somebody has changed it, so that the agent can undo it."""
        path = ours(names.GUESTS).path(*GuestKey.of(body))
        try:
            await self._change(self._api.apply, path, body, manager=names.AGENT_FIELD_MANAGER)
        except Refused as refusal:
            if not (refusal.is_gone or refusal.is_conflict):
                raise
        self._on_write(names.GUESTS)

    async def create_event(self, body: Body) -> None:
        """Posts an Event."""
        path = EVENTS.path(body["metadata"]["namespace"])
        await self._in_its_turn(self._for_events, partial(self._api.create, path, body, **OURS, **WITHIN))
        self._on_write("events")

    async def _list(self, path: str, **query: str) -> tuple[list[Body], int]:
        found = await self._do(self._api.list_all, path, _kept, **query)
        return found.items, int(found.version)

    async def _write(self, what: str, call: Callable[..., Body], path: str, *body: Body, **query: str) -> Body:
        answer = await self._change(call, path, *body, **query, **OURS)
        self._on_write(what)
        return answer

    async def _change(self, call: Callable[..., T], path: str, *body: Body, **options: str) -> T:
        return await self._in_its_turn(self._slots, partial(call, path, *body, **options, **WITHIN))

    async def _in_its_turn(self, slots: asyncio.Semaphore, write: Callable[[], T]) -> T:
        """Writes, a few at a time; one that waits for its answer is none of them after a while.

        What is cancelled before it has a thread is not written.
        """
        asked = time.monotonic()

        def begin() -> asyncio.Future[T]:
            if slots is self._slots:
                self.waited = time.monotonic() - asked
            return asyncio.get_running_loop().run_in_executor(self._writing, write)

        return await in_turn(slots, PLACE_SECONDS, begin)

    async def _do(self, call: Callable[..., T], path: str, *given: Any, **options: str) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, path, *given, **options))
