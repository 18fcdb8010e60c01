"""The chart's hooks against a real API server, with the rights that the chart gives them; some of it with Helm itself.

There is no kubelet: what a Job's pod would run is run here, and what its controller would say of it is said here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cast import (
    BORROWS,
    LENDS,
    OPERATOR_TOKEN,
    OWN_NAMESPACE,
    PAIRING,
    Agent,
    OperatorProcess,
    connected_pool,
    role,
    wait_for,
)

from tidepool_api import kube, names
from tidepool_api.crd import KINDS
from tidepool_api_testing.chart import CHART, NAMESPACE, RELEASE, for_user, helm, rendered
from tidepool_api_testing.server import Refused, Server
from tidepool_operator import reconcile, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from subprocess import CompletedProcess

DOCS = Path(__file__).parents[2] / "docs"
WORDS = {120: "two minutes", 240: "four minutes"}  # seconds

RELEASE_TOKEN = "release-of-a-test-server"
CRD = "customresourcedefinition"
WITHDRAW = "tidepool-release-withdraw"
OF_FIRST = {"TIDEPOOL_RELEASE": RELEASE, "TIDEPOOL_JOB": WITHDRAW, "POD_NAMESPACE": NAMESPACE}
THERE = f"Tidepool is in this cluster already, as release {RELEASE} in namespace {NAMESPACE}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: withdrawing takes every pool that there is."""
    with Server({"operator": OPERATOR_TOKEN, "release": RELEASE_TOKEN}) as server:
        server.install_crds()
        namespaces = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in (OWN_NAMESPACE, "a"))
        server.create(*namespaces, *role("operator"), *for_user(rendered("release"), "release"))
        yield server


@pytest.fixture
def uninstalling(server: Server) -> Iterator[None]:
    """Helm has created the Job."""
    (job,) = [one for one in rendered("release") if one["metadata"]["name"] == WITHDRAW]
    server.kubectl("create", "--field-manager=helm", "-f", "-", body=job)
    yield
    server.kubectl("delete", "-n", NAMESPACE, "job", WITHDRAW)


def start(
    server: Server, log: Path, *task: str, token: str = RELEASE_TOKEN, variables: dict[str, str] = OF_FIRST
) -> subprocess.Popen[bytes]:
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "tidepool_operator.release", *task],
            env=os.environ | variables | {"KUBECONFIG": str(server.kubeconfig(token))},
            stderr=stderr,
        )


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Does a task; its exit code and what it said."""

    def carry_out(*task: str, **options: Any) -> tuple[int, str]:
        log = tmp_path / "said"
        code = start(server, log, *task, **options).wait(timeout=90)
        return code, log.read_text()

    return carry_out


def done(outcome: tuple[int, str]) -> bool:
    """Whether a task has ended well; shows what it said if not."""
    code, said = outcome
    assert code == 0, said
    return True


def schemas(server: Server) -> dict[str, Any]:
    """What the API server knows of the fields of each kind."""
    return {one["metadata"]["name"]: one["spec"]["versions"] for one in server.get(CRD)["items"]}


def test_crds_are_brought_to_this_version(server: Server, run: Callable[..., tuple[int, str]]) -> None:
    """One that is missing is there again, one that is older has all fields; a second time changes nothing."""
    wanted = schemas(server)
    assert len(wanted) == len(KINDS)
    older = "memorypools.tidepool.dev"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/paused"
    server.kubectl("patch", CRD, older, "--type=json", "-p", json.dumps([{"op": "remove", "path": path}]))
    server.kubectl("delete", CRD, "memorygrants.tidepool.dev")
    assert schemas(server) != wanted
    assert done(run("crds"))
    assert schemas(server) == wanted
    version = server.get(CRD, older)["metadata"]["resourceVersion"]
    assert done(run("crds"))
    assert server.get(CRD, older)["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(("status", "tries"), [(409, 3), (503, 3), (403, 1)])
def test_a_busy_api_server_is_asked_again(monkeypatch: pytest.MonkeyPatch, status: int, tries: int) -> None:
    """What will pass is tried again, and what will not is an error at once."""
    monkeypatch.setattr(release, "LOOK_EVERY", 0.0)
    calls = []

    def refused_twice() -> None:
        calls.append(status)
        if len(calls) < 3:
            raise kube.Refused(status, "do it", "busy")

    with nullcontext() if tries == 3 else pytest.raises(kube.Refused):
        release.patiently(refused_twice)
    assert len(calls) == tries


@pytest.mark.usefixtures("uninstalling")
def test_withdrawing_waits_for_the_agents(server: Server, tmp_path: Path) -> None:
    """The pool and its pairings go, and then the module out of the guests; only then it ends."""
    said = tmp_path / "said"
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:
        connected_pool(agent)
        agent.guest("l", LENDS, moduleVersion="0.1.0")
        process = start(server, said, "withdraw")
        wait_for("pairing is to go", lambda: "deletionTimestamp" in agent.pairing(PAIRING)["metadata"])
        for side in ("lender", "borrower"):
            assert process.poll() is None
            agent.release(PAIRING, side)
        wait_for("only the guest is waited for", lambda: "waiting for guest a/l has the module\n" in said.read_text())
        assert agent.is_gone("tpool", "pool")
        agent.guest("l", LENDS, balloon={"fullBytes": 2 << 30, "gatheredBytes": 1 << 30})
        wait_for("and for its balloon", lambda: "guest a/l has memory in its balloon\n" in said.read_text())
        agent.guest("l", LENDS)
        assert process.wait(30) == 0, said.read_text()
    assert agent.is_gone("tpair", PAIRING)


@pytest.mark.usefixtures("uninstalling")
def test_what_cannot_be_withdrawn_is_named(server: Server, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Issue 28, fault 8: without agents the pairing stays, and so does the release."""
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:
        connected_pool(agent)
        code, said = run("withdraw", "--patience", "5")
        assert code == 1
        assert f"still there: MemoryPool a/pool, MemoryPairing a/{PAIRING}. Is the operator up?" in said
        for side in ("lender", "borrower"):
            agent.release(PAIRING, side)
        assert done(run("withdraw"))


