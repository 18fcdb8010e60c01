"""A block device in front of a disk: what is read is what the disk has, whatever lender and disk do. Swap is on it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from bed.device import DISK, MODULES, NAME, PATH, Device
from bed.guest import Disk
from bed.pair import DEADLINE_US, ETHERNET, IN_TIME_US, PATIENT, Pair
from bed.pair import NAME as PAIRING
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, start_stress, stress, wrong_pages

RAW = Disk("128M", None)
BROKEN = "BLOCK_WRITE,BLOCK_DISCARD,BLOCK_ERROR,BLOCK_RESUME,BLOCK_SPANS,BLOCK_READS"
BELOW = "/dev/mapper/below"
LIMITS = ("logical_block_size", "physical_block_size", "optimal_io_size", "stable_writes")
IO_ERRORS = "I/O error|Buffer I/O|device-mapper"
SWAPPED = f"dmsetup status {NAME}; mkswap {PATH} > /dev/null && swapon {PATH}"
SMALL = "DEVICE is smaller than that"
WRONG = {
    "tidepool": "the arguments must be: LENDER DEVICE [writethrough]",
    "tidepool - /dev/vda behind": "the arguments must be: LENDER DEVICE [writethrough]",
    "tidepool - /dev/vda writethrough more": "the arguments must be: LENDER DEVICE [writethrough]",
    "tidepool a/b /dev/vda": "LENDER must be - (any), or the name of a folder in lenders/",
    f"tidepool {'n' * 100} /dev/vda": "LENDER must be - (any), or the name of a folder in lenders/",
    "tidepool - /dev/none": "DEVICE cannot be opened, or something else has it",
}


@pytest.fixture(scope="module", params=["", BROKEN], ids=["proper", "broken"])
def connected(kernel: str, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, bool]]:
    """A pair with a lender connected, and whether its module does what it should."""
    with (pair := Pair(kernel, disk=RAW, broken=request.param, modules=MODULES)):
        pair.connect(size=100 * MIB, more=PATIENT)
        yield pair, not request.param
        pair.assert_clean(IO_ERRORS)


def _fill(pair: Pair, path: str, mib: int = 4) -> None:
    """The first MiB at random, past the page cache, until a lender has them."""
    _random(pair, mib)
    pair.borrower.sh(f"dd if=/tmp/data of={path} bs=64k oflag=direct")
    pair.settle()


def _random(pair: Pair, mib: int) -> None:
    """/tmp/data has so many MiB at random."""
    pair.borrower.sh(f"dd if=/dev/urandom of=/tmp/data bs=1M count={mib}")


def _differs(pair: Pair, disk: str, mib: int = 4) -> bool:
    """Whether some block of the device is not what its disk has."""
    return wrong_pages(pair.borrower, f"compare {PATH} beside={disk} mib={mib}") > 0


def test_mixture(connected: tuple[Pair, bool]) -> None:
    """All sizes, whole blocks and parts, in memory that is aligned or not: nothing stale, and much from the pool."""
    pair, proper = connected
    with Device(pair) as fast:
        wrong = wrong_pages(pair.borrower, f"device {PATH} beside={DISK} mib=8 seconds=5 first=1")
        assert (wrong == 0) == proper
        figures = fast.status()
        # What forgets nothing misses next to nothing.
        seen = ("hits", "misses", "partial", "puts") if proper else ("hits", "puts")
        assert min(figures[name] for name in seen) > 10, figures


def test_discarded(connected: tuple[Pair, bool]) -> None:
    """What is discarded is read as the disk has it from then on: zeros."""
    pair, proper = connected
    pair.borrower.sh("mount -t tmpfs -o size=16M t /mnt; truncate -s 8M /mnt/disk; losetup /dev/loop0 /mnt/disk")
    with Device(pair, "/dev/loop0"):
        _fill(pair, PATH)
        pair.borrower.sh(f"blkdiscard -o 1M -l 1M {PATH}")
        assert _differs(pair, "/dev/loop0") == (not proper)
    pair.borrower.sh("losetup -d /dev/loop0; umount /mnt")


def test_overlapping_writes(connected: tuple[Pair, bool]) -> None:
    """Of two writes to a block at a time nobody knows which the disk has in the end: neither is put."""
    pair, proper = connected
    with Device(pair):
        wrong = wrong_pages(pair.borrower, f"overlap {PATH} beside={DISK}")
        assert (wrong == 0) == proper


def test_failed_writes(connected: tuple[Pair, bool]) -> None:
    """An error of the disk is passed on, and what it did not take is not in the pool."""
    pair, proper = connected
    sectors = pair.borrower.sh(f"blockdev --getsz {DISK}")
    sound = f"0 {sectors} linear {DISK} 0"
    pair.borrower.sh(f'DM_DISABLE_UDEV=1 dmsetup create below --table "{sound}"')
    with Device(pair, BELOW) as fast:
        _fill(pair, PATH)
        for table in (f"0 {sectors} error", sound):
            fast.dmsetup(f'suspend below; dmsetup load below --table "{table}"; dmsetup resume below')
            if table != sound:
                one = f"dd if=/dev/urandom of={PATH} seek=$i bs=4k count=1 oflag=direct"
                writes = f"for i in $(seq 1014 1033); do {one}; done"  # of the first half the pool has something
                said = pair.borrower.run(f"{writes} 2>&1 | grep -c 'Input/output error'").output
                assert int(said) == 20
        pair.settle()
        assert _differs(pair, BELOW, 8) == (not proper)
    fast.dmsetup("remove below")


def test_changed_while_suspended(connected: tuple[Pair, bool]) -> None:
    """Who suspends a device may change its disk: it knows nothing of what was there when it goes on."""
    pair, proper = connected
    with Device(pair) as fast:
        _fill(pair, PATH)
        fast.dmsetup(f"suspend {NAME}")
        pair.borrower.sh(f"dd if=/dev/urandom of={DISK} bs=64k count=8 oflag=direct")
        fast.dmsetup(f"resume {NAME}")
        assert _differs(pair, DISK) == (not proper)


def test_strategies(connected: tuple[Pair, bool]) -> None:
    """With Exclusive a hit leaves the lender, and what is read is not put; with NonInclusive both are there."""
    pair, _ = connected
    read = f"blockdev --setra 0 {PATH}; dd if={PATH} of=/dev/null bs=64k count=16"
    with Device(pair) as fast:
        pair.b.set(f"lenders/{PAIRING}/strategy", "Exclusive")
        _fill(pair, PATH, 1)
        seen = []
        for strategy in ("Exclusive", "Exclusive", "Exclusive", "NonInclusive", "NonInclusive"):
            pair.b.set(f"lenders/{PAIRING}/strategy", strategy)
            before = fast.status()["hits"]
            pair.borrower.sh(read)
            pair.settle()
            seen.append(fast.status()["hits"] - before)
        assert seen == [256, 0, 0, 0, 256]
        fast.dmsetup(f"message {NAME} 0 forget")
        pair.borrower.sh(read)
        assert fast.status()["misses"] == 4 * 256


def test_what_a_program_reads_into_its_own_memory_is_not_put(connected: tuple[Pair, bool]) -> None:
    """It could write there between the disk and the lender, and everybody would get what it wrote."""
    pair, proper = connected
    with Device(pair) as fast:
        pair.b.set(f"lenders/{PAIRING}/strategy", "NonInclusive")
        _fill(pair, PATH, 1)
        fast.dmsetup(f"message {NAME} 0 forget")
        before = fast.status()["puts"]
        pair.borrower.sh(f"dd if={PATH} of=/dev/null bs=64k count=16 iflag=direct")
        pair.settle()
        assert (fast.status()["puts"] == before) == proper
        assert fast.status()["misses"] == 256


def test_one_lender(connected: tuple[Pair, bool]) -> None:
    """A device whose lender is named goes to no other; which lender and disk it has is in its table."""
    pair, _ = connected
    for lender, puts in (("another", 0), (PAIRING, 256)):
        with Device(pair, lender=lender) as fast:
            _fill(pair, PATH, 1)
            assert fast.status()["puts"] == puts
            number = pair.borrower.read("/sys/block/vda/dev")
            assert fast.dmsetup(f"table {NAME}").endswith(f" tidepool {lender} {number} writethrough")


def test_refuses(connected: tuple[Pair, bool]) -> None:
    """What cannot be is refused, and the log says why; the module stays while a device needs it."""
    pair, _ = connected
    with Device(pair):
        for table, why in WRONG.items():
            assert pair.borrower.run(f'dmsetup create wrong --table "0 100 {table}"').code != 0
            assert f"tidepool: {why}" in pair.borrower.sh("dmesg | grep 'device-mapper: table' | tail -n 1")
        assert pair.borrower.run(f"dmsetup message {NAME} 0 else").code != 0
        assert pair.borrower.run("rmmod tidepool_block").code != 0


def test_limits(connected: tuple[Pair, bool]) -> None:
    """Its blocks are as large as the disk's, and what is being written stays as it is."""
    pair, _ = connected
    with Device(pair):
        mine, disk = (
            [pair.borrower.read(f"/sys/block/{name}/queue/{limit}") for limit in LIMITS] for name in ("dm-0", "vda")
        )
        assert mine == [*disk[:2], "4096", "1"]


