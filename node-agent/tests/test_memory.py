"""What an agent takes of its node's memory, beside what the chart requests for it; `-s` shows the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cast import AgentProcess, eventually
from objects import pairing_body, within

from tidepool_api import parse_quantity
from tidepool_api_testing.chart import rendered

if TYPE_CHECKING:
    from pathlib import Path

    from tidepool_api_testing.server import Server

MIB = 1 << 20
PAIRINGS = 200  # with an end on the node: more than a node has guests


def resources(kind: str) -> int:
    """The memory that the chart requests for an agent, or its limit, in bytes."""
    (one,) = (one for one in rendered("agent") if one["kind"] == "DaemonSet")
    (container,) = one["spec"]["template"]["spec"]["containers"]
    return parse_quantity(container["resources"][kind]["memory"])


def test_an_agent_takes_less_than_is_requested_for_it(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """On a node without guests, and with far more pairings than there are guests on one."""
    with AgentProcess(cluster, "quiet", tmp_path) as agent:
        idle = agent.memory()
        bodies = [
            within(namespace, pairing_body(f"p{at}", lender=f"l{at}", borrower=f"b{at}", node="quiet"))
            for at in range(PAIRINGS)
        ]
        cluster.create(*bodies)
        eventually(lambda: agent.memory() > idle + MIB, 60)
        full = agent.memory()
    print(f"an agent: {idle / MIB:.1f} MiB, with {PAIRINGS} pairings {full / MIB:.1f} MiB")
    assert full < resources("requests") < resources("limits")
