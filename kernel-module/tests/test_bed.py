"""The instruments themselves: what they are to catch, they catch."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import figures
import long
import pytest

from bed.accelerator import TCG, accelerator
from bed.guest import BOOT_SECONDS, Disk, Guest, GuestError, Spec
from bed.image import TESTS, fetch_kernel, stress_program
from bed.page import with_parts
from bed.pair import LENDER_ADDRESS, Pair
from bed.sources import digest, unloaded
from bed.tidepool import MIB
from bed.workload import running, stress, wrong_pages

GENERATION = "0d5e1b5e-6f1c-4f7b-9d61-000000000003"  # with one a guest does not go on from an image


def test_stress_tells_old_and_strange_pages(kernel: str) -> None:
    """A file with another version, or under another name, is full of wrong pages; the right one has none."""
    with Pair(kernel, module=False) as (borrower, _):
        stress(borrower, "fill /mnt/file mib=2 version=1")
        assert stress(borrower, "sequential /mnt/file version=1")["wrong_pages"] == 0
        assert wrong_pages(borrower, "sequential /mnt/file version=2") == 512
        borrower.sh("mv /mnt/file /mnt/other")
        assert wrong_pages(borrower, "random /mnt/other reads=100") == 100


def test_who_serves_for_ever_ends_when_told() -> None:
    """What goes on for a time ends early then, and reports; a server is in the middle of waiting, and has no report."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([stress_program(), "server", str(port)]) as server:
        deadline = time.monotonic() + 10
        while f":{port:04X}" not in Path("/proc/net/tcp").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        server.terminate()
        try:
            assert server.wait(10) == -signal.SIGTERM
        finally:
            server.kill()


def _ping(pair: Pair, count: int = 10, seconds: int = 30) -> list[float]:
    """Round trips in milliseconds of those of so many pings that came back, within that time."""
    output = pair.borrower.run(f"ping -i 0.1 -c {count} -w {seconds} -W {seconds} {LENDER_ADDRESS}").output
    return [float(found) for found in re.findall(r"time=([0-9.]+) ms", output)]


def test_relay_delays_loses_and_cuts(kernel: str) -> None:
    """The wire that others misbehave on."""
    with (pair := Pair(kernel, disk=None, module=False, relay=True)):
        assert pair.relay
        assert len(_ping(pair)) == 10
        pair.relay.delay = 0.05
        assert min(_ping(pair)) > 95
        pair.relay.delay = 0
        pair.relay.loss = 0.2  # each way: that all of fifty or none come back is one run in billions
        assert 0 < len(_ping(pair, 50, seconds=15)) < 50
        pair.relay.loss = 0
        pair.relay.cut = True
        assert _ping(pair, seconds=4) == []
        pair.relay.cut = False
        assert len(_ping(pair)) == 10


def test_commands_report_what_happened(kernel: str) -> None:
    """What runs the guest, how commands end; one that does not end is stopped, and trouble in the log is found."""
    with Pair(kernel, disk=None, module=False) as (borrower, lender):
        emulated = "TCG" in borrower.read("/proc/cpuinfo")
        assert emulated == (accelerator(fetch_kernel(kernel)) == TCG)
        assert borrower.run("echo here; exit 3").code == 3
        assert borrower.run("kill -9 $$").code == -9
        with pytest.raises(GuestError, match="took over 1 s"):
            lender.start("sleep 60").result(timeout=1)
        lender.assert_clean()
        lender.write("/dev/kmsg", "<2>BUG: made up\n")
        with pytest.raises(AssertionError, match="made up"):
            lender.assert_clean()
        lender.kill()
        with pytest.raises(GuestError):
            lender.sh("true")


