"""What a lender keeps for others, what it does when they misbehave, and whose memory goes first."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bed.hostile import OVER, PlainBorrower, hear
from bed.measure import kept_bytes
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.protocol import EVICTED, EVICTED_BEFORE, GET_MAX, MOST, KeyPair, Limits, point_of
from bed.tidepool import MIB, wait_until
from bed.workload import running, stress

FILES, MILLION = 3_000, 1_000_000
GRANT = 8 * MIB
COST = 4096 + 128  # bytes: a lent page and what is remembered of it, TIDE_NOTE_COST
SLACK = MIB  # two connections, and what the slab allocator has begun
A_MINUTE = 60.0
TRICKLE_SECONDS = 120
CONTROL_SECONDS = 10.0  # who waits for the reply to be taken waits for half a minute
OWN_MIB, LENT_MIB, MORE_MIB = 50, 100, 40
LRU_GEN = "/sys/kernel/mm/lru_gen/enabled"
FIRST_HOST = 16  # of the addresses that strangers come from, as in stress/network.c
ALL = 1 << 60  # behind the last page, or the latest version
MANY = 1_500
TRIES = 3  # a busy machine stands still now and then
NOTES = 1024  # of pages that are gone, in a small pool
PORT_LINE = "awk '$2 ~ /:1D2E$/ && $4 == \"01\"' /proc/net/tcp6 | wc -l"


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A lender whose borrower is a program on this machine."""
    with (pair := Pair(kernel, disk=None, host=True)):
        pair.l.load()
        yield pair
        pair.assert_clean()


@contextmanager
def borrowing(pair: Pair, quota: int, limits: Limits = MOST) -> Iterator[PlainBorrower]:
    """A borrower to whom the guest lends, and to nobody else afterwards."""
    own = KeyPair()
    pair.l.lend(NAME, quota=quota, identity=own.identity)
    lender = point_of(pair.l.identity)
    try:
        with contextlib.closing(PlainBorrower(("127.0.0.1", pair.lender_port), own, lender, limits)) as borrower:
            yield borrower
    finally:
        pair.l.remove_peers()


