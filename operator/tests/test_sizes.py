"""Sizes and places as the operator carries them out, against a real API server (issue 4, item 2: Sizes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cast import BORROWS, LENDS, MIB, Agent, wait_for

from tidepool_api import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidepool_api_testing.server import Server

pytestmark = pytest.mark.usefixtures("operator")


def sizes(agent: Agent) -> dict[str, int]:
    """What each pairing is for, in MiB."""
    return {name: parse_quantity(one["spec"]["size"]) // MIB for name, one in agent.pairings().items()}


def has(agent: Agent, expected: dict[str, int]) -> None:
    wait_for(str(expected), lambda: sizes(agent) == expected)


def curve(ratios: dict[int, str]) -> dict[str, Any]:
    """What a guest says of its misses: hit ratios by sizes in MiB."""
    points = [{"sizeBytes": size * MIB, "hitRatio": ratio} for size, ratio in ratios.items()]
    return {"curve": points, "curveReferences": 5000, "missesPerSecond": 1000}


@pytest.fixture
def zones(cluster: Server, agent: Agent) -> Iterator[dict[str, str]]:
    """A node of each of two zones, beside the one of the agent, which is in the first."""
    nodes = {"near": "zone-a", "far": "zone-b", agent.node: "zone-a"}
    named = {role: role if role == agent.node else f"{role}-of-{agent.namespace}" for role in nodes}
    for role, zone in nodes.items():
        labels = {"topology.kubernetes.io/zone": zone}
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": named[role], "labels": labels}})
    yield named
    cluster.kubectl("delete", "node", *named.values())


def test_a_lenders_memory_goes_where_the_curves_say(agent: Agent) -> None:
    """Of a GiB the minimum to each, the rest to the steep curve."""
    agent.guest("l", LENDS)
    agent.guest("steep", BORROWS, address="10.0.0.2", **curve({512: "0.50", 1024: "0.90"}))
    agent.guest("flat", BORROWS, address="10.0.0.3", **curve({128: "0.10", 1024: "0.11"}))
    borrowers = {"selector": {"matchLabels": BORROWS}, "minimum": "128Mi", "maximum": "2Gi"}
    agent.pool(borrowers=borrowers)
    has(agent, {"pool.steep.l": 896, "pool.flat.l": 128})


def test_without_curves_shares_are_fair_and_by_weight(agent: Agent) -> None:
    agent.guest("l", LENDS)
    agent.guest("a", BORROWS | {"app": "db"}, address="10.0.0.2")
    agent.guest("b", BORROWS, address="10.0.0.3")
    weights = [{"selector": {"matchLabels": {"app": "db"}}, "weight": 3}]
    borrowers = {"selector": {"matchLabels": BORROWS}, "minimum": "64Mi", "maximum": "2Gi", "weights": weights}
    agent.pool(borrowers=borrowers)
    has(agent, {"pool.a.l": 736, "pool.b.l": 288})


def test_the_same_node_first_then_the_same_zone(agent: Agent, zones: dict[str, str]) -> None:
    """Each of three borrowers of one node takes the nearest lender that still has room."""
    places = {"far": zones["far"], "near": zones["near"], "here": agent.node}
    for at, (name, node) in enumerate(places.items()):
        agent.guest(name, LENDS, node=node, address=f"10.0.1.{at}")
    lenders = {"selector": {"matchLabels": LENDS}, "maxLend": "512Mi"}
    agent.pool(lenders=lenders)
    found = {}
    for at, name in enumerate(("a", "b", "c")):
        agent.guest(name, BORROWS, address=f"10.0.2.{at}")
        found |= {f"pool.{name}.{('here', 'near', 'far')[at]}": 512}
        has(agent, found)


def test_memory_is_spread_and_the_rest_stays_when_a_lender_goes(agent: Agent) -> None:
    for at in range(3):
        agent.guest(f"l{at}", LENDS, address=f"10.0.1.{at}")
    agent.guest("b", BORROWS, address="10.0.2.1")
    agent.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "1Gi", "spread": 2})
    wait_for("two pairings", lambda: sorted(sizes(agent).values()) == [256, 256])
    kept, lost = sorted(sizes(agent))
    agent.delete_guest(lost.removeprefix("pool.b."))
    wait_for("another one", lambda: len(set(sizes(agent)) - {kept, lost}) == 1)
    assert "deletionTimestamp" not in agent.pairing(kept)["metadata"]
