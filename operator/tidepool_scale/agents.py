"""The agents of all nodes in one: they report guests, set up pairings and take them down, at once and without error."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import names
from tidepool_scale.api import all_of
from tidepool_scale.world import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence

    from tidepool_scale.api import Api, Body
    from tidepool_scale.world import Guest

OURS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
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
    """All agents; `connected` are the pairings that they have set up, by name, with borrower and lender."""

    def __init__(self, api: Api, own_namespace: str) -> None:
        self._api, self._leases = api, LEASES.format(own_namespace)
        self._chance = random.Random(4)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connected: dict[str, tuple[str, str]] = {}

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
        await self._api.call("POST", f"{OURS}/{names.GUESTS}", one.body())
        await self.report(one)

    async def report(self, one: Guest) -> None:
        """A report of a guest that may have gone meanwhile."""
        path = f"{OURS}/{names.GUESTS}/{one.name}/status"
        await self._api.call("PATCH", path, {"status": one.report(self._chance)}, missing_is_fine=True)

    async def remove(self, guests: Iterable[Guest]) -> None:
        """Guests that are no more."""
        await all_of(self._api.call("DELETE", f"{OURS}/{names.GUESTS}/{one.name}") for one in guests)

    async def report_for(self, guests: list[Guest], seconds: float) -> None:
        """Every guest reports once in this time, spread over it."""
        async for one in spread(guests, seconds):
            self.spawn(self.report(one))

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
        body: Body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        if first:
            body["metadata"] = {"name": name, "labels": names.LEASE_LABELS}
            await self._api.call("POST", self._leases, body)
        else:
            await self._api.call("PATCH", f"{self._leases}/{name}", {"spec": spec})

    # --- pairings -----------------------------------------------------------------------------------------------------

    async def serve_for_ever(self) -> None:
        """Sets up every pairing that appears or changes, and lets those go that are being deleted."""
        async for event in self._api.watch(f"{OURS}/{names.PAIRINGS}"):
            pairing = event["object"]
            if event["type"] == "DELETED" or "deletionTimestamp" in pairing["metadata"]:
                self.connected.pop(pairing["metadata"]["name"], None)
            if event["type"] in ("ADDED", "MODIFIED"):
                self._serve(pairing)

    def _serve(self, pairing: Body) -> None:
        meta, borrower = pairing["metadata"], pairing.get("status", {}).get("borrower", {})
        path = f"{OURS}/{names.PAIRINGS}/{meta['name']}"
        if "deletionTimestamp" in meta:
            if meta.get("finalizers"):
                self.spawn(self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, missing_is_fine=True))
        elif borrower.get("observedGeneration") != meta["generation"]:
            end = {"state": "Connected", "bootID": "1", "observedGeneration": meta["generation"]}
            lender, borrower = (pairing["spec"][side].get("identity") for side in ("lender", "borrower"))
            status = {"lender": end | {"peerIdentity": borrower}, "borrower": end | {"peerIdentity": lender}}
            self.spawn(self._api.call("PATCH", f"{path}/status", {"status": status}, missing_is_fine=True))
        else:
            spec = pairing["spec"]
            self.connected[meta["name"]] = (spec["borrower"]["guest"], spec["lender"]["guest"])
