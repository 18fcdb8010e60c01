"""Argo CD by its rules, against a real API server: what it applies and deletes, and how healthy a pool is.

It renders the chart with its CRDs, applies hooks of Helm as its own at the moments that it has for them, and the rest
on the server's side, kind by kind. When an Application is deleted, its PreDelete hooks come first, and all waits for
them. Then whatever was applied goes, but CRDs, of which it deletes none, and PostDelete hooks come last. There is no
kubelet: what a Job's pod would run is run here.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cast import OWN_NAMESPACE, PAIRING, Agent, OperatorProcess, connected_pool, role, wait_for
from test_release import OPERATOR_TOKEN, WITHDRAW, Helm, report

from tidepool_api import PairingPhase
from tidepool_api.names import API_VERSION, PoolPhase
from tidepool_api_testing.chart import CHART, NAMESPACE, RELEASE, program
from tidepool_api_testing.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = CHART.parents[1] / "docs/how-to/plain-manifests.md"
ARGO = ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")
CRD = "CustomResourceDefinition"
BY_PEOPLE = [
    {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "own", "namespace": "a"}, "spec": spec}
    for kind, spec in (
        ("MemoryGrant", {"to": [{"namespace": "b"}]}),
        ("MemoryQuota", {"maxLent": "1Gi"}),
        ("MemoryPoolClass", {"lenders": {"maxLend": "1Gi"}}),
    )
]
FIRST = ("Namespace", "ServiceAccount", CRD, "ClusterRole", "ClusterRoleBinding", "Role")


@pytest.fixture
def server() -> Iterator[Server]:
    """Without Tidepool."""
    with Server({"operator": OPERATOR_TOKEN}) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}})
        yield server


class Application:
    """The chart as an Application of Argo CD."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self._helm = server, Helm(server, folder)
        self._applied: list[Any] = []

    def sync(self, *settings: str) -> None:
        """PreSync hooks, then what is rendered, then what is rendered no more is pruned."""
        assert self._hooks("pre-upgrade", "tidepool-release-crds") == ""
        found = [one for one in self._rendered(*settings) if not hooks_of(one)]
        found.sort(key=lambda one: FIRST.index(one["kind"]) if one["kind"] in FIRST else len(FIRST))
        self.server.kubectl("apply", *ARGO, "-f", "-", body=found)
        gone = [one for one in self._applied if key_of(one) not in map(key_of, found)]
        if gone:
            self.server.kubectl("delete", "-f", "-", body=gone)
        self._applied = found

    def delete(self) -> str:
        """Returns why it waits, or nothing where all is gone."""
        if said := self._hooks("pre-delete", WITHDRAW):
            return said
        going = [one for one in self._applied[::-1] if one["kind"] != CRD]
        self.server.kubectl("delete", "--ignore-not-found", "-f", "-", body=going)
        assert self._hooks("post-delete", "tidepool-release-forget") == ""
        return ""

    def _rendered(self, *settings: str) -> list[Any]:
        values = [f"--set={one}" for one in settings]
        plain = self._helm.done("template", RELEASE, str(CHART), "-n", NAMESPACE, "--include-crds", *values)
        return [one for one in yaml.safe_load_all(plain) if one]

    def _hooks(self, event: str, job: str) -> str:
        """Those of an event anew, by their weights; what its Job says that fails, and of one that succeeds all go."""
        found = sorted((one for one in self._rendered() if event in hooks_of(one)), key=weight_of)
        self.server.kubectl("delete", "--ignore-not-found", "-f", "-", body=found)
        self.server.kubectl("apply", *ARGO, "-f", "-", body=found)
        code, said = self._helm.run(job)
        if code:
            return said
        self.server.kubectl("delete", "--ignore-not-found", "-f", "-", body=found)
        return ""


def hooks_of(one: Any) -> list[str]:
    """The events at which an object is applied; none for what is part of the Application."""
    return [word for word in one["metadata"].get("annotations", {}).get("helm.sh/hook", "").split(",") if word]


def weight_of(one: Any) -> int:
    return int(one["metadata"]["annotations"]["helm.sh/hook-weight"])


def key_of(one: Any) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


@pytest.fixture
def application(server: Server, tmp_path: Path) -> Application:
    """One that has been synchronised."""
    made = Application(server, tmp_path)
    made.sync()
    return made


def left_over(server: Server) -> list[str]:
    """What is in the cluster with the chart's label, and what its workloads wrote."""
    kinds = "deploy,ds,sa,role,rolebinding,netpol,job,clusterrole,clusterrolebinding"
    policies = "validatingadmissionpolicy,validatingadmissionpolicybinding"
    label = f"app.kubernetes.io/instance={RELEASE}"
    found = server.get("-A", f"{kinds},{policies}", "-l", label)["items"]
    written = server.get("-A", "memoryguests,memorypairings,memorypools")["items"]
    return sorted(f"{one['kind']} {one['metadata']['name']}" for one in [*found, *written])


