"""kopf's part: it watches, and what it sees goes into the state and wakes the work on that namespace.

Plain event handlers only: kopf then writes nothing into anybody's objects, neither finalizers nor annotations. What has
to survive a restart is in the objects themselves.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kopf

from tidepool_api import names
from tidepool_operator.abroad import borrowing_from, readers
from tidepool_operator.cluster import Cluster, Refused, load_config
from tidepool_operator.election import Election, lease_name
from tidepool_operator.heartbeats import Heartbeats
from tidepool_operator.metrics import Metrics
from tidepool_operator.reconcile import Reconciler
from tidepool_operator.state import Objects, State
from tidepool_operator.work import Work

if TYPE_CHECKING:
    from tidepool_operator.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
RELIST_SECONDS = 600.0
# Right after a CRD is created the API server answers 429, and it may be away for minutes when it is upgraded.
ERROR_BACKOFFS = (1, 1, 2, 3, 5, 8, *[10] * 60)


@dataclass
class Operator:
    """The parts of a running operator."""

    settings: Settings
    cluster: Cluster
    state: State
    heartbeats: Heartbeats
    reconciler: Reconciler
    work: Work
    election: Election
    metrics: Metrics
    readers: dict[str, set[str]] = field(default_factory=dict)  # namespace -> those that may borrow from its guests
    silent: frozenset[str] = frozenset()  # nodes whose agent was dead when last looked
    background: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    def assemble(cls, settings: Settings, metrics: Metrics) -> Operator:
        """Puts the parts together; nothing runs yet."""
        load_config()
        cluster = Cluster(namespaces=settings.namespaces, on_write=lambda kind: metrics.writes.labels(kind).inc())
        state, heartbeats = State(), Heartbeats()
        reconciler = Reconciler(cluster, state, heartbeats, metrics)
        work = Work(reconciler.namespace, on_failure=lambda _: metrics.errors.inc())
        election = Election(cluster, settings.own_namespace, lease_name(settings.namespaces))
        return cls(settings, cluster, state, heartbeats, reconciler, work, election, metrics)

    async def start(self) -> None:
        """Learns what is there, and begins to work on it as soon as no other operator does."""
        await _insist("cannot read the objects of the API", self.list_everything)
        steps = (
            self.election.run(self.act),
            _for_ever("cannot read the agents' leases", HEARTBEAT_SECONDS, self.look_at_heartbeats),
            _for_ever("cannot list the objects again", RELIST_SECONDS, self.relist),
        )
        self.background = [asyncio.create_task(step) for step in steps]

    async def act(self) -> None:
        """Works on what is there now, for the watches may be behind, until it is cancelled."""
        try:
            await _insist("cannot read the objects of the API", self.relist)
            self.work.start()
            for namespace in self.state.namespaces():
                await self.work.add(namespace)
            self.metrics.leading.set(1)
            log.info("ready: %d namespaces with pools or pairings", len(self.state.namespaces()))
            await asyncio.Event().wait()
        finally:
            self.metrics.leading.set(0)
            await self.work.stop()
            self.reconciler.step_down()

    async def stop(self) -> None:
        """Ends what runs."""
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        await self.election.resign()
        self.cluster.close()

    @property
    def alive(self) -> bool:
        """Whether everything runs that should."""
        return self.election.alive and not self.work.is_broken and not any(task.done() for task in self.background)

    async def take_in(self, objects: Objects[Any], kind: str | None, body: dict[str, Any]) -> None:
        """Takes in one watch event."""
        namespace = body["metadata"]["namespace"]
        if kind == "DELETED":
            objects.remove(namespace, body["metadata"]["name"], body["metadata"]["uid"])
        else:
            objects.put(body)
        if objects is self.state.pools:
            self.readers = readers(self.state)
        lender = body.get("spec", {}).get("lender", {}).get("namespace")  # of a pairing
        borrowing = borrowing_from(namespace, self.state) if objects is self.state.grants else ()
        for one in {namespace, lender or namespace, *self.readers.get(namespace, ()), *borrowing}:
            await self.work.add(one)

    async def take_in_node(self, kind: str | None, body: dict[str, Any]) -> None:
        """Takes in one watch event about a node, and wakes the namespaces that have guests there."""
        name = body["metadata"]["name"]
        if kind == "DELETED":
            self.state.nodes.remove(name)
        elif self.state.nodes.put(body):
            for namespace in self._nodes().get(name, ()):
                await self.work.add(namespace)

    async def list_everything(self) -> None:
        """Knows everything before anything is planned: a pairing must not be deleted for a guest not yet seen."""
        for body in await self.cluster.list_nodes():
            self.state.nodes.put(body)
        for objects in self.state.kinds:
            for body in (await self.cluster.list_all(objects.plural))[0]:
                objects.put(body)
        self.readers = readers(self.state)
        await self.look_at_heartbeats()

    async def relist(self) -> None:
        """Finds what was missed, or deleted while nobody watched."""
        for objects in self.state.kinds:
            bodies, at = await self.cluster.list_all(objects.plural)
            for body in bodies:
                objects.put(body)
            for namespace in objects.forget_missing(bodies, at):
                await self.work.add(namespace)
        self.readers = readers(self.state)
        self.reconciler.forget_gone()

    async def look_at_heartbeats(self) -> None:
        """Reads the leases of the agents, and wakes the namespaces of those that fell silent or came back."""
        try:
            self.heartbeats.update(await self.cluster.list_leases(self.settings.own_namespace))
        except Refused:
            self.heartbeats.failed()
            raise
        nodes = self._nodes()
        silent = self.heartbeats.silent(nodes)
        changed, self.silent = (silent ^ self.silent) & nodes.keys(), silent
        for namespace in {name for node in changed for name in nodes[node]}:
            await self.work.add(namespace)
        if changed:
            log.info("agents silent now: %s; back: %s", sorted(changed & silent), sorted(changed - silent))

    def _nodes(self) -> dict[str, set[str]]:
        """The namespaces that each node's agent matters to."""
        nodes: dict[str, set[str]] = {}
        for namespace in self.state.guests.namespaces():
            for one in self.state.guests.in_namespace(namespace):
                nodes.setdefault(one.spec.node_name, set()).update((namespace, *self.readers.get(namespace, ())))
        return nodes


