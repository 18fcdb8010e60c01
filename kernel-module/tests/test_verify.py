"""The mode that doubts itself: hits are compared with the disk, and only a defect makes a difference."""

from __future__ import annotations

from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress


def doubt(pair: Pair, one_in: int = 1) -> None:
    """A pool with a file in it, of which each hit is compared from now on, or one of so many."""
    pair.connect(size=64 * MIB, more=PATIENT)
    stress(pair.borrower, "fill /mnt/file mib=8")
    pair.evict()
    pair.b.set("verify_one_in", one_in)


def read_and_count(pair: Pair, version: int = 1) -> tuple[int, int, int]:
    """Read the file: how many pages came from the pool, how many were compared, and how many were not the same."""
    before, hits = pair.b.stats(), pair.borrowed()["get_hits"]
    stress(pair.borrower, f"sequential /mnt/file version={version}")
    after = pair.b.stats()
    return (
        pair.borrowed()["get_hits"] - hits,
        after["verified"] - before["verified"],
        after["verify_failed"] - before["verify_failed"],
    )


def test_hits_are_what_the_disk_has(kernel: str) -> None:
    """Every hit is compared, or one of so many, or none, and never is there a difference.

    While files change, too: test_stress.py has that.
    """
    with (pair := Pair(kernel, borrower_mem="160M")):
        doubt(pair)
        hits, verified, failed = read_and_count(pair)
        assert hits >= verified > 0.9 * hits > 500
        assert failed == 0
        for one_in, most, least in ((0, 0, 0), (100, hits // 4, 1)):
            pair.b.set("verify_one_in", one_in)
            pair.evict()
            _, verified, failed = read_and_count(pair)
            assert least <= verified <= most
            assert failed == 0
        assert "Invalid argument" in pair.b.try_set("verify_one_in", "-1").output
        pair.assert_clean()


def test_a_defect_is_found_and_nobody_reads_it(kernel: str) -> None:
    """Without the hook that sees a page dirtied old contents are served: that is found, and the disk's are read."""
    with (pair := Pair(kernel, broken="DIRTY")) as (borrower, _):
        doubt(pair)
        read_and_count(pair)
        borrower.sh("dd if=/dev/zero of=/mnt/file bs=1M count=8 conv=notrunc && sync")  # version 0
        pair.evict()
        hits, verified, failed = read_and_count(pair, version=0)
        assert hits >= verified >= failed > 0.9 * hits > 500, "one that is found hides others"
        assert "what came from the pool is not what the disk has" in borrower.log()
        pair.evict()
        assert read_and_count(pair, version=0)[2] == 0, "what was found wrong is in the pool still"
