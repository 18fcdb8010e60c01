"""A file as a block device, for swap: its blocks are the file's, nothing else gets to them, and it takes no memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bed.device import (
    DISK,
    MODULES,
    SWAPPED,
    Device,
    FileDevice,
    dmsetup,
    faults_of_wire,
    load_target,
    random_data,
    until_used,
)
from bed.guest import Disk, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import start_stress, stress

FILE, OTHER = "/mnt/file", "/mnt/other"
SIZE = 4 * MIB
PIECE_KIB = 64
DISKS = {
    "ext4": Disk("1G", "ext4", options=("-b", "4096")),
    "xfs": Disk("1G", "xfs"),
    "btrfs": Disk("1G", "btrfs"),
}
PREPARED = {"btrfs": "mount -o remount,nodatacow /mnt"}  # what is made from then on keeps its blocks
SLOW = [pytest.param(kind, marks=pytest.mark.long) for kind in ("xfs", "btrfs")]

PATH_NONE = "FILE must be the path of a file, from / on and without blanks"
SECTORS_NONE = "SECTORS must be a multiple of 8, and no more than 16 TiB"
READ_ONLY = "FILE cannot be opened to be written"
NO_SWAP_FILES = "FILE is encrypted, verified or on a file system without swap files"
UNFIT = "FILE has holes or shared blocks, or on btrfs no chattr +C: see the log"
IN_USE = "FILE is open to be written, or in use otherwise"
SMALL = "FILE is smaller than that"
WRONG = {
    "8": "the argument must be: FILE",
    f"8 {FILE} more": "the argument must be: FILE",
    f"100 {FILE}": SECTORS_NONE,
    f"16384 {FILE}": SMALL,
    "8 mnt/file": PATH_NONE,
    "8 /mnt/none": PATH_NONE,
    "8 /mnt": PATH_NONE,
    "8 /dev/vda": PATH_NONE,
    "8 /dev/zero": PATH_NONE,
    "8192 /mnt/sparse": UNFIT,
    "8192 /mnt/holed": UNFIT,
    "8 /tmp/in-memory": NO_SWAP_FILES,
    "8 /run/merged/file": NO_SWAP_FILES,
    f"8 {FILE} < busy": IN_USE,
}


@pytest.fixture(scope="module", params=["ext4", *SLOW])
def pair(kernel: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair with a lender; the borrower's file system is of that kind, in the pool, and has a file in pieces."""
    kind = request.param
    with (pair := Pair(kernel, disk=DISKS[kind], modules=(*MODULES, "overlay"))) as (borrower, _):
        borrower.sh(PREPARED.get(kind, "true"))
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(borrower, "file")
        _make_pieces(pair)
        yield pair
        pair.assert_clean("device-mapper|swapon: |swapfile must not be")