def test_a_pool_that_somebody_makes_anew_is_deleted_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever does is named while it is there: Argo CD heals what is not as it has it."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(RELEASE_TOKEN)))
    api, deleted = release.Api(kube.kubeconfig.found()), dict[str, int]()
    agent = Agent(server, "a", "n1")
    for said in ("MemoryPool a/pool", r"MemoryPool a/pool \(made anew by \w+\)"):
        agent.pool()
        (waiting,) = release.delete_pools(api, deleted)
        assert re.fullmatch(said, waiting), waiting
    assert release.delete_pools(api, deleted) == []


def test_what_was_written_is_forgotten(server: Server, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """By the agents, and the operator's Lease."""
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:
        agent.guest("forgotten", {})
        wait_for("Leases", lambda: len(server.get("-n", OWN_NAMESPACE, "lease")["items"]) == 2)
    assert done(run("forget"))
    assert not server.get("tguest", "-A")["items"]
    assert not server.get("-n", OWN_NAMESPACE, "lease")["items"]


def test_a_guest_whose_agent_is_away_keeps_the_release(server: Server, run: Callable[..., tuple[int, str]]) -> None:
    """Issue 28, fault 8: a guest with the module that nobody reaches is named, with its node and what to do."""
    away = Agent(server, "a", "down")
    away.renew(at="2026-01-01T00:00:00.000000Z")
    away.guest("l", LENDS, moduleVersion="0.1.0")
    code, said = run("withdraw", "--patience", "1")
    assert code == 1
    assert "memory may still be lent: guest a/l has the module and the agent on node down does not answer." in said
    for way in ("uninstall", "rollback", "--no-hooks"):
        assert way in said
    away.guest("l", LENDS)
    assert done(run("withdraw"))
    away.delete_guest("l")


def test_its_jobs_are_hooks_and_without_privilege() -> None:
    jobs = {one["metadata"]["name"]: one for one in rendered("release") if one["kind"] == "Job"}
    events = {name: one["metadata"]["annotations"]["helm.sh/hook"] for name, one in jobs.items()}
    assert events == {
        "tidepool-release-crds": "pre-upgrade",
        "tidepool-release-withdraw": "pre-delete",
        "tidepool-release-forget": "post-delete",
    }
    for job in jobs.values():
        pod = job["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [release.NOT_YET]}}


def test_withdrawing_ends_before_helm_gives_up() -> None:
    """Helm waits five minutes unless it is told otherwise; what is left is said by then, with time to start the pod."""
    (job,) = [one for one in rendered("release") if one["metadata"]["name"] == WITHDRAW]
    assert release.PATIENCE_SECONDS + 30 < job["spec"]["activeDeadlineSeconds"] < 300


@pytest.mark.parametrize(
    ("others", "is_there", "ours"), [([], True, True), ([], False, True), (["b"], False, False), (["b"], True, None)]
)
def test_of_two_releases_none_takes_what_the_other_may_serve(others: list[str], is_there: bool, ours: bool) -> None:
    """Issue 28, fault 6: one that never came to work has no pools; where both did, somebody has to decide."""
    me = release.Release("a", "first")
    releases = [me, *(release.Release(namespace, "second") for namespace in others)]
    api: Any = SimpleNamespace(releases=lambda: releases, has_workloads=lambda _: is_there)
    with nullcontext() if ours is not None else pytest.raises(release.NotYet, match="second in namespace b"):
        assert release.are_ours(release.Task(api, me, "", 0)) == ours


def test_a_finalizer_of_somebody_else_keeps_no_release() -> None:
    """Whoever may change an object of his namespace would keep the cluster's administrator from uninstalling."""
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    theirs, posing = ["example.com/mine"], [f"{names.GROUP}/mine", names.LENDER_FINALIZER]
    for kind, ours in (
        ("MemoryPool", names.POOL_FINALIZER),
        ("MemoryPairing", names.LENDER_FINALIZER),
        ("MemoryPairing", names.BORROWER_FINALIZER),
    ):
        each = [{}, going, {"finalizers": theirs}, going | {"finalizers": [*theirs, ours]}]
        objects = [{"kind": kind, "metadata": metadata} for metadata in each]
        assert release.kept([*objects, {"kind": kind, "metadata": going | {"finalizers": theirs}}]) == objects
    pools = [{"kind": kind, "metadata": going | {"finalizers": posing}} for kind in ("MemoryPool", "MemoryGuest")]
    assert release.kept(pools) == []


def test_rights_that_are_taken_away_are_said_in_words(server: Server, tmp_path: Path) -> None:
    """Issue 28, fault 8: as by Helm, when it no longer waits; no traceback."""
    account = ("-n", NAMESPACE, "serviceaccount", "waiting")
    server.kubectl("create", *account)
    server.kubectl(
        "create",
        "clusterrolebinding",
        "waiting",
        "--clusterrole=cluster-admin",
        f"--serviceaccount={NAMESPACE}:waiting",
    )
    token = server.kubectl("create", "token", "-n", NAMESPACE, "waiting").strip()
    agent = Agent(server, "a", "n1")
    agent.guest("l", LENDS, moduleVersion="0.1.0")
    said = tmp_path / "said"
    process = start(server, said, "withdraw", token=token)
    wait_for("it waits", lambda: "waiting for guest a/l" in said.read_text())
    server.kubectl("delete", *account)
    assert process.wait(30) == release.NOT_YET
    assert "Helm has given up waiting for it" in said.read_text()
    assert "Traceback" not in said.read_text()
    agent.delete_guest("l")
    server.kubectl("delete", "clusterrolebinding", "waiting")


class Helm:
    """Helm against a server, and what a cluster does with the Jobs of its hooks."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self._folder = server, folder

    def __call__(self, *arguments: str) -> CompletedProcess[str]:
        """Runs Helm."""
        return helm(f"--kubeconfig={self.server.kubeconfig()}", *arguments)

    def done(self, *arguments: str) -> str:
        """Runs Helm, which is to succeed; what it says."""
        answer = self(*arguments)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def with_jobs(self, arguments: Iterable[str], *jobs: str) -> tuple[CompletedProcess[str], list[str]]:
        """Runs Helm while its Jobs run one after the other; its answer, and what they said."""
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(self, *arguments)
            said = [self.run(name)[1] for name in jobs]
            return answer.result(), said

    def run(self, name: str) -> tuple[int, str]:
        """Runs what a Job's pod runs, with the pod's rights, and reports the end of the Job."""
        job = wait_for(name, lambda: self._begun(name))
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        token = self.server.kubectl("create", "token", "-n", NAMESPACE, pod["serviceAccountName"]).strip()
        variables = {one["name"]: one.get("value", NAMESPACE) for one in container["env"]}
        log = self._folder / "said"
        task = (*container["command"][3:], "--patience=1")
        code = start(self.server, log, *task, token=token, variables=variables).wait(60)
        self._report(name, ["SuccessCriteriaMet", "Complete"] if code == 0 else ["FailureTarget", "Failed"])
        return code, log.read_text()

    def _begun(self, name: str) -> Any:
        """A Job that has not come to its end, as one of a former time has."""
        job = self.server.get("-n", NAMESPACE, "job", name)
        return None if job.get("status", {}).get("conditions") else job

    def _report(self, name: str, conditions: list[str]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        times = {"startTime": now} | ({"completionTime": now} if "Complete" in conditions else {})
        found = [{"type": one, "status": "True", "lastTransitionTime": now} for one in conditions]
        patch = json.dumps({"status": times | {"conditions": found}})
        where = ("-n", NAMESPACE, "job", name)
        self.server.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)


INSTALL = ("install", RELEASE, str(CHART), "-n", NAMESPACE)
UNINSTALL = ("uninstall", RELEASE, "-n", NAMESPACE, "--timeout=1m")


@pytest.fixture
def installed(server: Server, tmp_path: Path) -> Iterator[Helm]:
    """The chart as a release of Helm, with a guest and a pool; nothing of it runs."""
    run = Helm(server, tmp_path)
    run.done(*INSTALL)
    report(server)
    Agent(server, "a", "n1").pool("kept")
    yield run
    run(*UNINSTALL, "--no-hooks", "--ignore-not-found")
    server.kubectl("delete", "-n", "a", "tpool,tguest", "--all")
    server.kubectl("delete", "-n", NAMESPACE, "job", "--all")


def report(server: Server, **more: Any) -> None:
    """The agent's part is played by hand, which the chart's policy is there to refuse."""
    server.kubectl("delete", "validatingadmissionpolicybinding", f"{RELEASE}-agent-reports", "--ignore-not-found")

    def is_reported() -> bool:
        try:
            Agent(server, "a", "n1").guest("b", BORROWS, identity=None, **more)
        except Refused:
            return False
        return True

    wait_for("the policy holds no more", is_reported)


def is_untouched(server: Server) -> bool:
    """Whether the pool and the guest are there, and are to stay."""
    found = server.get("-n", "a", "tpool,tguest")["items"]
    assert [one["metadata"]["name"] for one in found] == ["kept", "b"]
    return not [one for one in found if "deletionTimestamp" in one["metadata"]]


@pytest.fixture(params=["a", NAMESPACE])
def second(request: pytest.FixtureRequest, installed: Helm) -> Iterator[dict[str, Any]]:
    """What a second release would be in another namespace and in the same; its hooks have the rights that they get."""
    plain = installed.done("template", "second", str(CHART), "-n", request.param)
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(plain) if one}
    rights = [one for (kind, name), one in found.items() if name == "second-release" and kind != "Job"]
    installed.server.create(*rights)
    token = installed.server.kubectl("create", "token", "-n", request.param, "second-release").strip()
    yield {"objects": found, "namespace": request.param, "token": token}
    installed.server.kubectl("delete", "-f", "-", body=rights)


def test_a_second_release_is_refused(
    installed: Helm, run: Callable[..., tuple[int, str]], second: dict[str, Any]
) -> None:
    """Issue 28, fault 6: by name of the first, by Helm and by the API server; taking it away takes nothing."""
    refused = installed("install", "second", str(CHART), "-n", second["namespace"])
    assert THERE in refused.stderr
    assert refused.returncode != 0
    for workload in (("Deployment", "second-operator"), ("DaemonSet", "second-agent")):
        with pytest.raises(Refused, match=THERE):
            installed.server.create(second["objects"][workload])
    me = OF_FIRST | {"TIDEPOOL_RELEASE": "second", "POD_NAMESPACE": second["namespace"]}
    for task in ("crds", "withdraw", "forget"):
        code, said = run(task, token=second["token"], variables=me)
        assert code == 0, said
        assert f"pools and guests are those of release {RELEASE} in namespace {NAMESPACE}" in said
    assert is_untouched(installed.server)


@pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts", "--field-manager=argocd-controller")])
def test_hooks_that_are_applied_do_no_harm(installed: Helm, how: tuple[str, ...]) -> None:
    """Issue 28, fault 7: over a release at work, as in `helm template | kubectl apply`, they leave everything there."""
    server = installed.server
    plain = installed.done("template", RELEASE, str(CHART), "-n", NAMESPACE)
    server.kubectl("apply", *how, "-f", "-", body=[one for one in yaml.safe_load_all(plain) if one])
    code, said = installed.run(WITHDRAW)
    assert code == release.NOT_YET
    assert "not by Helm, so that all pools stay" in said
    code, said = installed.run("tidepool-release-forget")
    assert code == release.NOT_YET
    assert "are still there: nothing is forgotten" in said
    code, said = installed.run("tidepool-release-crds")
    assert code == 0, said
    assert is_untouched(server)


def test_a_release_that_could_not_go_stays_a_release(installed: Helm) -> None:
    """Issue 28, fault 8: with no agent it can be kept and upgraded, and goes when the agent has been there."""
    server = installed.server
    server.kubectl("delete", "-n", "a", "tpool", "kept")
    report(server, moduleVersion="0.1.0")
    refused, said = installed.with_jobs(UNINSTALL, WITHDRAW)
    assert refused.returncode != 0
    assert "guest a/b has the module" in said[0]
    assert f"helm rollback {RELEASE} REVISION" in said[0]
    installed.done("rollback", RELEASE, "1", "-n", NAMESPACE)
    answer, _ = installed.with_jobs(("upgrade", RELEASE, str(CHART), "-n", NAMESPACE), "tidepool-release-crds")
    assert answer.returncode == 0, answer.stderr
    report(server)
    answer, said = installed.with_jobs(UNINSTALL, WITHDRAW, "tidepool-release-forget")
    assert answer.returncode == 0, answer.stderr + "".join(said)
    assert json.loads(installed.done("list", "-A", "--all", "-o", "json")) == []
    assert not server.get("tguest", "-A")["items"]


def test_openshift_is_recognised_when_helm_installs(server: Server, tmp_path: Path) -> None:
    """By an API of that name: the constraints are in what Helm would create there, and nowhere else."""
    run, would = Helm(server, tmp_path), (*INSTALL, "--dry-run=server")
    assert "SecurityContextConstraints" not in run.done(*would)
    kind = {"kind": "SecurityContextConstraints", "plural": "securitycontextconstraints"}
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": anything}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind['plural']}.security.openshift.io"},
        "spec": {"group": "security.openshift.io", "names": kind, "scope": "Cluster", "versions": [version]},
    }
    server.create(crd)
    server.kubectl("wait", "crd", crd["metadata"]["name"], "--for=condition=Established")
    assert "kind: SecurityContextConstraints" in run.done(*would)
    server.kubectl("delete", "crd", crd["metadata"]["name"])


def test_helm_makes_no_namespace_that_it_needs(server: Server, tmp_path: Path) -> None:
    """`namespace.create` is for other tools: Helm refuses, and has changed nothing."""
    refused = Helm(server, tmp_path)(*INSTALL, "--set=namespace.create=true")
    assert refused.returncode != 0
    assert f'Namespace "{NAMESPACE}" in namespace "" exists and cannot be imported' in refused.stderr
    assert Helm(server, tmp_path).done("list", "-n", NAMESPACE, "-q", "--all") == ""


def test_the_api_server_takes_what_several_operators_add(server: Server) -> None:
    """The budget, and the terms of the pods' nodes."""
    added = [
        one
        for one in rendered("operator", "operator.replicas=2")
        if one["kind"] in ("PodDisruptionBudget", "Deployment")
    ]
    assert len(added) == 2
    server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", body=added)


@pytest.mark.parametrize(
    ("page", "says", "seconds"),
    [
        ("how-to/upgrade.md", "It has {}, a little less than Helm", release.PATIENCE_SECONDS),
        ("how-to/upgrade.md", "After its {} the Job fails", release.PATIENCE_SECONDS),
        ("how-to/upgrade.md", "lets such pairings go, at the latest after {}", reconcile.PATIENCE_SECONDS),
        (
            "runbooks/TidepoolAgentDown.md",
            "Pairings being deleted are let go after {} at most",
            reconcile.PATIENCE_SECONDS,
        ),
    ],
)
def test_documents_say_how_long_is_waited(page: str, says: str, seconds: float) -> None:
    """Issue 28, fault 8: they agree with what is waited."""
    text = " ".join((DOCS / page).read_text().split())
    assert says.format(WORDS[int(seconds)]) in text
