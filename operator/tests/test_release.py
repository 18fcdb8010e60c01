"""The chart's hooks against a real API server, with the rights that the chart gives them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from cast import (
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
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ForbiddenError, api_exception

from tidepool_api.crd import KINDS
from tidepool_api_testing.chart import for_user, rendered
from tidepool_api_testing.server import Server
from tidepool_operator import release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RELEASE_TOKEN = "release-of-a-test-server"
CRD = "customresourcedefinition"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: withdrawing takes every pool that there is."""
    with Server({"operator": OPERATOR_TOKEN, "release": RELEASE_TOKEN}) as server:
        server.install_crds()
        namespaces = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in (OWN_NAMESPACE, "a"))
        server.create(*namespaces, *role("operator"), *for_user(rendered("release"), "release"))
        yield server


def start(server: Server, log: Path, *task: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "tidepool_operator.release", *task],
            env=os.environ | {"KUBECONFIG": str(server.kubeconfig(RELEASE_TOKEN))},
            stderr=stderr,
        )


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Does a task; its exit code and what it said."""

    def carry_out(*task: str) -> tuple[int, str]:
        log = tmp_path / "said"
        code = start(server, log, *task).wait(timeout=90)
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
            raise api_exception(ApiException(status=status, reason="busy"))

    with nullcontext() if tries == 3 else pytest.raises(ForbiddenError):
        release.patiently(refused_twice)
    assert len(calls) == tries


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
        wait_for("only the guest is waited for", lambda: "waiting for a/l\n" in said.read_text())
        assert agent.is_gone("tpool", "pool")
        agent.guest("l", LENDS)
        assert process.wait(30) == 0, said.read_text()
    assert agent.is_gone("tpair", PAIRING)


def test_what_cannot_be_withdrawn_is_named(server: Server, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Without agents the pairing stays, and so does the release."""
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:
        connected_pool(agent)
        code, said = run("withdraw", "--patience", "5")
        assert code == 1
        assert f"MemoryPairing a/{PAIRING} is still there: is the operator up, and the agents of both" in said
        for side in ("lender", "borrower"):
            agent.release(PAIRING, side)
        assert done(run("withdraw"))


def test_what_was_written_is_forgotten(server: Server, run: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """By the agents, and the operator's Lease."""
    with OperatorProcess(server, tmp_path / "log") as _, Agent(server, "a", "n1") as agent:
        agent.guest("forgotten", {})
        wait_for("Leases", lambda: len(server.get("-n", OWN_NAMESPACE, "lease")["items"]) == 2)
    assert done(run("forget"))
    assert not server.get("tguest", "-A")["items"]
    assert not server.get("-n", OWN_NAMESPACE, "lease")["items"]


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
