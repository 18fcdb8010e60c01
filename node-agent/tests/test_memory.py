"""What an agent takes of its node's memory, beside what the chart lets it have; `-s` shows the figures."""

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
PADDED = 60  # pods
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


def test_pods_that_say_to_be_virt_launchers_take_none_of_it(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """Whoever may create pods may name a node, give them any label, and as many of them a megabyte as he likes."""
    pad = [{"name": "PAD", "value": "x" * 1_000_000}]
    with AgentProcess(cluster, "padded", tmp_path) as agent:
        idle = agent.memory()
        for at in range(PADDED):
            container = {"name": "compute", "image": "none", "env": pad}
            cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"p{at}", "namespace": namespace, "labels": {"kubevirt.io": "virt-launcher"}},
                    "spec": {"nodeName": "padded", "containers": [container]},
                }
            )
        cluster.create(within(namespace, pairing_body("last", lender="l", borrower="b", node="padded")))
        eventually(lambda: namespace in agent.log() or agent.memory() > idle, 60)
        full = agent.memory()
    print(f"an agent: {idle / MIB:.1f} MiB, with {PADDED} padded pods {full / MIB:.1f} MiB")
    assert full - idle < PADDED * MIB / 2
