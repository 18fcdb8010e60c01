"""kopf's part: it watches, and what it sees goes into the state and wakes the work on that namespace.

Plain event handlers only: kopf then writes nothing into anybody's objects, neither finalizers nor annotations. What has
to survive a restart is in the objects themselves. So kopf is a pump of events here, and no more. It stays for that: it
follows many kinds in many namespaces in one event loop, each object's events in order, a kind that is installed later,
too, and keeps none of them. The agent's `Copy` has a thread for each path, and all objects a second time.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import kopf

from tidepool_api import GuestKey, names
from tidepool_api.kube import Access, Refused, kubeconfig
from tidepool_api.pairing import ends
from tidepool_operator.cluster.api import Cluster
from tidepool_operator.cluster.cross_namespace import borrowing_from
from tidepool_operator.cluster.election import Election, lease_name
from tidepool_operator.cluster.heartbeats import Heartbeats
from tidepool_operator.cluster.queue import SETTLE_SECONDS, WorkQueue
from tidepool_operator.cluster.state import NOWHERE, Objects, State
from tidepool_operator.health import serve
from tidepool_operator.metrics import Metrics
from tidepool_operator.planning import figures
from tidepool_operator.reconcile import FIGURES_SECONDS, Reconciler
from tidepool_operator.status import grants, quotas, unpaired, worth
from tidepool_operator.status.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidepool_operator.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
RELIST_SECONDS = 600.0
GRANTS_SECONDS = 15.0
# Right after a CRD is created the API server answers 429, and it may be away for minutes when it is upgraded.
ERROR_BACKOFFS = (1, 1, 2, 3, 5, 8, *[10] * 60)
# A watch that is this long without a word, not even a bookmark, is taken for dead: on a connection that somebody in
# between has forgotten, nothing ever comes, and no error either. The API server sends a bookmark each minute.
WATCH_SILENCE_SECONDS = 70.0
LISTED_AT_ONCE = 20  # objects, each of which may be a megabyte and a half, and takes several times that to be read


@dataclass
class Operator:
    """The parts of a running operator."""

    settings: Settings
    cluster: Cluster
    state: State
    heartbeats: Heartbeats
    reconciler: Reconciler
    queue: WorkQueue
    election: Election
    metrics: Metrics
    silent: frozenset[str] = frozenset()  # nodes whose agent was dead when last looked
    knows: bool = False  # what is there, so that it can plan
    saying: Outcome = field(default_factory=partial(Outcome, "beside pools"))
    told: dict[tuple[str, str], int] = field(default_factory=dict)  # kind and namespace -> changes that woke somebody
    health: asyncio.Server | None = None
    background: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    def assemble(cls, settings: Settings, metrics: Metrics) -> Operator:
        """Puts the parts together; nothing runs yet."""
        cluster = Cluster(kubeconfig.found(), namespaces=settings.namespaces, on_write=metrics.written)
        state, heartbeats = State(settings.own_namespace), Heartbeats()
        reconciler = Reconciler(cluster, state, heartbeats, metrics)
        queue = WorkQueue(reconciler.namespace, on_failure=lambda _: metrics.errors.inc())
        election = Election(cluster, settings.own_namespace, lease_name(settings.namespaces))
        return cls(settings, cluster, state, heartbeats, reconciler, queue, election, metrics)

    async def start(self) -> None:
        """Learns what is there, and begins to work on it as soon as no other operator does."""
        if self.settings.health_port:
            checks = {"/healthz": lambda: self.alive, "/readyz": lambda: self.knows}
            self.health = await serve(self.settings.health_address, self.settings.health_port, checks)
        await _insist("cannot read the objects of the API", self.list_everything)
        self.knows = True
        steps = (
            self.election.run(self.act),
            self.repeat("cannot read the agents' leases", HEARTBEAT_SECONDS, self.look_at_heartbeats),
            self.repeat("cannot list the objects again", RELIST_SECONDS, self.relist),
        )
        self.background = [asyncio.create_task(step) for step in steps]

    async def act(self) -> None:
        """Works on what is there now, for the watches may be behind, until it is cancelled."""
        try:
            await _insist("cannot read the objects of the API", self.relist)
            self.queue.start()
            for namespace in self.state.namespaces():
                await self.queue.add(namespace)
            self.metrics.leading.set(1)
            log.info("ready: %d namespaces with pools or pairings", len(self.state.namespaces()))
            await self.repeat("cannot say what is used", GRANTS_SECONDS, self.tell_on_others)
        finally:
            self.metrics.leading.set(0)
            await self.queue.stop()
            self.saying.end()
            self.metrics.show_unpaired({})
            self.metrics.show_worth({})
            self.reconciler.step_down()

    async def tell_on_others(self) -> None:
        """Says on each grant who makes use of it, on each quota what counts against it, on guests what is left over.

        And shows what memory is worth. What becomes of one of these is nothing to the others. What cannot be written,
        for it is refused or hangs, is an error for as long as that lasts: there is no pool that would say it.
        """
        self.saying = Outcome("beside pools", self.saying)
        for what, step in (
            ("say on grants who uses them", partial(grants.tell, self.cluster, self.state, self.saying)),
            ("say on quotas what counts", partial(quotas.tell, self.cluster, self.state, self.saying)),
            ("say on guests what is left over", self._tell_unpaired),
            ("show what memory is worth", self._show_worth),
        ):
            await self._alone(f"cannot {what}", step)
        if any(self.saying.refusals):
            self.metrics.errors.inc()
        self.saying.forget_answered()

    async def _tell_unpaired(self) -> None:
        if not self.heartbeats.is_blind:
            self.metrics.show_unpaired(await unpaired.tell(self.cluster, self.state, self.heartbeats, self.saying))

    async def _show_worth(self) -> None:
        self.metrics.show_worth(await worth.of_pools(self.state))

    async def _alone(self, what: str, step: Callable[[], Awaitable[object]]) -> None:
        """Takes a step; what fails is logged, with where that was if it is a defect of ours, and counted."""
        try:
            await step()
        except Exception as error:
            log.warning("%s: %s", what, error, exc_info=not isinstance(error, Refused))
            self.metrics.errors.inc()

    async def repeat(self, what: str, seconds: float, step: Callable[[], Awaitable[object]]) -> None:
        """Repeats a step; one bad answer must not end the watch over the agents."""
        while True:
            await asyncio.sleep(seconds)
            await self._alone(what, step)

    async def stop(self) -> None:
        """Ends what runs."""
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        await self.election.resign()
        self.cluster.close()
        if self.health:
            self.health.close()

    @property
    def alive(self) -> bool:
        """Whether everything runs that should."""
        return self.election.alive and not self.queue.is_broken and not any(task.done() for task in self.background)

    async def take_in(self, objects: Objects[Any], kind: str | None, body: dict[str, Any]) -> None:
        """Takes in one watch event."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        if kind != "DELETED" and objects.is_echo(body["metadata"].get("resourceVersion", "")):
            return
        before = objects.get(namespace, name)
        # What another event will tell may be known by now, by the answer to a write.
        told = self.told.setdefault((objects.plural, namespace), objects.changes(namespace))
        if kind == "DELETED":
            objects.bury(namespace, name, body["metadata"]["uid"])
        else:
            objects.put(body)
        changes = self.told[objects.plural, namespace] = objects.changes(namespace)
        is_news = kind == "DELETED" or changes != told  # more than its status
        if objects in (self.state.grants, self.state.quotas) and not is_news:
            return  # what is said on them nobody plans with
        lending = _lending(body, self.state.home) if objects is self.state.pools else set()
        if objects is self.state.pools and before is not None:
            lending |= self.state.lending(before)
        known = objects.get(namespace, name)
        # What is known already came with the answer to a write, and nobody has gone over it since.
        delay = FIGURES_SECONDS if known is not before and figures.are_all(before, known) else SETTLE_SECONDS
        for one in {namespace, *self._concerned(objects, body, lending, is_news=is_news)}:
            await self.queue.add(one, delay)

    def _concerned(self, objects: Objects[Any], body: dict[str, Any], lending: set[str], *, is_news: bool) -> set[str]:
        """The namespaces that plan with an object; from `lending` a pool borrows now, or did before."""
        grants, meta = self.reconciler.grants, body["metadata"]
        if objects is self.state.pairings:
            found = {namespace for end in ends(body) for namespace in grants.concerned(end)}
            return found | (self._sharing(ends(body)[0].namespace) if is_news else set())
        if objects is self.state.guests and not is_news:
            return self._planning_with(GuestKey.of(body))
        shared = {meta["namespace"], *lending} if is_news else ()
        is_granting = objects in (self.state.grants, self.state.guests, self.state.quotas)
        borrowing = borrowing_from(meta["namespace"], self.state) if is_granting else set()
        return borrowing | {reader for namespace in shared for reader in grants.readers(namespace)}

    def _sharing(self, lending: str) -> set[str]:
        """The namespaces that may borrow what others leave of the quota of a lending one, or of nodes."""
        is_shared = lending == self.state.home or bool(self.state.quotas.in_namespace(lending))
        return self.reconciler.grants.readers(lending) if is_shared else set()

    def _planning_with(self, guest: GuestKey) -> set[str]:
        """The namespaces that plan with a guest; with a node all that may have it."""
        found, one = self.reconciler.grants.concerned(guest), self.state.guests.get(*guest)
        return found | self.reconciler.grants.readers(guest.namespace) if one is not None and one.is_node else found

    async def take_in_node(self, kind: str | None, body: dict[str, Any]) -> None:
        """Takes in one watch event about a node, and wakes the namespaces that have guests there."""
        name = body["metadata"]["name"]
        is_news = self.state.nodes.remove(name) if kind == "DELETED" else self.state.nodes.put(body)
        if is_news:
            for namespace in self._nodes().get(name, ()):
                await self.queue.add(namespace)

    async def take_in_class(self, kind: str | None, body: dict[str, Any]) -> None:
        """Takes in one watch event about a class, and wakes the namespaces of pools that get something else for it."""
        classes, metadata = self.state.classes, body["metadata"]
        if kind == "DELETED":
            classes.bury(NOWHERE, metadata["name"], metadata["uid"])
        else:
            classes.put(body)
        await self._renew_pools()

    async def _renew_pools(self) -> None:
        """Wakes the namespaces of pools that are others now, and those that may borrow from the same guests."""
        for namespace in self.state.pools.renew():
            pools = self.state.pools.in_namespace(namespace)
            shared = {namespace, *(name for pool in pools for name in self.state.lending(pool))}
            readers = (reader for lending in shared for reader in self.reconciler.grants.readers(lending))
            for one in {namespace, *readers}:
                await self.queue.add(one)

    async def list_everything(self) -> None:
        """Knows everything before anything is planned: a pairing must not be deleted for a guest not yet seen."""
        for body in await self.cluster.list_nodes():
            self.state.nodes.put(body)
        for objects in (self.state.classes, *self.state.kinds):
            for body in (await self.cluster.list_all(objects.plural))[0]:
                objects.put(body)
        await self.look_at_heartbeats()

    async def relist(self) -> None:
        """Finds what was missed, or deleted while nobody watched."""
        known = list(self.state.nodes.known)
        nodes = {body["metadata"]["name"] for body in await self.cluster.list_nodes()}
        for name in known:
            if name not in nodes:
                await self.take_in_node("DELETED", {"metadata": {"name": name}})
        bodies, at = await self.cluster.list_all(self.state.classes.plural)
        for body in bodies:
            self.state.classes.put(body)
        self.state.classes.forget_missing(bodies, at)
        await self._renew_pools()
        for objects in self.state.kinds:
            bodies, at = await self.cluster.list_all(objects.plural)
            for body in bodies:
                if objects.lacks(body):
                    await self.take_in(objects, "MODIFIED", body)
            for namespace in objects.forget_missing(bodies, at):
                await self.queue.add(namespace)
        self.reconciler.forget_gone()

    async def look_at_heartbeats(self) -> None:
        """Reads the leases of the agents, and wakes the namespaces of those that fell silent or came back."""
        try:
            self.heartbeats.update(await self.cluster.list_leases(self.settings.own_namespace))
        except Exception:
            self.heartbeats.failed()
            raise
        nodes = self._nodes()
        silent = self.heartbeats.silent(nodes)
        changed, self.silent = (silent ^ self.silent) & nodes.keys(), silent
        for namespace in {name for node in changed for name in nodes[node]}:
            await self.queue.add(namespace)
        if changed:
            log.info("agents silent now: %s; back: %s", sorted(changed & silent), sorted(changed - silent))

    def _nodes(self) -> dict[str, set[str]]:
        """The namespaces that each node's agent matters to."""
        nodes: dict[str, set[str]] = {}
        for namespace in self.state.guests.namespaces():
            for one in self.state.guests.in_namespace(namespace):
                concerned = self._planning_with(one.key)
                nodes.setdefault(one.spec.node_name, set()).update(concerned)
        return nodes


