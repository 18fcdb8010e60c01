"""What the catalog costs, when it gives memory back, and that it knows files whose inodes have left memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bed.guest import HOST_ADDRESS, Disk
from bed.hostile import Slanderer, YesLender
from bed.image import stress_program
from bed.measure import MOST_PER_GIB, catalog_bytes, catalog_cost
from bed.pair import NAME, PATIENT, Pair
from bed.protocol import Lender
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, running, start_stress, stress

FILES = 1500
SMALL_FILES, MANY_FILES = 2_500, 1_000_000
TREE = "mnt/tree"  # from the root of the disk here, and of the guest: pages tell the path that they were written by
MOST_PER_SMALL_FILE = 320  # bytes
LEFT = 512  # pages of a pool that is made small
FEW = 2048  # pages of a small pool, 8 MiB
SLACK = 64  # pages that the catalog may name beyond the grant; of that size of a pool
FORGOTTEN = 1024  # entries that are forgotten and not yet cleared
UNMOUNT_SECONDS = 15.0  # a grace period for each file would be more than half a minute
YES = "yes"
GRANT = 128 * MIB
FILE_PAGES = sum(1 + number * 7 % 8 for number in range(FILES))  # as the stress program writes them


@pytest.fixture(scope="module")
def two(kernel: str) -> Iterator[Pair]:
    """Two guests, the borrower with so many buffers that every evicted page finds one."""
    with (pair := Pair(kernel, host=True)):
        pair.b.load("put_buffers=8192")
        yield pair


@pytest.fixture
def pair(two: Pair) -> Iterator[Pair]:
    """The two connected, with an empty disk and an empty catalog."""
    two.borrower.sh("rm -rf /mnt/file /mnt/tree")
    with two.pairing():
        two.connect(size=128 * MIB, more=PATIENT)
        yield two


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
    assert 2 * MIB < catalog_cost(full, empty, pages) <= MOST_PER_GIB


def _lend(pair: Pair, pages: int) -> None:
    """So many of the file: on a slow machine not all at once finds a buffer, or the lender there."""
    while pair.borrowed()["catalog_pages"] < pages:
        stress(pair.borrower, "sequential /mnt/file")
        pair.evict()


def test_a_lost_session_leaves_nothing(pair: Pair) -> None:
    """When a lender is gone the catalog counts none of its pages, and asks the next session for none of them."""
    stress(pair.borrower, "fill /mnt/file mib=24")
    for _ in range(2):
        pair.evict()
        _lend(pair, int(24 * 256 * 0.9))
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
    _lend(pair, 8000)
    before = pair.borrowed()["catalog_pages"]
    for _ in range(3):
        borrower.drop_caches(2)
    assert pair.b.stats()["shrunk"] == 0
    assert pair.borrowed()["catalog_pages"] == before

    borrower.drop_caches(3)
    left = borrower.meminfo("MemTotal") // 24  # the module calls less than a sixteenth short, the kernel much less
    hog = start_stress(borrower, f"anon {(borrower.meminfo('MemFree') - left) // MIB} hold=120")
    wait_until("entries are given back", lambda: _shrunk(pair) > 1000, timeout=100, every=0.5)
    assert end_stress(hog)["wrong_pages"] == 0
    shrunk = pair.b.stats()["shrunk"]
    assert pair.borrowed()["catalog_pages"] <= before - shrunk
    for _ in range(2):
        stress(borrower, "sequential /mnt/file")
        stress(borrower, f"many /mnt/tree files={FILES}")
        borrower.drop_caches(3)


def _shrunk(pair: Pair) -> int:
    """Entries that were given back; the kernel asks for some now."""
    pair.borrower.drop_caches(2)
    return pair.b.stats()["shrunk"]


@pytest.mark.long
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


@pytest.mark.long
def test_many_small_files(pair: Pair) -> None:
    """Files of one page, as of a mail spool: what each costs, that it goes with its page, and that none is mistaken."""
    borrower = pair.borrower
    stress(borrower, f"many /mnt/tree files={SMALL_FILES} pages=1 write=1")
    for _ in range(2):  # what finds no buffer goes the next time
        pair.evict()
        stress(borrower, f"many /mnt/tree files={SMALL_FILES} pages=1")
    stress(borrower, "many /mnt/tree files=1200 pages=1 write=1 version=2")
    pair.evict()
    stress(borrower, "many /mnt/tree files=1200 pages=1 version=2")
    full = catalog_bytes(borrower)  # the inodes leave memory
    files = pair.b.stats()["files"]
    assert files > SMALL_FILES * 0.9
    pair.l.set(f"borrowers/{NAME}/quota_bytes", LEFT * 4096)
    wait_until("the catalog shrinks", lambda: pair.borrowed()["catalog_pages"] <= LEFT + SLACK)
    wait_until("files go with their last page", lambda: pair.b.stats()["files"] <= LEFT + SLACK + FORGOTTEN)
    start = time.monotonic()
    borrower.umount()
    assert time.monotonic() - start < UNMOUNT_SECONDS
    borrower.mount("ext4")
    assert pair.b.stats()["files"] == 0
    cost = (full - catalog_bytes(borrower)) / files
    print(f"{cost:.0f} bytes for a file of one page, {files} files")
    assert cost <= MOST_PER_SMALL_FILE


@pytest.fixture
def a_million(kernel: str, tmp_path: Path) -> Iterator[Pair]:
    """Two guests; the borrower's disk begins with a million files of one page, which this machine has written."""
    (tmp_path / "mnt").mkdir()
    arguments = f"many {TREE} files={MANY_FILES} pages=1 write=1".split()
    subprocess.run([stress_program(), *arguments], cwd=tmp_path, check=True)
    disk = Disk("7G", options=("-i", "4096", "-d", str(tmp_path / "mnt")))
    pair = Pair(kernel, disk=disk)
    with pair, subprocess.Popen(["rm", "-rf", tmp_path]):  # that takes minutes, too
        yield pair


