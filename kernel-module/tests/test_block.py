"""A block device in front of a disk: what is read is what the disk has, whatever lender and disk do. Swap is on it."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from bed.device import (
    CHECKS,
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
from bed.guest import HOST_ADDRESS, Disk, Guest
from bed.image import with_sbin
from bed.measure import MOST_PER_GIB, catalog_bytes, catalog_cost, has_kasan
from bed.pair import ETHERNET, IN_TIME_US, PATIENT, Pair
from bed.pair import NAME as PAIRING
from bed.protocol import PUT_ITEM, Frame, Lender
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, finish_stress, start_stress, stress, wrong_pages

RAW = Disk("128M", None)
GHOST_MIB = 24
TOGETHER = 3  # pages in a request of swap's, in the mean; it is read ahead 8 at a time
AHEAD = 8  # pages that are followed may be among those that are read ahead
BROKEN = "BLOCK_WRITE,BLOCK_DISCARD,BLOCK_ERROR,BLOCK_RESUME,BLOCK_SPANS,BLOCK_READS"
BELOW = "/dev/mapper/below"
LIMITS = ("logical_block_size", "physical_block_size", "optimal_io_size", "stable_writes")
IO_ERRORS = "I/O error|Buffer I/O|device-mapper"
SMALL = "DEVICE is smaller than that"
READ_ONLY = "DEVICE is read-only; so must be what lies on it"
TAKEN = "DEVICE cannot be opened, or something else has it"
SHARED = "DEVICE is another mapping's already"
QUARTER = "LOG_MIB, of all tables there are, is more than a quarter of memory"
LOOP = "/dev/loop0"
ARGUMENTS = "the arguments must be: LENDER DEVICE [writethrough | behind [LOG_MIB]]"
WRONG = {
    "tidepool": ARGUMENTS,
    "tidepool - /dev/vda later": ARGUMENTS,
    "tidepool - /dev/vda writethrough more": ARGUMENTS,
    "tidepool - /dev/vda behind 1 more": ARGUMENTS,
    "tidepool - /dev/vda behind 0": "LOG_MIB must be 1 to 1024",
    "tidepool - /dev/vda behind 1025": "LOG_MIB must be 1 to 1024",
    "tidepool - /dev/vda behind much": "LOG_MIB must be 1 to 1024",
    "tidepool - /dev/loop0 behind 1000": QUARTER,
    "tidepool a/b /dev/vda": "LENDER must be - (any), or the name of a folder in lenders/",
    f"tidepool {'n' * 100} /dev/vda": "LENDER must be - (any), or the name of a folder in lenders/",
    "tidepool - /dev/none": TAKEN,
}


@pytest.fixture(scope="module", params=["", BROKEN], ids=["proper", "broken"])
def connected(kernel: str, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, bool]]:
    """A pair with a lender connected, and whether its module does what it should."""
    with (pair := Pair(kernel, disk=RAW, broken=request.param, modules=MODULES)):
        pair.connect(size=100 * MIB, more=PATIENT)
        yield pair, not request.param
        pair.assert_clean(IO_ERRORS)


# For tests in which nothing that can be broken takes part.
once = pytest.mark.parametrize("connected", [""], ids=["proper"], indirect=True)


@contextmanager
def _loop(pair: Pair, mib: int = 16) -> Iterator[None]:
    """/dev/loop0, a disk in memory, which can discard."""
    borrower = pair.borrower
    borrower.sh(f"mount -t tmpfs -o size=24M t /mnt; truncate -s {mib}M /mnt/disk")
    borrower.sh(f"losetup {LOOP} /mnt/disk; blockdev --setrw {LOOP}")
    yield
    borrower.sh(f"losetup -d {LOOP}; umount /mnt")


def _write(pair: Pair) -> None:
    """What is in /tmp/data, past the page cache; what goes to a lender has arrived then."""
    pair.borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct")
    pair.settle()


def _fill(pair: Pair, mib: int = 4) -> None:
    """The device's first MiB at random; once more if the lender, which a busy machine takes away, has not got all."""
    random_data(pair, mib * 1024)

    def has_all() -> bool:
        _write(pair)
        return pair.borrowed()["catalog_pages"] >= mib * 256

    wait_until("a lender has them", has_all, timeout=120)


def _differs(pair: Pair, disk: str, mib: int = 4) -> bool:
    """Whether some block of the device is not what its disk has."""
    return wrong_pages(pair.borrower, f"compare {PATH} beside={disk} mib={mib}") > 0