def test_resized(connected: tuple[Pair, bool]) -> None:
    """Another table makes it larger, up to what its disk has; what is in it stays."""
    pair, _ = connected
    sectors = int(pair.borrower.sh(f"blockdev --getsz {DISK}"))
    with Device(pair, sectors=8192) as fast:
        _fill(pair, PATH)
        load = f"suspend {NAME}; dmsetup load {NAME} --table '0 %d tidepool - {DISK}'; dmsetup resume {NAME}"
        fast.dmsetup(load % sectors)
        assert int(pair.borrower.sh(f"blockdev --getsz {PATH}")) == sectors
        assert not _differs(pair, DISK, 8)
        assert pair.borrower.run(f"dmsetup load {NAME} --table '0 {sectors + 8} tidepool - {DISK}'").code != 0
        assert f"tidepool: {SMALL}" in pair.borrower.sh("dmesg | grep 'device-mapper: table' | tail -n 1")


def test_removed_by_force(connected: tuple[Pair, bool]) -> None:
    """What is under way ends, with an error at worst, and all that was acknowledged is on the disk."""
    pair, _ = connected
    borrower = pair.borrower
    fast = Device(pair).__enter__()
    _random(pair, 24)
    job = borrower.start(f"dd if=/tmp/data of={PATH} bs=4k oflag=direct 2>&1")
    time.sleep(1)
    borrower.run(f"DM_DISABLE_UDEV=1 dmsetup remove --force {NAME}")
    written = int(job.result().output.rsplit("+", 2)[0].split()[-1]) * 4096
    assert written > 0
    borrower.sh(f"cmp -n {written} /tmp/data {DISK}; rm /tmp/data")
    fast.dmsetup(f"remove {NAME} 2> /dev/null || :")


