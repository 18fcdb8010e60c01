"""What the agent makes of its MemoryGuests on a real API server (issue 28, fault 10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cast import NAMESPACE, eventually, token_of
from objects import machine

from tidepool_agent import donors, report
from tidepool_agent.balloonreport import NOTHING, Standing
from tidepool_agent.cluster import Cluster
from tidepool_agent.provider import Ended
from tidepool_agent.report import Finding
from tidepool_api import GuestBalloon, GuestKey, MemoryGuest, Provider, cadence, condition, names
from tidepool_api.kube import Access, Api, Refused
from tidepool_api_testing.server import Server

WAIT_SECONDS = 20


def guest(namespace: str, name: str = "g", **labels: str) -> MemoryGuest:
    """What an agent says of a machine with these labels."""
    one = machine(name, namespace=namespace, labels=labels)
    owner = {"apiVersion": names.INSTANCE_API, "kind": names.INSTANCE_KIND, "name": name, "uid": one.uid}
    return report.guest(replace(one, owner=owner), "here", Finding(), (), None)


def with_cluster(
    server: Server,
    folder: Path,
    job: Callable[[Cluster], Awaitable[None]],
    *sources: Any,
    namespaces: tuple[str, ...] = (),
    touched: Callable[[GuestKey], None] = lambda _: None,
) -> None:
    """Does something as the agent of the node `here`."""
    known = json.loads(server.kubeconfig().read_text())["clusters"][0]["cluster"]
    token = folder / "token"
    token.write_text(token_of(server, "here"))
    api = Api(Access.by_token(known["server"], authority=Path(known["certificate-authority"]), token=token))

    async def run() -> None:
        cluster = Cluster(api, "here", sources, touched, namespaces=namespaces)
        await cluster.start()
        await job(cluster)

    asyncio.run(run())


async def seen(check: Callable[[], bool]) -> None:
    """Waits for what a watch brings."""
    await asyncio.to_thread(eventually, check, WAIT_SECONDS)


def test_a_foreign_label_is_neither_compared_nor_taken_away(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """Whoever labels a MemoryGuest causes no writes; what the machine is labelled no longer goes."""
    key = GuestKey(namespace, "g")

    def labels() -> dict[str, str]:
        found: dict[str, str] = cluster.get("tguest", "g", "-n", namespace)["metadata"].get("labels", {})
        return found

    async def job(own: Cluster) -> None:
        fresh, less = guest(namespace, team="a", tier="x"), guest(namespace, team="a")
        await own.claim(fresh)
        await seen(lambda: key in own.guests())
        cluster.kubectl("label", "tguest", "g", "-n", namespace, "backup=daily")
        await seen(lambda: "backup" in own.guests()[key]["metadata"]["labels"])
        present = own.guest(key)
        assert present is not None
        assert report.head(present) == report.head(fresh)
        assert report.head(present) != report.head(less)
        await own.let_go(own.guests()[key])
        claimed = await own.claim(less)
        assert claimed is not None
        assert report.head(claimed) == report.head(less)
        assert labels() == {"team": "a", "backup": "daily"}
        cluster.kubectl("label", "tguest", "g", "-n", namespace, "team=b", "--overwrite")
        await seen(lambda: own.guests()[key]["metadata"]["labels"]["team"] == "b")
        stolen = own.guest(key)
        assert stolen is not None
        assert report.head(stolen) != report.head(less)

    with_cluster(cluster, tmp_path, job)


def test_figures_wait_longer_where_there_is_more(
    cluster: Server, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent counts the guests and pairings of all nodes, also those that it does not follow."""
    monkeypatch.setattr(cadence, "AGENTS_WRITES", 0.01)

    async def job(own: Cluster) -> None:
        assert own.figures_wait.total_seconds() == cadence.LEAST_SECONDS
        for name in ("one", "two", "three"):
            await own.claim(guest(namespace, name))
        await own.measure()
        assert own.figures_wait.total_seconds() >= 300

    with_cluster(cluster, tmp_path, job)


class Instances:
    """A source in which one machine has ended."""

    def __init__(self, uid: str) -> None:
        self.synced = asyncio.Event()
        self.uid = uid

    def start(self, _: asyncio.AbstractEventLoop) -> None:
        self.synced.set()

    def machines(self) -> dict[GuestKey, Any]:
        return {}

    def machine(self, _: GuestKey) -> None:
        return None

    def ended(self, _: GuestKey) -> Ended:
        return Ended(self.uid, "VMI g is Failed")


def test_how_a_machine_ended_is_said_once_and_nothing_else_that_was_true_of_it(
    cluster: Server, namespace: str, tmp_path: Path
) -> None:
    """Of that machine: another one under its name, whose MemoryGuest is still to come, says nothing of it."""
    key, fresh = GuestKey(namespace, "g"), guest(namespace, team="a")

    def said() -> tuple[Any, ...]:
        found = cluster.get("tguest", "g", "-n", namespace)
        conditions = [(one["type"], one["reason"], one["message"]) for one in found["status"]["conditions"]]
        return found["metadata"]["labels"], conditions, {name for name, one in found["status"].items() if one}

    async def job(own: Cluster) -> None:
        await own.claim(fresh)
        await own.write_guest(fresh)
        await seen(lambda: key in own.guests())
        assert own.ended(key) == "VMI g is Failed"
        await own.write_ended(key, own.ended(key))
        version = cluster.get("tguest", "g", "-n", namespace)["metadata"]["resourceVersion"]
        assert said() == ({"team": "a"}, [("Ready", "Ended", "VMI g is Failed")], {"conditions", "observedAt", "role"})
        await own.write_ended(key, own.ended(key))
        assert cluster.get("tguest", "g", "-n", namespace)["metadata"]["resourceVersion"] == version
        source.uid = "another"
        assert own.ended(key) == ""

    source = Instances(fresh.spec.vm.uid)
    with_cluster(cluster, tmp_path, job, source)


