"""A wire that loses, overtakes, delays, or is cut: reads are right, in time, and the pool recovers by itself."""

from __future__ import annotations

import time

import pytest
from test_faults import assert_serves

from bed.guest import Guest
from bed.pair import ETHERNET, IN_TIME_US, NAME, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress, stress

BAD_SECONDS = 7  # longer than it takes to give a connection up


@pytest.mark.parametrize(
    ("fault", "value"),
    [
        ("loss", 0.03),
        ("cut", True),
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
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        time.sleep(2)
        setattr(pair.relay, fault, value)
        time.sleep(BAD_SECONDS)
        setattr(pair.relay, fault, type(value)(0))
        report = finish_stress(reads)
        assert report["max_us"] < IN_TIME_US, report
        assert fault != "cut" or pair.borrowed()["get_late"] > 0
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        assert_serves(pair)
        pair.assert_clean()


def test_nothing_in_flight_is_kept(kernel: str) -> None:
    """What was on its way when the wire was cut is freed with the session, and does not wait for who is gone."""
    with (pair := Pair(kernel, borrower_mem="160M", relay=True, mtu=ETHERNET)) as (borrower, lender):
        pair.connect(size=200 * MIB)
        stress(borrower, "fill /mnt/file mib=110")
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        time.sleep(3)
        assert pair.relay
        pair.relay.cut = True
        finish_stress(reads)
        pair.b.wait_state(f"lenders/{NAME}", "Connecting")
        pair.l.wait_state(f"borrowers/{NAME}", "Listening")
        for guest in (borrower, lender):
            wait_until("no closed connection is kept", lambda: _orphans(guest) == 0)  # noqa: B023
        pair.assert_clean()


def _orphans(guest: Guest) -> int:
    """TCP connections that were closed, but that the kernel still keeps."""
    return int(guest.sh("awk '$1 == \"TCP:\" { print $5 }' /proc/net/sockstat"))
