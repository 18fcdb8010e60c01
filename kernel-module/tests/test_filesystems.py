"""What is special about a file system: subvolumes, clones, extent locks, large folios, and those that are refused."""

from __future__ import annotations

import re
import time

import pytest

from bed.guest import Disk, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress, wrong_pages

FILE_MIB = 16
LARGE_MIB = 3  # what the put buffers hold of a guest of 256 MiB
READ_AHEAD_KIB = 128  # also on 7.2, which by itself takes 8 MiB: for folios that are fewer pages than there are buffers
RACE = "race /mnt/race seconds={} change={} first=1"
ROUNDS_SECONDS = 120
EVENT = "/sys/kernel/tracing/events/tidepool/tidepool_get"


def _read_through_pool(borrower: Guest, path: str, version: int) -> int:
    """Evict and read twice, so that what the pool has is read; how many wrong pages there were."""
    wrong = 0
    for _ in range(2):
        borrower.drop_caches(1)
        wrong += wrong_pages(borrower, f"sequential {path} version={version}")
    return wrong


def _snapshot_and_count_wrong(pair: Pair) -> int:
    """A file, and the same file as it was before in a snapshot: same superblock, number and generation."""
    borrower = pair.borrower
    pair.connect(size=128 * MIB, more=PATIENT)
    stress(borrower, "subvolume /mnt/now")
    # A page carries its file's path, so the two are read by the same one.
    borrower.sh("mkdir /tmp/at && mount --bind /mnt/now /tmp/at")
    stress(borrower, f"fill /tmp/at/file mib={FILE_MIB} version=1")
    stress(borrower, "subvolume /mnt/then of=/mnt/now")
    stress(borrower, f"fill /tmp/at/file mib={FILE_MIB} version=2")
    assert borrower.sh("stat -c %i /mnt/now/file") == borrower.sh("stat -c %i /mnt/then/file")
    wrong = 0
    for _ in range(2):
        if wrong:
            break
        wrong += _read_through_pool(borrower, "/tmp/at/file", 2)
        borrower.sh("umount /tmp/at && mount --bind /mnt/then /tmp/at")
        wrong += _read_through_pool(borrower, "/tmp/at/file", 1)
        borrower.sh("umount /tmp/at && mount --bind /mnt/now /tmp/at")
    return wrong


def test_snapshot(kernel: str) -> None:
    """Files of subvolumes of btrfs that only the subvolume tells apart are told apart."""
    with (pair := Pair(kernel, disk="btrfs")):
        assert _snapshot_and_count_wrong(pair) == 0
        assert pair.borrowed()["get_hits"] > 1000
        pair.assert_clean()


def test_snapshot_without_volume(kernel: str) -> None:
    """Known without their subvolume, one is read for the other."""
    with (pair := Pair(kernel, disk="btrfs", broken="VOLUME")):
        assert _snapshot_and_count_wrong(pair) > 0


@pytest.mark.long
@pytest.mark.parametrize("filesystem", ["xfs", "btrfs"])
def test_clone(kernel: str, filesystem: str) -> None:
    """A file becomes a clone of another one while its old pages are in the pool and none in its page cache."""
    with (pair := Pair(kernel, disk=filesystem)) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, RACE.format(8, "clone"))
        assert pair.borrowed()["puts"] > 100
        pair.assert_clean()


@pytest.mark.long
def test_clone_unseen(kernel: str) -> None:
    """From 7.2 on btrfs says nothing of a clone when nothing of the file is cached; before it always truncates."""
    with (pair := Pair(kernel, disk="btrfs", broken="CLONE")) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        wrong = wrong_pages(borrower, RACE.format(20, "clone"))
        assert (wrong > 0) == (kernel == "7.2")


@pytest.mark.long
def test_punch_without_extents(kernel: str) -> None:
    """A page read and evicted between the truncation of the page cache and btrfs' lock would come back."""
    disk = Disk("1G", "btrfs", write_iops=150)
    with (pair := Pair(kernel, disk=disk, broken="EXTENTS")) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        assert any(wrong_pages(borrower, RACE.format(60, "punch"), timeout=400) for _ in range(3))


def test_large_folios(kernel: str) -> None:
    """Folios of several pages come from the pool, go back to it whole, and come again.

    The lender keeps nothing that it sends, so each round puts what it got. One that stood still for seconds, as an
    emulated one may, is left alone for a while: its rounds do not count.
    """
    half = LARGE_MIB * 256 // 2
    for filesystem in ("xfs", "ext4") if kernel == "7.2" else ("xfs",):
        with (pair := Pair(kernel, disk=filesystem)) as (borrower, _):
            pair.connect(size=64 * MIB, more={"strategy": "Exclusive", **PATIENT})
            stress(borrower, f"fill /mnt/file mib={LARGE_MIB}")
            stress(borrower, "sequential /mnt/file")
            rounds, end = [], time.monotonic() + ROUNDS_SECONDS
            while sum(large > half for large in rounds) < 2:
                assert time.monotonic() < end, f"{filesystem}: in large folios {rounds}; {pair.borrowed()}"
                borrower.drop_caches(1)
                rounds.append(_large_gets(borrower, "sequential /mnt/file"))
            pair.assert_clean()


def test_a_large_folio_is_put_whole_or_not(kernel: str) -> None:
    """With buffers for few of them: what the pool has comes from it, for no folio lacks a page."""
    with (pair := Pair(kernel, disk="xfs")) as (borrower, _):
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        borrower.drop_caches(3)
        pair.read_ahead(READ_AHEAD_KIB)
        pair.b.load("put_buffers=98")  # no multiple of the folios' pages
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, "sequential /mnt/file")
        pair.evict()
        figures = pair.borrowed()
        assert figures["puts"] >= 64
        assert figures["drop_nobuffer"] >= 64
        assert figures["puts"] + figures["drop_nobuffer"] == FILE_MIB * 256
        assert _large_gets(borrower, "sequential /mnt/file") > 0
        assert pair.borrowed()["get_hits"] == figures["puts"]
        pair.assert_clean()


def _large_gets(borrower: Guest, arguments: str) -> int:
    """Pages that came from the pool in folios of several pages, while a workload runs."""
    borrower.sh(f"echo > /sys/kernel/tracing/trace; echo 'pages > 1' > {EVENT}/filter; echo 1 > {EVENT}/enable")
    stress(borrower, arguments)
    borrower.sh(f"echo 0 > {EVENT}/enable")
    log = borrower.read("/sys/kernel/tracing/trace")
    return sum(int(pages) for pages in re.findall(r"tidepool_get: .* pages=(\d+) .* how=(?:hit|buffer)", log))


def test_refused(kernel: str) -> None:
    """A file system that is not known to be safe keeps its pages, and the log says so once."""
    with (pair := Pair(kernel, disk="vfat")) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        assert _read_through_pool(borrower, "/mnt/file", 1) == 0
        assert pair.borrowed()["puts_sent"] == 0
        assert borrower.log().count("tidepool: pages of vfat stay here") == 1
        pair.assert_clean()
