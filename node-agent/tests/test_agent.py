"""Items 7 and 8: the whole agent with the rights of the chart; API server, libvirt, guests and module are real ones."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cast import NAMESPACE, AgentProcess, Machine, OperatorProcess, at_rest, condition, eventually, token_of
from daemon import Daemon, end
from objects import alter, identity_of, pairing_body, within
from test_isolation import Agent
from tiny import Kernel, boot_files

from tidepool_agent.errors import GuestError
from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_agent.store import Store
from tidepool_api import is_identity, names
from tidepool_api_testing.server import Refused, Server

MakeMachine = Callable[..., Machine]


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

    def __init__(self, server: Server, namespace: str, node: str, lender: str = "lender", name: str = "p") -> None:
        self._server, self._namespace, self._name = server, namespace, name
        self._manifest = within(namespace, pairing_body(name, lender=lender, node=node))

    def create(self, *, borrower: str | None = identity_of("elsewhere")) -> Pairing:
        end = self._manifest["spec"]["borrower"]
        named = {name: end[name] for name in ("guest", "nodeName")} | ({"identity": borrower} if borrower else {})
        self._server.create({**self._manifest, "spec": self._manifest["spec"] | {"borrower": named}})
        return self

    def name(self, borrower: str) -> Pairing:
        """Says which identity the borrower has, as the operator does."""
        change = json.dumps({"spec": {"borrower": {"identity": borrower}}})
        self._server.kubectl("patch", "-n", self._namespace, "tpair", self._name, "--type=merge", "-p", change)
        return self

    def move(self, node: str) -> Pairing:
        """Says that the lender is on another node, as the operator does."""
        change = json.dumps({"spec": {"lender": {"nodeName": node}}})
        self._server.kubectl("patch", "-n", self._namespace, "tpair", self._name, "--type=merge", "-p", change)
        return self

    def delete(self) -> None:
        self._server.kubectl("delete", "-n", self._namespace, "tpair", self._name, "--wait=false")

    def gone(self) -> bool:
        try:
            self._server.get("tpair", self._name, "-n", self._namespace)
        except Refused:
            return True
        return False

    def lender(self) -> dict[str, Any]:
        status: dict[str, Any] = self._server.get("tpair", self._name, "-n", self._namespace)["status"]["lender"]
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


def reasons(cluster: Server, machine: Machine) -> list[str]:
    """Of the Events in the machine's namespace."""
    return [event["reason"] for event in cluster.get("events", "-n", machine.namespace)["items"]]


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
    assert guest["status"]["backing"]["overcommittedBytes"] == 100 << 20
    assert machine.condition("MemoryBacked")[:2] == ("False", "Overcommitted")

    pairing.create()

    def is_set_up() -> None:
        assert pairing.configured()[:2] == ("True", "Configured")
        assert pairing.lender()["state"] == "Listening"
        assert machine.guest()["status"]["role"] == "Lender"
        assert machine.condition("ModuleLoaded")[0] == "True"

    eventually(is_set_up)
    assert 'tidepool_guest_lent_bytes{guest="lender"' in node_agent.fetch("/metrics")
    assert pairing.lender()["peerIdentity"] == identity_of("elsewhere")

    pairing.delete()
    eventually(pairing.gone)

    def is_given_back() -> None:
        assert machine.condition("ModuleLoaded")[:2] == ("False", "NotNeeded")
        assert machine.guest()["status"]["role"] == "None"

    eventually(is_given_back)
    eventually(lambda: {"ModuleLoaded", "ModuleUnloaded"} <= set(reasons(cluster, machine)))

    machine.delete()
    eventually(lambda: gone(machine))
    eventually(lambda: 'guest="lender"' not in node_agent.fetch("/metrics"))


@pytest.mark.parametrize("how", ["reset", "panic"])
def test_a_reboot_is_noticed_and_everything_done_again(
    cluster: Server, daemon: Daemon, node_agent: AgentProcess, make: MakeMachine, pairing: Pairing, how: str
) -> None:
    """Item 8: rebooted from outside, and by its own kernel's panic."""
    machine = make(node_agent, "lender").start()
    pairing.create()
    eventually(lambda: pairing.lender()["state"] == "Listening")
    boot = pairing.lender()["bootID"]
    assert machine.domain
    if how == "reset":
        machine.domain.reset()
    else:
        shell = GuestAgent(Domain(daemon.uri, f"{machine.namespace}_lender").command)
        with contextlib.suppress(GuestError):
            shell.run(["/bin/sh", "-c", "echo c >/proc/sysrq-trigger"], seconds=3)

    def is_set_up_again() -> None:
        assert pairing.lender()["bootID"] != boot
        assert pairing.configured()[0] == "True"
        assert pairing.lender()["state"] == "Listening"

    eventually(is_set_up_again)
    eventually(lambda: "GuestRebooted" in reasons(cluster, machine))
    eventually(lambda: reasons(cluster, machine).count("ModuleLoaded") == 2)