def _lending(pool: dict[str, Any], home: str) -> set[str]:
    """The other namespaces from which a pool would borrow; nodes are in that of the release."""
    lenders = pool.get("spec", {}).get("lenders", {})
    return {*(lenders.get("namespaces") or ()), *((home,) if lenders.get("nodes") else ())}


async def _insist(what: str, step: Any) -> None:
    """Repeats a step until it succeeds, however long the API server is away."""
    for delay in itertools.chain(ERROR_BACKOFFS, itertools.repeat(ERROR_BACKOFFS[-1])):
        try:
            await step()
        except Refused as refusal:
            is_unknown = refusal.status == HTTPStatus.NOT_FOUND
            hint = "; are the CRDs installed (crds/yaml, or the chart)?" if is_unknown else ""
            log.warning("%s: %s%s; tried again in %d s", what, refusal, hint, delay)
            await asyncio.sleep(delay)
        else:
            return


def build_registry(settings: Settings, metrics: Metrics) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    registry = kopf.OperatorRegistry()
    operator = Operator.assemble(settings, metrics)

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(kubeconfig.found())

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, clusterwide=not operator.settings.namespaces)
        await operator.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await operator.stop()

    for objects in operator.state.kinds:
        _watch(registry, operator, objects)
    _watch_nodes(registry, operator)
    _watch_classes(registry, operator)
    return registry


