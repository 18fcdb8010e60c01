"""Item 7: the agent on a host with its own libvirt, as on an OpenStack compute host; the domains are real ones."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import libvirt
import pytest
from cast import AgentProcess, condition, eventually
from daemon import SystemDaemon, end
from objects import pairing_body, within
from rights import NOBODY, ROOT, STRANGER
from test_nova import PROJECT, metadata
from tiny import Kernel

from tidepool_agent import nova
from tidepool_agent.host import Host
from tidepool_agent.hypervisor import Domain
from tidepool_agent.provider import Machine
from tidepool_agent.qga import GuestAgent
from tidepool_api import names
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
    with on_host(AgentProcess(cluster, "compute1", store, "--providers=Libvirt"), host) as agent:
        yield agent


def on_host(agent: AgentProcess, host: SystemDaemon) -> AgentProcess:
    """An agent that sees that host through its first process."""
    (agent.proc / "1").mkdir()
    (agent.proc / "1/root").symlink_to(host.root)
    return agent


def gone(server: Server, name: str, namespace: str) -> bool:
    try:
        server.get("tguest", name, "-n", namespace)
    except Refused:
        return True
    return False


TEST_DOMAIN = "<domain type='test'><name>{}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>"


def test_a_domain_that_nobody_understands_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, by its name, and the thread that looks for domains goes on."""
    file = tmp_path / "host.xml"
    file.write_text(f"<node>{''.join(map(TEST_DOMAIN.format, ('evil', 'good')))}</node>")

    def read(xml: str, *arguments: Any, **more: Any) -> Machine | None:
        if "evil" in xml:
            raise ValueError("nobody has thought of it")
        return machine(xml, *arguments, **more)

    machine = nova.machine
    monkeypatch.setattr(nova, "machine", read)
    source = Host(tmp_path, "libvirt", lambda _: None)
    connection = libvirt.open(f"test://{file}")
    for _ in range(2):
        assert [one.domain for one in source._running(connection)] == ["good"]  # noqa: SLF001 - without the thread
    assert [one.getMessage().partition(" is ")[0] for one in caplog.records] == ["domain evil"]
    connection.lookupByName("evil").destroy()
    assert [one.domain for one in source._running(connection)] == ["good"]  # noqa: SLF001
    assert source._odd == set()  # noqa: SLF001


def test_the_life_of_a_nova_instance(
    cluster: Server, compute: AgentProcess, host: SystemDaemon, kernel: Kernel
) -> None:
    """Item 7: reported once its project has a namespace; set up, migrated live and gone as any other guest.

    With the addresses that Nova knows, and beside them those that the guest has given itself.
    """
    identity = str(uuid.uuid4())
    domain = host.start("instance-0000002a", metadata=metadata(), identity=identity)
    plain = host.start("plain", "test.late=500", identity=str(uuid.uuid4()))
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "libvirt"}})
    eventually(lambda: not gone(cluster, plain.UUIDString(), "libvirt"))
    assert gone(cluster, identity, NAMESPACE)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    eventually(lambda: not gone(cluster, identity, NAMESPACE))
    eventually(lambda: is_ready(cluster, identity, NAMESPACE))
    guest = cluster.get("tguest", identity, "-n", NAMESPACE)
    expected = {"provider": "Libvirt", "nodeName": "compute1", "vm": {"name": "web 1", "uid": identity}}
    assert guest["spec"] == expected
    assert guest["status"]["addresses"] == ["10.0.0.5", "2001:db8::5"]
    assert guest["metadata"]["labels"]["tidepool.dev/nova-flavor"] == "m1.small"

    cluster.create(within(NAMESPACE, pairing_body(lender=identity, node="compute1")))
    eventually(lambda: is_set_up(cluster, NAMESPACE))
    assert 'provider="Libvirt"' in compute.fetch("/metrics")
    inside = GuestAgent(Domain(host.uri, domain.name()).command)
    inside.run(["/bin/sh", "-c", "ip link set lo up; ip address replace 10.20.0.5/16 dev lo"])
    with SystemDaemon(kernel) as there:
        _assert_held_while_migrated(host, there, domain, inside)

    def are_reported() -> None:
        found = cluster.get("tguest", identity, "-n", NAMESPACE)["status"]
        assert {one["name"]: one["addresses"] for one in found["interfaces"]} == {
            "p1": ["10.0.0.5"],
            "p2": ["2001:db8::5"],
            "lo": ["10.20.0.5"],
        }
        assert found["addresses"] == ["10.0.0.5", "2001:db8::5"]

    eventually(are_reported)
    end(domain)
    cluster.kubectl("delete", "-n", NAMESPACE, "tpair", "p", "--timeout=60s")
    eventually(lambda: gone(cluster, identity, NAMESPACE))
    assert not gone(cluster, plain.UUIDString(), "libvirt")
    end(plain)