def test_a_guest_that_is_marked_is_found_and_stays_so(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """The operator's mark outlasts what agents write; what a balloon holds comes and goes with a report."""
    key, patch = GuestKey(namespace, "g"), ("patch", "tguest", "g", "-n", namespace, "--type=merge", "-p")
    operator = f"--as=system:serviceaccount:{NAMESPACE}:tidepool-operator", "--as-group=system:masters"

    def marked(reserve: str | None) -> None:
        said = {"metadata": {"annotations": {names.BALLOON_ANNOTATION: reserve}}}
        cluster.kubectl(*patch, json.dumps(said), *operator)

    async def job(own: Cluster) -> None:
        def concerns() -> bool:
            return key in own.guests() and donors.concerns(own.guests()[key])

        def writes(found: Standing) -> MemoryGuest:
            present = own.guest(key)
            one = machine("g", namespace=namespace)
            return report.guest(one, "here", Finding(balloon=found), (), present.status if present else None)

        await own.claim(guest(namespace))
        assert not concerns()
        marked("1Gi")
        await seen(concerns)
        held = GuestBalloon(full_bytes=8 << 30, gathered_bytes=1 << 30, reserve_bytes=1 << 30)
        await own.write_guest(writes(Standing(held, condition("BalloonReady", True, "Gathering"))))
        await own.claim(guest(namespace, team="a"))
        assert concerns()
        marked(None)
        await seen(lambda: not own.guests()[key]["metadata"].get("annotations"))
        assert concerns()
        await own.write_guest(writes(NOTHING))
        assert not concerns()

    with_cluster(cluster, tmp_path, job)


class Running(Instances):
    """A source that has one machine, which runs."""

    def machine(self, key: GuestKey) -> Any:
        return machine(key.name, namespace=key.namespace)

    def machines(self) -> dict[GuestKey, Any]:
        key = GuestKey(self.uid, "g")
        return {key: self.machine(key)}


def test_a_guest_keeps_its_agent_until_its_memory_is_given_back(
    cluster: Server, namespace: str, tmp_path: Path
) -> None:
    """Its namespace is no longer among those that are served: it is excluded, but not forgotten."""
    key, one = GuestKey(namespace, "g"), machine("g", namespace=namespace)

    async def job(own: Cluster) -> None:
        assert own.machine(key) is None
        held = GuestBalloon(full_bytes=8 << 30, gathered_bytes=1 << 30, reserve_bytes=1 << 30)
        for found, looked_at in (
            (Standing(held, condition("BalloonReady", True, "Gathering")), True),
            (NOTHING, False),
        ):
            await own.claim(guest(namespace))
            await own.write_guest(report.guest(one, "here", Finding(balloon=found), (), None))
            assert (own.machine(key) is not None) == (key in own.machines()) == looked_at
        assert "agent.namespaces" in str(own.excluded(one))

    with_cluster(cluster, tmp_path, job, Running(namespace), namespaces=("other",))


class Domains(Running):
    """A source with a machine of the node's own libvirt."""

    def machine(self, key: GuestKey) -> Any:
        return machine(key.name, namespace=key.namespace, provider=Provider.LIBVIRT)


def test_a_node_that_registers_anew_keeps_what_is_its_own(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """Lease and guests of its own libvirt are the new Node's; with the old one they would be deleted for ever.

    While there is none they are the old one's, so that they go with a node that is deleted for good.
    """
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}
    project, woken, last = f"nova-{namespace}", list[GuestKey](), list[str]()
    key, source = GuestKey(project, "g"), Domains(project)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": project}})

    def made() -> str:
        cluster.create(body)
        uid: str = cluster.get("node", "here")["metadata"]["uid"]
        return uid

    async def owner(own: Cluster) -> set[str]:
        """The Node to which Lease and guest belong."""
        await own.renew_lease(NAMESPACE)
        await own.claim(report.guest(own.machines()[key], "here", Finding(), (), None))
        lease = cluster.get("lease", names.agent_lease("here"), "-n", NAMESPACE)
        found = [lease, cluster.get("tguest", "g", "-n", project)]
        return {owner["uid"] for one in found for owner in one["metadata"]["ownerReferences"]}

    async def job(own: Cluster) -> None:
        first = made()
        await own.find_home()
        assert await owner(own) == {first}
        cluster.kubectl("delete", "node", "here")
        with pytest.raises(Refused):
            await own.find_home()
        assert await owner(own) == {first}
        second = made()
        woken.clear()
        await own.find_home()
        assert woken == [key]
        assert await owner(own) == {second}
        woken.clear()
        await own.find_home()
        assert woken == []
        cluster.kubectl("delete", "node", "here")
        last.append(second)

    async def started_again(own: Cluster) -> None:
        """And cannot read its Node: what it has belongs to whom it did."""
        found = own.machines()[key], own.machine(key)
        assert [one and one.owner and one.owner["uid"] for one in found] == last * 2

    with_cluster(cluster, tmp_path, job, source, touched=woken.append)
    with_cluster(cluster, tmp_path, started_again, source)
