"""Starts a worker for each machine of the node, ends those of machines that are gone, and tidies up after them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Generator

from tidepool_agent.cluster import Cluster
from tidepool_agent.nodeworker import NodeWorker
from tidepool_agent.provider import Machine
from tidepool_agent.rounds import tried
from tidepool_agent.worker import Tools, Worker
from tidepool_api import GuestKey, MemoryPairing, ObjectKey, names
from tidepool_api.kube import Refused
from tidepool_api.turns import at_once

log = logging.getLogger(__name__)

SETTLE_EVERY, LEAVE_EVERY, NODE_EVERY, MEASURE_EVERY = 15.0, 3.0, 30.0, 300.0
NODE_RETRY_EVERY = 5.0
BEAT_SECONDS, BEAT_STALE_SECONDS = 5.0, 60.0


class Controller:
    """One per agent."""

    def __init__(self, tools: Tools, namespace: str, lender: NodeWorker | None = None) -> None:
        """`lender` looks after the node itself, where that lends."""
        self._tools, self._namespace, self._lender = tools, namespace, lender
        self._workers: dict[GuestKey, tuple[Worker, asyncio.Task[None]]] = {}
        self._changed, self._settled = asyncio.Event(), asyncio.Event()
        self._beat = time.monotonic()
        self._begun = self._ready = False

    def touched(self, key: GuestKey) -> None:
        """Something has changed that concerns a guest."""
        if key in self._workers:
            self._workers[key][0].wake()
        if self._lender and key == self._lender.key:
            self._lender.wake()
        self._changed.set()

    def alive(self) -> bool:
        """Whether the event loop turns."""
        return time.monotonic() - self._beat < BEAT_STALE_SECONDS

    def ready(self) -> bool:
        """Whether everything that was there at the start has been looked at, and has the module that it should have.

        It stays so: the cluster waits for it when it replaces agents, and goes on to the next nodes.
        """
        workers = [worker for worker, _ in self._workers.values()]
        done = self._begun and all(worker.looked and not worker.behind for worker in workers)
        self._ready = self._ready or done
        return self._ready

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beats())
            group.create_task(self._heartbeat())
            group.create_task(self._follow_node())
            await self._cluster.start()
            group.create_task(self._measure())
            if self._tools.donors:
                group.create_task(self._tools.donors.run())
            if self._lender:
                group.create_task(self._lender.run())
            group.create_task(self._tidy_up())
            log.info("watching node %s", self._cluster.node)
            while True:
                self._changed.clear()
                await self._settle()
                self._begun = True
                await _waited(self._changed, SETTLE_EVERY)

    @property
    def _cluster(self) -> Cluster:
        return self._tools.cluster

    @property
    def _own(self) -> set[GuestKey]:
        """The node itself, if it lends: it has a MemoryGuest, and pairings."""
        return {self._lender.key} if self._lender else set()

    async def _beats(self) -> None:
        """Nothing else, so that no API server that hangs is a reason to start the agent again."""
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    async def _heartbeat(self) -> None:
        while True:
            try:
                await self._cluster.renew_lease(self._namespace)
            except Refused as error:
                self._failed("cannot renew the Lease", error)
            await asyncio.sleep(names.LEASE_RENEW_SECONDS)

    async def _follow_node(self) -> None:
        while True:
            try:
                await self._cluster.find_home()
            except Refused as error:
                log.debug("the node is not known: %s", error)
            await asyncio.sleep(NODE_EVERY if self._cluster.is_at_home else NODE_RETRY_EVERY)

    async def _measure(self) -> None:
        while True:
            try:
                await self._cluster.measure()
            except Refused as error:
                self._failed("cannot see how large the cluster is", error)
            await asyncio.sleep(MEASURE_EVERY * random.uniform(0.8, 1.2))

    async def _settle(self) -> None:
        """One worker per machine; nobody waits here for the API server."""
        machines = self._cluster.machines()
        for key in self._workers.keys() - machines.keys():
            await self._end(key)
        for key in machines.keys() - self._workers.keys():
            self._begin(machines[key])
        self._settled.set()

    def _begin(self, machine: Machine) -> None:
        log.info("guest %s appeared", machine.key)
        worker = Worker(machine, self._tools)
        self._workers[machine.key] = worker, asyncio.create_task(worker.run())

    async def _end(self, key: GuestKey) -> None:
        log.info("guest %s is gone", key)
        _, task = self._workers.pop(key)
        task.cancel()
        await asyncio.wait({task})

    def _present(self) -> set[GuestKey]:
        """The guests of this node that are looked after, or are about to be."""
        return self._cluster.machines().keys() | self._workers.keys() | self._own

    def _is_present(self, key: GuestKey) -> bool:
        return key in self._workers or key in self._own or self._cluster.machine(key) is not None

    async def _tidy_up(self) -> None:
        """Leaves nothing of machines that are gone."""
        while True:
            self._settled.clear()
            await self._tidy()
            idle = self._cluster.guests().keys() - self._present()
            leaving = [key for key in idle if not self._cluster.ended(key)]
            await _waited(self._settled, LEAVE_EVERY if leaving else SETTLE_EVERY)

    async def _tidy(self) -> None:
        """Removes what a guest that is gone leaves behind: its MemoryGuest, and the finalizers of its pairings."""
        try:
            await at_once(self._left_behind())
        except Refused as error:
            self._failed("cannot tidy up", error)

    def _left_behind(self) -> Generator[Awaitable[object], None, None]:
        """The steps to be taken. While its provider has a guest, its MemoryGuest stays, and says how it ended.

        Before each it is looked anew who is here: a step may take long, and a guest arrives meanwhile.
        """
        for key, guest in list(self._cluster.guests().items()):
            if self._is_present(key):
                continue
            words = self._cluster.ended(key)
            step = self._cluster.write_ended(key, words) if words else self._cluster.let_go(guest)
            yield self._attempt("say how it ended of" if words else "let go", key, step)
        for pairing in self._cluster.terminating():
            for finalizer in orphaned(pairing, self._cluster.node, self._is_present):
                yield self._attempt("release pairing", pairing.key, self._cluster.release(pairing, finalizer))

    async def _attempt(self, what: str, key: ObjectKey, step: Awaitable[object]) -> None:
        """Does something about one object: that it is refused or hangs holds up no other, that nobody answers does."""
        if error := await tried(step):
            self._failed(f"cannot {what} {key}", error, key.namespace)

    def _failed(self, what: str, error: Refused, namespace: str = "") -> None:
        """Says that a step about a namespace, or else the agent's own, was refused."""
        log.warning("%s: %s", what, error)
        self._tools.figures.failed(self._cluster.node, namespace or self._namespace)


async def _waited(event: asyncio.Event, seconds: float) -> None:
    """Waits for an event, and no longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def orphaned(pairing: MemoryPairing, node: str, is_present: Callable[[GuestKey], bool]) -> list[str]:
    """The finalizers of a pairing that stand for guests which were to be on this node, and are not."""
    nodes = pairing.spec.lender.node_name, pairing.spec.borrower.node_name
    sides = zip(nodes, pairing.ends, (names.LENDER_FINALIZER, names.BORROWER_FINALIZER), strict=True)
    return [finalizer for place, guest, finalizer in sides if place == node and not is_present(guest)]