def _until_used(pair: Pair, fast: Device, hits: int) -> None:
    """Until so many blocks came from the lender, however slow the machine; then it has as long as by default."""
    wait_until("the lender is used", lambda: fast.status()["hits"] > hits, timeout=120)
    pair.b.set(f"lenders/{PAIRING}/deadline_us", DEADLINE_US)


def test_lender_fails(kernel: str) -> None:
    """The lender is slow, cut off and killed under a mixture: all is right and in time."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES, relay=True, mtu=ETHERNET)) as (borrower, lender):
        pair.connect(size=64 * MIB, more=PATIENT)
        assert pair.relay
        with Device(pair) as fast:
            mixture = start_stress(borrower, f"device {PATH} beside={DISK} mib=8 seconds=300")
            _until_used(pair, fast, 0)
            for fault, value, seconds in (("delay", 0.3, 2), ("delay", 0.0, 1), ("cut", True, 2), ("cut", False, 2)):
                time.sleep(0.5)
                setattr(pair.relay, fault, value)
                time.sleep(seconds)
            lender.kill()
            end_stress(mixture)
            assert fast.status()["fallbacks"] > 0, fast.status()
        borrower.assert_clean()


def test_swap(kernel: str) -> None:
    """A program has more memory than the guest, most of it from the lender, which freezes and is then killed."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=RAW, modules=MODULES)) as (borrower, lender):
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair) as fast:
            borrower.sh(SWAPPED)
            scan = start_stress(borrower, "scan 110 seconds=300")
            _until_used(pair, fast, 100)
            for fault in (lender.stop, lender.cont, lender.kill):
                fault()
                time.sleep(4)
            report = end_stress(scan)
            borrower.sh(f"swapoff {PATH}")
            assert fast.status()["puts"] > 1000, fast.status()
        assert report["max_us"] < IN_TIME_US, report
        assert pair.b.stats()["shrunk"] == 0
        borrower.assert_clean()


def test_file_system(kernel: str) -> None:
    """ext4 on the device, which it shares with nobody; a check of the disk finds nothing afterwards."""
    with (pair := Pair(kernel, disk="ext4", modules=MODULES)) as (borrower, _):
        borrower.umount()
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair) as fast:
            borrower.sh(f"mount -t ext4 {PATH} /mnt")
            stress(borrower, "mix /mnt/mix mib=16 seconds=5 threads=4")
            borrower.umount()
            assert fast.status()["hits"] > 0
        _check(str(borrower.folder / "disk"))
        pair.assert_clean()


def _check(disk: str) -> None:
    """The file system on it is as it should be."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    subprocess.run(["fsck.ext4", "-f", "-n", disk], check=True, env={**os.environ, "PATH": path})
