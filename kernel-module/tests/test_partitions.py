"""Partitions: what is one's is not the other's, and whoever has a part of a disk has it alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bed.device import DISK, MODULES, NAME, PATH, Device, dmsetup, load_target, random_data
from bed.guest import Disk, Guest
from bed.image import tools_disk, with_tools
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import finish_stress, start_stress, stress, wrong_pages

RAW = Disk("128M", None)
ONE, TWO, THREE = (f"{DISK}{number}" for number in (1, 2, 3))
SECOND = "/dev/mapper/second"
# In sectors, from where to how many more. The first begins within a block of the disk's, as on disks of old; the second
# follows at once, and the third is in both.
SIZE = 65536
FIRST, NEXT, ACROSS = (63, SIZE), (63 + SIZE, SIZE), (63 + SIZE - 4096, 8192)
FREE = 63 + 2 * SIZE
SMALL = SIZE // 8
SECONDS = 3
IO_ERRORS = "I/O error|Buffer I/O|device-mapper"
TAKEN = "DEVICE cannot be opened, or something else has it"
SHARED = "DEVICE is another mapping's already"
OVERLAPS = "DEVICE overlaps another partition, which is in use"
LINUX = 0x83  # the kind of each
TRACING = "/sys/kernel/tracing"
MOUNTED = "/partition"
TOOLS = ("addpart", "delpart", "resizepart")


def table(*partitions: tuple[int, int]) -> bytes:
    """A disk's first sector, with its partitions."""
    entries = b"".join(struct.pack("<4xB3xII", LINUX, start, sectors) for start, sectors in partitions)
    return bytes(446) + entries.ljust(64, b"\0") + b"\x55\xaa"


def partition(guest: Guest, disk: str, *partitions: tuple[int, int]) -> None:
    """Writes a table, and has the kernel read it."""
    write = f"dd of={disk} bs=512 count=1 conv=notrunc,fsync && blockdev --rereadpt {disk}"
    guest.start(write, table(*partitions)).wait()


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """Two guests and a lender for all devices; the borrower has util-linux' programs for partitions, and three."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES, tools=tools_disk(*TOOLS))) as (borrower, _):
        pair.connect(size=64 * MIB, more={"strategy": "NonInclusive", **PATIENT})
        borrower.sh("mkdir /tools && mount -o ro /dev/vdb /tools")
        load_target(borrower, "block")
        yield pair
        pair.assert_clean(IO_ERRORS)


@pytest.fixture
def pair(connected: Pair) -> Pair:
    """That, with the table as it is before each test."""
    partition(connected.borrower, DISK, FIRST, NEXT, ACROSS)
    return connected


@contextmanager
def mapped(guest: Guest, name: str, target: str, sectors: int = SIZE) -> Iterator[str]:
    """One more mapping; its path."""
    guest.sh(dmsetup(f'create {name} --table "0 {sectors} {target}"'))
    yield f"/dev/mapper/{name}"
    guest.sh(dmsetup(f"remove {name}"))


def _refused(guest: Guest, device: str) -> str:
    """Why a mapping over that device cannot be made; it says nothing if it can."""
    if guest.run(dmsetup(f'create refused --table "0 100 tidepool - {device}"')).code == 0:
        guest.sh(dmsetup("remove refused"))
        return ""
    said = guest.sh("dmesg | grep 'device-mapper: table' | tail -n 1")
    return said.partition("tidepool: ")[2].partition(" (-")[0]


def _tool(pair: Pair, name: str, arguments: str) -> bool:
    """Whether one of the programs for partitions can do that."""
    return pair.borrower.run(f"{with_tools(name)} {arguments}").code == 0


def _fill(pair: Pair, path: str, mib: int) -> None:
    """The first MiB at random, past the page cache, until a lender has them."""
    random_data(pair, mib * 1024)
    pair.borrower.sh(f"dd if=/tmp/data of={path} bs=64k oflag=direct conv=fsync")
    pair.settle()


def _both_are_sound(guest: Guest, one: str, two: str, more: str = "first=1") -> bool:
    """Whether neither of two devices gives a wrong block, over these, while both have all kinds of requests."""
    jobs = [
        start_stress(guest, f"device {path} beside={beside} mib=8 seconds={SECONDS} {more}")
        for path, beside in ((PATH, one), (SECOND, two))
    ]
    return [finish_stress(job)["wrong_pages"] for job in jobs] == [0, 0]


@pytest.mark.parametrize("policy", ["writethrough", "behind 1"])
def test_each_has_its_own(pair: Pair, policy: str) -> None:
    """Two partitions, each with a target, at the same time: none gives a block of the other's or changes one."""
    guest = pair.borrower
    ahead = f"dd if={DISK} bs=512 count={FIRST[0]} iflag=direct 2> /dev/null | sha256sum"
    before = guest.sh(ahead)
    with Device(pair, ONE, policy=policy) as fast, mapped(guest, "second", f"tidepool - {TWO} {policy}"):
        assert _both_are_sound(guest, ONE, TWO)
        for name in (NAME, "second"):
            assert fast.figures(fast.dmsetup(f"status {name}"))["hits"] > 0, name
    assert guest.sh(ahead) == before


