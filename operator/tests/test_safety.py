"""Edits that are held back, tried out or done in steps, against a real API server (issue 4, item 5: Safety)."""

from __future__ import annotations

import time

import pytest
from cast import BORROWS, LENDS, PAIRING, Agent, connected_pool, wait_for

from tidepool_api import names

pytestmark = pytest.mark.usefixtures("operator")


def annotate(agent: Agent, value: str) -> None:
    agent.server.kubectl("annotate", "tpool", "-n", agent.namespace, "pool", f"{names.DRY_RUN_ANNOTATION}{value}")


def test_a_dry_run_says_what_would_change(agent: Agent) -> None:
    """An edit under the annotation changes nothing but what is said; without it, it is carried out."""
    connected_pool(agent)
    annotate(agent, "=true")
    wait_for("condition", lambda: agent.condition("ChangesPending").get("reason") == "DryRun")
    assert agent.condition("ChangesPending")["status"] == "False"
    agent.pool(size="256Mi", deadline="1s")
    agent.guest("c", BORROWS, address="10.0.0.3")
    wait_for("changes", lambda: "l would lend 256Mi to c" in agent.condition("ChangesPending")["message"])
    assert agent.condition("ChangesPending")["message"] == (
        "pairing pool.b.l (l lends to b): 512Mi would become 256Mi, deadline would change; l would lend 256Mi to c"
    )
    time.sleep(1)
    assert agent.pairing(PAIRING)["spec"]["size"] == "512Mi"
    assert list(agent.pairings()) == [PAIRING]
    annotate(agent, "-")
    wait_for("change", lambda: agent.pairing(PAIRING)["spec"]["size"] == "256Mi" and "pool.c.l" in agent.pairings())
    wait_for("condition gone", lambda: not agent.condition("ChangesPending"))


def test_a_paused_pool_stays_as_it_is_and_can_be_deleted(agent: Agent) -> None:
    connected_pool(agent)
    agent.pool(paused=True)
    agent.guest("b", {}, address="10.0.0.2")
    wait_for("changes", lambda: "would be deleted" in agent.condition("ChangesPending").get("message", ""))
    assert agent.condition("ChangesPending")["reason"] == "Paused"
    assert "deletionTimestamp" not in agent.pairing(PAIRING)["metadata"]
    agent.server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false")
    wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))


def test_an_edit_is_carried_out_in_steps(agent: Agent) -> None:
    """Of three borrowers one at a time becomes smaller, the next when that one has what it should have."""
    agent.guest("l", LENDS, total=4 << 30)
    for at, name in enumerate("abc"):
        agent.guest(name, BORROWS, address=f"10.0.0.{at + 2}")
    lenders = {"selector": {"matchLabels": LENDS}, "maxLend": "3Gi"}
    agent.pool(lenders=lenders)
    pairings = [f"pool.{name}.l" for name in "abc"]
    wait_for("pairings", lambda: sorted(agent.pairings()) == pairings)
    for name in pairings:
        _settle(agent, name)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    agent.pool(lenders=lenders, size="256Mi", maxUnavailable=1)
    for done in range(1, 4):
        wait_for("step", lambda done=done: _sizes(agent).count("256Mi") == done)  # type: ignore[misc]
        time.sleep(1)
        assert _sizes(agent).count("256Mi") == done
        if done < 3:
            assert "spec.maxUnavailable: 1" in agent.condition("Progressing")["message"]
        _settle(agent, pairings[done - 1])


def _settle(agent: Agent, name: str) -> None:
    """Both guests are set up as a pairing says now."""
    agent.wait_for_names(name)
    agent.connect(name, observedGeneration=agent.pairing(name)["metadata"]["generation"])


def _sizes(agent: Agent) -> list[str]:
    return [one["spec"]["size"] for one in agent.pairings().values()]
