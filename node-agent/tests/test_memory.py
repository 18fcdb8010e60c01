"""What an agent takes of its node's memory, beside what the chart lets it have; `-s` shows the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cast import AgentProcess, eventually
from objects import pairing_body, within

from tidepool_api import parse_quantity
from tidepool_api.kube import Access, Api
from tidepool_api.kube.resources import PODS
from tidepool_api_testing.chart import rendered
from tidepool_api_testing.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidepool_api_testing.server import Server

MIB = 1 << 20
PADDED = 60  # pods
LAUNCHER = {"kubevirt.io": "virt-launcher"}
NODE_LENDER = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/component": "node-lender"}
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


def create_padded(
    cluster: Server, namespace: str, node: str, pad: str = "x", labels: Mapping[str, str] = LAUNCHER
) -> None:
    """Pods on a node that say to be virt-launchers, or another thing, as large as the API server takes them.

    Whoever may create pods may name a node, give them any label, and make as many as he likes. The API server spells
    some characters with six.
    """
    certificate = cluster.certificate.read_text()
    api = Api(Access(f"https://127.0.0.1:{cluster.port}", lambda: f"Bearer {ADMIN_TOKEN}", certificate))
    container = {"name": "compute", "image": "none", "env": [{"name": "PAD", "value": pad * 1_300_000}]}
    for at in range(PADDED):
        meta = {"generateName": f"p{at}-", "labels": labels}
        spec = {"nodeName": node, "containers": [container]}
        api.create(PODS.path(namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


@pytest.mark.parametrize("pad", ["x", "<"])
def test_nor_do_those_that_are_there_when_it_starts(cluster: Server, namespace: str, tmp_path: Path, pad: str) -> None:
    """It would be killed each time that it starts, until somebody deletes them."""
    node = f"full-{ord(pad)}"
    create_padded(cluster, namespace, node, pad)
    with AgentProcess(cluster, node, tmp_path) as agent:
        full = agent.memory()
    print(f"an agent that starts with {PADDED} padded pods: {full / MIB:.1f} MiB")
    assert full < resources("limits") / 2


def test_nor_do_those_that_say_to_be_the_nodes_lender(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """They are in a namespace of somebody else's."""
    node = "lender-of-all"
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    create_padded(cluster, namespace, node, labels=NODE_LENDER)
    started = AgentProcess(cluster, node, tmp_path, "--node-lender", "--node-max-lend=1Gi")
    (started.proc / "meminfo").symlink_to("/proc/meminfo")
    with started as agent:
        eventually(lambda: f"no pod of the node lender is on node {node}" in agent.log(), 60)
        full = agent.memory()
    print(f"an agent that starts with {PADDED} padded pods: {full / MIB:.1f} MiB")
    assert full < resources("limits") / 2


def test_pods_that_say_to_be_virt_launchers_take_none_of_it(cluster: Server, namespace: str, tmp_path: Path) -> None:
    """Each comes alone, and leaves nothing."""
    with AgentProcess(cluster, "padded", tmp_path) as agent:
        idle = agent.memory()
        create_padded(cluster, namespace, "padded")
        cluster.create(within(namespace, pairing_body("last", lender="l", borrower="b", node="padded")))
        eventually(lambda: namespace in agent.log() or agent.memory() > idle, 60)
        full = agent.memory()
    print(f"an agent: {idle / MIB:.1f} MiB, with {PADDED} padded pods {full / MIB:.1f} MiB")
    assert full - idle < PADDED * MIB / 2