def test_a_guest_that_forbids_commands_says_how_to_allow_them(node_agent: AgentProcess, make: MakeMachine) -> None:
    machine = make(node_agent, "strict").start("test.blocked=guest-exec")

    def is_told() -> None:
        status, reason, message = machine.condition("Ready")
        assert (status, reason) == ("False", "CommandsBlocked")
        assert "guest-exec:" in message
        assert "allow-rpcs" in message

    eventually(lambda: not gone(machine))
    eventually(is_told)


def test_a_guest_that_boots_another_kernel_needs_another_module(
    daemon: Daemon, node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    """Item 8: upgraded to a kernel that the store lacks, it says so."""
    newer, folder = Kernel("6.12"), Path(tempfile.mkdtemp(dir=daemon.folder))
    folder.chmod(0o755)
    boot = boot_files(newer, folder)
    machine = make(node_agent, "lender").start()
    pairing.create()
    eventually(lambda: pairing.lender()["state"] == "Listening")
    assert machine.domain
    name, identity = machine.domain.name(), machine.domain.UUIDString()
    end(machine.domain)
    machine.domain = daemon.start(name, identity=identity, boot=boot)

    def is_said() -> None:
        assert machine.guest()["status"]["kernelRelease"] == newer.release
        for status, reason, message in (machine.condition("ModuleAvailable"), pairing.configured()):
            assert (status, reason) == ("False", "NoModuleForKernel")
            assert newer.release in message

    eventually(is_said)


def test_a_guest_that_takes_no_modules_says_why_and_is_not_tried(
    cluster: Server, daemon: Daemon, node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    """Item 8: first only signed ones, as under Secure Boot, then none at all until it is booted again."""
    machine = make(node_agent, "lender").start("module.sig_enforce=1")
    pairing.create()

    def says(reason: str, advice: str) -> None:
        for status, why, message in (machine.condition("ModuleAvailable"), pairing.configured()):
            assert (status, why) == ("False", reason)
            assert advice in message
        assert machine.condition("Ready")[1] == reason

    eventually(lambda: says("SignatureRequired", "mokutil"))
    shell = GuestAgent(Domain(daemon.uri, f"{machine.namespace}_lender").command)
    shell.run(["/bin/sh", "-c", "echo 1 >/proc/sys/kernel/modules_disabled"])
    eventually(lambda: says("ModulesDisabled", "reboot"))
    assert "ModuleRefused" not in reasons(cluster, machine)


def test_hostile_guests_cost_the_agent_nothing(make: MakeMachine, node_agent: AgentProcess) -> None:
    """Item 10: garbage, megabytes and silence instead of answers; the others are served as ever."""
    kinds = ("garbage", "megabytes", "silence")
    hostile = [make(node_agent, kind).start(f"test.hostile={kind}") for kind in kinds]
    good = make(node_agent, "good").start()
    eventually(lambda: good.condition("Ready")[0] == "True")

    def are_named() -> None:
        for one in hostile:
            status, reason, message = one.condition("GuestAgentReady")
            assert (status, reason != "NotAskedYet") == ("False", True), (one.name, reason)
            assert len(message) < 1024

    eventually(are_named)
    assert good.condition("Ready")[0] == "True"
    assert node_agent.memory() < 256 << 20
    assert node_agent.fetch("/healthz") == "ok\n"


def test_a_guest_that_migrates_has_one_agent_at_a_time(
    cluster: Server, make: MakeMachine, node_agent: AgentProcess, namespace: str, store: Path
) -> None:
    """Item 8: the MemoryGuest goes over to the agent of the other node; the same one, and neither writes again.

    What the guest lends stays as it is, until its pairing has followed it and is looked after there.
    """
    with AgentProcess(cluster, "node2", store) as other:
        machine = make(node_agent, "traveller").start()
        eventually(lambda: not gone(machine))
        eventually(lambda: machine.condition("Ready")[0] == "True")
        pairing = Pairing(cluster, namespace, node_agent.node, lender="traveller").create()
        eventually(lambda: pairing.lender()["state"] == "Listening")
        before = machine.guest()
        assert "migrating" not in before["status"]
        machine.prepare(other)
        eventually(lambda: machine.guest()["status"]["migrating"])
        machine.migrate(other)

        def is_there() -> None:
            guest = machine.guest()
            assert guest["spec"]["nodeName"] == "node2"
            assert "migrating" not in guest["status"]
            assert names.LEAVING_ANNOTATION not in guest["metadata"].get("annotations", {})
            assert 'guest="traveller"' in other.fetch("/metrics")
            assert 'guest="traveller"' not in node_agent.fetch("/metrics")

        eventually(is_there)
        version = at_rest(lambda: machine.guest()["metadata"]["resourceVersion"])
        after = machine.guest()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["status"]["bootID"] == before["status"]["bootID"]
        assert machine.condition("Ready")[0] == "True"
        assert after["metadata"]["resourceVersion"] == version
        pairing.move("node2")
        eventually(lambda: 'pairing="p"' in other.fetch("/metrics"))
        assert pairing.lender()["state"] == "Listening"
        assert "ModuleUnloaded" not in reasons(cluster, machine)


class Mover:
    """Somebody with the rights of the agent of a node says that a guest is there, which an administrator has let go."""

    def __init__(self, server: Server, node: str, namespace: str, folder: Path) -> None:
        self._server, self._node, self._namespace = server, node, namespace
        self._agent = Agent(server, token_of(server, node), namespace, folder)

    def move(self, machine: Machine) -> None:
        """Leaves no mark by which any agent may take it back."""
        mark = f"{names.LEAVING_ANNOTATION}=2026-01-01T00:00:00Z"
        self._server.kubectl("annotate", "tguest", machine.name, "-n", self._namespace, mark)
        unmarked = {"metadata": {"annotations": {names.LEAVING_ANNOTATION: None}}}
        self._agent.merge(machine.guest(), unmarked | {"spec": {"nodeName": self._node}})


def becomes_right(cluster: Server, machine: Machine, agent: AgentProcess, before: dict[str, Any]) -> None:
    """A guest becomes what it was before somebody wrote another node, is its own agent's again, and rests."""

    def is_right() -> None:
        guest = machine.guest()
        assert guest["spec"] == before["spec"]
        assert names.LEAVING_ANNOTATION not in guest["metadata"].get("annotations", {})
        assert machine.condition("Ready")[0] == "True"

    def moves() -> int:
        """How often its spec has changed."""
        found: int = machine.guest()["metadata"]["generation"]
        return found

    eventually(lambda: moves() >= before["metadata"]["generation"] + 2)
    eventually(is_right)
    at_rest(moves)
    is_right()
    assert machine.guest()["metadata"]["uid"] == before["metadata"]["uid"]
    assert f'guest="{machine.name}",namespace="{machine.namespace}"' in agent.fetch("/metrics")
    assert "ModuleUnloaded" not in reasons(cluster, machine)


def test_a_guest_that_is_said_to_be_on_another_agents_node_is_right_again(
    cluster: Server, make: MakeMachine, node_agent: AgentProcess, namespace: str, store: Path, tmp_path: Path
) -> None:
    """Issue 28, fault 4: that agent has no such machine and lets it go; what it lends stays as it is."""
    with AgentProcess(cluster, "node2", store) as other:
        machine = make(node_agent, "claimed").start()
        eventually(lambda: machine.condition("Ready")[0] == "True")
        pairing = Pairing(cluster, namespace, node_agent.node, lender="claimed").create()
        eventually(lambda: pairing.lender()["state"] == "Listening")
        before = machine.guest()
        Mover(cluster, other.node, namespace, tmp_path).move(machine)
        becomes_right(cluster, machine, node_agent, before)
        assert pairing.lender()["state"] == "Listening"


def test_a_guest_that_is_said_to_be_where_no_agent_is_is_right_again(
    cluster: Server, make: MakeMachine, node_agent: AgentProcess, namespace: str, tmp_path: Path
) -> None:
    """Issue 28, fault 4: the operator, a real one, lets it go when it is sure that nobody is there to do it."""
    machine = make(node_agent, "stray").start()
    eventually(lambda: machine.condition("Ready")[0] == "True")
    before = machine.guest()
    Mover(cluster, "nowhere", namespace, tmp_path).move(machine)
    time.sleep(5)
    assert machine.guest()["spec"]["nodeName"] == "nowhere"
    with OperatorProcess(cluster, namespace, tmp_path):
        becomes_right(cluster, machine, node_agent, before)


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


def test_a_guest_says_who_it_is_and_waits_to_hear_who_its_peer_is(
    node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    """It gets its module for a pairing that names nobody yet, and follows a peer that is loaded anew."""
    machine = make(node_agent, "lender").start()
    pairing.create(borrower=None)

    def is_waiting() -> None:
        assert pairing.configured()[:2] == ("False", "PeerUnknown")
        assert is_identity(machine.guest()["status"]["identity"])

    eventually(is_waiting)
    assert pairing.lender()["state"] == "Pending"
    for peer in ("elsewhere", "elsewhere, loaded anew"):
        pairing.name(identity_of(peer))
        eventually(lambda peer=peer: pairing.lender()["peerIdentity"] == identity_of(peer))
        assert (pairing.lender()["state"], pairing.configured()[0]) == ("Listening", "True")
    assert "replace the module" not in node_agent.log()
    pairing.delete()
    eventually(pairing.gone)
    eventually(lambda: "identity" not in machine.guest()["status"])


def test_a_pairing_does_not_wait_for_a_guest_that_is_gone(
    node_agent: AgentProcess, make: MakeMachine, pairing: Pairing
) -> None:
    machine = make(node_agent, "lender").start()
    pairing.create()
    eventually(lambda: pairing.lender()["state"] == "Listening")
    machine.delete()
    pairing.delete()
    eventually(pairing.gone)
    eventually(lambda: gone(machine))


def test_a_pairing_for_a_guest_that_never_was_can_be_deleted(node_agent: AgentProcess, pairing: Pairing) -> None:
    assert node_agent.fetch("/healthz") == "ok\n"
    pairing.create()
    pairing.delete()
    eventually(pairing.gone)


def test_an_agent_that_was_killed_finds_everything_as_it_left_it(
    cluster: Server, make: MakeMachine, namespace: str, store: Path
) -> None:
    """The new one writes nothing that has not changed, and removes what nobody wants any more."""
    with AgentProcess(cluster, "killed-node", store) as agent:
        machine = make(agent, "lender").start()
        pairing = Pairing(cluster, namespace, agent.node).create()
        eventually(lambda: pairing.lender()["state"] == "Listening")
        eventually(lambda: machine.condition("ModuleLoaded")[0] == "True")
        written = at_rest(pairing.lender)
        agent.kill()
        agent.start()
        time.sleep(5)
        assert pairing.lender() == written
        agent.kill()
        pairing.delete()
        agent.start()
        eventually(pairing.gone)
        eventually(lambda: machine.condition("ModuleLoaded")[:2] == ("False", "NotNeeded"))


def test_another_build_of_the_module_comes_in_waves(
    cluster: Server, make: MakeMachine, namespace: str, store: Path, tmp_path: Path
) -> None:
    """Item 9: guest by guest, drained and set up again; the agent is not ready before; a bad build is tried once."""
    own = shutil.copytree(store, tmp_path / "store")
    with AgentProcess(cluster, "upgraded-node", own) as agent:
        machines = [make(agent, name).start() for name in ("one", "two")]
        pairings = [Pairing(cluster, namespace, agent.node, one.name, one.name).create() for one in machines]
        for one in pairings:
            eventually(lambda one=one: one.configured()[0] == "True")
        agent.stop()
        old = Store(own).build(next(own.iterdir()).name).srcversion
        alter(own, old.encode(), b"0" * len(old))
        agent.start()
        for machine, one in zip(machines, pairings, strict=True):
            assert "0" * len(old) in machine.condition("ModuleLoaded")[2]
            eventually(lambda one=one: (one.lender()["state"], one.configured()[0]) == ("Listening", "True"))
        steps = [line for line in agent.log().splitlines() if " replace the module" in line or " configure " in line]
        last = ["replace" if "replace" in line else "configure" for line in steps[-4:]]
        assert last == ["replace", "configure"] * 2

        alter(own, b"hooks %d\n", b"hookz %d\n")
        alter(own, b"srcversion=0", b"srcversion=1")
        agent.stop()
        agent.start()
        for machine, one in zip(machines, pairings, strict=True):
            status, reason, message = machine.condition("ModuleLoaded")
            assert (status, reason, "self-check" in message) == ("True", "UpgradeFailed", True)
            eventually(lambda one=one: (one.lender()["state"], one.configured()[0]) == ("Listening", "True"))
        time.sleep(12)
        assert agent.log().count(" replace the module: ") == len(machines)


class Barred:
    """A quota that takes no MemoryGuest more, and then a policy that takes no change of one, in a namespace."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._server, self._namespace = server, namespace

    def limit(self) -> None:
        """As the cluster's controller, which no test has, would have filled it in."""
        hard, none = ({"count/memoryguests.tidepool.dev": "0"} for _ in range(2))
        meta = {"name": "small", "namespace": self._namespace}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        self._server.create(quota)
        self._server.apply_status({**quota, "status": {"hard": hard, "used": none}})

    def lift_limit(self) -> None:
        self._server.kubectl("delete", "-n", self._namespace, "resourcequota", "small")

    @contextlib.contextmanager
    def policy(self) -> Iterator[None]:
        """In force within seconds."""
        api, name = "admissionregistration.k8s.io/v1", f"barred-{self._namespace}"
        kind = {"apiGroups": [names.GROUP], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [names.GUESTS]}
        where = {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}}
        spec = {
            "matchConstraints": {"resourceRules": [kind], "namespaceSelector": where},
            "validations": [{"expression": "false", "message": "not on a Sunday"}],
        }
        meta = {"name": name}
        self._server.create({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": spec})
        bound = {"policyName": name, "validationActions": ["Deny"]}
        self._server.create(
            {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta, "spec": bound}
        )
        try:
            yield
        finally:
            both = "validatingadmissionpolicy,validatingadmissionpolicybinding"
            self._server.kubectl("delete", both, name)


def test_what_the_api_server_refuses_is_told(
    cluster: Server, node_agent: AgentProcess, make: MakeMachine, namespace: str
) -> None:
    """Issue 28, fault 3: as a figure by namespace, and as an Event where there is a MemoryGuest to have one."""
    barred = Barred(cluster, namespace)

    def errors() -> float:
        found = re.search(rf'tidepool_agent_errors_total{{agent="node1",namespace="{namespace}"}} (\S+)', metrics())
        return float(found[1]) if found else 0

    def metrics() -> str:
        return node_agent.fetch("/metrics")

    barred.limit()
    machine = make(node_agent, "lender").start("test.late=600")
    eventually(lambda: errors() >= 1)
    assert gone(machine)
    assert "exceeded quota: small" in node_agent.log()
    barred.lift_limit()
    eventually(lambda: not gone(machine))
    eventually(lambda: machine.condition("GuestAgentReady")[1] == "NotConnected")
    before = errors()
    with barred.policy():

        def relabel(value: str) -> None:
            cluster.kubectl("label", "vmi", "lender", "-n", namespace, "--overwrite", f"tier={value}")

        def is_told() -> None:
            relabel(f"at-{time.time():.0f}")
            events = cluster.get("events", "-n", namespace)["items"]
            told = [one for one in events if one["reason"] == "WriteRefused"]
            assert told
            event = told[0]
            assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "lender")
            assert "not on a Sunday" in event["message"]

        eventually(is_told)
        eventually(lambda: errors() > before)
    relabel("gold")
    eventually(lambda: machine.guest()["metadata"]["labels"] == {"tier": "gold"})


def test_the_lease_shows_that_the_agent_lives(cluster: Server, node_agent: AgentProcess) -> None:
    def renewed() -> str:
        lease = cluster.get("lease", names.agent_lease(node_agent.node), "-n", NAMESPACE)
        time_: str = lease["spec"]["renewTime"]
        return time_

    first = renewed()
    eventually(lambda: renewed() > first, names.LEASE_RENEW_SECONDS + 60)


def test_the_lease_goes_with_the_node(cluster: Server, node_agent: AgentProcess) -> None:
    """Issue 28, fault 4: it belongs to the node, so that the cluster's garbage collector takes it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_agent.node}}
    cluster.create(node)
    uid = cluster.get("node", node_agent.node)["metadata"]["uid"]

    def owners() -> list[str]:
        lease = cluster.get("lease", names.agent_lease(node_agent.node), "-n", NAMESPACE)
        return [one["uid"] for one in lease["metadata"].get("ownerReferences", [])]

    eventually(lambda: owners() == [uid], names.LEASE_RENEW_SECONDS + 5)


def test_the_agent_has_no_rights_beyond_the_charts(cluster: Server, namespace: str) -> None:
    """A few of those that would be worst, and two that it has."""
    token = token_of(cluster, "some-node")
    watched = ("watch", "memorypairings.tidepool.dev")
    assert cluster.kubectl("auth", "can-i", *watched, "-n", namespace, token=token).strip() == "yes"
    assert cluster.kubectl("auth", "can-i", "get", "nodes", token=token).strip() == "yes"
    verbs = ("get", "list", "watch", "create")
    worst = {*itertools.product(verbs, ("secrets", "nodes", "memorypools.tidepool.dev"))}
    for verb, what in worst - {("get", "nodes")}:
        with pytest.raises(Refused):
            cluster.kubectl("auth", "can-i", verb, what, "-n", namespace, token=token)
