"""What the catalog costs, when it gives memory back, and that it knows files whose inodes have left memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bed.measure import catalog_bytes
from bed.pair import NAME, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import finish_stress, running, start_stress, stress

GIB = 1024 * MIB
MOST_PER_GIB = 2.25 * MIB
FILES = 1500
FILE_PAGES = sum(1 + number * 7 % 8 for number in range(FILES))  # as the stress program writes them


@pytest.fixture(scope="module")
def two(kernel: str) -> Iterator[Pair]:
    """Two guests, the borrower with so many buffers that every evicted page finds one."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="320M")):
        pair.borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
        yield pair


@pytest.fixture
def pair(two: Pair) -> Iterator[Pair]:
    """The two connected, with an empty disk and an empty catalog."""
    two.borrower.sh("rm -rf /mnt/file /mnt/tree")
    two.connect(size=128 * MIB, more=PATIENT)
    yield two
    two.assert_clean()
    two.disconnect()


def test_dense_catalog_is_small(pair: Pair) -> None:
    """A file that is wholly in the pool: its entries and their tree take at most 2.25 MiB for each GiB of pages."""
    borrower = pair.borrower
    stress(borrower, "fill /mnt/file mib=96")
    for _ in range(3):  # what found no memory or no buffer goes the next time
        pair.evict()
        stress(borrower, "sequential /mnt/file")
    pair.evict()
    pages, full = pair.borrowed()["catalog_pages"], catalog_bytes(borrower)
    assert pages > 96 * 256 * 0.9
    pair.b.set(f"lenders/{NAME}/enabled", 0)
    empty = catalog_bytes(borrower)
    cost = (full - empty) / (pages * 4096) * GIB
    print(f"{cost / MIB:.3f} MiB to a GiB of {pages} pages; {full} {empty}")
    assert 2 * MIB < cost <= MOST_PER_GIB


def test_a_lost_session_leaves_nothing(pair: Pair) -> None:
    """When a lender is gone the catalog counts none of its pages, and asks the next session for none of them."""
    stress(pair.borrower, "fill /mnt/file mib=24")
    for _ in range(2):
        pair.evict()
        assert pair.borrowed()["catalog_pages"] > 24 * 256 * 0.9
        pair.b.set(f"lenders/{NAME}/enabled", 0)
        assert pair.borrowed()["catalog_pages"] == 0
        pair.b.set(f"lenders/{NAME}/enabled", 1)
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        stress(pair.borrower, "sequential /mnt/file")
        assert pair.borrowed()["gets_sent"] == 0


def test_gives_memory_back(pair: Pair) -> None:
    """Entries are given back when the guest is short of memory and only then; what is left reads right."""
    borrower = pair.borrower
    stress(borrower, "fill /mnt/file mib=64")
    stress(borrower, f"many /mnt/tree files={FILES} write=1")
    pair.evict()
    before = pair.borrowed()["catalog_pages"]
    assert before > 8000
    for _ in range(3):
        borrower.drop_caches(2)
    assert pair.b.stats()["shrunk"] == 0
    assert pair.borrowed()["catalog_pages"] == before

    borrower.drop_caches(3)
    left = borrower.meminfo("MemTotal") // 24  # the module calls less than a sixteenth short, the kernel much less
    hog = start_stress(borrower, f"anon {(borrower.meminfo('MemFree') - left) // MIB} hold=8")
    while hog.running:
        borrower.sh("sleep 0.5")
        borrower.drop_caches(2)
    assert finish_stress(hog)["wrong_pages"] == 0
    shrunk = pair.b.stats()["shrunk"]
    assert shrunk > 1000
    assert pair.borrowed()["catalog_pages"] <= before - shrunk
    for _ in range(2):
        stress(borrower, "sequential /mnt/file")
        stress(borrower, f"many /mnt/tree files={FILES}")
        borrower.drop_caches(3)


def test_files_outlive_their_inodes(pair: Pair) -> None:
    """Thousands of small files, as of a mail spool: their inodes leave memory and their pages stay in the pool.

    They are evicted at once while programs take both processors: there is a descriptor for each file all the same.
    """
    borrower = pair.borrower
    stress(borrower, f"many /mnt/tree files={FILES} write=1")
    before = pair.b.stats()["drop_nofile"]
    with running(borrower, "while :; do :; done", times=2):
        pair.evict()
    assert pair.b.stats()["drop_nofile"] == before
    for number in range(2):
        inodes = int(borrower.read("/proc/sys/fs/inode-nr").split()[0])
        borrower.sh("sync")  # dirty ones stay
        for _ in range(4):  # each inode is spared once
            borrower.drop_caches(2)
        assert int(borrower.read("/proc/sys/fs/inode-nr").split()[0]) < inodes - FILES * 0.9
        hits = pair.borrowed()["get_hits"]
        stress(borrower, f"many /mnt/tree files={FILES}")
        assert pair.borrowed()["get_hits"] - hits > FILE_PAGES * 0.95, f"round {number}"
        pair.evict()
