"""How a guest's memory is backed: from the domain as libvirt describes it, and from what the pod requests."""

from __future__ import annotations

from pathlib import Path

import libvirt
import pytest
from objects import machine, observation

from tidepool_agent import report
from tidepool_agent.backing import HostSide, SharedDisk, described, has_swap, host_side, overcommitted
from tidepool_agent.errors import Excluded, Unreachable
from tidepool_agent.provider import Machine
from tidepool_agent.report import Finding
from tidepool_api import GuestStatus, find

MIB = 1 << 20
HUGE, LOCKED, NOTHING = (
    f"<memoryBacking>{one}</memoryBacking>" for one in ("<hugepages/>", "<locked/>", "<nosharepages/>")
)
REPORTING = "<memballoon model='virtio' freePageReporting='on'/>"
DISK = "<disk type='block' device='disk'><source dev='/dev/null'/><target dev='vdb' bus='virtio'/></disk>"
SHARED = DISK.replace("</disk>", "<shareable/><serial>data-1</serial></disk>")
PLAIN = HostSide(1024 * MIB)


def domain(*, backing: str = "", balloon: str = "", current: str = "", disk: str = "") -> str:
    """The XML that libvirt itself makes of a domain that runs."""
    connection = libvirt.open("test:///default")
    memory = f"<memory unit='MiB'>2048</memory>{current}"
    devices = f"<devices>{balloon}{disk}</devices>"
    xml = f"<domain type='test'><name>d</name>{memory}{backing}<os><type>hvm</type></os>{devices}</domain>"
    text: str = connection.createXML(xml).XMLDesc()
    connection.close()
    return text


@pytest.mark.parametrize(
    ("xml", "found"),
    [
        (domain(), HostSide(2048 * MIB)),
        (domain(current="<currentMemory unit='GiB'>1</currentMemory>"), HostSide(1024 * MIB)),
        (domain(backing=HUGE), HostSide(2048 * MIB, huge_pages=True)),
        (domain(backing=LOCKED), HostSide(2048 * MIB, locked=True)),
        (domain(disk=DISK), HostSide(2048 * MIB)),
        (domain(disk=SHARED), HostSide(2048 * MIB, shared=(SharedDisk("vdb", "data-1"),))),
        (domain(backing=NOTHING, balloon=REPORTING), HostSide(2048 * MIB, free_page_reporting=True)),
    ],
)
def test_what_libvirt_says_of_a_domain(xml: str, found: HostSide) -> None:
    assert host_side(xml, swap=False) == found


@pytest.mark.parametrize(
    "xml", ["", "<domain>", "<domain/>", *(f"<domain><memory>{one}</memory></domain>" for one in ("much", "-1"))]
)
def test_what_is_no_domain_of_libvirts_says_nothing(xml: str) -> None:
    """A virt-launcher may be broken into: its word is taken only as far as it makes sense."""
    assert host_side(xml, swap=True) is None
    assert described(0, None) is None


@pytest.mark.parametrize(
    ("asked", "host", "less"),
    [
        (1300, PLAIN, 0),  # as KubeVirt has it by default: the memory, and more for itself
        (1224, PLAIN, 0),
        (1024, PLAIN, 200),  # with overcommitGuestOverhead
        (712, PLAIN, 512),
        (100, PLAIN, 1024),
        (0, PLAIN, 1024),
        (None, PLAIN, 0),
        (256, HostSide(1024 * MIB, huge_pages=True), 0),
    ],
)
def test_what_nobody_has_promised(asked: int | None, host: HostSide, less: int) -> None:
    bytes_ = None if asked is None else asked * MIB
    assert overcommitted(bytes_, host) == less * MIB
    told = described(bytes_, host)
    assert told is not None
    assert (told.request_bytes, told.overcommitted_bytes) == (bytes_, less * MIB)


@pytest.mark.parametrize(
    ("host", "swapped"),
    [
        (HostSide(MIB), False),
        (HostSide(MIB, swap=True), True),
        (HostSide(MIB, swap=True, locked=True), False),
        (HostSide(MIB, swap=True, huge_pages=True), False),
    ],
)
def test_what_a_host_may_swap_out(host: HostSide, *, swapped: bool) -> None:
    told = described(None, host)
    assert told is not None
    assert told.swap == swapped


def test_whether_a_host_has_swap(tmp_path: Path) -> None:
    assert not has_swap(tmp_path)
    for kib, there in ((0, False), (1 << 20, True)):
        (tmp_path / "meminfo").write_text(f"MemTotal:  4 kB\nSwapCached:   8 kB\nSwapTotal:     {kib} kB\n")
        assert has_swap(tmp_path) == there
    assert has_swap(Path("/proc")) == (len(Path("/proc/swaps").read_text().splitlines()) > 1)


def status(found: Finding, one: Machine, before: GuestStatus | None = None) -> GuestStatus:
    return report.guest(one, "node1", found, (), before).status


@pytest.mark.parametrize(
    ("asked", "host", "said"),
    [
        (1300, PLAIN, ("True", "Requested")),
        (712, PLAIN, ("False", "Overcommitted")),
        (None, PLAIN, ("Unknown", "NoRequest")),
        (256, HostSide(MIB, huge_pages=True), ("True", "HugePages")),
        (None, HostSide(MIB, huge_pages=True), ("True", "HugePages")),
    ],
)
def test_a_guest_says_how_it_is_backed(asked: int | None, host: HostSide, said: tuple[str, str]) -> None:
    one = machine(request_bytes=None if asked is None else asked * MIB)
    told = status(Finding(seen=observation(host=host)), one)
    found = find(told.conditions, "MemoryBacked")
    assert found is not None
    assert (found.status.value, found.reason) == said
    assert told.backing == described(one.request_bytes, host)
    if said[1] == "Overcommitted":
        assert found.message == (
            "it has 1Gi, and its pod requests 712Mi, 200Mi of that for virt-launcher: 512Mi are not lent, "
            "unless a pool has spec.lenders.overcommitted: Lend"
        )


def test_of_a_guest_that_is_silent_it_stays_and_of_one_left_alone_it_goes() -> None:
    one = machine(request_bytes=712 * MIB)
    before = status(Finding(seen=observation(host=PLAIN)), one)
    silent = status(Finding(unreachable=Unreachable("x")), one, before)
    assert silent.backing == before.backing
    assert find(silent.conditions, "MemoryBacked") == find(before.conditions, "MemoryBacked")
    alone = status(Finding(unreachable=Excluded("its label says so"), left_alone=True), one, before)
    assert (alone.backing, find(alone.conditions, "MemoryBacked")) == (None, None)


def test_a_script_in_the_guest_gets_words_of_a_shared_disk() -> None:
    assert SharedDisk("vdb", "a *$(reboot)-0123456789012345").word == "vdb:areboot-0123456"
