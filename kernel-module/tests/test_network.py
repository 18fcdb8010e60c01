"""A wire that loses, overtakes, delays, or is cut: reads are right, in time, and the pool recovers by itself."""

from __future__ import annotations

import time

import pytest

from bed.pair import NAME, Pair
from bed.tidepool import MIB
from bed.workload import finish_stress, start_stress, stress

DEADLINE_US = 200_000
# The deadline, a tick, the read from an unthrottled disk, and what emulation of both guests may add.
IN_TIME_US = DEADLINE_US + 800_000


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
    with (pair := Pair(kernel, borrower_mem="160M", relay=True)) as (borrower, _):
        pair.connect(size=200 * MIB, more={"deadline_us": DEADLINE_US})
        stress(borrower, "fill /mnt/file mib=110")
        stress(borrower, "sequential /mnt/file")
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        time.sleep(2)
        setattr(pair.relay, fault, value)
        time.sleep(7)
        setattr(pair.relay, fault, type(value)(0))
        report = finish_stress(reads)
        assert report["max_us"] < IN_TIME_US, report
        pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=40)
        before = pair.borrowed()["get_hits"]
        stress(borrower, "sequential /mnt/file passes=2")
        assert pair.borrowed()["get_hits"] > before
        pair.assert_clean()
