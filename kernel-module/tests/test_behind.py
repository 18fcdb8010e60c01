"""A block device that writes behind, for swap: what is in its log is read from there, and the disk gets all of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from bed.device import (
    DISK,
    MODULES,
    NAME,
    PATH,
    SWAPPED,
    Device,
    dmsetup,
    faults_of_wire,
    mixture,
    random_data,
    removed_by_force,
    until_used,
)
from bed.guest import Disk
from bed.image import with_sbin
from bed.pair import ETHERNET, IN_TIME_US, PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, start_stress, stress

RAW = Disk("128M", None)
BELOW = "/dev/mapper/below"
NOBODY = "nobody"  # no lender is called that: what is read comes from the log or the disk
IO_ERRORS = "I/O error|Buffer I/O|device-mapper"
ROUNDS = 8  # what is not written out for a reason may be after half a second
FLUSH = f"dd if=/dev/null of={PATH} conv=fsync,notrunc"


@pytest.fixture(scope="module")
def guests(kernel: str) -> Iterator[Pair]:
    """Two guests whose modules can be broken, and are not loaded."""
    with (pair := Pair(kernel, disk=RAW, broken="BLOCK_LOG_READ", modules=MODULES)):
        yield pair


@pytest.fixture(scope="module")
def connected(guests: Pair, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, bool]]:
    """A pair with a lender connected, and whether its module does what it should."""
    guests.b.broken = request.param
    guests.connect(size=64 * MIB, more=PATIENT)
    yield guests, not request.param
    guests.assert_clean(IO_ERRORS)
    guests.borrower.sh("rmmod tidepool_block")
    guests.disconnect()
    guests.b.unload()


def breaking(*names: str) -> pytest.MarkDecorator:
    """With the module as it should be, and with one mechanism broken at a time."""
    return pytest.mark.parametrize("connected", ["", *names], ids=["proper", *names], indirect=True)


def _has(path: str, kib: int) -> str:
    """A command that says whether a device has what is in /tmp/data, past the page cache."""
    return f"dd if={path} bs=64k count={kib // 64} iflag=direct 2> /dev/null | cmp - /tmp/data > /dev/null"


def _below(pair: Pair) -> str:
    """A mapping of the disk, at first as it is: its table."""
    table = f"0 {pair.borrower.sh(f'blockdev --getsz {DISK}')} linear {DISK} 0"
    pair.borrower.sh(dmsetup(f'create below --table "{table}"'))
    return table


@breaking("BLOCK_LOG_READ", "BLOCK_LOG_ORDER")
def test_mixture(connected: tuple[Pair, bool]) -> None:
    """All sizes, whole blocks and parts, more than the log has room for: log, lender and disk give nothing stale."""
    pair, proper = connected
    with Device(pair, policy="behind 1") as fast:
        assert fast.dmsetup(f"table {NAME}").endswith(" behind 1")
        seen = ("hits", "misses", "partial", "puts", "log_written")
        mixture(fast, f"beside={DISK} mib=8", 5, proper=proper, seen=seen)


@breaking()
def test_mixture_without_a_lender(connected: tuple[Pair, bool]) -> None:
    """All comes from log and disk, and the log has room for all; of two writes at a time one is last for everybody."""
    pair, _ = connected
    with Device(pair, lender=NOBODY, policy="behind") as fast:
        mixture(fast, f"beside={DISK} mib=8", 4, proper=True, seen=["log_reads"])
        stress(pair.borrower, f"overlap {PATH} beside={DISK}")


@breaking("BLOCK_LOG_FLUSH")
def test_flushed(connected: tuple[Pair, bool]) -> None:
    """A flush, as that of mkswap, is over when the disk has what was written before it."""
    pair, proper = connected
    write = f"dd if=/tmp/data of={PATH} bs=64k conv=fsync oflag=direct 2> /dev/null"
    for cache in ("write through", "write back"):  # the disk's: one needs no flushes
        pair.borrower.write("/sys/block/vda/queue/write_cache", cache)
        with Device(pair, policy="behind"):
            on_disk = []
            for _ in range(ROUNDS):
                random_data(pair, 64)
                on_disk.append(pair.borrower.run(f"{write}; {_has(DISK, 64)}").code == 0)
            assert all(on_disk) == proper


@breaking("BLOCK_LOG_SUSPEND")
def test_suspended(connected: tuple[Pair, bool]) -> None:
    """A device that is suspended, given another table or removed has all on the disk, and writes nothing more there."""
    pair, proper = connected
    table = f"0 {pair.borrower.sh(f'blockdev --getsz {DISK}')} tidepool - {DISK} behind 2"
    load = dmsetup(f'load {NAME} --table "{table}"')
    write = f"dd if=/tmp/data of={PATH} bs=64k oflag=direct 2> /dev/null"
    on_disk = []
    for _ in range(ROUNDS):
        with Device(pair, policy="behind"):
            for also in (":", load):
                random_data(pair, 64)
                stop = dmsetup(f"suspend {NAME}")
                on_disk.append(pair.borrower.run(f"{write}; {stop}; {_has(DISK, 64)}").code == 0)
                pair.borrower.sh(f"{also}; {dmsetup(f'resume {NAME}')}")
            random_data(pair, 64)
            remove = dmsetup(f"remove {NAME}")
            on_disk.append(pair.borrower.run(f"{write}; {remove}; {_has(DISK, 64)}").code == 0)
            pair.borrower.sh(dmsetup(f'create {NAME} --table "{table}"'))
    assert all(on_disk) == proper


@breaking("BLOCK_LOG_ERROR")
def test_disk_fails(connected: tuple[Pair, bool]) -> None:
    """What the disk refuses stays in the log, is read from there, and gets to the disk when that takes it again."""
    pair, proper = connected
    borrower = pair.borrower
    sound = _below(pair)
    write = f"dd if=/tmp/data of={PATH} bs=64k count=%d seek=%d oflag=direct conv=notrunc 2> /dev/null"
    with Device(pair, BELOW, lender=NOBODY, policy="behind") as fast:
        random_data(pair, 1024)
        fast.exchange("below", f"0 {sound.split()[1]} error")
        borrower.sh(write % (16, 0))
        wait_until("the disk has refused it", lambda: fast.status()["log_errors"] > 0)
        assert (borrower.run(_has(PATH, 1024)).code == 0) == proper
        if proper:
            assert fast.status()["log_refused"] == 1
            for more in (write % (1, 100), write % (1, 0), FLUSH):
                assert borrower.run(more).code != 0, "written through, older blocks first: the disk refuses it"
            fast.dmsetup(f"suspend {NAME}; dmsetup resume {NAME}")
            assert fast.status()["log_pages"] == 256, fast.status()
            borrower.sh(_has(PATH, 1024))
        fast.exchange("below", sound)
        wait_until("the disk has taken it", lambda: _is_empty(fast))
        assert (borrower.run(_has(BELOW, 1024)).code == 0) == proper
        wait_until("it writes behind again", lambda: _written_behind(fast, write % (1, 0)))
    fast.dmsetup("remove below")


def _is_empty(fast: Device) -> bool:
    """Whether the disk has all that was in the log, and refuses nothing."""
    figures = fast.status()
    return figures["log_pages"] == figures["log_refused"] == 0


def _written_behind(fast: Device, write: str) -> bool:
    before = fast.status()["log_written"]
    fast.pair.borrower.sh(f"{write}; {FLUSH}")
    return fast.status()["log_written"] > before


@breaking()
def test_bad_sector(connected: tuple[Pair, bool]) -> None:
    """A device that is suspended and removed loses the block that the disk refuses, and none beside it."""
    pair, _ = connected
    borrower = pair.borrower
    sectors = int(_below(pair).split()[1])
    bad = 100  # a block
    begin, end = bad * 8, bad * 8 + 8
    table = f"0 {begin} linear {DISK} 0\n{begin} 8 error\n{end} {sectors - end} linear {DISK} {end}"  # in sectors
    with Device(pair, BELOW, lender=NOBODY, policy="behind") as fast:
        fast.exchange("below", table)
        random_data(pair, 1024)
        borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct; {dmsetup(f'suspend {NAME}')}")
    assert _lost(pair) == 1
    differ = f"dd if={DISK} bs=64k count=16 iflag=direct 2> /dev/null | cmp -l - /tmp/data"
    assert borrower.sh(f"{differ} | awk '{{ print int(($1 - 1) / 4096) }}' | sort -u") == str(bad)
    borrower.sh(dmsetup("remove below"))


def _lost(pair: Pair) -> int:
    """How many blocks the last log that was lost had."""
    lines = [line for line in pair.borrower.log().splitlines() if " blocks that were written are lost" in line]
    return int(lines[-1].partition(" blocks ")[0].split()[-1])


def test_file_system_is_told(kernel: str) -> None:
    """A commit is no success when the disk refuses what was written before it: not even when it takes the commit."""
    disk = Disk("128M", "ext4", options=("-b", "4096"))
    with (pair := Pair(kernel, disk=disk, modules=MODULES)) as (borrower, _):
        borrower.sh("dd if=/dev/zero of=/mnt/file bs=64k count=16 conv=fsync")
        borrower.umount()
        bad = _blocks_of(pair, "file")[8] * 8  # a sector
        sectors = int(_below(pair).split()[1])
        table = f"0 {bad} linear {DISK} 0\n{bad} 8 error\n{bad + 8} {sectors - bad - 8} linear {DISK} {bad + 8}"
        with Device(pair, BELOW, lender=NOBODY, policy="behind") as fast:
            borrower.sh(f"mount -t ext4 {PATH} /mnt")
            fast.exchange("below", table)
            borrower.sh("echo more > /mnt/more")  # so that there is something to commit
            assert borrower.run("dd if=/dev/urandom of=/mnt/file bs=64k count=1 conv=notrunc,fsync").code != 0
            fast.exchange("below", f"0 {sectors} linear {DISK} 0")
            borrower.run("umount /mnt")
        borrower.sh(dmsetup("remove below"))
        borrower.assert_clean(f"{IO_ERRORS}|EXT4-fs|JBD2")


def _blocks_of(pair: Pair, name: str) -> list[int]:
    """Where the disk has a file of its root folder, which is mounted nowhere."""
    asked = ["debugfs", "-R", f"blocks /{name}", pair.borrower.folder / "disk"]
    return [
        int(block)
        for block in subprocess.run(asked, check=True, capture_output=True, text=True, env=with_sbin()).stdout.split()
    ]


@breaking()
def test_mixture_on_a_disk_that_fails_at_times(connected: tuple[Pair, bool]) -> None:
    """Errors reach who writes; nothing that was acknowledged is lost, and nothing is older than that."""
    pair, _ = connected
    sound = _below(pair)
    with Device(pair, BELOW, policy="behind 1") as fast:
        requests = start_stress(pair.borrower, f"device {PATH} beside={BELOW} mib=8 seconds=600 errors=1")
        wait_until("all is written once", lambda: fast.status()["log_reads"] > 0, timeout=120)
        for _ in range(2):
            time.sleep(1.5)
            before = fast.status()["log_errors"]
            fast.exchange("below", f"0 {sound.split()[1]} error")
            wait_until("the disk has refused some", lambda: fast.status()["log_errors"] > before)  # noqa: B023
            time.sleep(1.5)
            fast.exchange("below", sound)
        assert end_stress(requests)["refused"] > 0
    fast.dmsetup("remove below")


@breaking()
def test_written_in_order(connected: tuple[Pair, bool]) -> None:
    """The disk gets in few large requests what came in many small ones, from two at a time."""
    pair, _ = connected
    borrower = pair.borrower
    _below(pair)
    with Device(pair, BELOW, policy="behind") as fast:
        random_data(pair, 2048)
        writes = (f"dd if=/tmp/data of={PATH} bs=4k seek={at} oflag=direct conv=notrunc" for at in (0, 8192))
        before = _requests(pair)
        fast.dmsetup("suspend below")  # so slow that all the rest has come meanwhile
        borrower.sh(f"{' & '.join(writes)} & wait")
        fast.dmsetup("resume below")
        borrower.sh(FLUSH)
        figures = fast.status()
        assert figures["log_written"] == 1024, figures
        assert figures["log_writeouts"] <= 1024 / 16, figures
        assert _requests(pair) - before <= 1024 / 16
    fast.dmsetup("remove below")


def _requests(pair: Pair) -> int:
    """How many writes the disk has done."""
    return int(pair.borrower.read("/sys/block/vda/stat").split()[4])


@breaking()
def test_removed_by_force(connected: tuple[Pair, bool]) -> None:
    """What is under way ends, with an error at worst, and all that was acknowledged is on the disk."""
    pair, _ = connected
    fast = Device(pair, policy="behind 4")
    written = removed_by_force(pair, fast)
    pair.borrower.sh(f"echo 1 > /proc/sys/vm/drop_caches; cmp -n {written} /tmp/data {DISK}; rm /tmp/data")
    fast.dmsetup(f"remove {NAME} 2> /dev/null || :")


def test_flush_has_an_end(kernel: str) -> None:
    """It waits for a log or two at most while somebody writes ahead of it, as fast as the log takes it."""
    slow = Disk("512M", None, iops=16)
    with (pair := Pair(kernel, disk=slow, modules=MODULES)) as (borrower, _):
        with Device(pair, lender=NOBODY, policy="behind") as fast:
            stream = borrower.start(f"exec dd if=/dev/zero of={PATH} bs=64k oflag=direct")
            wait_until("it is written out", lambda: fast.status()["log_written"] > 0)
            status = dmsetup(f"status {NAME}")
            lines = borrower.sh(f"{status}; {FLUSH} 2> /dev/null; {status}").splitlines()
            before, after = (fast.figures(line)["log_written"] for line in lines)
            assert 0 < after - before <= 4 * 4096, "logs of 16 MiB: the pass that ran, that of the flush, some around"
            assert stream.running
            stream.kill()
            stream.result()
        borrower.assert_clean()


@pytest.mark.long
def test_change_has_an_end(kernel: str) -> None:
    """What is changed past the log waits for what it has of that, however fast somebody writes there anew."""
    slow = Disk("512M", None, iops=16)
    with (pair := Pair(kernel, disk=slow, modules=MODULES)) as (borrower, _):
        with Device(pair, lender=NOBODY, policy="behind 4"):
            again = f"while [ ! -e /tmp/end ]; do dd if=/dev/zero of={PATH} bs=64k count=32 oflag=direct; done"
            writers = [borrower.start(f"{again} 2> /dev/null") for _ in range(2)]
            time.sleep(1)
            borrower.sh(f"blkdiscard -l 16M {PATH}", timeout=60)
            borrower.sh("touch /tmp/end")
            for writer in writers:
                writer.wait()
        borrower.assert_clean()


@breaking()
def test_ghost_mode_counts_no_read_from_the_log(connected: tuple[Pair, bool]) -> None:
    """What is in the log is asked of no lender; what the disk has got is a read like any other."""
    pair, _ = connected
    borrower = pair.borrower
    pair.disconnect()
    pair.b.set("ghost", "NonInclusive")
    _below(pair)
    with Device(pair, BELOW, policy="behind") as fast:
        fast.dmsetup("suspend below")
        random_data(pair, 8192)
        borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct; {_has(PATH, 8192)}")
        assert fast.status()["log_reads"] == 2048, fast.status()
        assert pair.b.ghost_figures()["samples"] > 10
        assert pair.b.ghost_figures()["sampled_references"] == 0
        fast.dmsetup("resume below")
        borrower.sh(f"{FLUSH} && {_has(PATH, 8192)}")
        assert pair.b.ghost_figures()["sampled_references"] == pair.b.ghost_figures()["samples"]
    fast.dmsetup("remove below")
    pair.b.set("ghost", "Off")
    pair.connect(size=64 * MIB, more=PATIENT)


def test_lender_fails(kernel: str) -> None:
    """Slow, cut off, and killed with all in the log while the disk stands still: nothing is lost."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES, relay=True, mtu=ETHERNET)) as (borrower, lender):
        pair.connect(size=64 * MIB, more=PATIENT)
        _below(pair)
        with Device(pair, BELOW, policy="behind 4") as fast:
            requests = start_stress(borrower, f"device {PATH} beside={BELOW} mib=8 seconds=600")
            until_used(pair, fast, 0)
            for fault in faults_of_wire(pair):
                fault()
                time.sleep(2)
            end_stress(requests)
            random_data(pair, 4096)
            fast.dmsetup("suspend below")
            borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct")
            lender.kill()
            assert fast.status()["log_pages"] == 1024, fast.status()
            borrower.sh(_has(PATH, 4096))
            fast.dmsetup("resume below")
            borrower.sh(f"{FLUSH} && {_has(BELOW, 4096)} && {_has(PATH, 4096)}")
            assert fast.status()["log_pages"] == 0, fast.status()
        fast.dmsetup("remove below")
        borrower.assert_clean()


def test_swap(kernel: str) -> None:
    """A program has more memory than the guest, most from a lender that is slow, cut off, frozen and then killed."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=RAW, modules=MODULES, relay=True)) as (borrower, lender):
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair, policy="behind 8") as fast:
            borrower.sh(SWAPPED)
            scan = start_stress(borrower, "scan 110 seconds=600")
            until_used(pair, fast, 100)
            for fault in (*faults_of_wire(pair), lender.stop, lender.cont, lender.kill):
                fault()
                time.sleep(3)
            report = end_stress(scan)
            figures = fast.status()
            borrower.sh(f"swapoff {PATH}")
        assert min(figures["puts"], figures["log_written"]) > 1000, figures
        assert figures["log_written"] / figures["log_writeouts"] > 8, figures
        assert report["max_us"] < IN_TIME_US, report
        assert pair.b.stats()["shrunk"] == 0
        borrower.assert_clean()
