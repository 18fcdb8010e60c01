"""The node as a lender: the agent with the chart's rights, a real API server, and the real daemon (node-lender/)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from cast import NAMESPACE, TOP, AgentProcess, condition, eventually
from objects import BORROWER, LENDER, identity_of, pairing, pairing_body, want, within

from tidepool_agent import nodelender, report
from tidepool_agent.errors import Nonsense
from tidepool_agent.guestfs import Side
from tidepool_agent.nodedaemon import Daemon
from tidepool_agent.nodelender import UNFIT, Memory, Node, NothingToLend, NotRunning, State, Terms
from tidepool_agent.report import Finding
from tidepool_api import GuestStatus, find, is_identity
from tidepool_api_testing.server import Refused, Server, free_ports

GIB, MIB = 1 << 30, 1 << 20
TERMS = Terms(max_lend=8 * GIB, reserve=4 * GIB)
CONTAINER = "c0ffee" * 10
MEMORY = Memory(16 * GIB, 9 * GIB, "6.1.0", "1-2-3")


# ------------------------------------------------------------------------------------------- what the daemon is told


def told(*wants: Any, hold: bool = False, addresses: tuple[str, ...] = ("10.0.0.9",)) -> dict[str, Any]:
    return tomllib.loads(nodelender.config(TERMS, 16 * GIB, wants, addresses, hold=hold))


def lends(uid: str, **spec: Any) -> Any:
    return want(Side.BORROWERS, pairing(uid, **spec))


def test_the_daemon_is_told_who_may_borrow_how_much() -> None:
    """Each by its pairing's UID, as soon as its identity is known; sizes of the chart, quotas of pairings."""
    found = told(lends("p1"), lends("p2", identities=(LENDER, None)), hold=True)
    assert found["borrowers"] == {"p1": {"identity": BORROWER, "quota": 256 * MIB}}
    assert (found["max_lend"], found["reserve"], found["hold"]) == (8 * GIB, 4 * GIB, True)
    assert found["listen"] == "0.0.0.0:7470"
    assert told(addresses=("10.0.0.9", "fd00::9"))["listen"] == "[::]:7470"


def test_a_node_lends_no_more_than_it_has_beside_its_reserve() -> None:
    assert nodelender.most(TERMS, 16 * GIB) == 8 * GIB
    assert nodelender.most(TERMS, 6 * GIB) == 2 * GIB
    with pytest.raises(NothingToLend, match="is 4Gi, and the node has 2Gi: lower it, or keep the node lender off"):
        nodelender.most(TERMS, 2 * GIB)


def test_what_is_not_of_its_form_is_not_told() -> None:
    """Nothing that somebody else wrote is ever a line of the file; the pairing's end says why."""
    odd = lends('p"]\n[borrowers."x')
    copied = [lends("p1"), lends("p2", borrower="other")]
    assert "borrowers" not in told(odd)
    assert list(told(*copied)["borrowers"]) == ["p1"]
    assert "that guest was copied: reboot it" in str(nodelender.unfit(copied)[copied[1].key])
    many = [lends(f"p{number}", identities=(LENDER, identity_of(str(number)))) for number in range(66)]
    assert len(told(*many)["borrowers"]) == 64
    assert "a node lends to 64 borrowers at most" in str(nodelender.unfit(many)[many[65].key])


# ------------------------------------------------------------------------------------------------- what is there


def pod(name: str = "l", namespace: str = NAMESPACE, **state: Any) -> dict[str, Any]:
    status = {"name": "node-lender", "containerID": f"containerd://{CONTAINER}", "state": state or {"running": {}}}
    meta = {"name": name, "namespace": namespace}
    return {"metadata": meta, "status": {"podIPs": [{"ip": "10.0.0.9"}], "containerStatuses": [status]}}


