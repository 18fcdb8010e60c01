"""A wire that loses, overtakes, delays, or is cut: reads are right, in time, and the pool recovers by itself."""

from __future__ import annotations

import time

import pytest
from test_faults import assert_serves

from bed.guest import Guest
from bed.pair import ETHERNET, IN_TIME_US, JUMBO, NAME, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, start_stress, stress

BAD_SECONDS = 7  # longer than it takes to give a connection up
SLOW = 120_000  # bytes a second; a frame may take as long as at 64,000
MANY, WINDOW_SECONDS = 3, 120  # by which an agent tells a connection that is lost again and again


@pytest.mark.parametrize(
    ("fault", "value"),
    [
        ("loss", 0.03),
        pytest.param("cut", True, marks=pytest.mark.long),
        pytest.param("reorder", 0.3, marks=pytest.mark.long),
        pytest.param("delay", 0.02, marks=pytest.mark.long),
    ],
)
def test_bad_wire(kernel: str, fault: str, value: object) -> None:
    """Random reads while the wire is bad and after it is good again."""
    with (pair := Pair(kernel, borrower_mem="160M", relay=True, mtu=ETHERNET)) as (borrower, _):
        pair.connect(size=200 * MIB)
        stress(borrower, "fill /mnt/file mib=110")
        stress(borrower, "sequential /mnt/file")
        reads = start_stress(borrower, "random /mnt/file seconds=120 threads=4")
        time.sleep(2)
        setattr(pair.relay, fault, value)
        time.sleep(BAD_SECONDS)
        setattr(pair.relay, fault, type(value)(0))
        time.sleep(1)
        report = end_stress(reads)
        assert report["max_us"] < IN_TIME_US, report
        assert fault != "cut" or pair.borrowed()["get_late"] > 0
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        assert_serves(pair)
        pair.assert_clean()


@pytest.mark.long
def test_slow_but_honest(kernel: str) -> None:
    """A lender whose wire takes a minute for what was evicted at once is not taken for one that keeps its word."""
    with (pair := Pair(kernel, relay=True, mtu=ETHERNET)) as (borrower, _):
        pair.b.load("put_buffers=8192")
        pair.connect(size=64 * MIB)
        stress(borrower, "fill /mnt/file mib=8")
        assert pair.relay
        pair.relay.rate = SLOW
        borrower.drop_caches(1)
        wait_until("all are there", lambda: pair.borrowed()["puts"] > 6 * MIB // 4096, timeout=300)
        assert pair.borrowed()["disconnects"] == 0
        pair.assert_clean()


def test_frames_with_pages_are_lost(kernel: str) -> None:
    """The wire takes less than both ends believe: connections come about, and are lost again and again by pages.

    So an agent can tell, by `disconnects` (its losses.py), what no single look shows. All reads are right.
    """
    with (pair := Pair(kernel, borrower_mem="160M", relay=True)) as (borrower, _):
        pair.connect(size=64 * MIB)
        assert pair.relay
        pair.relay.largest = ETHERNET
        stress(borrower, "fill /mnt/file mib=16")

        def read() -> dict[str, int]:
            borrower.drop_caches(1)
            stress(borrower, "sequential /mnt/file")
            return pair.borrowed()

        wait_until("they are lost", lambda: read()["disconnects"] >= MANY, timeout=WINDOW_SECONDS)
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        pair.relay.largest = JUMBO + ETHERNET
        wait_until("pages come from the lender", lambda: read()["get_hits"] > 0, timeout=WINDOW_SECONDS)
        pair.assert_clean()


def test_nothing_in_flight_is_kept(kernel: str) -> None:
    """What was on its way when the wire was cut is freed with the session, and does not wait for who is gone."""
    with (pair := Pair(kernel, borrower_mem="160M", relay=True, mtu=ETHERNET)) as (borrower, lender):
        pair.connect(size=200 * MIB)
        stress(borrower, "fill /mnt/file mib=110")
        reads = start_stress(borrower, "random /mnt/file seconds=120 threads=4")
        time.sleep(3)
        assert pair.relay
        pair.relay.cut = True
        pair.b.wait_state(f"lenders/{NAME}", "Connecting")
        end_stress(reads)
        pair.l.wait_state(f"borrowers/{NAME}", "Listening")
        for guest in (borrower, lender):
            wait_until("no closed connection is kept", lambda: _orphans(guest) == 0)  # noqa: B023
        pair.assert_clean()


def _orphans(guest: Guest) -> int:
    """TCP connections that were closed, but that the kernel still keeps."""
    return int(guest.sh("awk '$1 == \"TCP:\" { print $5 }' /proc/net/sockstat"))
