"""A guest whose agent is dead, and one that is said to be where no agent is (issue 28, fault 4)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cast import BORROWS, LENDS, PAIRING, Agent, OperatorProcess, connected_pool, wait_for
from world import LENDER, MIB, guest, pairing

from tidepool_api import Provider, names
from tidepool_operator.planning import adoption


def test_guests_of_dead_agents_are_let_go_once() -> None:
    here, there = guest("here", LENDER, node="n1"), guest("there", LENDER, node="n2")
    assert adoption.abandoned([here, there], {"n2"}) == [there]
    metadata = there.metadata.model_copy(update={"annotations": {names.LEAVING_ANNOTATION: "x"}})
    assert adoption.abandoned([there.model_copy(update={"metadata": metadata})], {"n2"}) == []


def test_a_guest_is_believed_where_an_agent_is() -> None:
    """Only agents report guests: one that says to be on a node without any is where its pairing has it."""
    one = pairing("b", "l", 512 * MIB)
    guests = {"l": guest("l", LENDER, node="nowhere"), "b": guest("b", LENDER, node="n2")}
    found = adoption.strays([one], guests, {"n1", "n2"})
    assert {name: stray.spec.node_name for name, stray in found.items()} == {"l": "n1"}
    assert found["l"].status == guests["l"].status


@pytest.mark.parametrize("provider", [Provider.KUBEVIRT, Provider.LIBVIRT])
def test_a_dead_agents_guest_may_be_taken_by_another(
    agent: Agent, own_operator: OperatorProcess, provider: Provider
) -> None:
    """It is let go as its own agent would have done it; whoever takes it undoes that.

    So an instance moves whose host Nova evacuates. It stays the same guest, in the same pairing, and is the other
    node's.
    """
    with own_operator:
        uid = connected_pool(agent, provider)
    before = _guest(agent)
    agent.die()
    agent.renew(at=(datetime.now(UTC) - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    with own_operator, Agent(agent.server, agent.namespace, f"second-{agent.node}") as other:
        wait_for("let go", lambda: names.LEAVING_ANNOTATION in _guest(agent)["metadata"].get("annotations", {}))
        left = _guest(agent)
        assert (left["spec"], left["status"], _owners(left)) == (before["spec"], before["status"], _owners(before))
        other.guest("l", LENDS, provider=provider)
        assert "annotations" not in _guest(agent)["metadata"]
        wait_for("its pairing", lambda: agent.pairing(PAIRING)["spec"]["lender"]["nodeName"] == other.node)
        time.sleep(1)
        taken = _guest(agent)
        assert "annotations" not in taken["metadata"]
        assert _owners(taken) == ([other.node] if provider is Provider.LIBVIRT else _owners(before))
        assert taken["metadata"]["uid"] == before["metadata"]["uid"]
        assert agent.pairing(PAIRING)["metadata"]["uid"] == uid


def test_a_node_that_somebody_writes_costs_no_pairing(agent: Agent, own_operator: OperatorProcess) -> None:
    """The pairing stays on the node where the guest is, so that its agent keeps it set up."""
    with own_operator:
        uid = connected_pool(agent)
        wrong = json.dumps({"spec": {"nodeName": "nowhere"}})
        agent.server.kubectl("patch", "tguest", "-n", agent.namespace, "b", "--type=merge", "-p", wrong)
        agent.guest("c", BORROWS, address="10.0.0.3")
        wait_for("a later pairing", lambda: "pool.c.l" in agent.pairings())
        found = agent.pairing(PAIRING)
        assert (found["metadata"]["uid"], found["spec"]["borrower"]["nodeName"]) == (uid, agent.node)


def _owners(guest: Any) -> list[str]:
    """What a guest goes with: its instance, or its node where it has none."""
    return [one["name"] for one in guest["metadata"]["ownerReferences"]]


def _guest(agent: Agent) -> Any:
    return agent.server.get("-n", agent.namespace, "tguest", "l")
