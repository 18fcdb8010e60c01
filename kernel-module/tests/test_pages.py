"""The main job: pages go to the lender at eviction and come back at the next read."""

from __future__ import annotations

import pytest

from bed.guest import Guest
from bed.pair import NAME, PACED, PATIENT, UNHURRIED, Pair
from bed.tidepool import MIB
from bed.workload import stress

FILE_MIB = 160
MOST_PASSES = 30
FEW_READS = 200  # from the disk, when the pool has the file
POOL = 256 * MIB


def _fill_pool(pair: Pair) -> None:
    """Reads the file until hardly a page comes from disk: what found no buffer in one pass goes in the next."""
    for _ in range(MOST_PASSES):
        before = pair.borrower.disk_reads()
        stress(pair.borrower, "sequential /mnt/file")
        pair.settle()
        if pair.borrower.disk_reads() - before < FEW_READS // 4:
            return


@pytest.mark.parametrize(
    "filesystem",
    [
        "ext4",
        pytest.param("xfs", marks=pytest.mark.long),
        pytest.param("btrfs", marks=pytest.mark.long),
    ],
)
def test_reads_come_from_the_lender(kernel: str, filesystem: str) -> None:
    """A file larger than the borrower's memory is read again, in order and at random, with hardly a disk read."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=filesystem)) as (borrower, lender):
        pair.connect(size=POOL, more=UNHURRIED)
        available = lender.meminfo("MemAvailable")
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        borrower.throttle(0, PACED // 2)
        _fill_pool(pair)
        before, disk_reads = pair.borrowed(), borrower.disk_reads()
        stress(borrower, "sequential /mnt/file")
        stress(borrower, "random /mnt/file reads=2000 threads=4")
        after = pair.borrowed()
        hits = after["get_hits"] - before["get_hits"]
        missed = sum(after[name] - before[name] for name in ("get_misses", "get_late", "get_errors"))
        assert hits > FILE_MIB * 256 // 4
        assert missed <= hits // 50, after
        assert borrower.disk_reads() - disk_reads < FEW_READS
        assert pair.lent()["lent_pages"] * 4096 <= POOL
        assert sum(count for _, count in pair.b.latency(f"lenders/{NAME}")) > 0
        _assert_memory_counts(lender, available, pair.lent()["lent_pages"] * 4096)
        pair.assert_clean()


def _assert_memory_counts(lender: Guest, before: int, lent: int) -> None:
    """Lent pages are the lender's available memory, as `free` shows it."""
    assert lender.meminfo("MemAvailable") > before - lent * 0.2


@pytest.mark.long
def test_small_files(kernel: str) -> None:
    """Hundreds of small files, read again after the caches were dropped in every way."""
    with (pair := Pair(kernel, lender_mem="384M")) as (borrower, _):
        pair.connect(size=128 * MIB, more=PATIENT)
        stress(borrower, "many /mnt/tree files=900 write=1")
        for what in (1, 1, 2, 3, 1):
            borrower.drop_caches(what)
            stress(borrower, "many /mnt/tree files=900")
        assert pair.borrowed()["get_hits"] > 500
        stress(borrower, "many /mnt/tree files=900 write=1 version=2")
        borrower.drop_caches(1)
        stress(borrower, "many /mnt/tree files=900 version=2")
        pair.assert_clean()


def test_file_written_anew(kernel: str) -> None:
    """A file that was lent and is then overwritten, replaced or removed never reads as it was."""
    with (pair := Pair(kernel)) as (borrower, _):
        pair.connect(size=200 * MIB, more=PATIENT)
        for version in range(1, 5):
            stress(borrower, f"fill /mnt/file mib=60 version={version}")
            for _ in range(2):
                borrower.drop_caches(1)
                stress(borrower, f"sequential /mnt/file version={version}")
            if version == 3:
                borrower.sh("rm /mnt/file")
        assert pair.borrowed()["get_hits"] > 1000
        pair.assert_clean()