def test_the_daemon_is_looked_for_in_a_pod_of_the_release() -> None:
    """Whoever may create pods elsewhere may give them any label."""
    found = nodelender.place([pod(namespace="tenant"), pod()], NAMESPACE, "n1")
    assert (found.container, found.addresses, found.trouble) == (CONTAINER, ("10.0.0.9",), "")
    none = nodelender.place([pod(namespace="tenant")], NAMESPACE, "n1")
    assert none.trouble.startswith(
        "no pod of the node lender is on node n1: kubectl -n tidepool-system describe daemon"
    )
    early = pod()
    early["status"]["podIPs"] = []
    assert nodelender.place([early], NAMESPACE, "n1").trouble == "pod l of the node lender has no IP address yet"
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    broken = nodelender.place([pod(waiting=waiting)], NAMESPACE, "n1").trouble
    assert "pod l of the node lender does not run (CrashLoopBackOff: back-off 10s): kubectl -n" in broken


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "error: x",
        "[]",
        "{}",
        json.dumps({"identity": "x25519:12", "conditions": [], "borrowers": []}),
        json.dumps({"identity": LENDER, "conditions": [], "borrowers": [{"name": "a"}]}),
        json.dumps({"identity": LENDER, "conditions": 3, "borrowers": []}),
        "[" * 100_000,
        json.dumps({"identity": LENDER, "conditions": [], "borrowers": [], "more": [[]] * 100_000}),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: str) -> None:
    with pytest.raises(Nonsense):
        nodelender.parse(answer)


def described(
    found: Finding, state: State | None, memory: Memory = MEMORY, before: GuestStatus | None = None, *wants: Any
) -> Any:
    node = nodelender.machine(NAMESPACE, "n1", Node("uid", {"room": "a"}), ("10.0.0.9",))
    return nodelender.guest(node, TERMS, memory, found, state, wants, before)


def test_a_node_is_reported_as_what_it_may_lend() -> None:
    """Its labels, its memory as its kernel counts it, and the terms of the chart; it goes with its Node."""
    state = State(LENDER)
    found = described(Finding(seen=nodelender.observation(state, MEMORY)), state)
    assert (found.name, found.spec.provider, found.spec.node_name) == ("n1", "Node", "n1")
    assert found.metadata.labels == {"room": "a"}
    assert (found.metadata.owner_references[0].kind, found.metadata.owner_references[0].uid) == ("Node", "uid")
    status = found.status
    assert (status.addresses, status.identity, status.module_version) == (("10.0.0.9",), LENDER, None)
    assert status.memory is not None
    assert (status.memory.total_bytes, status.memory.available_bytes) == (16 * GIB, 9 * GIB)
    assert status.node is not None
    assert (status.node.max_lend_bytes, status.node.reserve_bytes, status.node.port) == (8 * GIB, 4 * GIB, 7470)
    assert [(one.type, one.status) for one in status.conditions] == [
        ("LenderRunning", "True"),
        ("LenderFit", "True"),
        ("Ready", "True"),
    ]


def test_no_more_is_promised_than_the_daemons_limit_lets_it_lend() -> None:
    """A limit below nodeLender.maxLend is what counts, less what the daemon needs; also while it starts anew."""

    def most(limit: int | None) -> int:
        said = {"identity": LENDER, "conditions": [], "borrowers": [], "limit_bytes": limit}
        state = nodelender.parse(json.dumps(said))
        found = described(Finding(seen=nodelender.observation(state, MEMORY)), state)
        away = described(Finding(unreachable=NotRunning("gone")), None, before=found.status)
        assert found.status.node is not None
        assert away.status.node == found.status.node
        return int(found.status.node.max_lend_bytes)

    assert most(None) == most(8 * GIB) == most(12 * GIB) == 8 * GIB
    assert most(4 * GIB) == 4 * GIB - 4 * GIB // 16


def test_what_balloons_hold_is_said_and_counted_nowhere_else() -> None:
    """The node's kernel has these pages among those that are available; what may be lent at most stays what it is."""
    state, holding = State(LENDER), replace(MEMORY, gathered=2 * GIB)
    found = described(Finding(seen=nodelender.observation(state, holding)), state, holding).status
    without = described(Finding(seen=nodelender.observation(state, MEMORY)), state).status
    assert found.node is not None
    assert without.node is not None
    assert (found.node.gathered_bytes, without.node.gathered_bytes) == (2 * GIB, None)
    assert found.memory == without.memory
    assert found.node.max_lend_bytes == without.node.max_lend_bytes


def test_a_node_says_how_many_borrow_from_it() -> None:
    """Also while its daemon is away, and of all namespaces: who plans for one cannot list the pairings of others."""
    state = State(LENDER)
    seen = Finding(seen=nodelender.observation(state, MEMORY))
    two = (lends("p1"), lends("p2", borrower="other"))
    found = described(seen, state, MEMORY, None, *two).status
    away = described(Finding(unreachable=NotRunning("gone")), None, MEMORY, found, *two).status
    nobody = described(seen, state).status
    assert [one.node.borrowers for one in (found, away, nobody)] == [2, 2, None]


