"""The node's own reconcile loop, beside those of its guests: find the daemon, tell it who may borrow, look, report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from tidepool_agent import consent, nodelender, plan
from tidepool_agent.cluster import Cluster
from tidepool_agent.errors import ConfigureFailed, GuestError, Unreachable
from tidepool_agent.metrics import Figures, Sample
from tidepool_agent.nodedaemon import Daemon
from tidepool_agent.nodelender import Memory, Node, NotRunning, Place, State, Terms
from tidepool_agent.plan import Want
from tidepool_agent.provider import Machine
from tidepool_agent.report import Finding
from tidepool_agent.rounds import COLLECT_EVERY, Rounds
from tidepool_api import GuestKey, MemoryPairing, Provider
from tidepool_api.keys import ObjectKey
from tidepool_api.kube import Api, Copy, Object
from tidepool_api.kube.resources import NODES, PODS

log = logging.getLogger(__name__)

SOON, NODE_EVERY = 2.0, 30.0
# So long after a change, and after the daemon was last there, it is looked at often.
SETTLING_SECONDS = 60.0
# So long a daemon may be away until the memory that was gathered for it is given back: it may be starting anew.
AWAY_SECONDS = 60.0


class Surroundings:
    """What the API server says of the node, and of the daemon's pod there."""

    def __init__(self, api: Api, node: str, namespace: str) -> None:
        self._api, self._name, self._namespace = api, node, namespace
        labels = f"app.kubernetes.io/name=tidepool,app.kubernetes.io/component={nodelender.COMPONENT}"
        where = f"metadata.namespace={namespace},spec.nodeName={node}"  # others call theirs as they like
        self._pods = Copy(ObjectKey, api, PODS, self._changed, fieldSelector=where, labelSelector=labels)
        self._node = Node("")
        self._asked = -NODE_EVERY
        self.changed = asyncio.Event()

    async def start(self) -> None:
        """Follows the pod; returns when it is known whether there is one."""
        self._pods.start(asyncio.get_running_loop())
        await self._pods.synced.wait()

    def place(self) -> Place:
        """Where the daemon runs."""
        return nodelender.place(self._pods.objects.values(), self._namespace, self._name)

    async def node(self) -> Node:
        """The node, as it was a short while ago."""
        if time.monotonic() - self._asked >= NODE_EVERY:
            body = await asyncio.to_thread(self._api.get, NODES.path(name=self._name))
            meta = body["metadata"]
            drained = bool(body.get("spec", {}).get("unschedulable"))
            labels = consent.kept(meta.get("labels", {}))
            self._node, self._asked = Node(meta["uid"], labels, drained), time.monotonic()
        return self._node

    def _changed(self, _old: Object | None, _new: Object | None) -> None:
        self.changed.set()


@dataclass(frozen=True)
class Kernel:
    """What the kernel of the node says."""

    proc: Path

    def memory(self) -> Memory:
        """Its memory now."""
        total, available = nodelender.meminfo((self.proc / "meminfo").read_text())
        return Memory(total, available, self._line("kernel/osrelease"), self._line("kernel/random/boot_id"))

    def _line(self, name: str) -> str:
        try:
            return (self.proc / "sys" / name).read_text().strip()
        except OSError:
            return ""


