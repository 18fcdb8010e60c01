"""The parsers of the wire against a million messages that are almost right, with sanitizers and in guests.

The catalog's count of what each lender has, too.
"""

from __future__ import annotations

import pytest
from test_faults import assert_serves, fill_pool

from bed import fuzzer
from bed.guest import HOST_ADDRESS
from bed.liar import LyingBorrower, LyingLender
from bed.pair import Pair
from bed.protocol import KeyPair, point_of
from bed.tidepool import MIB
from bed.workload import stress

MESSAGES = 500_000


@pytest.mark.parametrize("side", ["fuzz_lender", "fuzz_borrower", "fuzz_ages", "fuzz_handshake"])
def test_survives(side: str) -> None:
    """No byte out of bounds, no page lost or given twice, no page shown but of the version that was asked for.

    And no page believed in beyond a lender's grant, nor forgotten within it.
    """
    assert "messages" in fuzzer.run(side, MESSAGES, seed=1)


@pytest.mark.parametrize(
    ("side", "source", "check"),
    [
        ("fuzz_lender", "lender/serve.c", "count > max || "),
        ("fuzz_borrower", "borrower/fetch.c", "count > lane->lender->agreed.get ||"),
        ("fuzz_ages", "borrower/catalog_ages.c", "ages->age[0].count += ages->age[1].count;"),
        ("fuzz_handshake", "transport/handshake.c", "code >= ARRAY_SIZE(reasons) || "),
    ],
)
def test_would_notice(side: str, source: str, check: str) -> None:
    """With one check taken out of the sources the same messages do find it."""
    with pytest.raises(AssertionError, match=r"AddressSanitizer|does not hold|runtime error: index"):
        fuzzer.run(side, MESSAGES, seed=1, without=(source, check))


@pytest.mark.parametrize("messages", [1_000, pytest.param(MESSAGES, marks=pytest.mark.long)])
def test_borrower_that_lies(kernel: str, messages: int) -> None:
    """It is known, and sends a lot that means nothing, or nothing good; then a proper one is served."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)):
        own = KeyPair()
        pair.l.load()
        pair.l.lend("liar", quota=64 * MIB, identity=own.identity)
        lender = point_of(pair.l.identity)
        report = LyingBorrower(seed=1).run(("127.0.0.1", pair.lender_port), own, lender, messages)
        assert report.messages > 20 * report.sessions > 20, report
        figures = pair.l.stats("borrowers/liar")
        assert min(figures[name] for name in ("gets", "get_misses", "puts")) > 0, figures
        pair.l.rmdir("borrowers/liar")
        pair.connect()
        fill_pool(pair)
        pair.assert_clean()


@pytest.mark.long
def test_lender_that_lies(kernel: str) -> None:
    """It is who it should be, and half a million messages mean nothing: no wrong byte; then a proper one serves."""
    with (pair := Pair(kernel, borrower_mem="160M", host=True)) as (borrower, _):
        pair.b.load()
        liar = LyingLender(seed=1)
        lies = liar.start(MESSAGES)
        more = {"port": liar.port}
        pair.b.borrow("liar", address=HOST_ADDRESS, size=256 * MIB, identity=liar.own.identity, more=more)
        stress(borrower, "fill /mnt/file mib=110")
        while lies.is_alive():
            stress(borrower, "random /mnt/file seconds=10 threads=4")
        assert liar.report.messages > 50 * liar.report.sessions > 50 * 20, liar.report
        figures = pair.b.stats("lenders/liar")
        assert min(figures[name] for name in ("get_corrupt", "get_misses", "get_late", "puts", "drop_refused")) > 100
        assert figures["get_hits"] == figures["get_hits_buffer"], "a page was shown that the lender made up"
        pair.b.rmdir("lenders/liar")
        pair.connect()
        fill_pool(pair)
        assert_serves(pair)
        pair.assert_clean()
