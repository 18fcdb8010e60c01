"""The power is cut under a block device: the disk has what was acknowledged, and a file system on it is whole."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bed import logwrites
from bed.device import CHECKS, DISK, MODULES, PATH, Device, dmsetup
from bed.guest import Disk, Guest, copy_sparse
from bed.image import with_sbin
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, lost_blocks, start_stress

BELOW, NOTES = "/dev/mapper/below", "/dev/mapper/notes"
DATA, NOTED = 8 * MIB, 16 << 10  # bytes of the device, and of the notes, which follow
LOG = 16 * MIB  # where a log of all writes begins
SIZE = 256 * MIB
RAW = Disk(f"{SIZE}", None)
CUTS, REPLAYED = 8, 60
FILE_SYSTEM_CUTS = 4
BLOCKS_ARE_PAGES = {"ext4": ("-b", "4096")}  # on so small a disk they are not; what is read of less comes from the disk
POLICIES = ("writethrough", "behind 1", "behind")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """Two guests, and a lender for all devices."""
    with (pair := Pair(kernel, disk=RAW, modules=(*MODULES, "dm-log-writes"))):
        pair.connect(size=32 * MIB, more=PATIENT)
        yield pair
        pair.assert_clean()


def _make(borrower: Guest, disk: str) -> None:
    """Of the beginning of a disk, which holds zeros: what the device lies on, and what the notes are on."""
    borrower.sh(f"dd if=/dev/zero of={disk} bs=64k count={(DATA + NOTED) // 65536 + 1} oflag=direct conv=fsync")
    for name, size, begin in (("below", DATA, 0), ("notes", NOTED, DATA)):
        borrower.sh(dmsetup(f'create {name} --table "0 {size >> 9} linear {disk} {begin >> 9}"'))


def _until_noted(borrower: Guest) -> None:
    """Until something was acknowledged: so early a cut would show nothing."""
    noted = f"dd if={NOTES} bs=4k count=4 iflag=direct 2> /dev/null | tr -d '\\0' | wc -c"
    wait_until("something is noted", lambda: int(borrower.sh(noted)) > 0)


def _snapshots(guest: Guest, count: int, image: Path) -> Iterator[Path]:
    """What the disk has at random moments."""
    for _ in range(count):
        time.sleep(random.uniform(0.1, 0.6))
        guest.snapshot(image)
        yield image


@pytest.mark.parametrize(
    ("policy", "at"), [("writethrough", "write"), *((policy, "flush") for policy in POLICIES[1:]), ("behind", "write")]
)
def test_power_cut(connected: Pair, policy: str, at: str) -> None:
    """What a write, or with `behind` a flush, has acknowledged is on the disk; what is only in the log is not."""
    borrower = connected.borrower
    _make(borrower, DISK)
    with Device(connected, BELOW, policy=policy):
        writer = start_stress(borrower, f"durable {PATH} notes={NOTES} at={at} seconds=300")
        _until_noted(borrower)
        image = connected.folder / "cut"
        lost = sum(lost_blocks(cut, DATA) for cut in _snapshots(borrower, CUTS, image))
        end_stress(writer)
    borrower.sh(dmsetup("remove below notes"))
    assert (lost > 0) == (policy == "behind" and at == "write")


@pytest.mark.parametrize(("policy", "at"), [*((policy, "flush") for policy in POLICIES), ("writethrough", "write")])
def test_power_cut_of_a_disk_with_a_cache(connected: Pair, policy: str, at: str) -> None:
    """What was not flushed may be lost or not, in any part: what a flush has acknowledged is there at each moment."""
    borrower = connected.borrower
    half, more = LOG >> 9, (SIZE - LOG) >> 9
    for name, table in (
        ("data", f"0 {half} linear {DISK} 0"),
        ("log", f"0 {more} linear {DISK} {half}"),
        ("all", f"0 {half} log-writes /dev/mapper/data /dev/mapper/log"),
    ):
        borrower.sh(dmsetup(f'create {name} --table "{table}"'))
    _make(borrower, "/dev/mapper/all")
    with Device(connected, BELOW, policy=policy):
        end = start_stress(borrower, f"durable {PATH} notes={NOTES} at={at} seconds=300")
        _until_noted(borrower)
        time.sleep(2)
        end_stress(end)
    borrower.sh(dmsetup("remove below notes && dmsetup remove all && dmsetup remove data log"))
    image, disk = connected.folder / "log", connected.folder / "cut"
    borrower.snapshot(image)
    assert (_lost_at_times(image, disk) > 0) == (at == "write")


def _lost_at_times(log: Path, disk: Path) -> int:
    """How many blocks are older than acknowledged, at some of the moments that a log has."""
    with log.open("rb") as file:
        count = sum(1 for _ in logwrites.entries(file, LOG))
    late = range(count // 2, count + 1)  # when much has been written anew
    moments = set(random.sample(late, min(REPLAYED, len(late))))
    return sum(lost_blocks(disk, DATA) for number in logwrites.replay(log, LOG, disk, LOG) if number in moments)


@pytest.mark.parametrize("policy", POLICIES[:2])
def test_host_dies(kernel: str, policy: str) -> None:
    """QEMU is killed in the middle of whatever it does."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES)) as (borrower, _):
        pair.connect(size=32 * MIB, more=PATIENT)
        _make(borrower, DISK)
        Device(pair, BELOW, policy=policy).create()
        start_stress(borrower, f"durable {PATH} notes={NOTES} at=flush seconds=300")
        _until_noted(borrower)
        time.sleep(random.uniform(1, 3))
        borrower.kill()
        assert lost_blocks(borrower.folder / "disk", DATA) == 0