def _make_pieces(pair: Pair) -> None:
    """FILE and OTHER by turns, so that each lies in pieces, both with what is in /tmp/data."""
    random_data(pair, SIZE // 1024)
    count = SIZE // (PIECE_KIB * 1024)
    write = f"dd if=/tmp/data of=$file bs={PIECE_KIB}k count=1 skip=$i seek=$i oflag=direct conv=notrunc"
    each = f"for i in $(seq 0 {count - 1}); do for file in {FILE} {OTHER}"
    pair.borrower.sh(f"{each}; do {write}; done; done 2> /dev/null")
    pair.borrower.sh("cp /tmp/data /tmp/first; sync")


def _says(guest: Guest) -> str:
    """What device-mapper said last of a table."""
    return guest.sh("dmesg | grep 'device-mapper: table' | tail -n 1").partition("tidepool-file: ")[2]


def test_its_blocks_are_the_files(pair: Pair) -> None:
    """What is in the file is in the device, what is written there is in the file later; nothing else changes."""
    guest = pair.borrower
    with FileDevice(guest, FILE, SIZE) as below:
        assert below.extents() > 4
        guest.sh(f"cmp {below.PATH} /tmp/first; cat {FILE} > /dev/null")
        random_data(pair, SIZE // 1024)
        guest.sh(f"dd if=/tmp/data of={below.PATH} bs=96k oflag=direct; cat {FILE} > /dev/null")
        pair.evict()
    guest.sh(f"cmp {FILE} /tmp/data; cmp {OTHER} /tmp/first")


def test_mixture_with_lenders_in_front(pair: Pair) -> None:
    """All sizes, whole blocks and parts, across pieces."""
    with FileDevice(pair.borrower, FILE, SIZE) as below, Device(pair, below.PATH) as fast:
        stress(pair.borrower, f"device /dev/mapper/fast beside={below.PATH} mib={SIZE // MIB} seconds=3")
        assert fast.status()["hits"] > 0
    pair.borrower.sh(f"cmp {OTHER} /tmp/first")


def test_nothing_moves_or_removes_its_blocks(pair: Pair) -> None:
    """Not a write, a truncation, a removal, an exchange of extents, a second device, swapon, umount or rmmod."""
    guest = pair.borrower
    with FileDevice(guest, FILE, SIZE) as below:
        for change in (
            f"dd if=/dev/zero of={FILE} bs=4k count=1 conv=notrunc",
            f"truncate -s 1M {FILE}",
            f"fallocate -l {2 * SIZE} {FILE}",
            f"rm -f {FILE}",
            f"mv -f {OTHER} {FILE}",
            f"stress exchange {FILE} donor={OTHER}",
            dmsetup(f'create again --table "{below.table}"'),
            f"mkswap {below.PATH} && swapon {FILE}",
            "umount /mnt",
            "mount -o remount,ro /mnt",
            "rmmod tidepool_file",
        ):
            assert guest.run(change).code != 0, change
    guest.sh(f"cmp {OTHER} /tmp/first; dd if=/tmp/first of={FILE} bs=64k conv=notrunc")
    guest.sh(f"mv {FILE} /mnt/moved; mv /mnt/moved {FILE}; umount /mnt; mount {DISK} /mnt")


def test_refuses(pair: Pair) -> None:
    """What cannot be is refused, the log says why, and the file is as free as before."""
    guest = pair.borrower
    guest.sh(
        "truncate -s 4M /mnt/sparse; cp /tmp/first /mnt/holed; truncate -s 5M /mnt/holed; "
        "mkdir -p /mnt/upper /mnt/work /run/lower /run/merged; "
        "head -c 8192 /tmp/first | tee /tmp/in-memory > /mnt/upper/file; "
        "mount -t overlay -o lowerdir=/run/lower,upperdir=/mnt/upper,workdir=/mnt/work o /run/merged"
    )
    for table, why in WRONG.items():
        sectors, _, rest = table.partition(" ")
        words, _, busy = rest.partition(" <")
        hold = f"exec 5<> {FILE};" if busy else ""
        create = dmsetup(f'create wrong --table "0 {sectors} tidepool-file {words}"')
        assert guest.run(f"{hold} {create}").code != 0, table
        assert _says(guest).startswith(why), table
    guest.sh("umount /run/merged; mount -o remount,ro /mnt")
    assert guest.run(dmsetup(f'create wrong --table "0 8 tidepool-file {FILE}"')).code != 0
    assert _says(guest).startswith(READ_ONLY)
    guest.sh(f"mount -o remount,rw /mnt; echo >> {FILE}; truncate -s {SIZE} {FILE}")


@pytest.mark.parametrize("pair", [pytest.param("btrfs", marks=pytest.mark.long)], indirect=True)
def test_refuses_what_btrfs_would_move(pair: Pair) -> None:
    """A file that is copied when it is written has no blocks of its own."""
    guest = pair.borrower
    guest.sh("mount -o remount,datacow /mnt; cp /tmp/first /mnt/copied; sync; mount -o remount,nodatacow /mnt")
    assert guest.run(dmsetup('create wrong --table "0 8192 tidepool-file /mnt/copied"')).code != 0
    assert _says(guest).startswith(UNFIT)


@pytest.mark.parametrize("kind", ["ext4", *SLOW])
def test_swap(kernel: str, kind: str) -> None:
    """A program takes more memory than there is in a moment; then its lender is slow, cut off, frozen and killed.

    The swap file lies on a file system that is in the pool itself.
    """
    disk = DISKS[kind]
    with (pair := Pair(kernel, borrower_mem="160M", disk=disk, modules=MODULES, relay=True)) as (borrower, lender):
        borrower.sh(f"{PREPARED.get(kind, 'true')}; dd if=/dev/zero of={FILE} bs=1M count=192 oflag=direct")
        pair.connect(size=100 * MIB, more=PATIENT)
        with FileDevice(borrower, FILE, 192 * MIB) as below, Device(pair, below.PATH) as fast:
            borrower.sh(SWAPPED)
            files = start_stress(borrower, "mix /mnt/mix mib=16 seconds=300 threads=2 files=1")
            scan = start_stress(borrower, "scan 150 seconds=300")
            until_used(pair, fast, 100)
            for fault in (*faults_of_wire(pair), lender.stop, lender.cont, lender.kill):
                fault()
                time.sleep(3)
            borrower.sh("kill -TERM $(pidof stress)")
            report = scan.result(300)
            files.result(300)
            borrower.sh("swapoff /dev/mapper/fast")
            assert fast.status()["puts"] > 1000, fast.status()
        assert report.code == 0, report
        borrower.assert_clean()
