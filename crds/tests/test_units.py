"""Quantities and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_api import format_quantity, format_ratio, parse_duration, parse_quantity, to_mib


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512Mi", 512 << 20),
        ("1.5Gi", 3 << 29),
        ("2G", 2_000_000_000),
        ("10k", 10_000),
        ("7", 7),
        ("0.5", 0),
        ("1Ti", 1 << 40),
    ],
)
def test_quantity(text: str, size: int) -> None:
    assert parse_quantity(text) == size


@pytest.mark.parametrize("text", ["", "Mi", "-1Gi", "1 Gi", "1gi", "1GiB", "100m", "1e9", "0x10", "one"])
def test_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="such as 512Mi"):
        parse_quantity(text)


@given(st.integers(min_value=0, max_value=1 << 62))
def test_quantity_round_trip(size: int) -> None:
    assert parse_quantity(format_quantity(size)) == size


def test_negative_size_has_no_quantity() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_quantity(-1)


@given(st.integers(min_value=0, max_value=1 << 50))
def test_rounding_to_mib_is_close_and_stable(size: int) -> None:
    assert abs(to_mib(size) - size) <= 1 << 19
    assert to_mib(to_mib(size)) == to_mib(size)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [("200ms", 200_000), ("1m30s", 90_000_000), ("1.5ms", 1_500), ("250us", 250), ("250µs", 250), ("60s", 60_000_000)],
)
def test_duration(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize("text", ["", "200", "ms", "1d", "-1s", "1s and a bit", "1 s"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="such as 200ms"):
        parse_duration(text)


def test_ratio_has_two_digits_or_is_absent() -> None:
    assert (format_ratio(97, 100), format_ratio(1, 1), format_ratio(0, 3), format_ratio(0, 0)) == (
        "0.97",
        "1.00",
        "0.00",
        None,
    )