@pytest.mark.long
def test_code_changes_under_load(kernel: str) -> None:
    """Switching a tracepoint of the page cache goes on while it is used: an older emulator hangs the guest there."""
    switch = "/sys/kernel/tracing/events/filemap/mm_filemap_add_to_page_cache/enable"
    with Pair(kernel, borrower_mem="176M", module=False) as (borrower, _):
        borrower.sh("dd if=/dev/zero of=/mnt/file bs=1M count=200 2> /dev/null")
        with running(borrower, "while true; do cat /mnt/file > /dev/null; done", times=2):
            borrower.sh(f"for i in $(seq 100); do echo 1 > {switch}; echo 0 > {switch}; done", timeout=600)
        borrower.assert_clean()


def is_killed(guest: Guest) -> None:
    """Its emulator, while its kernel begins."""
    guest.kill()


def complains(guest: Guest) -> None:
    """Its kernel, before it is up."""
    guest.channel.hello.result(BOOT_SECONDS)
    guest.write("/dev/kmsg", "<2>BUG: made up\n")


class FirstBootFails(Pair):
    """The guest that is booted first is spoilt."""

    boots = 0
    spoil: Callable[[Guest], None]

    def _boot(self, spec: Spec, module: Path | None) -> Guest:
        guest = super()._boot(spec, module)
        self.boots += 1
        if self.boots == 1:
            self.spoil(guest)
        return guest