def test_blocks_are_numbered_within_their_partition(pair: Pair) -> None:
    """What is put is a block of the partition's, by its name and its number there; the disk has it where that is."""
    guest = pair.borrower
    events = f"{TRACING}/events/tidepool/tidepool_put/enable"
    block, count = 16, 4
    with Device(pair, TWO):
        random_data(pair, count * 4)
        guest.write(f"{TRACING}/trace", "")
        guest.write(events, "1")
        guest.sh(f"dd if=/tmp/data of={PATH} bs=4k seek={block} oflag=direct")
        guest.write(events, "0")
        put = [
            line.split(": tidepool_put: ")[1].split()
            for line in guest.sh(f"grep tidepool_put: {TRACING}/trace").splitlines()
        ]
        disk, ours = (guest.read(f"/sys/class/block/{name}/dev") for name in ("vda", "vda2"))
        assert [words[2] for words in put if words[0] == f"dev={ours}"] == [
            f"index={block + at}" for at in range(count)
        ]
        assert f"dev={disk}" not in {words[0] for words in put}
    guest.sh(f"dd if={DISK} of=/tmp/there skip={NEXT[0] + block * 8} count={count * 8} iflag=direct")
    guest.sh("cmp /tmp/there /tmp/data")


def _swap(device: str) -> tuple[str, str]:
    return f"mkswap {device} > /dev/null && swapon {device}", f"swapoff {device}"


def _mount(device: str) -> tuple[str, str]:
    """A file system, which is whole afterwards."""
    make = f"mke2fs {device} > /dev/null 2>&1 && mkdir -p {MOUNTED} && mount -t ext4 {device} {MOUNTED}"
    return f"{make} && dmesg > {MOUNTED}/kept", f"grep -q . {MOUNTED}/kept && umount {MOUNTED}"


def _over(target: str, device: str) -> tuple[str, str]:
    """A mapping."""
    first = "0" if target == "linear" else ""
    lender = "- " if target == "tidepool" else ""
    return dmsetup(f'create has --table "0 100 {target} {lender}{device} {first}"'), dmsetup("remove has")


@pytest.mark.parametrize(
    ("take", "whole", "one", "across"),
    [
        (_swap(ONE), TAKEN, TAKEN, OVERLAPS),
        (_mount(ONE), TAKEN, TAKEN, OVERLAPS),
        (_over("linear", ONE), TAKEN, SHARED, OVERLAPS),
        (_over("tidepool", ONE), TAKEN, SHARED, OVERLAPS),
        (_swap(DISK), TAKEN, TAKEN, TAKEN),
        (_over("linear", DISK), SHARED, TAKEN, TAKEN),
        (_over("tidepool", DISK), SHARED, TAKEN, TAKEN),
    ],
    ids=[
        "swap on one",
        "mounted one",
        "linear on one",
        "tidepool on one",
        "swap on all",
        "linear on all",
        "tidepool on all",
    ],
)
def test_what_somebody_has_is_refused(pair: Pair, take: tuple[str, str], whole: str, one: str, across: str) -> None:
    """The whole disk, what is in use of it, and what overlaps that; a part beside it is free while the whole is."""
    guest = pair.borrower
    begin, end = take
    guest.sh(begin)
    assert [_refused(guest, device) for device in (DISK, ONE, THREE)] == [whole, one, across]
    assert _refused(guest, TWO) == ("" if across == OVERLAPS else TAKEN)
    guest.sh(end)
    assert [_refused(guest, device) for device in (DISK, ONE, THREE, TWO)] == [""] * 4