async def _for_ever(what: str, seconds: float, step: Any) -> None:
    """Repeats a step; what fails is logged and tried again."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - one bad answer must not end the watch over the agents
            log.warning("%s: %s", what, error)


async def _insist(what: str, step: Any) -> None:
    """Repeats a step until it succeeds."""
    for delay in ERROR_BACKOFFS:
        try:
            await step()
        except Refused as refusal:
            hint = "; are the CRDs installed (crds/yaml, or the chart)?" if refusal.is_gone else ""
            log.warning("%s: %s%s; tried again in %d s", what, refusal, hint, delay)
            await asyncio.sleep(delay)
        else:
            return
    raise kopf.PermanentError(f"{what}: given up")


def build_registry(settings: Settings, metrics: Metrics) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    registry = kopf.OperatorRegistry()
    operator = Operator.assemble(settings, metrics)

    @kopf.on.login(registry=registry)
    def login(**context: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**context)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, clusterwide=not operator.settings.namespaces)
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await operator.stop()

    @kopf.on.probe(registry=registry, id="workers")
    async def workers(**_: Any) -> str:
        if not operator.alive:
            raise kopf.PermanentError("a worker has ended")
        return "alive"

    for objects in operator.state.kinds:
        _watch(registry, operator, objects)
    _watch_nodes(registry, operator)
    return registry


def _watch(registry: kopf.OperatorRegistry, operator: Operator, objects: Objects[Any]) -> None:
    @kopf.on.event(names.GROUP, names.VERSION, objects.plural, registry=registry, id=objects.plural)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        await operator.take_in(objects, event["type"], dict(event["object"]))


def _watch_nodes(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    @kopf.on.event("v1", "nodes", registry=registry, id="nodes")
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        await operator.take_in_node(event["type"], dict(event["object"]))


def configure(settings: kopf.OperatorSettings, *, clusterwide: bool) -> None:
    """Timeouts and backoffs for an operator that runs for months; with a few namespaces it may see nothing else."""
    settings.scanning.disabled = not clusterwide
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = ERROR_BACKOFFS
    settings.queueing.idle_timeout = 0.5  # a worker for each object that has just changed, not for all of them
    settings.peering.standalone = True
    settings.posting.enabled = False
