"""Item 7: the agent on a host with its own libvirt, as on an OpenStack compute host; the domains are real ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cast import AgentProcess, condition, eventually
from daemon import SystemDaemon, end
from objects import pairing_body, secret_body, within
from test_nova import PROJECT, metadata
from tiny import Kernel

from tidepool_api_testing.server import Refused, Server

NAMESPACE = f"nova-{PROJECT}"


@pytest.fixture(scope="module")
def host(kernel: Kernel) -> Iterator[SystemDaemon]:
    """A host whose libvirt runs domains."""
    with SystemDaemon(kernel) as one:
        yield one


@pytest.fixture(scope="module")
def compute(cluster: Server, host: SystemDaemon, store: Path) -> Iterator[AgentProcess]:
    """The agent of a compute host."""
    agent = AgentProcess(cluster, "compute1", store, "--providers=Libvirt")
    (agent.proc / "1").mkdir()
    (agent.proc / "1/root").symlink_to(host.root)
    with agent:
        yield agent


def gone(server: Server, name: str, namespace: str) -> bool:
    try:
        server.get("mg", name, "-n", namespace)
    except Refused:
        return True
    return False


def test_the_life_of_a_nova_instance(cluster: Server, compute: AgentProcess, host: SystemDaemon) -> None:
    """Item 7: reported once its project has a namespace; set up, migrating away and gone as any other guest."""
    identity = str(uuid.uuid4())
    domain = host.start("instance-0000002a", metadata=metadata(), identity=identity)
    plain = host.start("plain", "test.late=500", identity=str(uuid.uuid4()))
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "libvirt"}})
    eventually(lambda: not gone(cluster, plain.UUIDString(), "libvirt"))
    assert gone(cluster, identity, NAMESPACE)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def is_ready() -> None:
        assert condition(cluster.get("mg", identity, "-n", NAMESPACE)["status"], "Ready")[0] == "True"

    eventually(lambda: not gone(cluster, identity, NAMESPACE))
    eventually(is_ready)
    guest = cluster.get("mg", identity, "-n", NAMESPACE)
    expected = {"provider": "Libvirt", "nodeName": "compute1", "vm": {"name": "web 1", "uid": identity}}
    assert guest["spec"] == expected
    assert guest["status"]["addresses"] == ["10.0.0.5", "2001:db8::5"]
    assert guest["metadata"]["labels"]["tidepool.dev/nova-flavor"] == "m1.small"

    _lend(cluster, identity)

    def is_set_up() -> None:
        lender = cluster.get("mpair", "p", "-n", NAMESPACE)["status"]["lender"]
        assert (lender["state"], condition(lender, "Configured")[0]) == ("Listening", "True")

    eventually(is_set_up)
    assert 'provider="Libvirt"' in compute.fetch("/metrics")
    end(domain)
    cluster.kubectl("delete", "-n", NAMESPACE, "mpair", "p", "--timeout=60s")
    eventually(lambda: gone(cluster, identity, NAMESPACE))
    assert not gone(cluster, plain.UUIDString(), "libvirt")
    end(plain)


def _lend(cluster: Server, guest: str) -> None:
    """A pairing in which it lends."""
    cluster.create(within(NAMESPACE, secret_body("p-key")))
    cluster.create(within(NAMESPACE, pairing_body(lender=guest, node="compute1")))