@pytest.mark.long
def test_a_million_files_through_a_small_pool(a_million: Pair) -> None:
    """Through 8 MiB: what is remembered is that of the pages that are there, and none is mistaken."""
    pair, borrower = a_million, a_million.borrower
    pair.connect(size=FEW * 4096, more=PATIENT)
    empty = catalog_bytes(borrower)
    for files in (MANY_FILES, SMALL_FILES):
        stress(borrower, f"many {TREE} files={files} pages=1", timeout=3600)
        pair.evict()
    cost, known = catalog_bytes(borrower) - empty, pair.b.stats()["files"]
    print(f"\n{known} files known of {MANY_FILES}, {cost} bytes; {pair.borrowed()}")
    assert pair.borrowed()["puts"] > 100 * FEW
    assert known <= FEW + SLACK + FORGOTTEN
    assert cost <= (FEW + SLACK + FORGOTTEN) * MOST_PER_SMALL_FILE
    pair.assert_clean()


@contextmanager
def beside(pair: Pair, lender: YesLender, size: int) -> Iterator[None]:
    """A second lender beside the honest one."""
    pair.borrower.sh("rm -rf /mnt/file")
    with lender.lending():
        more = {"port": lender.port, **PATIENT}
        pair.b.borrow(YES, address=HOST_ADDRESS, size=size, identity=lender.identity, more=more)
        pair.b.wait_state(f"lenders/{YES}", "Connected")
        try:
            yield
        finally:
            pair.b.rmdir(f"lenders/{YES}")


def yes_figures(pair: Pair) -> dict[str, int]:
    """The borrower's figures of the second lender, once everything sent has been acknowledged."""

    def settled() -> bool:
        figures = pair.b.stats(f"lenders/{YES}")
        return figures["puts"] == figures["puts_sent"] > 0

    pair.settle()
    wait_until("puts are acknowledged", settled)
    return pair.b.stats(f"lenders/{YES}")


def test_no_more_than_was_granted(pair: Pair) -> None:
    """A lender that keeps everything, it says: the borrower believes as much as it may use, and of that the newest."""
    pair.b.set(f"lenders/{NAME}/enabled", 0)
    with beside(pair, YesLender(GRANT), FEW * 4096):
        stress(pair.borrower, "fill /mnt/file mib=24")
        pair.borrower.drop_caches(1)
        figures = yes_figures(pair)
        assert figures["puts"] > 2 * FEW
        assert FEW <= figures["catalog_pages"] <= FEW + SLACK
        asked = figures["gets_sent"]
        pair.borrower.sh("dd if=/mnt/file of=/dev/null bs=1M count=1")
        assert pair.b.stats(f"lenders/{YES}")["gets_sent"] == asked
        pair.borrower.sh("dd if=/mnt/file of=/dev/null bs=1M skip=23")
        assert pair.b.stats(f"lenders/{YES}")["gets_sent"] > asked


def test_one_number_for_many_pages(pair: Pair) -> None:
    """A lender has nothing older than a version: what is newer is believed, and of what is older one age at most."""
    pair.b.set(f"lenders/{NAME}/enabled", 0)
    lender, path = Lender(GRANT), f"lenders/{YES}"
    more = {"port": lender.port, **PATIENT}
    pair.b.borrow(YES, address=HOST_ADDRESS, size=GRANT, identity=lender.identity, more=more)
    pair.b.wait_state(path, "Connected")
    stress(pair.borrower, "fill /mnt/file mib=24")
    pair.borrower.drop_caches(1)
    believed = yes_figures(pair)["catalog_pages"]
    versions = sorted(version for version, _, _ in lender.pages.values())
    assert believed == len(versions) > 4000
    newer = believed // 2
    lender.evict_before(versions[-newer])
    wait_until("it is told", lambda: pair.b.stats(path)["catalog_pages"] <= newer + GRANT // 4096 // 64)
    assert pair.b.stats(path)["catalog_pages"] >= newer
    stress(pair.borrower, "sequential /mnt/file passes=1")
    figures = pair.b.stats(path)
    assert newer * 0.8 < figures["get_hits"] <= newer  # a folio that lacks a page is read from disk
    assert figures["get_misses"] <= GRANT // 4096 // 64
    lender.evict_before(versions[-1] + 1)
    wait_until("it is told", lambda: pair.b.stats(path)["catalog_pages"] == 0)
    pair.b.rmdir(path)
    lender.close()


def test_a_notice_is_about_the_senders_pages(pair: Pair) -> None:
    """A lender that says that other lenders' pages are gone: the catalog names them all the same."""
    with beside(pair, Slanderer(GRANT), GRANT):
        stress(pair.borrower, "fill /mnt/file mib=16")
        pair.borrower.drop_caches(1)
        assert yes_figures(pair)["puts"] > 1000
        wait_until("slander arrives", lambda: pair.b.stats(f"lenders/{YES}")["evicted_notices"] > 32 * 1000)
        assert pair.borrowed()["catalog_pages"] == pair.lent()["lent_pages"] > 1000
