"""Whom a watch event wakes (issue 28, fault 10: one event woke all)."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest
from prometheus_client import CollectorRegistry
from test_outcome import turns
from world import BORROWER, LENDER, guest

from tidepool_api import names
from tidepool_api.kube import Refused
from tidepool_operator.cluster.heartbeats import Heartbeats
from tidepool_operator.cluster.queue import SETTLE_SECONDS, WorkQueue
from tidepool_operator.cluster.state import State
from tidepool_operator.cluster.writing import Writer
from tidepool_operator.handlers import Operator, configure
from tidepool_operator.metrics import Metrics
from tidepool_operator.reconcile import Reconciler
from tidepool_operator.settings import Settings

BANK = "bank"
TEAMS = [f"team-{at}" for at in range(10)]


def body(namespace: str, name: str, version: int, **fields: Any) -> dict[str, Any]:
    """An object as a watch brings it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": str(version)}
    metadata |= {"labels": fields.pop("labels", {}), "creationTimestamp": f"2026-01-01T00:00:{version:02}Z"}
    return {"apiVersion": names.API_VERSION, "metadata": metadata, **fields}


def lender(version: int, available: int, labels: dict[str, str]) -> dict[str, Any]:
    """The lender of the bank."""
    one = guest("l", labels, available=available).to_dict()
    return body(BANK, "l", version, labels=labels, spec=one["spec"], status=one["status"])