def _assert_held_while_migrated(
    host: SystemDaemon, there: SystemDaemon, domain: libvirt.virDomain, guest: GuestAgent
) -> None:
    """Issue 28: a lender takes nothing more while its memory is copied, and does again when that was given up."""
    assert not holds(guest)
    migration = host.begin_to_migrate(domain.name(), there, mib_per_second=1)
    eventually(lambda: holds(guest))
    domain.abortJob()
    migration.join()
    eventually(lambda: not holds(guest))


def test_an_instance_that_nova_migrates_stays_the_same_guest(
    cluster: Server, compute: AgentProcess, host: SystemDaemon, kernel: Kernel, store: Path
) -> None:
    """Issue 28, live migration: the guest goes over to the agent of the other host, and its end of the pairing follows.

    Libvirt really migrates it, while it runs, between two daemons that are hosts of their own on one machine. In place
    of the operator the test says in the pairing where the lender is.
    """
    identity, project = str(uuid.uuid4()), uuid.uuid4().hex
    namespace = f"nova-{project}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    def guest() -> dict[str, Any]:
        found: dict[str, Any] = cluster.get("tguest", identity, "-n", namespace)
        return found

    with (
        SystemDaemon(kernel) as there,
        on_host(AgentProcess(cluster, "compute3", store, "--providers=Libvirt"), there) as other,
    ):
        leaves = host.start("traveller", metadata=metadata().replace(PROJECT, project), identity=identity)
        eventually(lambda: is_ready(cluster, identity, namespace))
        cluster.create(within(namespace, pairing_body(lender=identity, node=compute.node)))
        eventually(lambda: is_set_up(cluster, namespace))
        eventually(lambda: [one["guest"] for one in guest()["status"]["peers"]] == ["elsewhere"])
        before = guest()
        assert before["spec"]["nodeName"] == compute.node

        here = GuestAgent(Domain(host.uri, "traveller").command)
        migration = host.begin_to_migrate("traveller", there, mib_per_second=1)
        eventually(lambda: holds(here))
        eventually(lambda: guest()["status"]["migrating"])
        leaves.migrateSetMaxSpeed(1000)
        migration.join()
        arrived = there.connection.lookupByUUIDString(identity)

        def is_there() -> None:
            found = guest()
            assert found["spec"]["nodeName"] == other.node
            assert "migrating" not in found["status"]
            assert names.LEAVING_ANNOTATION not in found["metadata"].get("annotations", {})
            assert f'guest="{identity}"' in other.fetch("/metrics")
            assert f'guest="{identity}"' not in compute.fetch("/metrics")

        eventually(is_there)
        change = json.dumps({"spec": {"lender": {"nodeName": other.node}}})
        cluster.kubectl("patch", "-n", namespace, "tpair", "p", "--type=merge", "-p", change)
        eventually(lambda: is_set_up(cluster, namespace))
        after = guest()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert all(after["status"][what] == before["status"][what] for what in ("bootID", "identity"))
        far = GuestAgent(Domain(there.uri, "traveller").command)
        eventually(lambda: not holds(far))
        end(arrived)
        cluster.kubectl("delete", "-n", namespace, "tpair", "p", "--timeout=60s")
        eventually(lambda: gone(cluster, identity, namespace))


def holds(guest: GuestAgent) -> bool:
    """Whether a lender takes nothing at present."""
    return guest.run(["/bin/cat", "/sys/kernel/config/tidepool/hold"]).out.strip() == "1"


def is_ready(cluster: Server, guest: str, namespace: str) -> bool:
    """Whether a guest can lend or borrow."""
    return condition(cluster.get("tguest", guest, "-n", namespace)["status"], "Ready")[0] == "True"


def is_set_up(cluster: Server, namespace: str) -> bool:
    """Whether the lender of a pairing is, as the pairing is now."""
    found = cluster.get("tpair", "p", "-n", namespace)
    lender = found["status"]["lender"]
    asked = (lender["state"], condition(lender, "Configured")[0], lender["observedGeneration"])
    return asked == ("Listening", "True", found["metadata"]["generation"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_libvirt_serves_only_whom_it_knows(cluster: Server, host: SystemDaemon, kernel: Kernel, store: Path) -> None:
    """Nobody without a name on the host; with polkit nobody but root unless it says so. The agent says what to do."""

    def agent(of: SystemDaemon, settings: Sequence[str]) -> AgentProcess:
        return on_host(AgentProcess(cluster, "compute2", store, "--providers=Libvirt", settings=settings), of)

    def assert_refused(one: AgentProcess) -> None:
        one.launch()
        eventually(lambda: re.search("it does not serve user [0-9]+ .*agent.runAsUser", one.log()) is not None)
        assert one.fetch("/readyz") != "ok\n"
        one.stop()

    with SystemDaemon(kernel, "polkit") as strict:
        assert_refused(agent(host, STRANGER))
        assert_refused(agent(strict, NOBODY))
        with agent(strict, ROOT):
            pass
