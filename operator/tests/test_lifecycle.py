"""The operator stops and starts, and what it finds was written by others, or by nobody for a while."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cast import (
    BORROWS,
    ENDS,
    LENDS,
    OPERATOR_TOKEN,
    OWN_NAMESPACE,
    PAIRING,
    Agent,
    OperatorProcess,
    connected_pool,
    identity_of,
    role,
    wait_for,
)

from tidepool_api.crd import KINDS, build
from tidepool_api.fields import VALIDATIONS
from tidepool_api_testing.server import Server
from tidepool_operator.reconcile import TOLD_ONE_BY_ONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_restart_changes_nothing(agent: Agent, own_operator: OperatorProcess) -> None:
    """The same pairing, and what happened meanwhile is seen: another address, and a module that was loaded anew."""
    with own_operator:
        uid = connected_pool(agent)
    agent.guest("l", LENDS, address="10.9.9.9", identity=identity_of("l", 1))
    with own_operator:
        wait_for("address", lambda: agent.pairing(PAIRING)["spec"]["lender"]["address"] == "10.9.9.9")
        wait_for("identity", lambda: agent.pairing(PAIRING)["spec"]["lender"]["identity"] == identity_of("l", 1))
        assert agent.pairing(PAIRING)["metadata"]["uid"] == uid


def test_killed_in_the_middle_of_many_pairings(agent: Agent, own_operator: OperatorProcess) -> None:
    """Issue 4, item 4: what was half done is finished by the next one, each pairing once and with both identities."""
    agent.guest("l", LENDS, total=64 << 30)
    for at in range(24):
        agent.guest(f"b{at:02}", BORROWS, address=f"10.0.1.{at}")
    with own_operator:
        agent.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "32Gi"})
        while "pool.b" not in own_operator.log():
            time.sleep(0.005)
        own_operator.kill()
    before = {name: one["metadata"]["uid"] for name, one in agent.pairings().items()}
    assert _named(agent) < 24
    with own_operator:
        wait_for("all pairings", lambda: len(agent.pairings()) == 24)
        wait_for("all identities", lambda: _named(agent) == 24)
        after = {name: one["metadata"]["uid"] for name, one in agent.pairings().items()}
        assert before.items() <= after.items()


def test_many_that_connect_at_a_time_are_told_together(agent: Agent, own_operator: OperatorProcess) -> None:
    """By the pool's Event; a few are told one by one."""
    agent.guest("l", LENDS, total=64 << 30)
    for at in range(12):
        agent.guest(f"b{at:02}", BORROWS, address=f"10.0.1.{at}")
    with own_operator:
        agent.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "32Gi"})
        wait_for("all identities", lambda: _named(agent) == 12)
    for name in agent.pairings():
        agent.connect(name)
    with own_operator:
        wait_for("Event", lambda: ("pool", "Ready") in agent.events())
        told = [about for about, reason in agent.events() if reason == "Connected"]
        assert len(told) == TOLD_ONE_BY_ONE


def _named(agent: Agent) -> int:
    """How many pairings name the identities of both their guests."""
    return sum(all("identity" in one["spec"][end] for end in ENDS) for one in agent.pairings().values())


def test_a_pool_deleted_while_the_operator_was_down(agent: Agent, own_operator: OperatorProcess) -> None:
    with own_operator:
        connected_pool(agent)
    agent.server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false")
    with own_operator:
        wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
        agent.release(PAIRING, "lender")
        agent.release(PAIRING, "borrower")
        wait_for("pool gone", lambda: agent.is_gone("tpool", "pool"))


