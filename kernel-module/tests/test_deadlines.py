"""A lender that keeps to the protocol's words but not to its time: nothing is freed too early, no reader waits long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bed.guest import HOST_ADDRESS, Guest
from bed.hostile import EarlyLender, SlowLender, YesLender
from bed.pair import DEADLINE_US, NAME, Pair
from bed.protocol import GET, Connection, Frame, Lender
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress, stress

LENDER = f"lenders/{NAME}"
# Without the deadline a read takes as long as the answer may, 7 s of a small window that trickles. Between is what
# emulation of both guests on a busy machine may add.
IN_TIME_US = 4_500_000
WINDOW_KIB = 2048
SLOW = 90_000  # bytes a second: the first window, of 128 pages, takes six seconds, and the file
FILE_SECONDS = 60  # four times as long as this
HANG_UPS = 3
NEVER = "59000000 60000000"  # no ping takes so long


WRITE_BUFFERS = "/proc/sys/net/ipv4/tcp_wmem"


def borrow(pair: Pair, lender: YesLender, **more: object) -> None:
    more["port"] = lender.port
    pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=lender.identity, more=more)
    pair.b.wait_state(LENDER, "Connected")


def read_once(borrower: Guest) -> float:
    """All of the file in order; how long the longest of its reads took, in microseconds."""
    return float(stress(borrower, "sequential /mnt/file passes=1")["max_us"])


def read_in_time(borrower: Guest) -> None:
    """The same, and neither a read nor the file takes as long as the lender does."""
    start = time.monotonic()
    assert read_once(borrower) < IN_TIME_US
    assert time.monotonic() - start < FILE_SECONDS


class MuteLender(YesLender):
    """Answers pings, takes pages, and sends none."""

    def _heard(self, frame: Frame, get: Connection) -> None:
        if frame.kind != GET:
            super()._heard(frame, get)


def test_a_deadline_that_is_lowered_holds_at_once(kernel: str) -> None:
    """Also for a read that waits by the old one."""
    with (pair := Pair(kernel, host=True)) as (borrower, _):
        pair.b.load()
        lender = MuteLender()
        with lender.lending():
            borrow(pair, lender, deadline_us=60_000_000)
            stress(borrower, "fill /mnt/file mib=4")
            pair.evict()
            read = start_stress(borrower, "random /mnt/file reads=1")
            wait_until("a page is waited for", lambda: pair.borrowed()["gets_sent"] > 0)
            pair.b.set(f"{LENDER}/deadline_us", 200_000)
            finish_stress(read, timeout=30)
            assert pair.borrowed()["get_late"] > 0
            pair.b.rmdir(LENDER)
        pair.assert_clean()


def test_early_acknowledgements_end_the_session(kernel: str) -> None:
    """What was not sent whole cannot have arrived: no buffer is given back for such a word, the last of its session."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        borrower.write(WRITE_BUFFERS, "4096 16384 16384\n")  # a batch takes many round trips
        pair.b.load()
        for encryption in ("AES-GCM", "None"):
            lender = EarlyLender(sessions=2)
            with lender.lending():
                borrow(pair, lender, encryption=encryption)
                stress(borrower, "fill /mnt/file mib=24")
                while lender.running:
                    borrower.drop_caches(1)
                    stress(borrower, "sequential /mnt/file passes=1")
            assert lender.ended == lender.sessions == 2
            assert pair.borrowed()["drop_lost"] >= 2 * 32
            assert pair.borrowed()["bad_frames"] == 2, "it hung up for another reason"
            pair.b.rmdir(LENDER)
        assert "connection lost: error -71" in borrower.log()
        pair.assert_clean()


def test_the_deadline_holds_on_a_slow_wire(kernel: str) -> None:
    """Windows that take seconds are late after the deadline; their rest is thrown away, and the session goes on."""
    with (pair := Pair(kernel, relay=True)) as (borrower, _):
        assert pair.relay
        pair.b.load("put_buffers=8192")
        pair.connect(size=64 * MIB, more={"deadline_us": DEADLINE_US})
        wait_until("there are buffers for the file", lambda: pair.b.stats()["buffers_total"] == 8192)
        pair.read_ahead(WINDOW_KIB)
        stress(borrower, "fill /mnt/file mib=24")
        pair.evict()
        assert pair.borrowed()["catalog_pages"] > 23 * 256
        pair.relay.rate = SLOW
        read_in_time(borrower)
        figures = pair.borrowed()
        assert figures["get_late"] > 64, figures
        assert figures["get_hits"] > 0, "what came in time was not served"
        assert figures["disconnects"] == 0
        pair.relay.rate = 0
        wait_until("the lender answers again", lambda: reads_from_pool(pair), timeout=120)
        assert pair.borrowed()["disconnects"] == 0
        pair.assert_clean()


