"""The agents of all nodes in one: they report guests, set up pairings and take them down, at once and without error."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import GuestKey, ObjectKey, cadence, names
from tidepool_api.kube import ours
from tidepool_api.kube.resources import LEASES
from tidepool_api.pairing import ends
from tidepool_scale.api import all_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from tidepool_scale.api import Api, Body
    from tidepool_scale.world import Guest

GUESTS, PAIRINGS, POOLS = ours(names.GUESTS), ours(names.PAIRINGS), ours(names.POOLS)
RENEW_SECONDS = 20  # half of what would be too late

T = TypeVar("T")


async def spread(items: Sequence[T], seconds: float) -> AsyncIterator[T]:
    """Each of them in its turn, evenly over this time, and by the clock: a turn that was late delays no other."""
    clock = asyncio.get_running_loop().time
    begin = clock()
    for at, one in enumerate(items):
        await asyncio.sleep(max(0.0, begin + at * seconds / len(items) - clock()))
        yield one
    await asyncio.sleep(max(0.0, begin + seconds - clock()))


class Agents:
    """All agents; `connected` are the pairings that they have set up, with lender and borrower.

    Beside that they see what the pools' `phases` are, as a dashboard would: whoever asks again and again takes what the
    API server has from the others.
    """

    def __init__(self, api: Api, own_namespace: str) -> None:
        self._api, self._own_namespace = api, own_namespace
        self._chance = random.Random(4)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connected: dict[ObjectKey, tuple[GuestKey, GuestKey]] = {}
        self.phases: dict[ObjectKey, str] = {}
        self.writes = 0  # of figures

    def spawn(self, job: Coroutine[Any, Any, Any]) -> None:
        """Keeps a coroutine running."""
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            print(f"agents: {task.exception()}")

    async def stop(self) -> None:
        """Ends what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- guests -------------------------------------------------------------------------------------------------------

    async def publish(self, guests: Iterable[Guest]) -> None:
        """New guests, with their first reports."""
        await all_of(self._publish(one) for one in guests)

    async def _publish(self, one: Guest) -> None:
        await self._api.call("POST", GUESTS.path(one.namespace), one.body())
        await self._report(one)

    async def _report(self, one: Guest) -> None:
        """A report of a guest that may have gone meanwhile."""
        status = {"status": one.report(self._chance)}
        path = GUESTS.path(*one.key, "status")
        await self._api.call("PATCH", path, status, missing_is_fine=True)

    async def remove(self, guests: Iterable[Guest]) -> None:
        """Guests that are no more."""
        await all_of(self._api.call("DELETE", GUESTS.path(*one.key)) for one in guests)

    # --- figures ------------------------------------------------------------------------------------------------------

    async def move_all(self, guests: Iterable[Guest], seconds: float) -> None:
        """So long all figures move all the time: everybody reports as soon as the cadence of agents lets it."""
        pairings = list(self.connected)
        moving: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(self._report, one) for one in guests]
        moving += [partial(self._report_end, one, side) for one in pairings for side in ("lender", "borrower")]
        self._chance.shuffle(moving)
        due = round(seconds * len(moving) / cadence.figures_seconds(len(moving) - 2 * len(pairings), len(pairings)))
        async for one in spread(list(islice(cycle(moving), due)), seconds):
            self.writes += 1
            self.spawn(one())

    async def _report_end(self, pairing: ObjectKey, side: str) -> None:
        used, hits = self._chance.randint(1, 32) << 24, self._chance.randint(5000, 10_000)
        figures: dict[str, Body] = {
            "lender": {"lentBytes": used},
            "borrower": {"usedBytes": used, "hits": hits, "misses": 10_000 - hits, "hitRatio": f"{hits / 10_000:.2f}"},
        }
        body = {"status": {side: figures[side]}}
        await self._api.call("PATCH", PAIRINGS.path(*pairing, "status"), body, missing_is_fine=True)

    # --- signs of life ------------------------------------------------------------------------------------------------

    async def renew_for_ever(self, nodes: Iterable[str]) -> None:
        """The Leases of all nodes, evenly spread."""
        every = list(nodes)
        await all_of(self._renew(node, first=True) for node in every)
        while True:
            async for node in spread(every, RENEW_SECONDS):
                self.spawn(self._renew(node))

    async def _renew(self, node: str, *, first: bool = False) -> None:
        name = names.agent_lease(node)
        spec = {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "holderIdentity": node}
        body: Body = {"apiVersion": LEASES.api, "kind": "Lease", "spec": spec}
        if first:
            body["metadata"] = {"name": name, "labels": names.LEASE_LABELS}
            await self._api.call("POST", LEASES.path(self._own_namespace), body)
        else:
            await self._api.call("PATCH", LEASES.path(self._own_namespace, name), {"spec": spec})

    # --- pools --------------------------------------------------------------------------------------------------------

    async def see_pools_for_ever(self) -> None:
        """Keeps `phases` as they are."""
        async for event in self._api.watch(POOLS.path()):
            self.phases[ObjectKey.of(event["object"])] = event["object"].get("status", {}).get("phase", "")

    # --- pairings -----------------------------------------------------------------------------------------------------

    async def serve_for_ever(self) -> None:
        """Sets up every pairing that appears or changes, and lets those go that are being deleted."""
        async for event in self._api.watch(PAIRINGS.path()):
            pairing = event["object"]
            if event["type"] == "DELETED" or "deletionTimestamp" in pairing["metadata"]:
                self.connected.pop(ObjectKey.of(pairing), None)
            if event["type"] in ("ADDED", "MODIFIED"):
                self._serve(pairing)

    def _serve(self, pairing: Body) -> None:
        meta, spec, borrower = pairing["metadata"], pairing["spec"], pairing.get("status", {}).get("borrower", {})
        key = ObjectKey.of(pairing)
        if "deletionTimestamp" in meta:
            if meta.get("finalizers"):
                path = PAIRINGS.path(*key)
                self.spawn(self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, missing_is_fine=True))
        elif borrower.get("observedGeneration") != meta["generation"]:
            end = {"state": "Connected", "bootID": "1", "observedGeneration": meta["generation"]}
            lender, borrower = (spec[side].get("identity") for side in ("lender", "borrower"))
            status = {"lender": end | {"peerIdentity": borrower}, "borrower": end | {"peerIdentity": lender}}
            path = PAIRINGS.path(*key, "status")
            self.spawn(self._api.call("PATCH", path, {"status": status}, missing_is_fine=True))
        else:
            self.connected[key] = ends(pairing)