@pytest.mark.parametrize("spoil", [is_killed, pytest.param(complains, marks=pytest.mark.long)])
def test_a_guest_that_does_not_come_up_is_booted_again(
    kernel: str, spoil: Callable[[Guest], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A boot that the emulator spoils costs a test time, not its result; and it is said."""
    pair = FirstBootFails(kernel, module=False, generation=GENERATION)
    pair.spoil = spoil
    with pair as (borrower, _):
        assert " /mnt " in borrower.read("/proc/mounts")
        borrower.assert_clean()
    said = re.findall(r"booted again \((\d) of 2\): (borrower|lender) did not come up", capsys.readouterr().err)
    assert said[0] == ("1", "borrower")
    assert pair.boots == 2 + len(said)  # the emulator may have spoilt one more by itself


@pytest.mark.long
def test_a_guest_that_lacks_a_processor_is_not_up(kernel: str) -> None:
    """A guest that says hello on one of its processors and has no use of the other."""
    pair = Pair(kernel, processors=2, append="maxcpus=1", module=False)
    with pytest.raises(GuestError, match="borrower did not come up: a processor"), pair:
        pass


def test_disk_is_throttled_while_it_is_in_use(kernel: str) -> None:
    """The data disk does as many reads a second as it is told, and as many as it can with 0."""
    read = "dd if=/dev/vda of=/dev/null bs=4k count=60 iflag=direct 2> /dev/null; cut -d ' ' -f 1 /proc/uptime"
    with Pair(kernel, disk=Disk(filesystem=None, iops=20), module=False) as (borrower, _):
        times = []
        for iops in (20, 0, 0, 0):  # the machine may be busy with something else for a while
            borrower.throttle(iops)
            start = float(borrower.sh("cut -d ' ' -f 1 /proc/uptime"))
            times.append(float(borrower.sh(read)) - start)
        assert times[0] > 1.5
        assert min(times[1:]) < times[0] / 2


def test_an_interrupted_long_run_goes_on(tmp_path: Path) -> None:
    """What has passed is not run again, on that kernel and while its sources are the same; what has failed is."""
    record, own = tmp_path / "long.jsonl", Path(__file__)
    good = long.Outcome("6.1", own.name, long.sources(own), passed=3, failed=0, seconds=9)
    long.keep(record, replace(good, failed=1))
    assert long.missing(record, ["6.1", "6.12"], [own], quick=False) == [("6.1", own), ("6.12", own)]
    long.keep(record, good)
    assert long.known(record) == [good]
    for quick in (True, False):
        assert long.missing(record, ["6.1", "6.12"], [own], quick=quick) == [("6.12", own)]
    long.keep(record, replace(good, sources="others"))
    assert long.missing(record, ["6.1"], [own], quick=True) == [("6.1", own)]


def test_what_is_not_loaded_does_not_count() -> None:
    """A change of a module outdates what was run of the files of tests that load it, and of no others."""
    files = ("pages", "block", "values", "dkms")
    names = {name: set(unloaded((TESTS / f"test_{name}.py").read_bytes())) for name in files}
    assert names == {"pages": {"appmem", "block"}, "block": {"appmem"}, "values": set(), "dkms": set()}
    assert len({digest(), digest(without=["block"]), digest(without=["appmem"])}) == 3


def test_who_has_passed_without_its_long_tests_has_not_passed(tmp_path: Path) -> None:
    """Unless nobody asks for them."""
    record, own = tmp_path / "long.jsonl", Path(__file__)
    long.keep(record, long.Outcome("6.1", own.name, long.sources(own), passed=3, failed=0, seconds=9, quick=True))
    assert long.missing(record, ["6.1"], [own], quick=False) == [("6.1", own)]
    assert not long.missing(record, ["6.1"], [own], quick=True)


def test_a_report_counts_each_file_for_itself() -> None:
    """What failed, was no test at all, or had an error before it began; what was skipped is neither."""
    report = """<testsuites><testsuite>
        <testcase classname="test_a" name="test_one[x.y]" time="1.5"/>
        <testcase classname="test_a" name="test_two" time="0.5"><failure/></testcase>
        <testcase classname="test_b" name="test_one" time="0"><skipped/></testcase>
        <testcase classname="" name="test_c" time="0"><error/></testcase></testsuite></testsuites>"""
    assert long.counted(report) == {
        "test_a": {"passed": 1, "failed": 1, "milliseconds": 2000},
        "test_b": {"skipped": 1, "milliseconds": 0},
        "test_c": {"failed": 1, "milliseconds": 0},
    }
    assert long.counted("") == {}


def test_only_what_passed_as_it_is_now_is_shown() -> None:
    """In the figures of docs/testing.md nothing of another module, and what failed beside what passed."""
    own = Path(__file__)
    good = long.Outcome("6.12", own.name, long.sources(own), passed=3, failed=0, seconds=9)
    shown = figures.tested([replace(good, failed=1), replace(good, kernel="6.1"), replace(good, sources="others")])
    assert "| 6.1 | 1 | 1 | 3 | 0 |\n| 6.12 | 1 | 1 | 3 | 1 |" in shown


def test_each_figure_has_its_place_and_form() -> None:
    """In docs/testing.md; its tables have the heads that they would be given today."""
    page = figures.PAGE.read_text()
    with_parts(page, dict.fromkeys([*figures.PARTS, "tests"], ""))
    sides = {side: [{"seconds": 1.0, "stalls": 0}] for side in ("unlent", "lent", "balloon")}
    memory = {"kernel": "7.2", "wanted_mib": 300, "lender_mib": 512, "lent_mib": 320, "sides": sides}
    made = [
        figures.stressed([]),
        figures.cost({"lines": {"all": 1}, "kernels": {"6.1": {"cost": {"loaded": 0.0, "ghost": 0.0}}}}),
        figures.lender_work(memory),
        figures.tested([]),
    ]
    heads = {line for part in made for line in part.splitlines() if line.startswith("| ") and ".0" not in line}
    assert heads <= set(page.splitlines())


@pytest.mark.long
def test_lender_that_lacks_more_than_it_grants_is_told(kernel: str) -> None:
    """While it lends, and when it lends to nobody any more: 16 MiB beside the grant are no lender's loss."""
    with (pair := Pair(kernel)) as (borrower, lender):
        pair.connect(size=16 * MIB)
        stress(borrower, "fill /mnt/file mib=12")
        pair.evict()
        pair.assert_clean()
        lender.sh(f"head -c {16 * MIB} /dev/zero > /lost")  # in memory, as all of its files are
        with pytest.raises(AssertionError, match="more than it grants"):
            pair.assert_clean()
        pair.disconnect()
        with pytest.raises(AssertionError, match="more than it grants"):
            pair.assert_clean()
        lender.sh("rm /lost")
        pair.assert_clean()