@pytest.mark.parametrize("how", ["items", "pages"])
def test_a_trickle_is_late_like_silence(kernel: str, how: str) -> None:
    """A byte each few milliseconds: readers go on after the deadline, and the connection ends though never silent."""
    with (pair := Pair(kernel, host=True)) as (borrower, _):
        pair.b.load("put_buffers=4096")
        lender = SlowLender(how)
        with lender.lending():
            borrow(pair, lender, deadline_us=DEADLINE_US)
            stress(borrower, "fill /mnt/file mib=4")
            pair.evict()
            assert pair.borrowed()["catalog_pages"] > 512
            read_in_time(borrower)
            assert pair.borrowed()["get_late"] > 0
            wait_until("it is cut off", lambda: pair.borrowed()["disconnects"] > 0)
            wait_until("the lender notices", lambda: not lender.running)
        assert lender.seconds > 2
        pair.assert_clean()


@contextmanager
def lost_again_and_again(pair: Pair, breaker: str) -> Iterator[None]:
    """A lender that has hung up at each request, often enough; then it is one that does not, and connected."""
    odd = SlowLender("hang-up", HANG_UPS)
    with odd.lending():
        borrow(pair, odd, breaker=breaker, breaker_short=NEVER, breaker_long=NEVER)
        while odd.running:
            pair.borrower.drop_caches(1)
            read_once(pair.borrower)
    assert odd.asked == HANG_UPS
    wait_until("the breaker is open", lambda: pair.borrowed()["breaker_open"] == 1)
    with contextlib.closing(Lender(own=odd.own, port=odd.port)):
        pair.b.wait_state(LENDER, "Connected")
        yield


def reads_from_pool(pair: Pair) -> bool:
    """Evict and read the file; has some of it come from the lender?"""
    before = pair.borrowed()["get_hits"]
    pair.evict()
    read_once(pair.borrower)
    return pair.borrowed()["get_hits"] > before


def test_a_lender_that_is_lost_again_and_again_is_left_alone(kernel: str) -> None:
    """Three lost connections in a minute open the breaker, and it stays open though the next one stands."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        pair.b.load()
        stress(borrower, "fill /mnt/file mib=8")
        for breaker in ("Thresholds", "Automatic"):
            with lost_again_and_again(pair, breaker):
                assert not reads_from_pool(pair)
                assert pair.borrowed()["breaker_open"] == 1
                assert pair.borrowed()["drop_breaker"] > 0
                pair.b.set(f"{LENDER}/breaker", "Off")
                wait_until("it is used again", lambda: reads_from_pool(pair), timeout=120)
            pair.b.rmdir(LENDER)
        pair.assert_clean()


@pytest.mark.long
def test_a_lender_that_was_lost_is_taken_up_again(kernel: str) -> None:
    """When the losses are a minute old and there were no more of them, the breaker closes by itself."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        pair.b.load()
        stress(borrower, "fill /mnt/file mib=8")
        with lost_again_and_again(pair, "Thresholds"):
            assert pair.borrowed()["breaker_open"] == 1
            wait_until("the breaker closes", lambda: pair.borrowed()["breaker_open"] == 0, timeout=120, every=1)
            wait_until("it is used again", lambda: reads_from_pool(pair), timeout=120)
        pair.assert_clean()


@pytest.mark.parametrize(
    "filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.long), pytest.param("btrfs", marks=pytest.mark.long)]
)
def test_a_lost_window_is_a_window_on_disk(kernel: str, filesystem: str) -> None:
    """What a lender did not answer is read in as many requests as without it, not page by page."""
    with (pair := Pair(kernel, disk=filesystem)) as (borrower, lender):
        pair.read_ahead(WINDOW_KIB)
        stress(borrower, "fill /mnt/file mib=8")
        plain = requests(borrower)
        pair.b.load("put_buffers=4096")
        pair.connect(size=64 * MIB, more={"deadline_us": DEADLINE_US})
        for _ in range(2):  # its first pages go while nobody knows the file
            read_once(borrower)
            pair.evict()
        lender.stop()
        try:
            lost = requests(borrower)
        finally:
            lender.cont()
        assert pair.borrowed()["get_late"] >= 64
        assert lost < 2 * plain + 8, f"{lost} requests, {plain} without a lender"
        pair.assert_clean()


def requests(borrower: Guest) -> int:
    """How many requests the disk gets for reading the file, which is not in the page cache afterwards."""
    borrower.drop_caches(1)
    before = borrower.disk_reads()
    read_once(borrower)
    return borrower.disk_reads() - before
