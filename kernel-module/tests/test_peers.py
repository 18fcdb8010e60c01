"""Several lenders, many borrowers, and strategies that change while pages flow."""

from __future__ import annotations

import pytest

from bed.guest import HOST_ADDRESS, Guest, GuestError
from bed.pair import NAME, PATIENT, UNHURRIED, Pair
from bed.protocol import FORGET, GET, PUT, Lender, Limits, somebody
from bed.tidepool import MIB, Tidepool, wait_until
from bed.workload import end_stress, start_stress, stress

FILE_MIB = 150
MOST_PASSES = 8  # what finds no buffer in one goes in the next
LARGE_MIB, SMALL_MIB = 96, 48


def borrow_from(pair: Pair, name: str, lender: Lender, mib: int) -> None:
    """A lender beside the lending guest, on this machine."""
    more = {"port": lender.port, **PATIENT}
    pair.b.borrow(name, address=HOST_ADDRESS, size=mib * MIB, identity=lender.identity, more=more)


def test_pages_are_spread_and_one_loss_costs_only_its_own(kernel: str) -> None:
    """Pages go where most room is; when one lender leaves, what the other has still comes from there."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        small, large = Lender(), f"lenders/{NAME}"
        pair.connect(size=LARGE_MIB * MIB, more=PATIENT)
        borrow_from(pair, "small", small, SMALL_MIB)
        pair.b.wait_state("lenders/small", "Connected")
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        for _ in range(MOST_PASSES):
            stress(borrower, "sequential /mnt/file")
            held = [pair.b.stats(lender)["catalog_pages"] * 4096 // MIB for lender in (large, "lenders/small")]
            if held[0] > held[1] > 0:  # a lender that is slower than the other gets less until that one is full
                break
        assert held[0] > held[1] > 0
        reads = start_stress(borrower, "random /mnt/file seconds=300 threads=4")
        before = pair.borrowed()
        small.close()
        pair.b.wait_state("lenders/small", "Connecting")
        wait_until("the other goes on", lambda: pair.borrowed()["get_hits"] > before["get_hits"] + 1000)
        assert pair.borrowed()["disconnects"] == before["disconnects"]
        end_stress(reads)
        hits = pair.borrowed()["get_hits"]
        stress(borrower, "sequential /mnt/file")
        assert pair.borrowed()["get_hits"] > hits + 1000
        pair.assert_clean()


@pytest.mark.long
def test_a_borrower_has_at_most_8_lenders(kernel: str) -> None:
    """Eight are used side by side; the ninth is refused with a word why, and is taken when another has gone."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        lenders = {f"lender-{number}": Lender() for number in range(9)}
        pair.b.load()
        for name in list(lenders)[:8]:
            borrow_from(pair, name, lenders[name], 16)
            pair.b.wait_state(f"lenders/{name}", "Connected")
        stress(borrower, "fill /mnt/file mib=130")
        for _ in range(MOST_PASSES):  # verified
            stress(borrower, "sequential /mnt/file")
            figures = [pair.b.stats(f"lenders/{name}") for name in list(lenders)[:8]]
            if min(one["puts"] for one in figures) > 100 and min(one["get_hits"] for one in figures) > 10:
                break
        else:
            raise AssertionError(figures)
        with pytest.raises(GuestError, match="No space"):
            borrow_from(pair, "lender-8", lenders["lender-8"], 16)
        assert "at most 8 lenders" in borrower.log()
        pair.b.rmdir("lenders/lender-3")
        pair.b.set("lenders/lender-8/enabled", 1)
        pair.b.wait_state("lenders/lender-8", "Connected")
        stress(borrower, "sequential /mnt/file")
        pair.assert_clean()


def test_a_lender_that_takes_little_at_once(kernel: str) -> None:
    """Sixteen pages a GET, five a PUT, three ranges a FORGET: no frame has more, and each page read is right."""
    with (pair := Pair(kernel, host=True)) as (borrower, _):
        lender = Lender(limits=Limits(get=16, put=5, notices=3))
        pair.b.load("put_buffers=4096")
        borrow_from(pair, NAME, lender, 64)
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        stress(borrower, "fill /mnt/file mib=8")
        stress(borrower, "many /mnt/tree files=64 write=1")
        for _ in range(2):
            pair.evict()
            stress(borrower, "sequential /mnt/file passes=1")
            stress(borrower, "many /mnt/tree files=64")
        figures = pair.borrowed()
        assert figures["get_hits"] - figures["get_hits_buffer"] > 128
        assert (figures["get_misses"], figures["get_errors"], figures["bad_frames"]) == (0, 0, 0)
        pair.evict()
        borrower.sh("rm -r /mnt/file /mnt/tree; sync")
        wait_until("the lender may forget", lambda: lender.largest.get(FORGET, 0) > 2)
        assert 1 < lender.largest[GET] <= 16
        assert (lender.largest[PUT], lender.largest[FORGET]) == (5, 3)
        pair.b.rmdir(f"lenders/{NAME}")
        lender.close()
        pair.assert_clean()


def test_strategy_changes_in_use(kernel: str) -> None:
    """Exclusive frees the lender's page at a get, NonInclusive keeps it; each from the moment it is set."""
    with (pair := Pair(kernel)) as (borrower, _):
        # Buffers for all of the file: a large folio of which a page is missing is not got.
        pair.b.load("put_buffers=8192")
        pair.connect(size=128 * MIB, more=UNHURRIED)
        stress(borrower, "fill /mnt/file mib=20")
        pair.evict()
        stress(borrower, "sequential /mnt/file")
        assert pair.borrowed()["get_hits"] > 18 * 256
        assert pair.lent()["lent_pages"] > 18 * 256
        pair.b.set(f"lenders/{NAME}/strategy", "Exclusive")
        pair.evict()
        stress(borrower, "sequential /mnt/file")
        wait_until("the lender has freed them", lambda: pair.lent()["lent_pages"] < 2 * 256)
        pair.assert_clean()


def test_a_lender_has_at_most_64_borrowers(loaded: Guest) -> None:
    """The 65th is refused with a word why, and is taken when another has gone."""
    tidepool = Tidepool(loaded)
    for number in range(64):
        tidepool.lend(f"borrower-{number}", quota=16 * MIB, identity=somebody())
    tidepool.mkdir("borrowers/one-more")
    tidepool.set("borrowers/one-more/identity", somebody())
    tidepool.set("borrowers/one-more/quota_bytes", 16 * MIB)
    refused = tidepool.try_set("borrowers/one-more/enabled", 1)
    assert "No space" in refused.output
    assert "at most 64 borrowers" in loaded.log()
    tidepool.rmdir("borrowers/borrower-7")
    tidepool.set("borrowers/one-more/enabled", 1)
    assert tidepool.get("borrowers/one-more/state") == "Listening"