def test_mixture(connected: tuple[Pair, bool]) -> None:
    """All sizes, whole blocks and parts, in memory that is aligned or not: nothing stale, and much from the pool."""
    pair, proper = connected
    with Device(pair) as fast:
        mixture(fast, f"beside={DISK} mib=8", 5, proper=proper, seen=("hits", "misses", "partial", "puts"))


def test_discarded(connected: tuple[Pair, bool]) -> None:
    """What is discarded is read as the disk has it from then on: zeros."""
    pair, proper = connected
    with _loop(pair), Device(pair, LOOP) as fast:
        _fill(pair)
        pair.borrower.sh(f"blkdiscard -o 1M -l 1M {PATH}")
        assert _differs(pair, LOOP) == (not proper)
        mixture(fast, f"beside={LOOP} mib=8 discard=1", 3, proper=proper)


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
    pair.borrower.sh(dmsetup(f'create below --table "{sound}"'))
    with Device(pair, BELOW) as fast:
        requests = start_stress(pair.borrower, f"device {PATH} beside={BELOW} mib=8 seconds=600 errors=1")
        wait_until("all is written once", lambda: fast.status()["hits"] > 0, timeout=120)
        for table in (f"0 {sectors} error", sound) * 2:
            time.sleep(1)
            fast.exchange("below", table)
        report = end_stress(requests, wrong=True)
        assert report["refused"] > 0
        assert (report["wrong_pages"] == 0) == proper
        _fill(pair)
        for table in (f"0 {sectors} error", sound):
            fast.exchange("below", table)
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
        _fill(pair)
        fast.dmsetup(f"suspend {NAME}")
        pair.borrower.sh(f"dd if=/dev/urandom of={DISK} bs=64k count=8 oflag=direct")
        fast.dmsetup(f"resume {NAME}")
        assert _differs(pair, DISK) == (not proper)


@once
def test_strategies(connected: tuple[Pair, bool]) -> None:
    """With Exclusive a hit leaves the lender, and what is read is not put; with NonInclusive both are there."""
    pair, _ = connected
    read = f"blockdev --setra 0 {PATH}; dd if={PATH} of=/dev/null bs=64k count=16"
    with Device(pair) as fast:
        pair.b.set(f"lenders/{PAIRING}/strategy", "Exclusive")
        _fill(pair, 1)
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
        _fill(pair, 1)
        fast.dmsetup(f"message {NAME} 0 forget")
        before = fast.status()["puts"]
        pair.borrower.sh(f"dd if={PATH} of=/dev/null bs=64k count=16 iflag=direct")
        pair.settle()
        assert (fast.status()["puts"] == before) == proper
        assert fast.status()["misses"] == 256


@once
def test_one_lender(connected: tuple[Pair, bool]) -> None:
    """A device whose lender is named goes to no other; which lender and disk it has is in its table."""
    pair, _ = connected
    random_data(pair, 1024)
    for lender, puts in (("another", 0), (PAIRING, 256)):
        with Device(pair, lender=lender) as fast:
            _write(pair)
            assert fast.status()["puts"] == puts
            number = pair.borrower.read("/sys/block/vda/dev")
            assert fast.dmsetup(f"table {NAME}").endswith(f" tidepool {lender} {number} writethrough")


def _refused(borrower: Guest, command: str, why: str) -> bool:
    """Whether a command that makes a mapping fails, and the kernel's log says that of it last."""
    code = borrower.run(command).code
    return code != 0 and f"tidepool: {why}" in borrower.sh("dmesg | grep 'device-mapper: table' | tail -n 1")


@once
def test_refuses(connected: tuple[Pair, bool]) -> None:
    """What cannot be is refused, and the log says why; the module stays while a device needs it."""
    pair, _ = connected
    with _loop(pair), Device(pair):
        for table, why in WRONG.items():
            assert _refused(pair.borrower, f'dmsetup create wrong --table "0 100 {table}"', why), table
        assert pair.borrower.run(f"dmsetup message {NAME} 0 else").code != 0
        assert pair.borrower.run("rmmod tidepool_block").code != 0