def test_a_dead_agent_changes_nothing_but_what_is_said(agent: Agent, own_operator: OperatorProcess) -> None:
    """Its lease is old when the operator starts: the pairing stays, and all say that news is old until it is back."""
    with own_operator:
        uid = connected_pool(agent)
    agent.die()
    agent.renew(at=(datetime.now(UTC) - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    with own_operator:
        said = agent.wait_for_reason("GuestsReady", "GuestNotReady")
        assert f"AgentNotResponding: no heartbeat of the Tidepool agent on node {agent.node}" in said["message"]
        pairing = agent.pairing(PAIRING)
        assert pairing["metadata"]["uid"] == uid
        assert pairing["status"]["phase"] == "Connected"
        assert pairing["status"]["conditions"][0]["reason"] == "AgentNotResponding"
        agent.renew()
        wait_for("Ready again", lambda: agent.status()["phase"] == "Ready")


@pytest.mark.parametrize("end", ENDS)
def test_a_pairing_whose_guest_is_paused_is_paused_and_its_pool_is_well(
    agent: Agent, own_operator: OperatorProcess, end: str
) -> None:
    """Issue 28, fault 9: its agent says so, and the pairing does until the virtual machine runs again."""
    name, labels, address = {"lender": ("l", LENDS, "10.0.0.1"), "borrower": ("b", BORROWS, "10.0.0.2")}[end]
    paused = {"type": "Ready", "status": "False", "reason": "Paused", "message": "somebody has paused it"}
    paused["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    with own_operator:
        uid = connected_pool(agent)
        agent.guest(name, labels, address=address, conditions=[paused])
        wait_for("Paused", lambda: agent.pairing(PAIRING)["status"]["phase"] == "Paused")
        ready = agent.pairing(PAIRING)["status"]["conditions"][0]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "Paused")
        assert ready["message"].startswith(f"paused: {end} {name};")
        said = f"0 pairings connected; paused: {PAIRING}"
        wait_for("a word of it", lambda: agent.condition("Ready")["message"] == said)
        assert (agent.status()["phase"], agent.condition("Ready")["status"]) == ("Ready", "True")
        agent.guest(name, labels, address=address)
        wait_for("Connected", lambda: agent.pairing(PAIRING)["status"]["phase"] == "Connected")
        assert agent.pairing(PAIRING)["metadata"]["uid"] == uid


def test_a_lender_that_was_killed_is_said_to_have_failed_also_after_a_restart(
    agent: Agent, own_operator: OperatorProcess
) -> None:
    """Issue 28, fault 9: its agent says it on the MemoryGuest, so that nobody has to remember it."""
    ended = {"type": "Ready", "status": "False", "reason": "Ended", "message": "VMI l is Failed"}
    with own_operator:
        connected_pool(agent)
        agent.guest("l", LENDS, conditions=[ended | {"lastTransitionTime": "2026-01-01T00:00:00Z"}], memory=None)
        said = agent.wait_for_reason("Degraded", "NoLenders")
        assert "VMI l is Failed: start it again" in said["message"]
        wait_for("pairing gone", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
    before = agent.condition("Degraded")
    with own_operator:
        agent.pool(size="256Mi")
        wait_for("another pass", lambda: agent.status()["observedGeneration"] == 2)
        assert agent.condition("Degraded")["message"] == before["message"]


def test_other_namespaces_are_none_of_its_business(
    cluster: Server, namespace: str, own_operator: OperatorProcess
) -> None:
    """An operator for one namespace leaves the pools of others alone."""
    cluster.kubectl("create", "namespace", f"{namespace}-other")
    with (
        own_operator,
        Agent(cluster, f"{namespace}-other", "elsewhere") as stranger,
        Agent(cluster, namespace, "here") as own,
    ):
        stranger.pool()
        own.pool()
        own.wait_for_reason("Degraded", "NoLenders")
        assert stranger.status() == {}


@pytest.fixture
def lax_server() -> Any:
    """An API server whose CRDs lack the rules, as an older version's may."""
    with Server({"operator": OPERATOR_TOKEN}) as server:
        for kind in KINDS:
            server.apply(_without_rules(build(kind)))
        server.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}, *role("operator"))
        yield server


def _without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_rules(value) for key, value in node.items() if key != VALIDATIONS}
    return [_without_rules(one) for one in node] if isinstance(node, list) else node


def test_a_pool_that_cannot_be_read_says_so_and_keeps_its_pairings(lax_server: Server, tmp_path: Path) -> None:
    """A size that the rules of today refuse: the pool names field and remedy, its pairing stays, deleting it works."""
    with Agent(lax_server, "default", "n") as agent, OperatorProcess(lax_server, tmp_path / "log"):
        uid = connected_pool(agent)
        agent.pool(size="lots")
        said = agent.wait_for_reason("Degraded", "InvalidSpec")
        assert "spec.borrowers.size: Value error, 'lots' is not an amount of memory" in said["message"]
        time.sleep(2)
        assert agent.pairing(PAIRING)["metadata"]["uid"] == uid
        assert "deletionTimestamp" not in agent.pairing(PAIRING)["metadata"]
        lax_server.kubectl("delete", "tpool", "pool", "--wait=false")
        wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
        agent.release(PAIRING, "lender")
        agent.release(PAIRING, "borrower")
        wait_for("pool gone", lambda: agent.is_gone("tpool", "pool"))


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Without CRDs, and the test's own to stop."""
    with Server({"operator": OPERATOR_TOKEN}) as server:
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}, *role("operator"))
        yield server


def test_the_api_server_is_away_for_a_while(own_server: Server, tmp_path: Path) -> None:
    """For 50 s nobody can renew a lease or watch: nobody is taken for dead, and then work goes on by itself."""
    own_server.install_crds()
    with OperatorProcess(own_server, tmp_path / "log") as operator, Agent(own_server, "default", "n") as agent:
        uid = connected_pool(agent)
        own_server.restart_apiserver(pause=50)
        agent.guest("l", LENDS, address="10.9.9.9")
        wait_for("address", lambda: agent.pairing(PAIRING)["spec"]["lender"]["address"] == "10.9.9.9", 60)
        assert agent.pairing(PAIRING)["metadata"]["uid"] == uid
        assert agent.pairing(PAIRING)["status"]["conditions"][0]["reason"] == "Connected"
        assert operator.get("/healthz") == "ok\n"


def test_it_waits_for_the_crds(own_server: Server, tmp_path: Path) -> None:
    """Started before the CRDs it says what it waits for, and goes on when they are there."""
    with OperatorProcess(own_server, tmp_path / "log", is_ready_at_once=False) as operator:
        wait_for("advice", lambda: "are the CRDs installed" in operator.log())
        own_server.install_crds()
        wait_for("ready", lambda: '"ready: ' in operator.log())
        with Agent(own_server, "default", "n") as agent:
            connected_pool(agent)
