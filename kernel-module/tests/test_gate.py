"""The direct-I/O gate is closed where a direct write is, and nowhere else; and what was one leaves nothing behind."""

from __future__ import annotations

import pytest

from bed.guest import Disk
from bed.pair import PACED, Pair
from bed.tidepool import MIB
from bed.workload import running, stress

FILE_MIB, HEAD_MIB = 160, 4
MANY_FILES = 5_000
BUCKETS = 256  # of pagecache/inflight.c: the last write of each may be noted still
READS = "while true; do dd if=/mnt/file of=/dev/null bs=64k iflag=direct 2> /dev/null; done"
# The same bytes again, at the head of the file only.
WRITES = "while true; do dd if=/mnt/head of=/mnt/file bs=64k conv=notrunc oflag=direct 2> /dev/null; done"


@pytest.mark.parametrize("stream", [pytest.param(READS, marks=pytest.mark.long), WRITES], ids=["reads", "writes"])
def test_puts_go_on_beside_direct_io(kernel: str, stream: str) -> None:
    """A stream of direct reads, or of direct writes elsewhere in the file, hardly stops a put."""
    disk = Disk("1G", "ext4", bytes_per_second=PACED)
    with (pair := Pair(kernel, borrower_mem="160M", disk=disk)) as (borrower, _):
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        borrower.sh(f"head -c {HEAD_MIB * MIB} /mnt/file > /mnt/head; sync")
        borrower.drop_caches(3)
        pair.connect(size=200 * MIB)  # only now: what it has of the file already is not put again
        for _ in range(2):  # one that is unknown while it is directly written to is not put for two minutes
            borrower.sh("head -c 65536 /mnt/file > /dev/null")
            pair.evict()
        before = {**pair.borrowed(), **pair.b.stats()}
        with running(borrower, stream, times=3):
            stress(borrower, "sequential /mnt/file")
        after = {**pair.borrowed(), **pair.b.stats()}
        assert after["puts"] - before["puts"] > FILE_MIB * 256 // 10
        assert after["drop_gate"] - before["drop_gate"] < FILE_MIB * 256 // 50
        pair.assert_clean()


def test_what_was_written_directly_is_not_remembered(kernel: str) -> None:
    """A note on a direct write goes with the next one that it shares a bucket with, also one that outlived its call."""
    disk = Disk("1G", "ext4", options=("-N", str(2 * MANY_FILES)))
    many = f"many /mnt/tree files={MANY_FILES} pages=1"
    with (pair := Pair(kernel, disk=disk)) as (borrower, _):
        pair.connect(size=128 * MIB)
        for version in (1, 2):
            stress(borrower, f"{many} write=1 direct={version} version={version}")
            assert 0 < pair.b.stats()["direct_writes"] <= BUCKETS
        kept = borrower.sh("sed -n 's/^ext4_inode_cache *\\([0-9]*\\).*/\\1/p' /proc/slabinfo")
        assert int(kept) > MANY_FILES, "inodes left memory, with what is noted of them: the test shows nothing"
        stress(borrower, f"{many} version=2")
        pair.assert_clean()