@once
def test_refuses_a_disk_that_is_in_use_or_read_only(connected: tuple[Pair, bool]) -> None:
    """Nobody writes to the disk past the device; one that only reads may lie on a disk that only can be read."""
    pair, _ = connected
    borrower = pair.borrower
    with _loop(pair):
        sectors = borrower.sh(f"blockdev --getsz {LOOP}")
        create = dmsetup(f'create %s {NAME} --table "0 {sectors} tidepool - {LOOP}"')
        for take, leave, why in (
            (f"mkswap {LOOP}; swapon {LOOP}", f"swapoff {LOOP}", TAKEN),
            (f"blockdev --setro {LOOP}", "true", READ_ONLY),
        ):
            borrower.sh(take)
            assert _refused(borrower, create % "", why), take
            borrower.sh(leave)
        borrower.sh(f"{create % '--readonly'}; dd if={PATH} of=/dev/null bs=64k count=16")
        assert borrower.run(f"dd if=/dev/zero of={PATH} bs=4k count=1 oflag=direct").code != 0
        borrower.sh(dmsetup(f"remove {NAME}"))


@once
def test_refuses_a_disk_that_another_mapping_has(connected: tuple[Pair, bool]) -> None:
    """What that one writes would be read as it was. The same mapping's next table may have it, also one that writes."""
    pair, _ = connected
    borrower = pair.borrower
    line = "{start} 100 tidepool - " + LOOP
    ours = line.format(start=0)

    def refused(name: str, table: str) -> bool:
        return _refused(borrower, f"printf '{table}' | dmsetup create {name}", SHARED)

    with _loop(pair):
        for other in (f"0 100 linear {LOOP} 0", ours):
            borrower.sh(dmsetup(f'create other --table "{other}"'))
            assert refused("second", ours), other
            borrower.sh(dmsetup("remove other"))
        assert refused("twice", f"{ours}\\n{line.format(start=100)}\\n")
        borrower.sh(dmsetup(f'create --readonly other --table "{ours}"'))
        borrower.sh(dmsetup(f'reload other --table "{ours}"') + "; dmsetup suspend other; dmsetup resume other")
        borrower.sh("dd if=/dev/zero of=/dev/mapper/other bs=4k count=1 oflag=direct")
        assert refused("second", ours)
        borrower.sh(dmsetup("remove other"))


@once
def test_below_and_above_others(connected: tuple[Pair, bool]) -> None:
    """Between two mappings, as between volumes of LVM: what is read at the top is what the bottom has."""
    pair, _ = connected
    sectors = int(pair.borrower.sh(f"blockdev --getsz {DISK}")) - 2048
    make = dmsetup('create %s --table "0 %d linear %s %d"')
    pair.borrower.sh(make % ("below", sectors, DISK, 2048))
    with Device(pair, BELOW) as fast:
        pair.borrower.sh(make % ("above", sectors - 1000, PATH, 1000))
        pair.borrower.sh(make % ("past", sectors - 1000, BELOW, 1000))  # the same sectors, without the device
        assert wrong_pages(pair.borrower, "device /dev/mapper/above beside=/dev/mapper/past mib=8 seconds=3") == 0
        assert fast.status()["hits"] > 0
        fast.dmsetup("remove above past")
    fast.dmsetup("remove below")


@once
def test_dense_catalog_is_small(connected: tuple[Pair, bool]) -> None:
    """A device that is wholly in the pool: it costs no more than a file of that size."""
    pair, _ = connected
    with Device(pair) as fast:
        empty = catalog_bytes(pair.borrower)
        for at in range(0, 64, 4):
            pair.borrower.sh(f"dd if=/dev/urandom of={PATH} bs=64k count=64 seek={at * 16} oflag=direct")
            pair.settle()
        blocks = pair.borrowed()["catalog_pages"]
        assert blocks > 64 * 256 * 0.9
        cost = catalog_cost(catalog_bytes(pair.borrower), empty, blocks)
        assert cost <= MOST_PER_GIB or has_kasan(pair.borrower), "KASAN puts more round each object than it has"
        fast.dmsetup(f"message {NAME} 0 forget")
        assert pair.borrowed()["catalog_pages"] == 0


