"""Memory is gathered from a real guest by its balloon, and given back: the agent as a process, libvirt and QEMU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import libvirt
import libvirt_qemu  # type: ignore[import-untyped]
import pytest
from cast import NAMESPACE, AgentProcess, Machine, eventually
from daemon import Daemon
from test_nodelender import Lender, program  # noqa: F401 - a fixture

from tidepool_agent.balloondevice import URI
from tidepool_agent.qga import GuestAgent
from tidepool_api import names
from tidepool_api.units import KIB, MIB
from tidepool_api_testing.server import Server, free_ports

OPERATOR = f"--as=system:serviceaccount:{NAMESPACE}:tidepool-operator", "--as-group=system:masters"
FULL, RESERVE = 224 * MIB, 48 * MIB


class Donor(Machine):
    """A guest with 224 MiB, of which it needs the smaller part."""

    def mark(self, reserve: str | None) -> None:
        """What the operator writes."""
        said = json.dumps({"metadata": {"annotations": {names.BALLOON_ANNOTATION: reserve}}})
        self._server.kubectl("patch", "tguest", self.name, "-n", self.namespace, "--type=merge", "-p", said, *OPERATOR)

    def ready(self) -> tuple[str, str, str]:
        """Status, reason and message of BalloonReady; empty while there is none."""
        each = {one["type"]: one for one in self.guest()["status"].get("conditions", [])}
        found = each.get("BalloonReady", {"status": "", "reason": "", "message": ""})
        return found["status"], found["reason"], found["message"]

    def stats(self) -> dict[str, int]:
        """What libvirt says of its memory, in bytes."""
        assert self.domain
        return {name: size * KIB for name, size in self.domain.memoryStats().items()}

    def run(self, *argv: str) -> None:
        """Has the guest do something."""

        def command(text: str, seconds: int) -> str:
            answer: str = libvirt_qemu.qemuAgentCommand(self.domain, text, seconds, 0)
            return answer

        assert GuestAgent(command).run(list(argv)).code == 0

    def has_note(self) -> bool:
        """Whether the domain says what its balloon was told."""
        assert self.domain
        try:
            return bool(self.domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, URI))
        except libvirt.libvirtError:
            return False


@pytest.fixture
def lending(cluster: Server, store: Path, program: Path, namespace: str) -> Iterator[Lender]:  # noqa: F811
    """A node that lends, with an agent of its own."""
    node = f"gathers-{namespace}"
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    port, metrics = free_ports(2)
    options = [f"--node-port={port}", f"--node-metrics-port={metrics}", "--node-max-lend=64Mi", "--node-reserve=16Mi"]
    agent = AgentProcess(cluster, node, store, "--node-lender", *options)
    (agent.proc / "meminfo").symlink_to("/proc/meminfo")
    with agent:
        one = Lender(cluster, agent, program, node)
        one.start()
        eventually(lambda: one.condition("Ready")[0] == "True")
        yield one
        one.close()


@pytest.fixture
def donor(cluster: Server, daemon: Daemon, lending: Lender, namespace: str) -> Iterator[Donor]:
    """A guest on that node, which has touched most of its memory."""
    one = Donor(cluster, daemon, lending.agent, namespace, "d").start("test.touched=90")
    assert isinstance(one, Donor)
    eventually(lambda: one.condition("GuestAgentReady")[0] == "True")
    yield one
    one.delete()


def gathered(lending: Lender, donor: Donor) -> int:
    """What the agent's metrics say that the balloon holds."""
    found = [
        line for line in lending.agent.fetch("/metrics").splitlines() if line.startswith("tidepool_guest_gathered")
    ]
    return sum(int(float(line.rpartition(" ")[2])) for line in found if f'namespace="{donor.namespace}"' in line)


def test_memory_of_a_real_guest_is_gathered_and_given_back(lending: Lender, donor: Donor) -> None:
    """Step by step down to the reserve, on by the next agent, at once when it is needed, all when no pool asks."""
    before = donor.stats()
    assert before["actual"] == FULL
    assert not donor.has_note()
    donor.mark("48Mi")
    eventually(lambda: donor.ready()[1] == "Watching")
    eventually(lambda: donor.ready()[:2] == ("True", "Gathering"))
    eventually(lambda: donor.stats()["actual"] <= FULL - 3 * 7 * MIB, 300)
    now = donor.stats()
    assert now["usable"] >= RESERVE
    assert now["rss"] < before["rss"], "the host has nothing of it"
    eventually(lambda: gathered(lending, donor) == FULL - donor.stats()["actual"], 60)
    assert donor.has_note()

    lending.agent.kill()
    held = donor.stats()["actual"]
    lending.agent.start()
    eventually(lambda: gathered(lending, donor) > 0)
    assert donor.stats()["actual"] <= held

    donor.run("/bin/mount", "-o", "remount,size=90%", "/run")
    needed = (donor.stats()["usable"] - RESERVE // 2) // MIB
    donor.run("/bin/dd", "if=/dev/zero", "of=/run/needed", "bs=1M", f"count={needed}")
    eventually(lambda: donor.stats()["actual"] > held, 60)
    eventually(lambda: donor.stats()["usable"] >= RESERVE or donor.stats()["actual"] == FULL, 60)
    donor.run("/bin/rm", "/run/needed")

    donor.mark(None)
    eventually(lambda: donor.stats()["actual"] == FULL, 60)
    eventually(lambda: "balloon" not in donor.guest()["status"])
    assert not donor.has_note()


def test_a_guest_that_nobody_knows_of_any_more_has_its_memory_again(
    cluster: Server, lending: Lender, donor: Donor
) -> None:
    """Its MemoryGuest is deleted while the agent is gone: the next agent learns from its domain what is to be done."""
    donor.mark("48Mi")
    eventually(lambda: donor.stats()["actual"] < FULL, 200)
    lending.agent.kill()
    cluster.kubectl("delete", "tguest", donor.name, "-n", donor.namespace)
    lending.agent.start()
    eventually(lambda: donor.stats()["actual"] == FULL, 60)
    eventually(lambda: not donor.has_note())


def test_a_balloon_that_somebody_has_set_stays_as_it_is(lending: Lender, donor: Donor) -> None:
    """By `virsh setmem`, before the pool comes; and nothing of ours is left when the pool goes."""
    assert donor.domain
    donor.domain.setMemoryFlags(180 * MIB // KIB, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    eventually(lambda: donor.stats()["actual"] == 180 * MIB, 30)
    donor.mark("32Mi")
    eventually(lambda: donor.ready()[:2] == ("False", "SetByAnother"))
    assert gathered(lending, donor) == 0
    donor.mark(None)
    eventually(lambda: "balloon" not in donor.guest()["status"])
    assert donor.stats()["actual"] == 180 * MIB
    assert not donor.has_note()


def test_without_the_node_lender_all_is_given_back(lending: Lender, donor: Donor) -> None:
    """Its daemon ends, and is not there again after a minute: nobody would have the memory."""
    donor.mark("48Mi")
    eventually(lambda: donor.stats()["actual"] < FULL, 200)
    lending.end()
    eventually(lambda: donor.ready()[1] == "GivingBack", 120)
    assert "the node lender of its node is not there" in donor.ready()[2]
    eventually(lambda: donor.stats()["actual"] == FULL, 60)
    lending.run()