def test_each_warning_of_the_daemon_is_a_reason() -> None:
    """And no other word: one is a label of Prometheus."""
    source = Path(__file__, "../../../node-lender/src/config.rs").resolve().read_text()
    assert set(re.findall(r'reason: "(\w+)"', source)) == UNFIT


def test_what_the_daemon_warns_of_is_a_condition() -> None:
    """Swap or a limit that is too low is no reason not to lend; a daemon that is gone, or a reserve too large, is."""
    swap = "the node has swap: set memory.swap.max of this lender's cgroup to 0"
    warned = State(LENDER, conditions=(("NodeHasSwap", swap), ("NoLimit", "set a limit")))
    found = described(Finding(seen=nodelender.observation(warned, MEMORY)), warned)
    fit = find(found.status.conditions, "LenderFit")
    assert fit is not None
    assert (fit.status, fit.reason, fit.message) == ("False", "NodeHasSwap", f"{swap}; set a limit")
    assert found.ready is not None
    assert found.ready.status == "True"
    odd = find(described(Finding(), State(LENDER, conditions=(("AnyWord", "look"),))).status.conditions, "LenderFit")
    assert odd is not None
    assert (odd.reason, odd.message) == ("NotFit", "look")
    for finding in (Finding(unreachable=NotRunning("gone")), Finding(refused=NothingToLend("too much"))):
        found = described(finding, None)
        assert found.ready is not None
        assert found.ready.status == "False"
        assert found.ready.message in ("gone", "too much")


def test_a_pairing_says_that_the_daemon_is_gone() -> None:
    """As of a guest that does not answer: what was last known stays, and the condition says what to do."""
    end = report.end(lends("p1"), Finding(unreachable=NotRunning("pod l does not run: kubectl logs l", "NotRunning")))
    (configured,) = end.conditions
    assert (configured.status, configured.reason) == ("Unknown", "NotRunning")
    assert configured.message == "pod l does not run: kubectl logs l"


# --------------------------------------------------------------------------------------------- the way to the daemon


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A host with one process, in the container; its root has the folder of the daemon."""
    folder = tmp_path / "proc/77"
    (tmp_path / "root/run/tidepool").mkdir(parents=True)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::/kubepods/{CONTAINER}\n")
    (folder / "root").symlink_to(tmp_path / "root")
    return tmp_path / "proc"


def test_no_link_of_the_daemons_leads_the_agent_anywhere(tmp_path: Path, proc: Path) -> None:
    """The agent may write where the daemon may not: a link to a file is replaced, one in a folder's place refused."""
    victim, folder = tmp_path / "victim", tmp_path / "root/run/tidepool"
    victim.write_text("precious")
    for name in ("node-lender.toml", ".node-lender.toml"):
        (folder / name).symlink_to(victim)
    Daemon(proc).write(CONTAINER, "text")
    assert (victim.read_text(), (folder / "node-lender.toml").read_text()) == ("precious", "text")
    assert not (folder / "node-lender.toml").is_symlink()
    shutil.rmtree(folder)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotRunning):
        Daemon(proc).write(CONTAINER, "text")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(tmp_path: Path, proc: Path) -> None:
    file = tmp_path / "root/run/tidepool/node-lender.toml"
    os.mkfifo(file)
    Daemon(proc).write(CONTAINER, "text")
    assert file.read_text() == "text"
    before = file.stat().st_ino
    Daemon(proc).write(CONTAINER, "text")
    assert file.stat().st_ino == before, "written anew, though nothing has changed"


def test_a_daemon_that_says_no_end_is_given_up(tmp_path: Path, proc: Path) -> None:
    """And one that is not there yet is said to be starting."""
    with pytest.raises(NotRunning, match="is starting"):
        Daemon(proc).ask(CONTAINER, "state")
    with pytest.raises(NotRunning, match="has no process"):
        Daemon(proc).ask("another", "state")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "root/run/tidepool/control.sock"))
        listener.listen()

        def chatter() -> None:
            visitor, _ = listener.accept()
            with visitor, contextlib.suppress(OSError):
                visitor.sendall(b"x" * (2 << 20))

        thread = threading.Thread(target=chatter, daemon=True)
        thread.start()
        with pytest.raises((Nonsense, NotRunning)):
            Daemon(proc).ask(CONTAINER, "state")


