"""What the catalog costs, when it gives memory back, and that it knows files whose inodes have left memory."""

from __future__ import annotations

import pytest
from test_pages import PATIENT, settle

from bed.guest import Guest
from bed.pair import NAME, Pair
from bed.tidepool import MIB
from bed.workload import finish_stress, start_stress, stress

GIB = 1024 * MIB
MOST_PER_GIB = 2.25 * MIB
CACHES = ("tidepool_leaf", "radix_tree_node")
FILES = 1500
FILE_PAGES = sum(1 + number * 7 % 8 for number in range(FILES))  # as the stress program writes them


def _slab_bytes(guest: Guest) -> int:
    """Memory of the objects that the catalog is made of, without what waits in the allocator."""
    total = 0
    for cache in CACHES:
        folder = f"/sys/kernel/slab/{cache}"
        guest.sh(f"echo 1 > {folder}/shrink")
        total += int(guest.read(f"{folder}/objects").split()[0]) * int(guest.read(f"{folder}/slab_size"))
    return total


def _connect(pair: Pair, mib: int) -> None:
    """With a lender, and so many buffers that every evicted page finds one."""
    pair.borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
    pair.connect(size=mib * MIB, more=PATIENT)


def test_dense_catalog_is_small(kernel: str) -> None:
    """A file that is wholly in the pool: its entries and their tree take at most 2.25 MiB for each GiB of pages."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="256M")) as (borrower, _):
        _connect(pair, 128)
        stress(borrower, "fill /mnt/file mib=96")
        for _ in range(2):
            borrower.drop_caches(1)
            settle(pair)
            stress(borrower, "sequential /mnt/file")
        borrower.drop_caches(1)
        settle(pair)
        pages, full = pair.borrowed()["catalog_pages"], _slab_bytes(borrower)
        assert pages > 96 * 256 * 0.98
        pair.b.set(f"lenders/{NAME}/enabled", 0)
        borrower.sh("sleep 1")
        cost = (full - _slab_bytes(borrower)) / (pages * 4096) * GIB
        print(f"{cost / MIB:.3f} MiB to a GiB of {pages} pages")
        assert 2 * MIB < cost <= MOST_PER_GIB
        pair.assert_clean()


def test_gives_memory_back(kernel: str) -> None:
    """Entries are given back when the guest is short of memory and only then; what is left reads right."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="256M")) as (borrower, _):
        _connect(pair, 128)
        stress(borrower, "fill /mnt/file mib=64")
        stress(borrower, f"many /mnt/tree files={FILES} write=1")
        borrower.drop_caches(1)
        settle(pair)
        before = pair.borrowed()["catalog_pages"]
        assert before > 12_000
        for _ in range(3):
            borrower.drop_caches(2)
        assert pair.b.stats()["shrunk"] == 0
        assert pair.borrowed()["catalog_pages"] == before

        left = borrower.meminfo("MemTotal") // 24
        hog = start_stress(borrower, f"anon {(borrower.meminfo('MemAvailable') - left) // MIB} hold=8")
        for _ in range(14):
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
        pair.assert_clean()


@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.long)])
def test_files_outlive_their_inodes(kernel: str, filesystem: str) -> None:
    """Thousands of small files, as of a mail spool: their inodes leave memory and their pages stay in the pool."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="256M", disk=filesystem)) as (borrower, _):
        _connect(pair, 64)
        stress(borrower, f"many /mnt/tree files={FILES} write=1")
        borrower.drop_caches(1)
        settle(pair)
        for number in range(2):
            inodes = int(borrower.read("/proc/sys/fs/inode-nr").split()[0])
            for _ in range(4):  # each inode is spared once
                borrower.drop_caches(2)
            assert int(borrower.read("/proc/sys/fs/inode-nr").split()[0]) < inodes - FILES * 0.9
            hits = pair.borrowed()["get_hits"]
            stress(borrower, f"many /mnt/tree files={FILES}")
            assert pair.borrowed()["get_hits"] - hits > FILE_PAGES * 0.95, f"round {number}"
            borrower.drop_caches(1)
            settle(pair)
        pair.assert_clean()
