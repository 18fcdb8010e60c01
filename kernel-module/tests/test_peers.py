"""Several lenders, many borrowers, and keys that change while pages flow."""

from __future__ import annotations

from bed.guest import Guest
from bed.pair import LENDER_ADDRESS, NAME, PATIENT, Pair
from bed.tidepool import KEY, MIB, Tidepool, wait_until
from bed.workload import finish_stress, start_stress, stress

NEW_KEY = "5a" * 32
FILE_MIB = 150
MOST_PASSES = 8  # what finds no buffer in one goes in the next
LENDERS = {"large": 96, "small": 48}  # MiB


def connect_lenders(pair: Pair) -> None:
    """One guest lends twice; to the borrower these are two lenders."""
    pair.l.load()
    pair.b.load()
    pair.l.set("lend_bytes", sum(LENDERS.values()) * MIB)
    for name, mib in LENDERS.items():
        pair.l.lend(name, quota=mib * MIB)
        pair.b.borrow(name, address=LENDER_ADDRESS, size=mib * MIB)
    for name in LENDERS:
        pair.b.wait_state(f"lenders/{name}", "Connected")


def test_pages_are_spread_and_one_loss_costs_only_its_own(kernel: str) -> None:
    """Pages go where most room is; when one lender leaves, what the other has still comes from there."""
    with (pair := Pair(kernel, borrower_mem="176M", lender_mem="384M")) as (borrower, _):
        connect_lenders(pair)
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        for _ in range(MOST_PASSES):
            stress(borrower, "sequential /mnt/file")
            held = {name: pair.b.stats(f"lenders/{name}")["catalog_pages"] * 4096 // MIB for name in LENDERS}
            if held["small"]:
                break
        assert held["large"] > held["small"] > 0
        reads = start_stress(borrower, "random /mnt/file seconds=8 threads=4")
        pair.l.rmdir("borrowers/small")
        wait_until("the loss is noticed", lambda: pair.b.stats("lenders/small")["catalog_pages"] == 0)
        finish_stress(reads)
        before = pair.b.stats("lenders/large")
        stress(borrower, "sequential /mnt/file")
        after = pair.b.stats("lenders/large")
        assert after["get_hits"] - before["get_hits"] > 1000
        assert after["disconnects"] == 0
        pair.assert_clean()


def test_a_borrower_has_at_most_8_lenders(kernel: str) -> None:
    """Eight are used side by side; the ninth is refused with a word why, and is taken when another has gone."""
    with (pair := Pair(kernel, borrower_mem="160M", lender_mem="320M")) as (borrower, _):
        pair.l.load()
        pair.b.load()
        pair.l.set("lend_bytes", 8 * 16 * MIB)
        for number in range(9):
            pair.l.lend(f"lender-{number}", quota=16 * MIB)
        for number in range(8):
            pair.b.borrow(f"lender-{number}", address=LENDER_ADDRESS, size=16 * MIB)
            pair.b.wait_state(f"lenders/lender-{number}", "Connected")
        stress(borrower, "fill /mnt/file mib=130")
        for _ in range(2):  # verified; what found no buffer goes the next time
            stress(borrower, "sequential /mnt/file")
        figures = [pair.b.stats(f"lenders/lender-{number}") for number in range(8)]
        assert min(one["puts"] for one in figures) > 100, figures
        assert min(one["get_hits"] for one in figures) > 10, figures
        pair.b.mkdir("lenders/lender-8")
        for attribute, value in {"address": LENDER_ADDRESS, "key": KEY, "size_bytes": 16 * MIB}.items():
            pair.b.set(f"lenders/lender-8/{attribute}", value)
        refused = pair.b.try_set("lenders/lender-8/enabled", 1)
        assert "No space" in refused.output
        assert "at most 8 lenders" in borrower.log()
        pair.b.rmdir("lenders/lender-3")
        pair.b.set("lenders/lender-8/enabled", 1)
        pair.b.wait_state("lenders/lender-8", "Connected")
        stress(borrower, "sequential /mnt/file")
        pair.assert_clean()


def test_key_is_rotated_without_losing_a_page(kernel: str) -> None:
    """A new key on both ends: the session goes on with all its pages; the next handshake needs the new key."""
    with (pair := Pair(kernel, borrower_mem="176M")) as (borrower, _):
        pair.connect(size=200 * MIB)
        stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
        stress(borrower, "sequential /mnt/file")
        before = pair.borrowed()
        pair.l.set(f"borrowers/{NAME}/key", NEW_KEY)
        pair.b.set(f"lenders/{NAME}/key", NEW_KEY)
        stress(borrower, "sequential /mnt/file")
        after = pair.borrowed()
        assert after["disconnects"] == 0
        assert after["get_hits"] > before["get_hits"] + 1000
        pair.b.set(f"lenders/{NAME}/enabled", 0)
        pair.b.set(f"lenders/{NAME}/enabled", 1)
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        pair.b.set(f"lenders/{NAME}/enabled", 0)
        pair.b.set(f"lenders/{NAME}/key", KEY)
        pair.b.set(f"lenders/{NAME}/enabled", 1)
        pair.b.wait_state(f"lenders/{NAME}", "Rejected")
        pair.b.set(f"lenders/{NAME}/key", NEW_KEY)  # taken up by the next try
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        pair.assert_clean()


def test_strategy_changes_in_use(kernel: str) -> None:
    """Exclusive frees the lender's page at a get, NonInclusive keeps it; each from the moment it is set."""
    with (pair := Pair(kernel, borrower_mem="256M")) as (borrower, _):
        # Buffers for all of the file: a large folio of which a page is missing is not got.
        borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
        pair.connect(size=128 * MIB, more=PATIENT)
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
        tidepool.lend(f"borrower-{number}", quota=16 * MIB)
    tidepool.mkdir("borrowers/one-more")
    tidepool.set("borrowers/one-more/key", KEY)
    tidepool.set("borrowers/one-more/quota_bytes", 16 * MIB)
    refused = tidepool.try_set("borrowers/one-more/enabled", 1)
    assert "No space" in refused.output
    assert "at most 64 borrowers" in loaded.log()
    tidepool.rmdir("borrowers/borrower-7")
    tidepool.set("borrowers/one-more/enabled", 1)
    assert tidepool.get("borrowers/one-more/state") == "Listening"