class NodeWorker(Rounds):
    """Looks after the node as a lender until it is cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        figures: Figures,
        around: Surroundings,
        daemon: Daemon,
        kernel: Kernel,
        terms: Terms,
        home: str,
        gathered: Callable[[], int] = int,
    ) -> None:
        """`home` is the namespace of the release, `gathered` says what balloons hold for the node."""
        super().__init__(cluster, figures)
        self.key = GuestKey(home, cluster.node)
        self._around, self._daemon, self._kernel, self._terms = around, daemon, kernel, terms
        self._gathered, self._there = gathered, time.monotonic()
        self._loaded = "", ""
        self._changed = time.monotonic()
        self._found = Finding()
        self._state: State | None = None

    def lends(self) -> bool:
        """Whether the daemon is there, or was a moment ago."""
        return self._state is not None or time.monotonic() - self._there < AWAY_SECONDS

    @property
    def _about(self) -> GuestKey:
        return self.key

    @property
    def _name(self) -> str:
        return f"node lender {self.key}"

    def _close(self) -> None:
        self._figures.drop(self.key)

    async def run(self) -> None:
        """Rounds, for ever, from when it is known where the daemon is."""
        await self._around.start()
        waker = asyncio.create_task(self._follow())
        try:
            await super().run()
        finally:
            waker.cancel()

    async def _follow(self) -> None:
        while True:
            await self._around.changed.wait()
            self._around.changed.clear()
            self.wake()

    async def _round(self) -> float:
        pairings = self._of.pairings(self.key)
        wants = plan.desired(self.key, pairings).peers
        node, place = await self._around.node(), self._around.place()
        memory = replace(await asyncio.to_thread(self._kernel.memory), gathered=self._gathered())
        self._found = await self._find(place, memory, wants, hold=node.drained)
        self._collect(pairings)
        await self._report(nodelender.machine(*self.key, node, place.addresses), memory, wants)
        released = await self._let_pairings_go(self.key, pairings, self._is_torn_down)
        return self._pause() if released else SOON

    # ---------------------------------------------------------------------------------------------- look, compare, act

    async def _find(self, place: Place, memory: Memory, wants: tuple[Want, ...], *, hold: bool) -> Finding:
        """Tells the daemon what it does not know yet, and says how it is now."""
        try:
            if place.trouble:
                raise NotRunning(place.trouble, "NotRunning")
            text = nodelender.config(self._terms, memory.total, wants, place.addresses, hold=hold)
            self._state = await asyncio.to_thread(self._bring, place.container, text)
        except Unreachable as error:
            self._state = None
            return self._without(Finding(seen=self._found.seen, unreachable=error))
        except GuestError as error:
            self._state = None
            return self._without(Finding(seen=self._found.seen, refused=error))
        self._there = time.monotonic()
        return Finding(seen=nodelender.observation(self._state, memory), failed=nodelender.unfit(wants))

    def _without(self, found: Finding) -> Finding:
        """What is found in the place of the daemon's state, which is logged when it is news."""
        why, before = found.unreachable or found.refused, self._found.unreachable or self._found.refused
        if str(why) != str(before):
            log.warning("%s: %s", self._name, why)
        return found

    def _bring(self, container: str, text: str) -> State:
        """Has the daemon lend as the text says; blocks."""
        self._daemon.write(container, text)
        state = nodelender.parse(self._daemon.ask(container, "state"))
        if self._loaded == (state.identity, text):
            return state
        answer = self._daemon.ask(container, "reload")
        if answer != "ok":
            raise ConfigureFailed(f"the node lender refuses what it is told: {answer.removeprefix('error: ')}")
        self._loaded, self._changed = (state.identity, text), time.monotonic()
        log.info("%s: configured, identity %s", self._name, state.identity)
        return nodelender.parse(self._daemon.ask(container, "state"))

    # ---------------------------------------------------------------------------------------------------------- report

    def _collect(self, pairings: Collection[MemoryPairing]) -> None:
        if self._found.seen:
            by_uid = {one.metadata.uid: (one.spec.pool, one.name) for one in pairings}
            sample = Sample(self._found.seen, Provider.NODE.value, by_uid, stale=self._state is None)
            self._figures.put(self.key, sample)

    async def _report(self, one: Machine, memory: Memory, wants: tuple[Want, ...]) -> None:
        present = self._of.guest(self.key)
        before = present.status if present and present.spec.vm.uid == one.uid else None
        fresh = nodelender.guest(one, self._terms, memory, self._found, self._state, wants, before)
        self._figures.judge(self.key, fresh.status.conditions)
        await self._write(fresh, present, before, wants, self._found)

    def _is_torn_down(self, pairing: MemoryPairing) -> bool:
        """Whether nothing of a pairing is left: a daemon that does not run lends nothing."""
        if self._state is None:
            return isinstance(self._found.unreachable, NotRunning) and self._found.unreachable.reason == "NotRunning"
        return pairing.metadata.uid not in self._state.borrowers

    def _pause(self) -> float:
        """How long until the next round, if nothing happens before."""
        is_settled = self._state is not None and all(one.state == "Connected" for one in self._state.borrowers.values())
        if not is_settled and time.monotonic() - self._changed < SETTLING_SECONDS:
            return SOON
        return COLLECT_EVERY