@contextmanager
def meanwhile(borrower: PlainBorrower, action: Callable[[float], None]) -> Iterator[None]:
    """What it does beside; then it is gone."""
    thread = threading.Thread(target=_until_over, args=(action,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        borrower.close()
        thread.join()


def _until_over(action: Callable[[float], None]) -> None:
    with contextlib.suppress(*OVER):
        action(A_MINUTE)


@pytest.mark.parametrize("channel", ["get", "put"])
def test_a_header_that_has_begun_must_end(pair: Pair, channel: str) -> None:
    """One byte of it and then nothing: the session ends after five seconds, also where silence may last for ever."""
    with borrowing(pair, GRANT) as borrower:
        begin = time.monotonic()
        (borrower.get if channel == "get" else borrower.put).sock.sendall(b"\1")
        borrower.get.sock.settimeout(A_MINUTE)
        with contextlib.suppress(OSError):
            assert not borrower.get.sock.recv(1)
        assert 4 < time.monotonic() - begin < 12


def test_what_is_put_under_hold_is_not_kept(pair: Pair) -> None:
    """A borrower that takes no notice of it cannot keep the guest's migration from its end."""
    with borrowing(pair, GRANT) as borrower:
        for hold, stored in ((1, 0), (0, 100)):
            pair.l.set("hold", hold)
            borrower.put_all(100)
            assert (borrower.stored, pair.lent()["lent_pages"]) == (stored, stored)


def test_many_files_cost_no_more_than_the_grant(kernel: str) -> None:
    """Three thousand files of a page through a pool of 8 MiB, twice: the lender has lost that, slabs included."""
    with (pair := Pair(kernel)) as (borrower, lender):
        pair.b.load("put_buffers=8192")
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


@pytest.mark.long
def test_a_million_files_cost_no_more_than_the_grant(pair: Pair) -> None:
    """Each of one page, and all of them put: what the lender remembers of those that went is within the grant, too."""
    with borrowing(pair, GRANT) as borrower:
        before = kept_bytes(pair.lender)
        borrower.put_files(MILLION)
        lost = kept_bytes(pair.lender) - before
        print(f"\n{borrower.stored} puts, {pair.lent()['lent_pages']} pages lent, {lost / MIB:.1f} MiB lost")
        assert borrower.stored == MILLION
        assert lost < GRANT + SLACK
        hear(borrower, lambda: len(borrower.told(MILLION)) >= MILLION - pair.lent()["lent_pages"])


def test_forget_of_a_range_spares_what_was_put_later(pair: Pair) -> None:
    """Of a hundred pages those below a version go, the others stay."""
    with borrowing(pair, 64 * MIB) as borrower:
        borrower.put_all(100)
        borrower.forget((0, ALL, 61))
        borrower.ask_all(100)
        assert borrower.stored == 100
        assert borrower.hits == 40


def test_forget_goes_on_behind_a_range_of_which_all_stays(pair: Pair) -> None:
    """Looking for nothing costs little, and what the same frame says of other pages is heard."""
    with borrowing(pair, 64 * MIB) as borrower:
        borrower.put_all(MANY)
        borrower.forget((0, ALL, 1), (MANY - 100, ALL, ALL))
        borrower.ask_all(MANY)
        assert borrower.hits == MANY - 100


@pytest.mark.parametrize("what", ["forget", "resize"])
def test_who_gives_up_much_is_answered_meanwhile(pair: Pair, what: str) -> None:
    """A large file is removed, or a pool made small: what comes behind that waits for none of its pages to go."""
    for _ in range(TRIES):
        answered, gone = _answered_and_gone(pair, what)
        if answered < gone / 3:
            return
    raise AssertionError(f"{TRIES} times, as in the end: answered after {answered:.3f} s, all gone after {gone:.3f} s")


def _answered_and_gone(pair: Pair, what: str) -> tuple[float, float]:
    """After how many seconds that is answered what came behind, and after how many the pages have gone."""
    pages = LENT_MIB * 256
    with borrowing(pair, (LENT_MIB + 10) * MIB) as borrower:
        borrower.put_all(pages)
        begin = time.monotonic()
        if what == "forget":
            borrower.forget((0, ALL, ALL))
        else:
            borrower.resize(MIB)
        borrower.ping()
        answered = time.monotonic() - begin
        wait_until("they are gone", lambda: pair.lent()["lent_pages"] <= 256)
        gone = time.monotonic() - begin
        print(f"\n{what}: answered after {answered:.3f} s, {pages} pages gone after {gone:.3f} s")
        assert borrower.stored == pages
        return answered, gone


def test_control_does_not_wait_for_a_borrower_that_does_not_listen(pair: Pair) -> None:
    """A reply fills the connection, and the borrower takes it in sips: sizes, figures and rmdir are done at once."""
    with borrowing(pair, 64 * MIB) as borrower:
        borrower.put_all(4096)
        borrower.deafen()
        with meanwhile(borrower, borrower.sip):
            wait_until("it asks", lambda: pair.lent()["gets"] >= 1)
            time.sleep(1)
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


def test_who_has_all_that_he_may_takes_nothing_of_who_is_gone(pair: Pair) -> None:
    """All that may be lent is: a borrower at its quota recycles its own, those of one who may be back stay."""
    other = KeyPair()
    with borrowing(pair, 4 * MIB) as borrower:
        pair.l.lend("other", quota=8 * MIB, identity=other.identity)
        pair.l.set("lend_bytes", 8 * MIB)
        most, left = 4 * MIB // COST, 8 * MIB // COST - 4 * MIB // COST
        lender = point_of(pair.l.identity)
        with contextlib.closing(PlainBorrower(("127.0.0.1", pair.lender_port), other, lender)) as gone:
            gone.put_all(left)
        wait_until("it is gone", lambda: pair.l.stats("borrowers/other")["connections"] == 0)
        borrower.put_all(most + 100)
        assert borrower.stored == most + 100
        assert pair.lent()["lent_pages"] == most
        assert pair.l.stats("borrowers/other")["lent_pages"] == left


def test_every_page_that_goes_is_told(pair: Pair) -> None:
    """The pool shrinks by 23,000 pages while the borrower does not listen: later it learns of every one, and no other.

    Of most of them by one number; of the last thousand one by one, so that it need not look for the border. A slow
    lender names those, too, that find room on the way while it drops others: 200 KiB, 24 bytes each.
    """
    pages = 24_000
    with borrowing(pair, 128 * MIB) as borrower:
        borrower.put_all(pages)
        borrower.deafen()
        pair.l.set(f"borrowers/{NAME}/quota_bytes", 2 * MIB)
        left = pair.lent()["lent_pages"]
        time.sleep(1)
        gone = pages - left
        hear(borrower, lambda: len(borrower.told(pages)) >= gone)
        assert borrower.stored == pages
        assert left <= 512
        assert borrower.told(pages) == set(range(1, gone + 1))
        assert borrower.evicted_before == gone + 1
        assert borrower.evicted >= set(range(gone - NOTES + 1, gone + 1))
        print(f"\n{gone} pages gone, {len(borrower.evicted)} of them named")
        assert len(borrower.evicted) < gone / 2


def test_pages_that_go_one_after_the_other_are_named(pair: Pair) -> None:
    """A full pool, into which 3000 more are put: the borrower, who may be told of five at once, is told of each."""
    pages = 4000
    with borrowing(pair, 4 * MIB, Limits(notices=5)) as borrower:
        borrower.put_all(pages)
        left = pair.lent()["lent_pages"]
        hear(borrower, lambda: len(borrower.evicted) >= pages - left)
        assert borrower.evicted == set(range(1, pages - left + 1))
        assert borrower.evicted_before == 0
        assert borrower.get.largest[EVICTED] == 5
        assert EVICTED_BEFORE not in borrower.get.largest


def test_what_is_told_is_true(pair: Pair) -> None:
    """The kernel takes half of the pages, the oldest but those on their way to a borrower who does not listen.

    Later it is told which pages are gone: these and no others. Who listens too late for the lender begins anew.
    """
    for _ in range(TRIES):
        with contextlib.suppress(EOFError):
            return _told_what_the_kernel_took(pair)
    raise AssertionError(f"{TRIES} times the lender did not wait for the borrower")


def _told_what_the_kernel_took(pair: Pair) -> None:
    pages = LENT_MIB * 256
    with borrowing(pair, (LENT_MIB + 10) * MIB) as borrower:
        borrower.put_all(pages)
        gone = borrower.told(pages)
        borrower.deafen()
        for _ in range(8):  # more than finds room on the way
            borrower.ask(range(GET_MAX))
        wait_until("they are on their way", lambda: pair.lent()["gets"] >= 1)
        stress(pair.lender, f"anon {pair.lender.meminfo('MemFree') // MIB + MORE_MIB}")
        assert pair.lent()["reclaimed"] > len(gone) + 2 * NOTES
        borrower.listen(1)
        borrower.hits = 0
        borrower.ask_all(pages)
        hear(borrower, lambda: len(borrower.told(pages)) >= pages - borrower.hits)
        assert borrower.told(pages) > gone
        assert borrower.hits == pages - len(borrower.told(pages))


@pytest.mark.parametrize(("addresses", "most"), [(1, 8), (8, 32)])
def test_trickling_strangers_lock_nobody_out(pair: Pair, addresses: int, most: int) -> None:
    """Forty half-open handshakes that send a byte a second: a paired borrower connects; they are cut at their time."""
    strangers = " ".join(str(FIRST_HOST + number) for number in range(addresses))
    pair.borrower.sh(f"for host in {strangers}; do ip addr replace 10.7.0.$host/24 dev eth0; done")
    half_open = f"stress half-open {LENDER_ADDRESS} connections=40 addresses={addresses}"
    pair.l.lend(NAME, quota=64 * MIB)
    with running(pair.borrower, f"{half_open} seconds={TRICKLE_SECONDS} every=1000", 1):
        wait_until("strangers are there", lambda: int(pair.lender.sh(PORT_LINE)) > 0)
        pair.b.load()
        pair.b.borrow(NAME, address=LENDER_ADDRESS, size=64 * MIB)
        pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=TRICKLE_SECONDS / 4)
        assert int(pair.lender.sh(PORT_LINE)) <= most + 3
        wait_until("the strangers are gone", lambda: int(pair.lender.sh(PORT_LINE)) == 3, timeout=TRICKLE_SECONDS / 2)
        pair.b.unload()
    pair.l.remove_peers()


def test_lent_pages_are_the_first_to_go(kernel: str) -> None:
    """A program on the lender takes what is free and more: lent pages go, its own page cache, read once, stays."""
    pages = LENT_MIB * 256
    pair = Pair(kernel, disk=None, lender_disk="ext4", lender_mem="320M", host=True)
    with pair as (_, lender):
        lender.mount("ext4")
        lender.sh(f"dd if=/dev/zero of=/mnt/own bs=1M count={OWN_MIB} 2>/dev/null; sync")
        pair.l.load()
        for generations in ("n", "y"):
            lender.write(LRU_GEN, f"{generations}\n")
            lender.drop_caches(3)
            lender.sh("cat /mnt/own > /dev/null")
            with borrowing(pair, (LENT_MIB + 10) * MIB) as borrower:
                borrower.put_all(pages)
                with meanwhile(borrower, borrower.listen):
                    before, lent, after, left = squeeze(pair)
            print(f"\nlru_gen {generations}: own {before} -> {after}, lent {lent} -> {left}")
            assert before == OWN_MIB * 256
            assert lent > 0.9 * pages
            assert after > 0.999 * before
            assert lent - left < 3 * MORE_MIB * 256 / 2
        pair.assert_clean()


def squeeze(pair: Pair) -> tuple[int, int, int, int]:
    """A program on the lender takes more than is free: its own cached pages and the lent ones, before and after."""
    lender = pair.lender
    own, lent = stress(lender, "resident /mnt/own")["resident"], pair.lent()["lent_pages"]
    stress(lender, f"anon {lender.meminfo('MemFree') // MIB + MORE_MIB}")
    return own, lent, stress(lender, "resident /mnt/own")["resident"], pair.lent()["lent_pages"]
