"""The parsers of the wire against a million messages that are almost right, in user space with sanitizers."""

from __future__ import annotations

import pytest

from bed import fuzzer

MESSAGES = 500_000


@pytest.mark.parametrize("side", ["fuzz_lender", "fuzz_borrower"])
def test_survives(side: str) -> None:
    """No byte out of bounds, no page lost or given twice, no page shown but of the version that was asked for."""
    assert "messages" in fuzzer.run(side, MESSAGES, seed=1)


@pytest.mark.parametrize(
    ("side", "source", "check"),
    [
        ("fuzz_lender", "serve.c", "count > max || "),
        ("fuzz_borrower", "get.c", "count > TIDE_GET_MAX ||"),
    ],
)
def test_would_notice(side: str, source: str, check: str) -> None:
    """With one check taken out of the sources the same messages do find it."""
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        fuzzer.run(side, MESSAGES, seed=1, without=(source, check))
