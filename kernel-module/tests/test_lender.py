"""What a lender keeps for others, what it does when they misbehave, and whose memory goes first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bed.guest import Job
from bed.measure import kept_bytes
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.tidepool import KEY, MIB, wait_until
from bed.workload import finish_stress, running, start_stress, stress

FILES = 20_000
GRANT = 8 * MIB
SLACK = MIB  # two connections, and what the slab allocator has begun
CONTROL_SECONDS = 3.0  # a write to configfs in an emulated guest takes a tenth of that
OWN_MIB, LENT_MIB, MORE_MIB = 50, 100, 40
LRU_GEN = "/sys/kernel/mm/lru_gen/enabled"
PORT_LINE = "awk '$2 ~ /:1D2E$/ && $4 == \"01\"' /proc/net/tcp6 | wc -l"


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A lender whose borrower is a program that speaks the protocol."""
    with (pair := Pair(kernel, disk=None, borrower_mem="256M", lender_mem="320M")):
        pair.l.load()
        yield pair
        pair.assert_clean()


@contextmanager
def lending(pair: Pair, quota: int) -> Iterator[None]:
    pair.l.lend(NAME, quota=quota)
    try:
        yield
    finally:
        pair.l.remove_peers()


def borrows(pair: Pair, arguments: str) -> Job:
    return start_stress(pair.borrower, f"borrower {LENDER_ADDRESS} key={KEY} {arguments}")


def test_many_files_cost_no_more_than_the_grant(kernel: str) -> None:
    """Twenty thousand files of a page through a pool of 8 MiB, twice: the lender has lost that, slabs included."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="256M")) as (borrower, lender):
        borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
        pair.l.load()
        stress(borrower, f"many /mnt/many files={FILES} pages=1 write=1")
        pair.connect(size=GRANT)
        before = kept_bytes(lender)
        for _ in range(2):
            borrower.drop_caches(3)
            stress(borrower, f"many /mnt/many files={FILES} pages=1")
        pair.evict()
        figures, lost = pair.lent(), kept_bytes(lender) - before
        print(f"\n{figures['puts']} puts, {figures['lent_pages']} pages lent, {lost / MIB:.1f} MiB lost")
        assert figures["puts"] > FILES
        assert figures["lent_pages"] * 4096 > GRANT * 0.9
        assert lost < GRANT + SLACK
        pair.assert_clean()


def test_forget_of_a_range_spares_what_was_put_later(pair: Pair) -> None:
    """Of a hundred pages those below a version go, the others stay."""
    with lending(pair, 64 * MIB):
        report = finish_stress(borrows(pair, "pages=100 forget=61"))
        assert report["stored"] == 100
        assert report["hits"] == 40


def test_control_does_not_wait_for_a_borrower_that_does_not_listen(pair: Pair) -> None:
    """A reply fills the connection, and the borrower takes it in sips: sizes, figures and rmdir are done at once."""
    with lending(pair, 64 * MIB):
        slow = borrows(pair, "pages=4096 slow=30")
        wait_until("it asks", lambda: pair.lent()["gets"] >= 9)
        time.sleep(0.5)
        took = {}
        for what, action in (
            ("lend_bytes", lambda: pair.l.set("lend_bytes", 48 * MIB)),
            ("quota_bytes", lambda: pair.l.set(f"borrowers/{NAME}/quota_bytes", 32 * MIB)),
            ("stats", pair.lent),
            ("rmdir", lambda: pair.l.rmdir(f"borrowers/{NAME}")),
        ):
            start = time.monotonic()
            action()
            took[what] = time.monotonic() - start
        print(f"\n{took}")
        assert max(took.values()) < CONTROL_SECONDS, took
        slow.kill()
        slow.result()


def test_every_page_that_goes_is_told(pair: Pair) -> None:
    """The pool shrinks by 11,000 pages while the borrower does not listen: later it learns of every one."""
    pages = 12_000
    with lending(pair, 64 * MIB):
        job = borrows(pair, f"pages={pages} deaf=3 stay=4")
        wait_until("it has asked for all", lambda: pair.lent()["gets"] >= pages // 512 + 1)
        pair.l.set(f"borrowers/{NAME}/quota_bytes", 2 * MIB)
        left = pair.lent()["lent_pages"]
        report = finish_stress(job)
        assert report["stored"] == pages
        assert left <= 512
        assert report["evicted"] == pages - left


def test_trickling_strangers_lock_nobody_out(pair: Pair) -> None:
    """Forty half-open handshakes that send a byte a second: a paired borrower connects; they are cut at their time."""
    trickle = f"stress half-open {LENDER_ADDRESS} connections=40 seconds=60 every=1000"
    with lending(pair, 64 * MIB), running(pair.borrower, trickle, 1):
        time.sleep(1)
        pair.b.load()
        pair.b.borrow(NAME, address=LENDER_ADDRESS, size=64 * MIB)
        pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=8)
        assert int(pair.lender.sh(PORT_LINE)) <= 8 + 2
        wait_until("the strangers are gone", lambda: int(pair.lender.sh(PORT_LINE)) == 2, timeout=10)
        pair.b.unload()


def test_lent_pages_are_the_first_to_go(kernel: str) -> None:
    """A program on the lender takes what is free and more: lent pages go, its own page cache, read once, stays."""
    with (pair := Pair(kernel, disk=None, lender_disk="ext4", borrower_mem="160M", lender_mem="320M")) as (_, lender):
        lender.mount("ext4")
        lender.sh(f"dd if=/dev/zero of=/mnt/own bs=1M count={OWN_MIB} 2>/dev/null; sync")
        pair.l.load()
        for generations in ("n", "y"):
            lender.write(LRU_GEN, f"{generations}\n")
            lender.drop_caches(3)
            lender.sh("cat /mnt/own > /dev/null")
            with lending(pair, (LENT_MIB + 10) * MIB):
                pages = LENT_MIB * 256
                job = borrows(pair, f"pages={pages} ask=0 stay=60")
                wait_until("all is lent", lambda: pair.lent()["puts"] >= pages, timeout=90)  # noqa: B023
                before, lent = stress(lender, "resident /mnt/own")["resident"], pair.lent()["lent_pages"]
                stress(lender, f"anon {lender.meminfo('MemFree') // MIB + MORE_MIB}")
                after, left = stress(lender, "resident /mnt/own")["resident"], pair.lent()["lent_pages"]
                print(f"\nlru_gen {generations}: own {before} -> {after}, lent {lent} -> {left}")
                job.kill()
                job.result()
            assert before == OWN_MIB * 256
            assert lent > 0.9 * pages
            assert after > 0.999 * before
            assert lent - left < 3 * MORE_MIB * 256 / 2
        pair.assert_clean()