def test_nothing_else_gets_what_a_target_has(pair: Pair) -> None:
    """Neither by the whole disk nor by another of its names; another partition can be had."""
    guest = pair.borrower
    number, again = guest.read("/sys/class/block/vda1/dev"), "/tmp/again"
    guest.sh(f"mknod {again} b {number.replace(':', ' ')}; mkswap {ONE}; mkswap {TWO}")

    def busy(device: str) -> bool:
        return guest.run(f"swapon {device} 2>&1 | grep 'Device or resource busy'").code == 0

    with Device(pair, ONE):
        assert [_refused(guest, device) for device in (ONE, again, number)] == [SHARED] * 3
        assert all(busy(device) for device in (ONE, again, DISK))
        guest.sh(f"swapon {TWO} && swapoff {TWO}")
    with Device(pair, DISK):
        assert all(busy(device) for device in (ONE, again, TWO, DISK))
    guest.sh(f"rm {again}")


def test_below_a_mapping_of_a_partition(pair: Pair) -> None:
    """Over a volume that lies on a partition: that has its own blocks, and the partition itself is the volume's."""
    guest = pair.borrower
    with (
        mapped(guest, "below", f"linear {ONE} 8", SIZE - 8) as below,
        mapped(guest, "beside", f"linear {TWO} 8", SIZE - 8) as beside,
        Device(pair, below) as fast,
        mapped(guest, "second", f"tidepool - {beside}", SIZE - 8),
    ):
        assert _refused(guest, ONE) == _refused(guest, below) == SHARED
        assert _both_are_sound(guest, below, beside)
        assert fast.status()["hits"] > 0


def test_table_is_read_again(pair: Pair) -> None:
    """Not while a partition is in use, nor can that be deleted. Later there are others, and nothing is stale."""
    guest = pair.borrower
    reread = f"blockdev --rereadpt {DISK}"
    with Device(pair, ONE):
        _fill(pair, PATH, 8)
        assert guest.run(reread).code != 0
        assert not _tool(pair, "delpart", f"{DISK} 1")
        assert _tool(pair, "addpart", f"{DISK} 4 {FREE} 8192")  # one more is no change of the others
        assert _tool(pair, "delpart", f"{DISK} 4")
    guest.sh(f"dd if=/dev/urandom of={DISK} bs=64k count=160 seek=1 oflag=direct")
    partition(guest, DISK, (4096, SIZE), (4096 + SIZE, SIZE))
    for device, start in ((ONE, 4096), (TWO, 4096 + SIZE)):
        with Device(pair, device):
            assert wrong_pages(guest, f"compare {PATH} beside={device} mib=8") == 0
            guest.sh(f"dd if={DISK} of=/tmp/data skip={start} count=4096 iflag=direct")
            guest.sh(f"cmp -n {2 * MIB} {PATH} /tmp/data")
            assert stress(guest, f"device {PATH} beside={device} mib=8 seconds=1")["wrong_pages"] == 0


