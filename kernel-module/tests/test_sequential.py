"""The sequential filter: what is read in order stays out of the pool, what is read at random goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bed.pair import NAME, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress

FILE_MIB = 24
PAGES = FILE_MIB * 256
BEFORE_A_STREAM = 128  # pages that a stream has read before it is one
PAUSES = 8  # a window that was cut off is missed within a second, and a busy machine may take longer now and then
READ_AHEAD_KIB = 128  # also on 7.2, which by itself takes 8 MiB: its first window is more than BEFORE_A_STREAM
# In pieces of one window each, as it looks when windows are cut off for want of memory: 0 1 3 2 5 4 7 6 …
WINDOW_KIB = 512
ORDER = [0, 1, *(at + other for at in range(2, FILE_MIB * 1024 // WINDOW_KIB, 2) for other in (1, 0))]
CUT_OFF = (
    f"for at in {' '.join(map(str, ORDER))}; do"
    f" dd if=/mnt/scanned of=/dev/null bs={WINDOW_KIB}k count=1 skip=$at 2> /dev/null; done"
)
FOLIO_PAGES = {"7.2": 64}  # of the largest: what the program reads at a time; those of ext4 on the others have one


def figures(pair: Pair) -> dict[str, int]:
    return pair.borrowed() | {"disk_reads": pair.borrower.disk_reads()}


def growth(pair: Pair, arguments: str) -> dict[str, int]:
    """By how much the figures grew while a file was read by the stress program and evicted."""
    return growth_of(pair, lambda: stress(pair.borrower, arguments))


def growth_of(pair: Pair, work: Callable[[], object]) -> dict[str, int]:
    before = figures(pair)
    work()
    pair.evict()
    return {name: value - before[name] for name, value in figures(pair).items()}


@pytest.fixture(params=["", pytest.param("SEQUENTIAL", marks=pytest.mark.long)], ids=["proper", "broken"])
def pair(kernel: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two files on the borrower's disk, none of their pages cached anywhere, never seen by the module."""
    with (made := Pair(kernel, broken=request.param)) as (borrower, _):
        for name in ("scanned", "sampled"):
            stress(borrower, f"fill /mnt/{name} mib={FILE_MIB}")
        borrower.drop_caches(3)
        made.read_ahead(READ_AHEAD_KIB)
        made.b.load("put_buffers=8192")
        made.connect(size=128 * MIB, more={**PATIENT, "sequential_filter": 1})
        yield made
        made.assert_clean()


def test_filter(pair: Pair, kernel: str, request: pytest.FixtureRequest) -> None:
    """From the first pass on: streams are not put and come from disk, also where random reads have left pages."""
    broken = "broken" in request.node.name
    first = growth(pair, "sequential /mnt/scanned")
    assert (first["puts"] > PAGES // 2) == broken
    if broken:
        return
    assert first["puts"] <= BEFORE_A_STREAM
    assert first["drop_sequential"] * FOLIO_PAGES.get(kernel, 1) > PAGES - 2 * BEFORE_A_STREAM

    second = growth(pair, "sequential /mnt/scanned")
    assert second["get_hits"] <= BEFORE_A_STREAM
    assert second["puts"] <= BEFORE_A_STREAM

    pair.read_ahead(WINDOW_KIB)
    cut_off = growth_of(pair, lambda: pair.borrower.sh(CUT_OFF))
    pair.read_ahead(READ_AHEAD_KIB)
    assert cut_off["puts"] <= PAUSES * BEFORE_A_STREAM
    assert cut_off["drop_sequential"] * FOLIO_PAGES.get(kernel, 1) > PAGES - 2 * PAUSES * BEFORE_A_STREAM

    sampled = growth(pair, "random /mnt/sampled reads=1500")
    assert sampled["puts"] > 1000
    assert sampled["drop_sequential"] == 0
    again = growth(pair, "random /mnt/sampled reads=300 seed=5")
    assert again["get_hits"] > 20

    across = growth(pair, "sequential /mnt/sampled")
    assert across["get_hits"] <= BEFORE_A_STREAM
    if kernel not in FOLIO_PAGES:  # of a large folio the pool has hardly ever all, and then there is nothing to skip
        assert across["get_skipped_sequential"] > 500
    assert across["disk_reads"] < 2 * first["disk_reads"] + 50

    pair.b.set(f"lenders/{NAME}/sequential_filter", 0)
    without = growth(pair, "sequential /mnt/scanned")
    assert without["puts"] > PAGES // 2
    pair.b.set(f"lenders/{NAME}/sequential_filter", 1)
    whole = growth(pair, "sequential /mnt/scanned")  # the pool has all of it: no reason to go to disk
    assert whole["get_hits"] > PAGES // 2