# ------------------------------------------------------------------------------------------------------- the whole


@pytest.fixture(scope="module")
def program() -> Path:
    """The daemon, built of the present sources."""
    subprocess.run([TOP / "node-lender/cargo", "build", "--quiet", "--release"], check=True)
    cache = Path(os.environ.get("TIDEPOOL_CACHE") or Path.home() / ".cache/tidepool")
    return cache / "node-lender/release/tidepool-node-lender"


class Lender:
    """A pod with the daemon in it, as its node's kubelet would run it, and the pairing that the operator makes."""

    def __init__(self, server: Server, agent: AgentProcess, program: Path, node: str) -> None:
        self._server, self.agent, self._program, self.node = server, agent, program, node
        self._folder = Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
        self._run = self._folder / "run/tidepool"
        self._run.mkdir(parents=True)
        for folder in (self._folder, self._folder / "run", self._run):
            folder.chmod(0o777)

    def start(self) -> None:
        """The pod is there, and its container runs."""
        labels = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/component": "node-lender"}
        meta = {"name": f"lender-{self.node}", "namespace": NAMESPACE, "labels": labels}
        spec = {"nodeName": self.node, "containers": [{"name": "node-lender", "image": "x"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self._server.apply(body)
        running = {"name": "node-lender", "containerID": f"containerd://{CONTAINER}", "state": {"running": {}}}
        status = running | {"ready": True, "restartCount": 0, "image": "x", "imageID": "x"}
        found = {"phase": "Running", "podIPs": [{"ip": "10.9.8.7"}], "podIP": "10.9.8.7", "containerStatuses": [status]}
        self._server.apply_status({**body, "status": found})
        self.run()

    def run(self) -> None:
        """The daemon, started as in the chart."""
        process = self.agent.proc / "4000"
        process.mkdir()
        (process / "cgroup").write_text(f"0::/kubepods/{CONTAINER}\n")
        (process / "root").symlink_to(self._folder)
        command = [self._program, "--wait", "--config", "node-lender.toml"]
        log = (self._folder / "log").open("ab")
        self.process = subprocess.Popen(command, cwd=self._run, stderr=log)

    def end(self) -> None:
        """The daemon's process ends."""
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.agent.proc / "4000", ignore_errors=True)

    def config(self) -> dict[str, Any]:
        return tomllib.loads((self._run / "node-lender.toml").read_text())

    def state(self) -> dict[str, Any]:
        """What the daemon itself says."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self._run / "control.sock"))
            sock.sendall(b"state\n")
            found: dict[str, Any] = json.loads(sock.makefile().readline())
            return found

    def guest(self) -> dict[str, Any]:
        found: dict[str, Any] = self._server.get("tguest", self.node, "-n", NAMESPACE)
        return found

    def condition(self, kind: str) -> tuple[str, str, str]:
        return condition(self.guest()["status"], kind)

    def close(self) -> None:
        self.end()
        self._server.kubectl("delete", "pod", "-n", NAMESPACE, f"lender-{self.node}", "--force", "--ignore-not-found")
        shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        return self


@pytest.fixture
def lender(cluster: Server, store: Path, program: Path, namespace: str) -> Iterator[Lender]:
    """A node of its own with an agent that is to have it lend."""
    node = f"lends-{namespace}"
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"room": "a"}}})
    port, metrics = free_ports(2)
    options = [f"--node-port={port}", f"--node-metrics-port={metrics}", "--node-max-lend=64Mi", "--node-reserve=16Mi"]
    agent = AgentProcess(cluster, node, store, "--node-lender", *options)
    (agent.proc / "meminfo").symlink_to("/proc/meminfo")
    with agent:
        one = Lender(cluster, agent, program, node)
        yield one
        one.close()


def made(server: Server, namespace: str, lender: Lender) -> None:
    """The operator's pairing for a borrower elsewhere."""
    body = within(namespace, pairing_body("p", lender=lender.node, node=lender.node))
    body["spec"]["lender"]["namespace"] = NAMESPACE
    server.create(body)


def test_a_node_lends_to_a_pairing_and_gives_it_back(cluster: Server, lender: Lender, namespace: str) -> None:
    """Found, told, reported, changed, drained, restarted with another identity, released: the life of a node lender."""
    eventually(lambda: lender.condition("Ready")[:2] == ("False", "NotRunning"))
    assert "no pod of the node lender is on node" in lender.condition("LenderRunning")[2]
    lender.start()
    eventually(lambda: lender.condition("Ready")[0] == "True")
    found = lender.guest()
    assert found["metadata"]["labels"]["room"] == "a"
    assert found["spec"]["provider"] == "Node"
    first = found["status"]["identity"]
    assert first == lender.state()["identity"]
    assert found["status"]["addresses"] == ["10.9.8.7"]
    assert found["status"]["node"]["maxLendBytes"] == 64 * MIB

    made(cluster, namespace, lender)
    uid = cluster.get("tpair", "p", "-n", namespace)["metadata"]["uid"]

    def end() -> dict[str, Any]:
        status: dict[str, Any] = cluster.get("tpair", "p", "-n", namespace)["status"]["lender"]
        return status

    eventually(lambda: end()["state"] == "Listening" and condition(end(), "Configured")[0] == "True")
    (borrower,) = lender.state()["borrowers"]
    assert (borrower["name"], borrower["identity"]) == (uid, identity_of("elsewhere"))
    assert end()["peerIdentity"] == identity_of("elsewhere")
    assert lender.guest()["status"]["role"] == "Lender"
    assert lender.guest()["status"]["peers"] == [{"namespace": namespace, "role": "Borrower", "heldBytes": 0}]
    smaller = json.dumps({"spec": {"size": "32Mi"}})
    cluster.kubectl("patch", "tpair", "p", "-n", namespace, "--type=merge", "-p", smaller)
    eventually(lambda: lender.config()["borrowers"][uid]["quota"] == 32 * MIB)

    lender.end()
    lender.run()
    eventually(lambda: lender.guest()["status"]["identity"] not in (None, first))
    assert is_identity(lender.guest()["status"]["identity"])
    eventually(lambda: [one["name"] for one in lender.state()["borrowers"]] == [uid])

    cluster.kubectl("cordon", lender.node)
    eventually(lambda: lender.state()["hold"] is True)
    cluster.kubectl("delete", "tpair", "p", "-n", namespace, "--wait=false")
    eventually(lambda: gone(cluster, namespace))
    assert lender.state()["borrowers"] == []
    eventually(lambda: lender.guest()["status"]["role"] == "None")


def gone(server: Server, namespace: str) -> bool:
    try:
        server.get("tpair", "p", "-n", namespace)
    except Refused:
        return True
    return False


def test_a_daemon_that_is_down_is_said_to_be(cluster: Server, lender: Lender, namespace: str) -> None:
    """The node is not ready, its pairing says so, and nobody waits for it when the pairing goes."""
    lender.start()
    eventually(lambda: lender.condition("Ready")[0] == "True")
    made(cluster, namespace, lender)
    eventually(lambda: len(lender.state()["borrowers"]) == 1)
    lender.end()
    eventually(lambda: lender.condition("Ready")[0] == "False")

    def said() -> bool:
        status = cluster.get("tpair", "p", "-n", namespace)["status"]["lender"]
        return condition(status, "Configured")[0] == "Unknown"

    eventually(said)
    cluster.kubectl("delete", "tpair", "p", "-n", namespace, "--wait=false")
    eventually(lambda: gone(cluster, namespace), 120)


def test_figures_and_metrics_name_the_node(lender: Lender) -> None:
    """Prometheus sees it beside the guests, as a node."""
    lender.start()
    eventually(lambda: lender.condition("Ready")[0] == "True")
    expected = f'tidepool_guest_info{{guest="{lender.node}"'
    eventually(lambda: expected in lender.agent.fetch("/metrics"))
    text = lender.agent.fetch("/metrics")
    (info,) = [line for line in text.splitlines() if line.startswith(expected)]
    assert 'provider="Node"' in info


def test_a_node_that_is_to_lend_no_more_is_forgotten(cluster: Server, lender: Lender, store: Path) -> None:
    """The chart's nodeLender is switched off: the next agent takes the MemoryGuest away, as that of a machine."""
    lender.start()
    eventually(lambda: lender.condition("Ready")[0] == "True")
    lender.agent.stop()
    with AgentProcess(cluster, lender.node, store):
        eventually(lambda: is_forgotten(lender), 60)
    lender.agent.start()


def is_forgotten(lender: Lender) -> bool:
    try:
        lender.guest()
    except Refused:
        return True
    return False
