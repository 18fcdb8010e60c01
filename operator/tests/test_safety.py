"""Edits that are held back, tried out or done in steps, against a real API server (issue 4, item 5: Safety)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from cast import BORROWS, LENDS, PAIRING, Agent, connected_pool, wait_for

from tidepool_api import names

pytestmark = pytest.mark.usefixtures("operator")


def annotate(agent: Agent, value: str) -> None:
    agent.server.kubectl("annotate", "tpool", "-n", agent.namespace, "pool", f"{names.DRY_RUN_ANNOTATION}{value}")


def test_a_dry_run_says_what_would_change(agent: Agent) -> None:
    """An edit under the annotation changes nothing but what is said; without it, it is carried out.

    Issue 28, fault 5: whatever the annotation's value is, but for `false`.
    """
    connected_pool(agent)
    annotate(agent, "=yes")
    wait_for("condition", lambda: agent.condition("ChangesPending").get("reason") == "DryRun")
    assert agent.condition("ChangesPending")["status"] == "False"
    assert 'dry-run is "yes", which is taken for "true"' in agent.condition("ChangesPending")["message"]
    assert agent.status()["phase"] == "Ready"
    agent.pool(size="256Mi", deadline="1s")
    agent.guest("c", BORROWS, address="10.0.0.3")
    wait_for("changes", lambda: "l would lend 256Mi to c" in agent.condition("ChangesPending")["message"])
    assert agent.condition("ChangesPending")["message"] == (
        "pairing pool.b.l (l lends to b): 512Mi would become 256Mi, deadline would change; l would lend 256Mi to c; "
        'tidepool.dev/dry-run is "yes", which is taken for "true"'
    )
    time.sleep(1)
    assert agent.pairing(PAIRING)["spec"]["size"] == "512Mi"
    assert list(agent.pairings()) == [PAIRING]
    assert agent.condition("Ready")["reason"] == "DryRun"
    assert agent.status()["phase"] == "Paused"
    agent.server.kubectl(
        "annotate", "--overwrite", "tpool", "-n", agent.namespace, "pool", "tidepool.dev/dry-run=false"
    )
    wait_for("change", lambda: agent.pairing(PAIRING)["spec"]["size"] == "256Mi" and "pool.c.l" in agent.pairings())
    wait_for("condition gone", lambda: not agent.condition("ChangesPending"))


def test_a_paused_pool_stays_as_it_is_and_can_be_deleted(agent: Agent) -> None:
    """But for where its guests are: who is migrated keeps what it has."""
    connected_pool(agent)
    agent.pool(paused=True)
    agent.guest("l", LENDS, address="10.9.9.9")
    wait_for("the pairing follows", lambda: agent.pairing(PAIRING)["spec"]["lender"]["address"] == "10.9.9.9")
    agent.guest("b", {}, address="10.0.0.2")
    wait_for("changes", lambda: "would be deleted" in agent.condition("ChangesPending").get("message", ""))
    assert agent.condition("ChangesPending")["reason"] == "Paused"
    assert agent.condition("Ready")["status"] == "False"
    assert "deletionTimestamp" not in agent.pairing(PAIRING)["metadata"]
    agent.server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false")
    wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))


def test_a_held_pool_takes_nobody_and_loses_nobody(agent: Agent) -> None:
    """Issue 28, fault 5: guests are a running pool's until it is paused, whichever of the two is older."""
    agent.guest("l", LENDS)
    agent.guest("b", BORROWS, address="10.0.0.2")
    agent.pool("older", paused=True)
    wait_for("changes", lambda: "would lend" in agent.condition("ChangesPending", "older").get("message", ""))
    assert agent.status("older")["phase"] == "Paused"
    time.sleep(1.1)  # creation times are whole seconds
    uid = connected_pool(agent)
    agent.pool(paused=True)
    wait_for("paused", lambda: agent.condition("ChangesPending"))
    agent.pool("older")
    said = agent.wait_for_reason("RolesConsistent", "GuestClaimed", "older")
    assert "pool pool, which is older or paused, has them" in said["message"]
    assert {name: one["metadata"]["uid"] for name, one in agent.pairings().items()} == {PAIRING: uid}
    assert "deletionTimestamp" not in agent.pairing(PAIRING)["metadata"]


def test_an_edit_is_carried_out_in_steps(agent: Agent) -> None:
    """Of three borrowers one at a time becomes smaller, the next when that one has what it should have."""
    lenders = _three_borrowers(agent)
    agent.pool(lenders=lenders, size="256Mi", maxUnavailable=1)
    _assert_steps(agent, "size", "256Mi")


def test_what_is_not_live_is_carried_out_in_steps_and_the_rest_at_once(agent: Agent) -> None:
    """Issue 28, fault 2: encryption empties a cache, one of three at a time; the deadline is everybody's at once."""
    lenders = _three_borrowers(agent)
    agent.pool(lenders=lenders, encryption="AES-GCM", deadline="300ms", maxUnavailable=1)
    wait_for("deadline", lambda: _values(agent, "deadline") == ["300ms"] * 3)
    assert _values(agent, "encryption") == ["AES-GCM", "None", "None"]
    for name in THREE[1:]:
        _settle(agent, name)
    _assert_steps(agent, "encryption", "AES-GCM")


THREE = [f"pool.{name}.l" for name in "abc"]


def _three_borrowers(agent: Agent) -> dict[str, Any]:
    """Three borrowers of one lender, all connected; returns what the pool says of lenders."""
    agent.guest("l", LENDS, total=4 << 30)
    for at, name in enumerate("abc"):
        agent.guest(name, BORROWS, address=f"10.0.0.{at + 2}")
    lenders = {"selector": {"matchLabels": LENDS}, "maxLend": "3Gi"}
    agent.pool(lenders=lenders)
    wait_for("pairings", lambda: sorted(agent.pairings()) == THREE)
    for name in THREE:
        _settle(agent, name)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    return lenders


def _assert_steps(agent: Agent, field: str, value: str) -> None:
    """One pairing after the other gets a new value, the next when the former is connected again."""
    for done in range(1, 4):
        wait_for("step", lambda done=done: _values(agent, field).count(value) == done)  # type: ignore[misc]
        time.sleep(1)
        assert _values(agent, field).count(value) == done
        if done < 3:
            assert "spec.maxUnavailable: 1" in agent.condition("Progressing")["message"]
        _settle(agent, THREE[done - 1])


def _settle(agent: Agent, name: str) -> None:
    """Both guests are set up as a pairing says now."""
    agent.wait_for_names(name)
    agent.connect(name, observedGeneration=agent.pairing(name)["metadata"]["generation"])


def _values(agent: Agent, field: str) -> list[str]:
    return [agent.pairing(name)["spec"][field] for name in THREE]
