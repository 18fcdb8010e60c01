"""What a planner decides on: figures that rest as long as nobody would decide otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import observation

from tidepool_agent import needs
from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.needs import Rate, Rates, Trend
from tidepool_api import GuestMemory, GuestPressure, GuestStatus

MIB = 1 << 20


def ghost(references: int, *ratios: float, sampled: int | None = None) -> Observation:
    """A guest whose ghost mode is on."""
    points = tuple((size << 30, ratio) for size, ratio in enumerate(ratios, 1))
    followed = references if sampled is None else sampled
    module = Module(
        "0.1.0", "A", ghost="NonInclusive", curve=points, references=references, sampled_references=followed
    )
    return replace(observation(), module=module)


def status_after(seen: Observation, before: GuestStatus) -> GuestStatus:
    curve, references = needs.curve(seen, before)
    return before.model_copy(update={"curve": curve, "curve_references": references})


@pytest.mark.parametrize(
    ("available", "said"), [(300 * MIB, 288 * MIB), (303 * MIB, 288 * MIB), (270 * MIB, 256 * MIB), (0, 0)]
)
def test_memory_is_said_anew_when_it_has_moved(available: int, said: int) -> None:
    """Of a guest of 512 MiB: by 16 MiB; of a large one by a thirty-second of it."""
    before = GuestMemory(total_bytes=512 * MIB, available_bytes=288 * MIB)
    fresh = needs.memory(observation(available_bytes=available), before, lent=0, borrowed=0)
    assert fresh.available_bytes == said
    large = observation(available_bytes=available, total_bytes=64 << 30)
    assert needs.memory(large, before, lent=0, borrowed=0).available_bytes == (288 * MIB if available else 0)


@given(st.lists(st.integers(0, 6), min_size=1), st.integers(0, 8))
def test_a_figure_that_trembles_is_said_once(around: list[int], middle: int) -> None:
    """Whatever it trembles about: a step is never small enough to be crossed to and fro."""
    told = None
    changes = 0
    for shift in around:
        seen = observation(available_bytes=(64 * middle + 16 + shift) * MIB, stalls={"io some": 10 + shift % 3})
        memory = needs.memory(seen, told[0] if told else None, lent=0, borrowed=0)
        pressure = needs.pressure(seen, Rates(100 + shift), told[1] if told else None)
        changes += (memory, pressure) != told
        told = memory, pressure
    assert changes == 1


def test_pressure_is_what_the_kernel_measures() -> None:
    seen = observation(stalls={"memory some": 40, "memory full": 7, "io some": 90, "io full": 60})
    expected = GuestPressure(memory_some=40, memory_full=7, io_some=90, io_full=60, refaults_per_second=1200)
    assert needs.pressure(seen, Rates(1234), None) == expected
    assert needs.pressure(observation(), Rates(), None) == GuestPressure()
    eased = needs.pressure(observation(stalls={"memory some": 39, "io some": 10}), Rates(1300), expected)
    assert (eased.memory_some, eased.io_some, eased.refaults_per_second) == (40, 10, 1200)


def test_a_curve_is_said_with_what_it_rests_on() -> None:
    told = status_after(ghost(9000, 0.2512, 0.9999, sampled=1234), GuestStatus())
    assert [(point.size_bytes >> 30, point.hit_ratio) for point in told.curve] == [(1, "0.25"), (2, "1.00")]
    assert told.curve_references == 1000
    assert status_after(ghost(9500, 0.28, 0.97, sampled=1900), told) == told
    assert status_after(ghost(20000, 0.31, 0.97, sampled=2100), told).curve[0].hit_ratio == "0.31"


def test_a_curve_stays_until_there_is_a_sounder_one() -> None:
    """While the guest borrows, when the module is gone, and when it has just been loaded again."""
    told = status_after(ghost(5000, 0.5), GuestStatus())
    for seen in (observation(), observation(loaded=True), ghost(0, 0.0), ghost(900, 0.1)):
        assert status_after(seen, told) == told
    assert status_after(ghost(1000, 0.1), told).curve[0].hit_ratio == "0.10"
    little = status_after(ghost(10, 0.5), GuestStatus())
    assert little.curve_references == 10
    assert status_after(ghost(20, 0.9), little).curve[0].hit_ratio == "0.90"


def test_rates_are_those_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.add("a", 0, 100) is None
    assert rate.add("a", 1, 200) is None
    assert rate.add("a", 10, 1100) == 100
    assert [rate.add("a", 10 + 30 * n, 1100 + 300 * n) for n in (1, 2, 3)] == [32, 10, 10]
    assert rate.add("a", 200, 50) is None, "the counter began anew"
    assert rate.add("b", 230, 80) is None, "it is another counter"
    assert rate.add("b", 240, None) is None
    assert rate.add("b", 250, 90) is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 1e9), st.none() | st.integers(0, 1 << 62))))
def test_no_rate_is_negative_whatever_a_guest_says(said: list[tuple[str, float, int | None]]) -> None:
    rate = Rate()
    assert all((rate.add(*one) or 0) >= 0 for one in said)


def test_misses_are_what_the_page_cache_lacked() -> None:
    """Without lenders the ghost mode counts them; a borrower reads some from disk and the others from its lenders."""
    trend = Trend()

    def after(seen: Observation, uptime: float, **fields: Any) -> Rates:
        return trend.add(replace(seen, uptime=uptime, **fields))

    assert after(ghost(100), 10, refaults=5).misses is None
    assert after(ghost(1100), 20, refaults=55) == Rates(refaults=5, misses=100)
    for uptime, misses, hits, expected in ((30, 1000, 500, None), (40, 1100, 900, 50)):
        peers = {(Side.LENDERS, "p"): Peer({}, {"get_hits": hits})}
        borrowing = observation(loaded=True, stats={"misses": misses}, peers=peers)
        assert after(borrowing, uptime).misses == expected