@once
def test_pool_of_another_size(connected: tuple[Pair, bool]) -> None:
    """A pool that shrinks and grows while the device is read and written: nothing is wrong, and it is used again."""
    pair, _ = connected
    size = f"lenders/{PAIRING}/size_bytes"
    with Device(pair) as fast:
        requests = start_stress(pair.borrower, f"device {PATH} beside={DISK} mib=8 seconds=600")
        wait_until("all is written once", lambda: fast.status()["hits"] > 0, timeout=120)
        for mib in (2, 100, 1, 100):
            pair.b.set(size, mib * MIB)
            wait_until("it is granted", lambda: pair.borrowed()["granted_bytes"] == mib * MIB)  # noqa: B023
            time.sleep(1)
        assert end_stress(requests)["wrong_pages"] == 0
        before = fast.status()["hits"]
        _fill(pair)
        pair.borrower.sh(f"dd if={PATH} of=/dev/null bs=64k count=64 iflag=direct")
        assert fast.status()["hits"] - before > 512


@once
def test_limits(connected: tuple[Pair, bool]) -> None:
    """Its blocks are as large as the disk's, and what is being written stays as it is."""
    pair, _ = connected
    with Device(pair):
        mine, disk = (
            [pair.borrower.read(f"/sys/block/{name}/queue/{limit}") for limit in LIMITS] for name in ("dm-0", "vda")
        )
        assert mine == [*disk[:2], "4096", "1"]


@once
def test_resized(connected: tuple[Pair, bool]) -> None:
    """Another table makes it larger, up to what its disk has; what is in it stays."""
    pair, _ = connected
    sectors = int(pair.borrower.sh(f"blockdev --getsz {DISK}"))
    with Device(pair, sectors=8192) as fast:
        _fill(pair)
        fast.exchange(NAME, f"0 {sectors} tidepool - {DISK}")
        assert int(pair.borrower.sh(f"blockdev --getsz {PATH}")) == sectors
        assert not _differs(pair, DISK, 8)
        assert pair.borrower.run(f"dmsetup load {NAME} --table '0 {sectors + 8} tidepool - {DISK}'").code != 0
        assert f"tidepool: {SMALL}" in pair.borrower.sh("dmesg | grep 'device-mapper: table' | tail -n 1")


@once
def test_ghost_mode_follows_it(connected: tuple[Pair, bool]) -> None:
    """Without a lender: what is written and read are puts and hits; what is changed or may be is known no more."""
    pair, _ = connected
    borrower = pair.borrower
    pair.disconnect()
    try:
        for strategy, copies in (("NonInclusive", AHEAD), ("Exclusive", 0)):
            pair.b.set("ghost", strategy)
            with Device(pair) as fast:
                random_data(pair, GHOST_MIB * 1024)
                borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct")
                written = pair.b.ghost_figures()["samples"]
                assert written > 100
                borrower.sh(f"dd if={PATH} of=/dev/null bs=64k count={GHOST_MIB * 16} iflag=direct")
                read, ratios = pair.b.ghost_figures(), pair.b.ghost_ratios()
                assert read["sampled_references"] == written, "each block was read once"
                assert ratios[max(ratios)] > 0.9
                assert read["samples"] == (written if copies else 0), "a hit leaves an exclusive pool"
                borrower.drop_caches(1)
                borrower.sh(f"dd if={PATH} of=/dev/null bs=64k count={GHOST_MIB * 16}")
                assert 0 <= pair.b.ghost_figures()["samples"] - read["samples"] <= copies, "and that has no copies"
                borrower.sh(f"dd if=/tmp/data of={PATH} bs=7680 oflag=direct")
                assert pair.b.ghost_figures()["samples"] <= AHEAD, "what is written in parts of blocks is not put"
                borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct")
                assert written <= pair.b.ghost_figures()["samples"] <= written + copies
                fast.dmsetup(f"suspend {NAME}; dmsetup resume {NAME}")
                assert pair.b.ghost_figures()["samples"] == 0, "suspended"
                borrower.sh(f"dd if=/tmp/data of={PATH} bs=64k oflag=direct")
            assert pair.b.ghost_figures()["samples"] == 0, "the device is gone"
            pair.b.set("ghost", "Off")
    finally:
        pair.b.set("ghost", "Off")
        borrower.sh("rm -f /tmp/data")
        pair.connect(size=100 * MIB, more=PATIENT)


@once
def test_removed_by_force(connected: tuple[Pair, bool]) -> None:
    """What is under way ends, with an error at worst, and all that was acknowledged is on the disk."""
    pair, _ = connected
    fast = Device(pair)
    written = removed_by_force(pair, fast)
    pair.borrower.sh(f"cmp -n {written} /tmp/data {DISK}; rm /tmp/data")
    fast.dmsetup(f"remove {NAME} 2> /dev/null || :")