@pytest.mark.parametrize("policy", POLICIES[:2])
@pytest.mark.parametrize("kind", CHECKS)
def test_file_system(kernel: str, kind: str, policy: str) -> None:
    """It mounts what a cut has left, and a check finds nothing: the lender, which has such a disk, does it here."""
    disk = Disk("320M", kind, options=BLOCKS_ARE_PAGES.get(kind, ()))
    with (pair := Pair(kernel, disk=disk, lender_disk=disk, modules=MODULES)) as (borrower, lender):
        borrower.umount()
        pair.connect(size=100 * MIB, more=PATIENT)
        with Device(pair, policy=policy) as fast:
            borrower.sh(f"mount -t {kind} {PATH} /mnt && mkdir /mnt/many")
            mixture = start_stress(borrower, "mix /mnt/mix mib=16 seconds=300 threads=4")
            change = "for i in 1 2 3 4 5 6 7 8; do echo $n > $i; mv $i m$i; done; sync; rm m*"
            changes = borrower.start(f"cd /mnt/many; n=0; while [ ! -e /tmp/end ]; do n=$((n + 1)); {change}; done")
            time.sleep(1)
            for cut in _snapshots(borrower, FILE_SYSTEM_CUTS, pair.folder / "cut"):
                _recovers(lender, kind, cut)
                borrower.sh("echo 3 > /proc/sys/vm/drop_caches")
            end_stress(mixture)
            borrower.sh("touch /tmp/end")
            changes.wait()
            borrower.umount()
            assert fast.status()["hits"] > 0
        _check(kind, borrower.folder / "disk")
        pair.assert_clean()


def _recovers(guest: Guest, kind: str, cut: Path) -> None:
    """A guest's disk is what a cut has left: it mounts."""
    disk = guest.folder / "disk"
    copy_sparse(cut, disk)
    guest.sh(f"blockdev --flushbufs {DISK}; mount -t {kind} {DISK} /mnt && umount /mnt; blockdev --flushbufs {DISK}")
    _check(kind, disk)


def _check(kind: str, disk: Path) -> None:
    subprocess.run([*CHECKS[kind], disk], check=True, env=with_sbin())