def test_it_installs_upgrades_and_prunes(application: Application, server: Server) -> None:
    """A second time nothing changes; what another version has no more goes, and pools stay."""
    Agent(server, "a", "n1").pool("kept")
    before = {one: server.get(*one)["metadata"]["generation"] for one in workloads()}
    application.sync()
    assert {one: server.get(*one)["metadata"]["generation"] for one in workloads()} == before
    application.sync("operator.replicas=2")
    assert "PodDisruptionBudget tidepool-operator" in names_of(server)
    application.sync()
    assert names_of(server) == []
    assert server.get("-n", "a", "tpool", "kept")["spec"]


def workloads() -> list[tuple[str, ...]]:
    return [("-n", NAMESPACE, "deployment", "tidepool-operator"), ("-n", NAMESPACE, "daemonset", "tidepool-agent")]


def names_of(server: Server) -> list[str]:
    found = server.get("-n", NAMESPACE, "poddisruptionbudget")["items"]
    return [f"PodDisruptionBudget {one['metadata']['name']}" for one in found]


def test_a_deletion_waits_for_the_pools_and_leaves_what_people_wrote(application: Application, server: Server) -> None:
    """With a pool nothing goes, however often it is tried. Without, what was applied does, hooks too, but no CRD."""
    agent = Agent(server, "a", "n1")
    server.create(*BY_PEOPLE)
    report(server)
    agent.pool("kept")
    for _ in range(2):
        assert "not by Helm, so that all pools stay" in application.delete()
        found = server.get("-n", "a", "tpool", "kept")
        assert "deletionTimestamp" not in found["metadata"]
        assert all(server.get(*one) for one in workloads())
    server.kubectl("delete", "-n", "a", "tpool", "kept")
    agent.guest("b", {}, moduleVersion="0.2.0")
    assert "guest a/b has the module" in application.delete()
    agent.guest("b", {})
    assert application.delete() == ""
    assert left_over(server) == []
    for one in BY_PEOPLE:
        assert server.get("-n", "a", one["kind"].lower(), "own")["spec"] == one["spec"]


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def health_script() -> str:
    """As the page has it, the same for each kind."""
    blocks = [block.split("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:]]
    (settings,) = [yaml.safe_load(block) for block in blocks if "resource.customizations" in block]
    scripts = {name.removeprefix("resource.customizations.health."): text for name, text in settings["data"].items()}
    assert set(scripts) == {"tidepool.dev_MemoryPool", "tidepool.dev_MemoryPairing"}
    (script,) = set(scripts.values())
    return str(script)


def health(script: str, body: Any) -> tuple[str, str]:
    """What Argo CD shows for an object: status and message."""
    show = "local health = judge()\nprint(health.status)\nprint(health.message)"
    text = f"obj = {lua(body)}\nlocal function judge()\n{script}\nend\n{show}\n"
    answer = subprocess.run([program("lua5.1"), "-"], input=text, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    status, message = answer.stdout.splitlines()
    return status, message


def lua(value: Any) -> str:
    """A value of JSON as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value, ensure_ascii=False)


def test_a_pool_is_as_healthy_as_it_says(server: Server, tmp_path: Path, health_script: str) -> None:
    """As the operator leaves it: at work, wrong, and being deleted; the pairing likewise."""
    server.install_crds()
    server.create(*role("operator"))
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:

        def shown(kind: str = "tpool", name: str = "pool") -> tuple[str, str]:
            return health(health_script, server.get("-n", "a", kind, name))

        connected_pool(agent)
        assert shown()[0] == "Healthy"
        assert shown("tpair", PAIRING)[0] == "Healthy"
        agent.pool("lost", lends="nobody")
        wait_for("it is looked at", lambda: shown("tpool", "lost")[0] == "Degraded")
        server.kubectl("delete", "--wait=false", "-n", "a", "tpool", "pool")
        wait_for("it is going", lambda: shown()[0] == "Progressing")
        for side in ("lender", "borrower"):
            agent.release(PAIRING, side)


EXPECTED = {
    "Progressing": {"Pending", "Connecting", "Terminating"},
    "Healthy": {"Ready", "Connected"},
    "Suspended": {"Paused"},
    "Degraded": {"Degraded", "Failed", "Unstable"},
}


@pytest.mark.parametrize("phase", sorted({*PoolPhase, *PairingPhase}))
def test_every_phase_has_a_health(health_script: str, phase: str) -> None:
    (expected,) = [one for one, phases in EXPECTED.items() if phase in phases]
    ready = {"type": "Ready", "message": "so it is"}
    status = {"observedGeneration": 2, "phase": phase, "conditions": [{"type": "Degraded"}, ready]}
    body = {"kind": "MemoryPool", "metadata": {"generation": 2}, "status": status}
    assert health(health_script, body) == (expected, "so it is")


@pytest.mark.parametrize("seen", [None, 1])
def test_a_change_that_nobody_has_looked_at_is_on_its_way(health_script: str, seen: int | None) -> None:
    """Whatever the status says of the version before; also where there is none yet."""
    status = {} if seen is None else {"status": {"observedGeneration": seen, "phase": "Ready"}}
    body = {"kind": "MemoryPool", "metadata": {"generation": 2}, **status}
    assert health(health_script, body) == ("Progressing", "the operator has not looked at it yet")