@pytest.mark.parametrize("policy", ["writethrough", "behind 1"])
def test_partition_becomes_smaller(pair: Pair, policy: str) -> None:
    """What was past its new end is another's by now: it is an error as without a pool, and never what a lender has."""
    guest, other = pair.borrower, "/dev/vda4"
    read = f"dd if={PATH} of=/tmp/back iflag=direct"
    small = SMALL // 8  # blocks
    with Device(pair, ONE, policy=policy) as fast:
        _fill(pair, PATH, 8)
        guest.sh(f"{read} bs=64k skip={small // 16}")
        assert fast.status()["hits"] > small // 2, "the lender has what follows"
        assert _tool(pair, "resizepart", f"{DISK} 1 {SMALL}")
        assert _tool(pair, "delpart", f"{DISK} 3")
        assert _tool(pair, "addpart", f"{DISK} 4 {FIRST[0] + SMALL} {SMALL}")
        with mapped(guest, "second", f"tidepool - {other} {policy}", SMALL):
            stress(guest, f"device {SECOND} beside={other} mib=4 seconds=1")
            guest.sh(f"{read} bs=4k count={small}; cmp -n {SMALL * 512} /tmp/back /tmp/data")
            for skip in range(small, 2 * small, small // 16):
                assert guest.run(f"{read} bs=4k count=1 skip={skip}").code != 0, skip
                assert guest.run(f"dd if=/tmp/data of={PATH} bs=4k count=1 seek={skip} oflag=direct").code != 0, skip
            assert guest.run(f"{read} bs=12k count=1 skip={small // 3}").code != 0, "across its end"
            assert wrong_pages(guest, f"compare {SECOND} beside={other} mib=4") == 0
        assert _tool(pair, "delpart", f"{DISK} 4")
        assert _tool(pair, "resizepart", f"{DISK} 1 {SIZE}")
        fast.dmsetup(f"suspend {NAME}; dmsetup resume {NAME}")  # as BLOCK.md asks for
        assert wrong_pages(guest, f"compare {PATH} beside={ONE} mib=8") == 0
        stress(guest, f"device {PATH} beside={ONE} mib=8 seconds=1")
    assert guest.run("dmesg | grep 'blocks that were written are lost'").code != 0


def test_partition_becomes_larger(pair: Pair) -> None:
    """Its device gets another table with that many sectors, while it is in use; what is in it stays."""
    guest = pair.borrower
    partition(guest, DISK, (FIRST[0], SMALL))
    with Device(pair, ONE) as fast:
        _fill(pair, PATH, SMALL // 2048)
        assert _tool(pair, "resizepart", f"{DISK} 1 {SIZE}")
        fast.exchange(NAME, f"0 {SIZE} tidepool - {ONE}")
        guest.sh(f"cmp -n {SMALL * 512} {PATH} /tmp/data")
        stress(guest, f"device {PATH} beside={ONE} mib=16 seconds=2")


@pytest.fixture
def loop(pair: Pair) -> Iterator[str]:
    """A loop device with two partitions, a disk in memory that can discard."""
    guest, device = pair.borrower, "/dev/loop0"
    guest.sh("mount -t tmpfs -o size=40M t /mnt; truncate -s 32M /mnt/disk")
    guest.start("dd of=/mnt/disk conv=notrunc", table((2048, 24576), (2048 + 24576, 24576))).wait()
    guest.sh(f"losetup -P {device} /mnt/disk")
    yield device
    guest.sh(f"losetup -d {device} || :; umount /mnt")


def test_loop_device_with_partitions(pair: Pair, loop: str) -> None:
    """As on a disk, with discards; the device does not go while a partition is in use."""
    guest = pair.borrower
    one, two = f"{loop}p1", f"{loop}p2"
    with Device(pair, one) as fast, mapped(guest, "second", f"tidepool - {two}", 24576):
        assert [_refused(guest, device) for device in (loop, one)] == [TAKEN, SHARED]
        assert _both_are_sound(guest, one, two, "discard=1")
        assert fast.status()["hits"] > 0
        guest.run(f"losetup -d {loop}")
        stress(guest, f"device {PATH} beside={one} mib=8 seconds=1")
    assert guest.sh("losetup -a") == "", "it went as soon as nobody had it any more"


def test_disk_goes_and_comes_back(pair: Pair) -> None:
    """With it its partitions go: what is not in the pool is an error. A new one has nothing of what was there."""
    guest = pair.borrower
    disk = guest.sh("basename $(readlink -f /sys/block/vda/device)")
    drivers = "/sys/bus/virtio/drivers/virtio_blk"
    with Device(pair, TWO) as fast:
        _fill(pair, PATH, 8)
        guest.write(f"{drivers}/unbind", disk)
        assert guest.run(f"[ -e {TWO} ]").code != 0
        assert guest.run(f"dd if={PATH} of=/dev/null bs=64k skip=256 count=1 iflag=direct").code != 0
        assert guest.run(f"dd if=/tmp/data of={PATH} bs=64k count=1 oflag=direct").code != 0
        assert fast.status()["misses"] > 0
    guest.write(f"{drivers}/bind", disk)
    guest.sh(f"dd if=/dev/urandom of={TWO} bs=64k count=128 oflag=direct")
    with Device(pair, TWO):
        assert wrong_pages(guest, f"compare {PATH} beside={TWO} mib=8") == 0
