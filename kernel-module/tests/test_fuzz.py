"""The parsers of the wire against a million messages that are almost right, with sanitizers and in guests.

The catalog's count of what each lender has, too.
"""

from __future__ import annotations

import pytest
from test_faults import assert_serves, fill_pool

from bed import fuzzer
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.tidepool import KEY, MIB, PORT
from bed.workload import finish_stress, start_stress, stress

MESSAGES = 500_000
HOURS = 3600.0


@pytest.mark.parametrize("side", ["fuzz_lender", "fuzz_borrower", "fuzz_ages"])
def test_survives(side: str) -> None:
    """No byte out of bounds, no page lost or given twice, no page shown but of the version that was asked for.

    And no page believed in beyond a lender's grant, nor forgotten within it.
    """
    assert "messages" in fuzzer.run(side, MESSAGES, seed=1)


@pytest.mark.parametrize(
    ("side", "source", "check"),
    [
        ("fuzz_lender", "serve.c", "count > max || "),
        ("fuzz_borrower", "get.c", "count > TIDE_GET_MAX ||"),
        ("fuzz_ages", "ages.c", "ages->age[0].count += ages->age[1].count;"),
    ],
)
def test_would_notice(side: str, source: str, check: str) -> None:
    """With one check taken out of the sources the same messages do find it."""
    with pytest.raises(AssertionError, match=r"AddressSanitizer|does not hold"):
        fuzzer.run(side, MESSAGES, seed=1, without=(source, check))


@pytest.mark.parametrize("messages", [2_000, pytest.param(MESSAGES, marks=pytest.mark.long)])
def test_borrower_that_lies(kernel: str, messages: int) -> None:
    """It has the key, and sends a lot that means nothing, or nothing good; then a proper one is served."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.l.load()
        pair.l.lend(NAME, quota=64 * MIB)
        lies = f"liar-borrower {LENDER_ADDRESS} key={KEY} messages={messages} seed=1"
        report = stress(borrower, lies, timeout=HOURS)
        assert report["messages"] > 20 * report["sessions"] > 20, report
        figures = pair.lent()
        assert min(figures[name] for name in ("gets", "get_misses", "puts")) > 0, figures
        pair.l.set("lend_bytes", 256 * MIB)
        pair.l.set(f"borrowers/{NAME}/quota_bytes", 256 * MIB)
        pair.b.load()
        pair.b.borrow(NAME, address=LENDER_ADDRESS, size=256 * MIB)
        pair.b.wait_state(f"lenders/{NAME}", "Connected")
        fill_pool(pair)
        pair.assert_clean()


@pytest.mark.long
def test_lender_that_lies(kernel: str) -> None:
    """It has the key, and half a million messages that mean nothing: no wrong byte; then a proper one serves."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, lender):
        pair.b.load()
        lies = start_stress(lender, f"liar-lender {PORT} key={KEY} messages={MESSAGES} seed=1")
        pair.b.borrow(NAME, address=LENDER_ADDRESS, size=256 * MIB)
        stress(borrower, "fill /mnt/file mib=110")
        while lies.running:
            stress(borrower, "random /mnt/file seconds=10 threads=4")
        report = finish_stress(lies)
        assert report["messages"] > 50 * report["sessions"] > 50 * 20, report
        figures = pair.borrowed()
        assert min(figures[name] for name in ("get_corrupt", "get_misses", "get_late", "puts", "drop_refused")) > 100
        assert figures["get_hits"] == figures["get_hits_buffer"], "a page was shown that the lender made up"
        pair.l.load()
        pair.l.lend(NAME, quota=256 * MIB)
        pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=40)
        assert_serves(pair)
        pair.assert_clean()
