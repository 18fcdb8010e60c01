"""What a program of the lender's own feels: lent memory, beside free memory and memory in a balloon."""

from __future__ import annotations

import json
import statistics
import time

import pytest

from bed.guest import Guest
from bed.image import TOP
from bed.pair import Pair
from bed.tidepool import MIB
from bed.workload import Report, stress

RESULTS = TOP / "build" / "lender-work.json"
ROUNDS = 5
MOST_OF_BALLOON = 1.5
MOST_PASSES = 8  # what finds no buffer in one goes in the next
LENDER_MIB, LENT_MIB, WANTED_MIB = 512, 320, 300
STALLS = ("allocstall_normal", "allocstall_dma32", "allocstall_movable")


def want_memory(guest: Guest, seconds_before: float = 0.0) -> dict[str, float]:
    """A program touches its memory: how long that takes, each page's p99, and how often it had to reclaim itself."""
    before = sum(guest.vmstat(name) for name in STALLS)
    report: Report = stress(guest, f"anon {WANTED_MIB}")
    stalls = sum(guest.vmstat(name) for name in STALLS) - before
    seconds = seconds_before + report["seconds"]
    return {"seconds": seconds, "p99_us": report["p99_us"], "mean_us": report["mean_us"], "stalls": stalls}


def from_balloon(guest: Guest) -> dict[str, float]:
    """The host must give the memory back first, and the guest can take what has come."""
    guest.balloon((LENDER_MIB - LENT_MIB) * MIB)
    start = time.monotonic()
    guest.balloon(LENDER_MIB * MIB)
    return want_memory(guest, time.monotonic() - start)


def from_lent(pair: Pair) -> dict[str, float]:
    """The lender has lent what it may; nobody need give anything back."""
    for _ in range(MOST_PASSES):
        if pair.lent()["lent_pages"] * 4096 > LENT_MIB * MIB * 0.8:
            break
        stress(pair.borrower, "sequential /mnt/file")
    else:
        raise AssertionError(f"{pair.lent()} after {MOST_PASSES} passes")
    return want_memory(pair.lender)


@pytest.mark.long
def test_program_on_a_lender(kernel: str) -> None:
    """By turns in one run: lent memory is there about as soon as a balloon's that the host has at hand."""
    sides: dict[str, list[dict[str, float]]] = {"unlent": [], "lent": [], "balloon": []}
    with (pair := Pair(kernel, borrower_mem="160M", lender_mem=f"{LENDER_MIB}M", lender_balloon=True)):
        pair.l.load()
        pair.b.load()
        stress(pair.borrower, "fill /mnt/file mib=420")
        for _ in range(ROUNDS):
            sides["unlent"].append(want_memory(pair.lender))
            sides["balloon"].append(from_balloon(pair.lender))
            pair.connect(size=LENT_MIB * MIB)
            sides["lent"].append(from_lent(pair))
            pair.disconnect()
        pair.assert_clean()
    record = {"kernel": kernel, "lender_mib": LENDER_MIB, "lent_mib": LENT_MIB, "wanted_mib": WANTED_MIB}
    RESULTS.write_text(json.dumps({**record, "sides": sides}, indent=2) + "\n")
    seconds = {side: statistics.median(round_["seconds"] for round_ in rounds) for side, rounds in sides.items()}
    print(f"\nseconds for {WANTED_MIB} MiB: {seconds}; all figures in {RESULTS}")
    assert seconds["lent"] < MOST_OF_BALLOON * seconds["balloon"]
