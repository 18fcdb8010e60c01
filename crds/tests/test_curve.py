"""What a pool is worth to a guest: read off its curve, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_api import CurvePoint, GuestMemory, GuestPressure, GuestStatus
from tidepool_api.curve import curve_of, size_for, value_at

MIB = 1 << 20


def status(ratios: dict[int, float], misses: int | None = 1000, references: int | None = 5000) -> GuestStatus:
    """What an agent reports of a guest: hit ratios by sizes in MiB."""
    points = tuple(CurvePoint(size_bytes=size * MIB, hit_ratio=f"{ratio:.2f}") for size, ratio in ratios.items())
    return GuestStatus(curve=points, curve_references=references, misses_per_second=misses)


def test_a_curve_is_read_off_in_a_straight_line() -> None:
    curve = curve_of(status({512: 0.8, 256: 0.2}))
    assert [value_at(curve, size * MIB) for size in (0, 128, 256, 384, 512, 4096)] == [0, 100, 200, 500, 800, 800]
    assert [size_for(curve, reads) / MIB for reads in (0, 100, 200, 500, 800, 4096)] == [0, 128, 256, 384, 512, 512]


def test_a_point_below_that_of_a_smaller_size_is_taken_as_high() -> None:
    curve = curve_of(status({128: 0.5, 256: 0.4, 512: 0.6}))
    assert curve == ((128 * MIB, 500.0), (256 * MIB, 500.0), (512 * MIB, 600.0))
    assert size_for(curve, 500) == 128 * MIB


@pytest.mark.parametrize(("misses", "references"), [(1000, 999), (1000, None), (None, 5000), (0, 5000)])
def test_a_curve_that_rests_on_little_is_none(misses: int | None, references: int | None) -> None:
    curve = curve_of(status({128: 0.5}, misses, references))
    assert (curve, value_at(curve, MIB), size_for(curve, 10)) == ((), 0, 0)


ratios = st.dictionaries(st.integers(1, 1 << 20), st.integers(0, 100).map(lambda part: part / 100), max_size=16)
sizes = st.integers(0, 1 << 50)


@given(ratios, st.integers(0, 10**6), sizes, sizes)
def test_more_memory_never_spares_less_and_never_more_than_is_read(
    measured: dict[int, float], misses: int, one: int, other: int
) -> None:
    curve = curve_of(status(measured, misses))
    less, more = (value_at(curve, size) for size in sorted((one, other)))
    assert 0 <= less <= more * (1 + 1e-12)
    assert more <= misses * (1 + 1e-12)


@given(ratios, st.integers(1, 10**6), sizes)
def test_the_least_size_for_what_a_size_spares_is_no_larger_and_spares_as_much(
    measured: dict[int, float], misses: int, size: int
) -> None:
    curve = curve_of(status(measured, misses))
    spared = value_at(curve, size)
    least = size_for(curve, spared)
    assert least <= size * (1 + 1e-9) + 1
    assert value_at(curve, least) >= spared * (1 - 1e-9)


@given(ratios, st.integers(1, 10**6), st.floats(0, 2e6), st.floats(0, 2e6))
def test_more_reads_never_take_less_memory(measured: dict[int, float], misses: int, one: float, other: float) -> None:
    curve = curve_of(status(measured, misses))
    less, more = (size_for(curve, reads) for reads in sorted((one, other)))
    assert less <= more <= (curve[-1].size if curve else 0)


def test_what_a_guest_has_to_spare_is_no_part_of_its_working_set() -> None:
    memory = GuestMemory(total_bytes=100, available_bytes=80)
    assert memory.spare_bytes == 80
    assert memory.model_copy(update={"working_set_bytes": 30}).spare_bytes == 70


@pytest.mark.parametrize(
    ("some", "full", "calm", "severe"),
    [(None, None, True, False), (4, 0, True, False), (5, 0, False, False), (4, 5, False, True)],
)
def test_a_guest_that_waits_for_memory_is_not_calm(
    some: int | None, full: int | None, calm: bool, severe: bool
) -> None:
    pressure = GuestPressure(memory_some=some, memory_full=full)
    assert (pressure.is_calm, pressure.is_severe) == (calm, severe)
