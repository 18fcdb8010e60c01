"""The whole agent: a process with the chart's rights, a real API server, real libvirt, real guests, the real module."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cast import AGENT_TOKEN, NAMESPACE, AgentProcess, Machine, agent_rights, condition, eventually, kubevirt_crds
from daemon import Daemon
from objects import KEY
from tiny import Kernel

from tidepool_api import names
from tidepool_api_testing.server import Refused, Server

MakeMachine = Callable[..., Machine]


@pytest.fixture(scope="session")
def api_server_users() -> dict[str, str]:
    return {"agent": AGENT_TOKEN}


@pytest.fixture(scope="session")
def cluster(api_server: Server) -> Server:
    """An API server with KubeVirt's CRDs and the agent's rights."""
    api_server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api_server.apply(*kubevirt_crds())
    api_server.kubectl("wait", "--for=condition=Established", "crd/virtualmachineinstances.kubevirt.io")
    api_server.apply(*agent_rights())
    return api_server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, kernel: Kernel, module: Path) -> Path:
    folder = tmp_path_factory.mktemp("store") / kernel.release
    folder.mkdir()
    for file in (module, module.with_name("tidepool.ko.sha256")):
        shutil.copy(file, folder)
    return folder.parent


@pytest.fixture(scope="module")
def node_agent(cluster: Server, store: Path) -> Iterator[AgentProcess]:
    """One agent for the tests that do not stop it."""
    with AgentProcess(cluster, "node1", store) as one:
        yield one


@pytest.fixture
def make(cluster: Server, daemon: Daemon, namespace: str) -> Iterator[MakeMachine]:
    """Makes machines that go with the test."""
    made: list[Machine] = []

    def make_one(agent: AgentProcess, name: str) -> Machine:
        made.append(Machine(cluster, daemon, agent, namespace, name))
        return made[-1]

    yield make_one
    for one in made:
        one.delete()


class Pairing:
    """A pairing in which the machine lends, made as the operator would make it."""

    def __init__(self, server: Server, namespace: str, node: str, lender: str = "lender") -> None:
        self._server, self._namespace = server, namespace
        self._manifest = {
            "apiVersion": names.API_VERSION,
            "kind": "MemoryPairing",
            "metadata": {"name": "p", "namespace": namespace, "finalizers": [names.LENDER_FINALIZER]},
            "spec": {
                "pool": "pool",
                "lender": {"guest": lender, "nodeName": node, "address": "10.9.8.7", "port": 7470},
                "borrower": {"guest": "elsewhere", "nodeName": "another-node"},
                "size": "64Mi",
                "reserve": "16Mi",
                "maxLend": "64Mi",
                "encryption": "None",
                "keySecret": {"name": "p-key"},
            },
        }

    def create(self, *, secret: bool = True) -> Pairing:
        if secret:
            self.create_secret()
        self._server.create(self._manifest)
        return self

    def create_secret(self) -> None:
        meta = {"name": "p-key", "namespace": self._namespace}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": names.KEY_SECRET_TYPE}
        self._server.create({**kind, "metadata": meta, "stringData": {"key": KEY}})

    def delete(self) -> None:
        self._server.kubectl("delete", "-n", self._namespace, "mpair", "p", "--wait=false")

    def gone(self) -> bool:
        try:
            self._server.get("mpair", "p", "-n", self._namespace)
        except Refused:
            return True
        return False

    def lender(self) -> dict[str, Any]:
        status: dict[str, Any] = self._server.get("mpair", "p", "-n", self._namespace)["status"]["lender"]
        return status

    def configured(self) -> tuple[str, str, str]:
        return condition(self.lender(), "Configured")


@pytest.fixture
def pairing(cluster: Server, namespace: str, node_agent: AgentProcess) -> Pairing:
    return Pairing(cluster, namespace, node_agent.node)


def gone(machine: Machine) -> bool:
    try:
        machine.guest()
    except Refused:
        return True
    return False


def test_the_life_of_a_lender(cluster: Server, node_agent: AgentProcess, make: MakeMachine, pairing: Pairing) -> None:
    """Found while it boots, ready once its agent answers, set up for a pairing, given back, gone."""
    machine = make(node_agent, "lender").start("test.late=6", tier="gold")

    def is_found() -> None:
        assert machine.condition("GuestAgentReady")[:2] == ("False", "NotConnected")

    eventually(lambda: not gone(machine))
    eventually(is_found)

    def is_ready() -> None:
        assert machine.condition("Ready")[0] == "True"

    eventually(is_ready)
    guest = machine.guest()
    assert guest["metadata"]["labels"] == {"tier": "gold"}
    assert guest["spec"] == {
        "provider": "KubeVirt",
        "nodeName": "node1",
        "vm": {"name": "lender", "uid": guest["metadata"]["ownerReferences"][0]["uid"]},
    }
    assert guest["status"]["addresses"] == ["10.9.8.7"]
    assert guest["status"]["role"] == "None"

    pairing.create()

    def is_set_up() -> None:
        assert pairing.configured()[:2] == ("True", "Configured")
        assert pairing.lender()["state"] == "Listening"
        assert machine.guest()["status"]["role"] == "Lender"
        assert machine.condition("ModuleLoaded")[0] == "True"

    eventually(is_set_up)
    assert 'tidepool_guest_lent_bytes{guest="lender"' in node_agent.fetch("/metrics")
    assert KEY not in node_agent.log()

    pairing.delete()
    eventually(pairing.gone)

    def is_given_back() -> None:
        assert machine.condition("ModuleLoaded")[:2] == ("False", "NotNeeded")
        assert machine.guest()["status"]["role"] == "None"

    eventually(is_given_back)
    events = cluster.get("events", "-n", machine.namespace)["items"]
    assert {"ModuleLoaded", "ModuleUnloaded"} <= {event["reason"] for event in events}

    machine.delete()
    eventually(lambda: gone(machine))
    eventually(lambda: 'guest="lender"' not in node_agent.fetch("/metrics"))


def test_a_reboot_is_noticed_and_everything_done_again(
    cluster: Server, node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    machine = make(node_agent, "lender").start()
    pairing.create()
    eventually(lambda: pairing.lender()["state"] == "Listening")
    boot = pairing.lender()["bootID"]
    assert machine.domain
    machine.domain.reset()

    def is_set_up_again() -> None:
        assert pairing.lender()["bootID"] != boot
        assert pairing.configured()[0] == "True"
        assert pairing.lender()["state"] == "Listening"

    eventually(is_set_up_again)
    reasons = [event["reason"] for event in cluster.get("events", "-n", machine.namespace)["items"]]
    assert "GuestRebooted" in reasons
    assert reasons.count("ModuleLoaded") == 2


def test_a_guest_that_forbids_commands_says_how_to_allow_them(node_agent: AgentProcess, make: MakeMachine) -> None:
    machine = make(node_agent, "strict").start("test.blocked=guest-exec")

    def is_told() -> None:
        status, reason, message = machine.condition("Ready")
        assert (status, reason) == ("False", "CommandsBlocked")
        assert "guest-exec:" in message
        assert "allow-rpcs" in message

    eventually(lambda: not gone(machine))
    eventually(is_told)


def test_a_kernel_without_module_is_named_on_guest_and_pairing(
    cluster: Server, make: MakeMachine, namespace: str, kernel: Kernel, tmp_path: Path
) -> None:
    with AgentProcess(cluster, "bare-node", tmp_path) as agent:
        machine = make(agent, "lender").start()
        pairing = Pairing(cluster, namespace, "bare-node").create()

        def is_named() -> None:
            for status, reason, message in (machine.condition("ModuleAvailable"), pairing.configured()):
                assert (status, reason) == ("False", "NoModuleForKernel")
                assert kernel.release in message
            assert pairing.lender()["state"] == "Failed"
            assert machine.condition("Ready")[1] == "NoModuleForKernel"

        eventually(lambda: not gone(machine))
        eventually(is_named)
        pairing.delete()
        eventually(pairing.gone)


def test_a_missing_key_is_said_and_found_once_it_is_there(
    node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    make(node_agent, "lender").start()
    pairing.create(secret=False)
    eventually(lambda: pairing.configured()[:2] == ("False", "KeyMissing"))
    pairing.create_secret()
    eventually(lambda: pairing.configured()[0] == "True")


def test_a_pairing_does_not_wait_for_a_guest_that_is_gone(
    node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    machine = make(node_agent, "lender").start()
    pairing.create()
    eventually(lambda: pairing.lender()["state"] == "Listening")
    machine.delete()
    pairing.delete()
    eventually(pairing.gone, 20)
    eventually(lambda: gone(machine), 20)


def test_a_pairing_for_a_guest_that_never_was_can_be_deleted(node_agent: AgentProcess, pairing: Pairing) -> None:
    assert node_agent.fetch("/healthz") == "ok\n"
    pairing.create()
    pairing.delete()
    eventually(pairing.gone, 30)


def test_an_agent_that_was_killed_finds_everything_as_it_left_it(
    cluster: Server, make: MakeMachine, namespace: str, store: Path
) -> None:
    """The new one writes nothing that has not changed, and removes what nobody wants any more."""
    with AgentProcess(cluster, "killed-node", store) as agent:
        machine = make(agent, "lender").start()
        pairing = Pairing(cluster, namespace, agent.node).create()
        eventually(lambda: pairing.lender()["state"] == "Listening")
        eventually(lambda: machine.condition("ModuleLoaded")[0] == "True")
        time.sleep(3)
        written = pairing.lender()
        agent.kill()
        agent.start()
        time.sleep(5)
        assert pairing.lender() == written
        agent.kill()
        pairing.delete()
        agent.start()
        eventually(pairing.gone)
        eventually(lambda: machine.condition("ModuleLoaded")[:2] == ("False", "NotNeeded"))


def test_the_lease_shows_that_the_agent_lives(cluster: Server, node_agent: AgentProcess) -> None:
    def renewed() -> str:
        lease = cluster.get("lease", names.agent_lease(node_agent.node), "-n", NAMESPACE)
        time_: str = lease["spec"]["renewTime"]
        return time_

    first = renewed()
    eventually(lambda: renewed() > first, names.LEASE_RENEW_SECONDS + 5)


def test_the_agent_has_no_rights_beyond_the_charts(cluster: Server, namespace: str) -> None:
    """A few of those that would be worst, and one that it has."""
    assert cluster.kubectl("auth", "can-i", "get", "secrets", "-n", namespace, token=AGENT_TOKEN).strip() == "yes"
    for verb, what in itertools.product(("list", "watch", "create"), ("secrets", "nodes", "memorypools.tidepool.dev")):
        with pytest.raises(Refused):
            cluster.kubectl("auth", "can-i", verb, what, "-n", namespace, token=AGENT_TOKEN)