class Server:
    """An API server that lists what it is given, and no nodes."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.answer: dict[str, Any] = {}

    async def patch(self, *_: object, **__: object) -> dict[str, Any]:
        """Answers as it is told to."""
        return self.answer

    async def list_nodes(self) -> list[dict[str, Any]]:
        """None."""
        return []

    async def list_all(self, plural: str) -> tuple[list[dict[str, Any]], int]:
        """What it is given; nothing is known to be missing."""
        return self.objects.get(plural, []), 0


async def settled() -> None:
    """Waits until what an event wakes has been woken, however far behind its clock the machine is."""
    await asyncio.sleep(2 * SETTLE_SECONDS)
    await turns()


class Watched:
    """An operator that is told of events, and whom it wakes. All teams may borrow from the bank; the oldest has it."""

    def __init__(self) -> None:
        self.woken: set[str] = set()
        self.state, heartbeats, metrics = State(), Heartbeats(), Metrics(CollectorRegistry())
        nowhere: Any = None
        reconciler = Reconciler(nowhere, self.state, heartbeats, metrics)
        self.queue = WorkQueue(self._note)
        server: Any = Server()
        self.server: Server = server
        self.operator = Operator(Settings(), server, self.state, heartbeats, reconciler, self.queue, nowhere, metrics)
        self.state.guests.put(lender(1, 1500, LENDER))
        self.state.grants.put(body(BANK, "grant", 1, spec={"to": [{"namespace": team} for team in TEAMS]}))
        for at, team in enumerate(TEAMS):
            self.state.pools.put(body(team, "pool", at, spec=self.pool(BANK)))

    async def _note(self, namespace: str) -> None:
        self.woken.add(namespace)

    @staticmethod
    def pool(*lending: str) -> dict[str, Any]:
        """What a team asks for."""
        lenders = {"selector": {"matchLabels": LENDER}, "maxLend": "1Gi", "namespaces": list(lending)}
        return {"lenders": lenders, "borrowers": {"selector": {"matchLabels": BORROWER}, "size": "512Mi"}}

    async def after(self, objects: Any, kind: str, one: dict[str, Any]) -> set[str]:
        """Who is woken by an event."""
        self.woken.clear()
        await self.operator.take_in(objects, kind, one)
        await settled()
        return set(self.woken)


def test_figures_alone_wake_nobody_at_once_but_a_lenders() -> None:
    """Issue 28, fault 10: while all figures move a namespace is planned every 15 s, not for each of them."""

    def report(version: int, available: int, role: str) -> dict[str, Any]:
        one = lender(version, available, LENDER)
        one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
        return one | {"status": one["status"] | {"role": role}}

    async def reports() -> None:
        world = Watched()
        world.queue.start()
        guests = world.state.guests
        assert await world.after(guests, "MODIFIED", report(2, 900, "None")) == set()
        assert await world.after(guests, "MODIFIED", report(3, 900, "Lender")) == {BANK, "team-0"}
        assert await world.after(guests, "MODIFIED", report(4, 800, "Lender")) == {BANK, "team-0"}
        assert await world.after(guests, "MODIFIED", report(5, 800, "None")) == {BANK, "team-0"}
        assert await world.after(guests, "MODIFIED", report(6, 700, "None")) == set()
        await world.queue.stop()

    asyncio.run(reports())


def test_no_object_is_copied_to_find_out_what_has_changed() -> None:
    """No handler asks for that, and kopf would do it with each event of each object."""
    settings = kopf.OperatorSettings()
    configure(settings, clusterwide=True)
    one = kopf.Body(kopf.RawBody({**lender(1, 1500, LENDER)}))
    assert settings.persistence.diffbase_storage.build(body=one) == {}


def test_what_the_operator_has_written_itself_wakes_nobody() -> None:
    """A status; unless others have to go on then, or somebody else has changed the object meanwhile."""

    async def writes() -> None:
        world = Watched()
        world.queue.start()
        pools = world.state.pools

        async def written(version: int, *, wakes: bool = False, paused: bool = False) -> set[str]:
            """Whom the event of a write wakes."""
            spec = world.pool(BANK) | ({"paused": True} if paused else {})
            world.server.answer = body("team-5", "pool", version, spec=spec, status={"lenders": version})
            world.server.answer["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
            one = pools.get("team-5", "pool")
            assert one is not None
            await Writer(world.operator.cluster).patch(pools, one, {}, status=True, wakes=wakes)
            return await world.after(pools, "MODIFIED", world.server.answer)

        assert await written(31) == set()
        assert await world.after(pools, "MODIFIED", world.server.answer) == {"team-5"}, "it comes once"
        assert await written(32, wakes=True) == {"team-5"}
        assert await written(33, paused=True) == set(TEAMS)
        await world.queue.stop()

    asyncio.run(writes())


def test_what_came_with_the_answer_to_a_write_wakes_at_once() -> None:
    """That both ends are connected, say, which the operator has learned by saying that they are not yet."""

    async def writes() -> None:
        world = Watched()
        world.queue.start()
        pairings = world.state.pairings
        spec = {"pool": "pool", "size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
        spec |= {"lender": {"guest": "l", "nodeName": "n", "address": "10.0.0.1"}}
        spec |= {"borrower": {"guest": "b", "nodeName": "n"}}
        one = pairings.put(body("team-5", "p", 31, spec=spec))
        assert one is not None
        status = {"phase": "Pending", "borrower": {"state": "Connected"}}
        world.server.answer = body("team-5", "p", 31, spec=spec, status=status)
        world.server.answer["metadata"]["resourceVersion"] = "32"
        await Writer(world.operator.cluster).patch(pairings, one, {}, status=True, wakes=False)
        assert await world.after(pairings, "MODIFIED", world.server.answer) == {"team-5"}
        await world.queue.stop()

    asyncio.run(writes())


async def story() -> None:
    """What happens to the lender, to the pools, and to a pairing."""
    world = Watched()
    world.queue.start()
    state = world.state
    assert await world.after(state.guests, "MODIFIED", lender(2, 900, LENDER)) == {BANK, "team-0"}
    assert await world.after(state.guests, "MODIFIED", lender(3, 900, LENDER | {"new": "x"})) == {BANK, *TEAMS}
    idle = body("team-5", "pool", 20, spec=world.pool(BANK), status={"lenders": 0})
    assert await world.after(state.pools, "MODIFIED", idle) == {"team-5"}
    assert await world.after(state.pools, "MODIFIED", body("team-0", "pool", 21, spec=world.pool())) == set(TEAMS)
    assert await world.after(state.guests, "MODIFIED", lender(22, 700, LENDER | {"new": "x"})) == {BANK, "team-1"}
    ends = {"lender": {"guest": "l", "namespace": BANK, "nodeName": "n", "address": "10.0.0.1"}}
    ends |= {"borrower": {"guest": "b", "nodeName": "n"}}
    spec = {"pool": "pool", **ends, "size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
    assert await world.after(state.pairings, "ADDED", body("team-1", "p", 23, spec=spec)) == {BANK, "team-1"}
    state.pairings.remove("team-1", "p", "team-1-p")  # by the operator, before it hears of it
    assert await world.after(state.pairings, "DELETED", body("team-1", "p", 23, spec=spec)) == {BANK, "team-1"}
    state.pools.remove("team-1", "pool", "team-1-pool")
    gone = body("team-1", "pool", 24, spec=world.pool(BANK))
    assert await world.after(state.pools, "DELETED", gone) == set(TEAMS) - {"team-0"}
    assert await world.after(state.guests, "DELETED", lender(25, 700, LENDER)) == {BANK, *TEAMS[2:]}
    await world.queue.stop()


async def told_before() -> None:
    """The operator knows of a new grant by the answer to its own write, and finds what its watches missed."""
    world = Watched()
    world.queue.start()
    state = world.state

    def grant(version: int, *teams: str) -> dict[str, Any]:
        return body(BANK, "grant", version, spec={"to": [{"namespace": team} for team in teams]})

    assert await world.after(state.grants, "ADDED", grant(1, *TEAMS)) == set()
    state.grants.put(grant(3, "team-0"))
    assert await world.after(state.grants, "MODIFIED", grant(2, "team-0")) == {BANK, *TEAMS}
    assert await world.after(state.grants, "MODIFIED", grant(3, "team-0")) == set()
    world.server.objects = {names.GUESTS: [lender(1, 1500, LENDER)], names.GRANTS: [grant(9, "team-1")]}
    world.server.objects[names.POOLS] = [body(team, "pool", at, spec=world.pool(BANK)) for at, team in enumerate(TEAMS)]
    world.woken.clear()
    await world.operator.relist()
    await settled()
    assert world.woken == {BANK, *TEAMS}
    world.woken.clear()
    await world.operator.relist()
    await settled()
    assert world.woken == set()
    await world.queue.stop()


def test_who_is_concerned_hears_of_what_is_known_before_its_event() -> None:
    """By the answer to a write, and by a listing; that a grant has ended is nothing to learn by chance."""
    asyncio.run(told_before())


async def gone_for_good() -> None:
    """A guest is deleted while a listing is on its way that still has it."""
    world = Watched()
    world.queue.start()
    state = world.state
    await world.after(state.guests, "DELETED", lender(5, 1500, LENDER))
    world.server.objects[names.GUESTS] = [lender(3, 1500, LENDER)]
    await world.operator.relist()
    assert state.guests.get(BANK, "l") is None
    await world.queue.stop()


def test_what_was_deleted_does_not_come_back_with_a_late_answer() -> None:
    """It would be planned with until the next listing."""
    asyncio.run(gone_for_good())


async def node_goes() -> None:
    """A node is deleted, once as a watch says it, once while nobody watched."""
    world = Watched()
    world.queue.start()
    lent = lender(2, 1500, LENDER)
    world.state.guests.put(lent)
    node = {"metadata": {"name": lent["spec"]["nodeName"]}}
    for gone in (lambda: world.operator.take_in_node("DELETED", node), world.operator.relist):
        await world.operator.take_in_node("ADDED", node)
        await settled()
        world.server.objects[names.GUESTS] = [lent]
        world.woken.clear()
        await gone()
        await settled()
        assert BANK in world.woken
        assert not world.state.nodes.known
    await world.queue.stop()


def test_a_node_that_is_gone_is_known_to_be() -> None:
    """Also when that was missed: guests that say to be there are not believed any more."""
    asyncio.run(node_goes())


async def held() -> None:
    """A pool was paused, and then no longer asks for the bank whose guest it has; that guest gets another label."""
    world = Watched()
    world.queue.start()
    lent = {"guest": "l", "namespace": BANK, "nodeName": "n", "address": "10.0.0.1"}
    spec = {"pool": "pool", "lender": lent, "borrower": {"guest": "b", "nodeName": "n"}}
    spec |= {"size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
    world.state.pairings.put(body("team-3", "p", 20, spec=spec))
    world.state.pools.put(body("team-3", "pool", 21, spec=world.pool() | {"paused": True}))
    assert "team-3" in await world.after(world.state.guests, "MODIFIED", lender(22, 1500, {}))
    await world.queue.stop()


def test_who_has_a_guest_hears_of_its_labels_whatever_his_pool_asks_for_now() -> None:
    """His grant may be for guests with the label that it had."""
    asyncio.run(held())


def test_an_event_wakes_those_whom_it_concerns() -> None:
    """Figures wake who has the guest; labels, grants and edits wake all who might, and nobody else."""
    asyncio.run(story())


@pytest.mark.parametrize("broken", ["grants.tell", "quotas.tell", "unpaired.tell", "worth.of_pools"])
def test_what_is_said_beside_pools_does_not_depend_on_each_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """One has a defect: the other three are done, the log has where it is, and the metric counts it."""
    world, done = Watched(), set()

    def step(name: str) -> Any:
        async def take(*_: object) -> dict[Any, Any]:
            if name == broken:
                raise KeyError(name)
            done.add(name)
            return {}

        return take

    every = ["grants.tell", "quotas.tell", "unpaired.tell", "worth.of_pools"]
    for name in every:
        monkeypatch.setattr(f"tidepool_operator.status.{name}", step(name))
    world.operator.heartbeats.update([])
    asyncio.run(world.operator.tell_on_others())
    assert done == set(every) - {broken}
    assert f"raise KeyError(name)\nKeyError: '{broken}'" in caplog.text
    assert errors(world) == 1


def errors(world: Watched) -> float:
    """What the metric counts."""
    return sum(one.value for one in world.operator.metrics.errors.collect()[0].samples)


def test_what_is_repeated_goes_on_and_says_where_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    """A defect has its place in the log; an API server that refuses has none."""
    world = Watched()
    failures: list[Exception] = [KeyError("defect"), Refused(503, "GET /somewhere", "not now")]

    async def step() -> None:
        if failures:
            raise failures.pop(0)
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(world.operator.repeat("cannot look", 0, step))
    assert caplog.text.count("Traceback") == 1
    assert errors(world) == 2