def test_lender_fails(kernel: str) -> None:
    """The lender is slow, cut off and killed under a mixture: all is right and in time."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES, relay=True, mtu=ETHERNET)) as (borrower, lender):
        pair.connect(size=64 * MIB, more=PATIENT)
        with Device(pair) as fast:
            requests = start_stress(borrower, f"device {PATH} beside={DISK} mib=8 seconds=600")
            until_used(pair, fast, 0)
            for fault in faults_of_wire(pair):
                fault()
                time.sleep(2)
            lender.kill()
            end_stress(requests)
            assert fast.status()["fallbacks"] > 0, fast.status()
        borrower.assert_clean()


def test_swap(kernel: str) -> None:
    """A program has more memory than the guest, most from a lender that is slow, cut off, frozen and then killed.

    What swap reads ahead is asked for together, be all of it there or not.
    """
    with (pair := Pair(kernel, borrower_mem="160M", disk=RAW, modules=MODULES, relay=True)) as (borrower, lender):
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair) as fast:
            borrower.sh(SWAPPED)
            scan = start_stress(borrower, "scan 110 seconds=600")
            until_used(pair, fast, 2000)
            asked = pair.borrowed()
            assert asked["get_hits"] - asked["get_hits_buffer"] >= TOGETHER * asked["gets_sent"] > 0, asked
            forgetful = functools.partial(lender.drop_caches, 1)
            for fault in (forgetful, *faults_of_wire(pair), lender.stop, lender.cont, forgetful, lender.kill):
                fault()
                time.sleep(3)
            report = end_stress(scan)
            borrower.sh(f"swapoff {PATH}")
            assert fast.status()["puts"] > 1000, fast.status()
        assert report["max_us"] < IN_TIME_US, report
        assert pair.b.stats()["shrunk"] == 0
        borrower.assert_clean()


class Forgetful(Lender):
    """Keeps every page, and has lost every third when it is asked."""

    def _keep(self, frame: Frame) -> int:
        kept = super()._keep(frame)
        for file, index, _, _ in PUT_ITEM.iter_unpack(frame.metadata):
            if index % 3 == 0:
                del self.pages[file, index]
        return kept


def test_swap_of_which_a_part_is_lost(kernel: str) -> None:
    """Of what is asked for together the lender has a part: the rest comes from the disk, and nothing else does."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=RAW, modules=MODULES, host=True)) as (borrower, _):
        with Device(pair) as fast, closing(Forgetful()) as lender:
            more = {"port": lender.port, **PATIENT}
            pair.b.borrow(PAIRING, address=HOST_ADDRESS, size=100 * MIB, identity=lender.identity, more=more)
            pair.b.wait_state(f"lenders/{PAIRING}", "Connected")
            borrower.sh(SWAPPED)
            stress(borrower, "scan 110 seconds=20")
            borrower.sh(f"swapoff {PATH}")  # the guest reads from it until then, and counts
            figures, asked = fast.status(), pair.borrowed()
            pair.b.rmdir(f"lenders/{PAIRING}")
        assert asked["get_hits"] + asked["get_misses"] >= TOGETHER * asked["gets_sent"], asked
        lost = sum(asked[what] for what in ("get_misses", "get_late", "get_errors"))
        assert figures["fallbacks"] == lost > 100, (figures, asked)
        assert figures["hits"] > figures["fallbacks"], figures
        borrower.assert_clean()


@pytest.mark.parametrize("kind", ["ext4", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("xfs", "btrfs"))])
def test_file_system(kernel: str, kind: str) -> None:
    """On the device, which it shares with nobody; a check of the disk finds nothing, the lender's death included."""
    with (pair := Pair(kernel, disk=kind, modules=MODULES)) as (borrower, lender):
        borrower.umount()
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair) as fast:
            borrower.sh(f"mount -t {kind} {PATH} /mnt")
            stress(borrower, "mix /mnt/mix mib=16 seconds=5 threads=4")
            assert fast.status()["hits"] > 0
            mixture = start_stress(borrower, "mix /mnt/mix mib=16 seconds=4 threads=4")
            time.sleep(1)
            lender.kill()
            finish_stress(mixture)
            borrower.umount()
        subprocess.run([*CHECKS[kind], borrower.folder / "disk"], check=True, env=with_sbin())
        borrower.assert_clean()