def connection(access: Access) -> kopf.ConnectionInfo:
    """The same access for kopf, which asks for it anew when it is refused."""
    scheme, _, token = access.authorization().partition(" ")
    certificate, key = access.certificate or ("", "")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_data=_encoded(access.authority),
        insecure=access.is_insecure,
        scheme=scheme or None,
        token=token or None,
        certificate_data=_encoded(certificate),
        private_key_data=_encoded(key),
        proxy_url=access.proxy or None,
    )


def _encoded(text: str) -> str | None:
    return base64.b64encode(text.encode()).decode() if text else None


def _watch(registry: kopf.OperatorRegistry, operator: Operator, objects: Objects[Any]) -> None:
    @kopf.on.event(names.GROUP, names.VERSION, objects.plural, registry=registry, id=objects.plural)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        await operator.take_in(objects, event["type"], dict(event["object"]))


def _watch_nodes(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    @kopf.on.event("v1", "nodes", registry=registry, id="nodes")
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        await operator.take_in_node(event["type"], dict(event["object"]))


def _watch_classes(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    @kopf.on.event(names.GROUP, names.VERSION, names.CLASSES, registry=registry, id=names.CLASSES)
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        await operator.take_in_class(event["type"], dict(event["object"]))


class NoDifferences(kopf.DiffBaseStorage):
    """For handlers that ask of no event what has changed: kopf would copy each object whole to find that out."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing of an object is compared."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Nothing is known of earlier ones."""

    def store(self, **_: Any) -> None:
        """Nothing is written into objects."""


def configure(settings: kopf.OperatorSettings, *, clusterwide: bool) -> None:
    """Timeouts and backoffs for an operator that runs for months; with a few namespaces it may see nothing else."""
    settings.scanning.disabled = not clusterwide
    settings.watching.chunk_size = LISTED_AT_ONCE
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = WATCH_SILENCE_SECONDS
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = ERROR_BACKOFFS
    settings.queueing.idle_timeout = 0.5  # a worker for each object that has just changed, not for all of them
    settings.persistence.diffbase_storage = NoDifferences()
    settings.peering.standalone = True
    settings.posting.enabled = False
