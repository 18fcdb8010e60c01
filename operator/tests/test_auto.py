"""Roles by need as the operator carries them out, against a real API server (issue 4, item 1: Roles)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cast import MIB, Agent, wait_for

if TYPE_CHECKING:
    from cast import OperatorProcess

TEAM = {"team": "a"}
SHORT = {"memorySome": 3, "memoryFull": 0, "ioSome": 40, "refaultsPerSecond": 120}
PRESSED = {"memorySome": 35, "memoryFull": 8, "ioSome": 40, "refaultsPerSecond": 0}


def team(agent: Agent) -> None:
    """Two that are rich and one that is short."""
    agent.guest("rich", TEAM)
    agent.guest("rich-too", TEAM, address="10.0.0.3")
    agent.guest("short", TEAM, available=300 * MIB, address="10.0.0.2", pressure=SHORT)


@pytest.mark.usefixtures("operator")
def test_one_selector_for_both_and_relief_at_once(agent: Agent) -> None:
    """The short one borrows from a rich one; when that one is pressed it is relieved and the other takes its place."""
    team(agent)
    agent.auto_pool()
    wait_for("pairing", lambda: list(agent.pairings()) == ["pool.short.rich"])
    agent.connect("pool.short.rich")
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    wait_for("roles", lambda: (agent.status()["lenders"], agent.status()["borrowers"]) == (2, 1))
    assert {"pool"} == wait_for(
        "Events", lambda: {name for name, reason in agent.events() if reason in ("BeginToLend", "BeginToBorrow")}
    )
    agent.guest("rich", TEAM, pressure=PRESSED)
    wait_for("another lender", lambda: "pool.short.rich-too" in agent.pairings())
    wait_for("relief", lambda: agent.pairing("pool.short.rich")["metadata"].get("deletionTimestamp"))
    wait_for("Event", lambda: ("pool", "EndToLend") in agent.events())
    pressed = {"guest": "rich", "role": "None", "reason": "UnderMemoryPressure"}
    wait_for("role", lambda: any(pressed.items() <= one.items() for one in agent.status()["roles"]))


def test_a_restart_remembers_the_cool_down(agent: Agent, own_operator: OperatorProcess) -> None:
    """A borrower that is well again keeps its role for the cool-down, whoever looks; then it may lend."""
    with own_operator:
        team(agent)
        agent.auto_pool(cool_down="12s")
        roles = wait_for("roles", lambda: agent.status().get("roles"))
    (since,) = [one["since"] for one in roles if one["guest"] == "short"]
    with own_operator:
        agent.guest("short", TEAM, address="10.0.0.2")
        end = wait_for(
            "end of borrowing", lambda: agent.pairing("pool.short.rich")["metadata"].get("deletionTimestamp"), 40
        )
        assert datetime.fromisoformat(end) - datetime.fromisoformat(since) >= timedelta(seconds=12)
        agent.release("pool.short.rich", "lender")
        agent.release("pool.short.rich", "borrower")
        wait_for("three lenders", lambda: (agent.status()["lenders"], agent.status()["borrowers"]) == (3, 0))
        assert agent.condition("Degraded")["status"] == "False"
