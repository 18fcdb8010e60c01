"""What two readings of the agents' metrics say."""

from __future__ import annotations

import pytest
from objects import NOW, PAIRING, exposition, pairing, parsed
from rich.console import Console

from tidepool_kubectl.figures import Figures, between, parse, quantile
from tidepool_kubectl.snapshot import Snapshot
from tidepool_kubectl.top import Row, rows, table

KEY = ("ns", PAIRING)


def test_a_pairing_is_read_from_its_borrowers_agent() -> None:
    """A lender of another namespace has the name of the pairing among its figures too, under its own namespace."""
    lender = 'tidepool_guest_lent_bytes{guest="l",namespace="far",pairing="pool.b.l",pool="pool"} 4096\n'
    found = parse(exposition(90, 10) + lender).pairings[KEY]
    assert (found.hits, found.missed, found.used_bytes, found.hit_ratio) == (90, 10, 300 << 20, 0.9)


def test_an_interval_counts_what_came_in_it() -> None:
    lately = between(parse(exposition(90, 10)).pairings[KEY], parse(exposition(100, 30)).pairings[KEY])
    assert (lately.hits, lately.missed) == (10, 20)
    assert lately.get[-1] == (float("inf"), 10)


def test_counters_that_began_anew_are_taken_as_they_are() -> None:
    after = parse(exposition(5, 1)).pairings[KEY]
    assert between(parse(exposition(90, 10)).pairings[KEY], after) == after


@pytest.mark.parametrize(("part", "expected"), [(0.25, 0.5), (0.5, 1.0), (0.75, 2.5), (1.0, 3.0)])
def test_a_quantile_lies_between_the_bounds_of_its_bucket(part: float, expected: float) -> None:
    assert quantile(((1, 2), (2, 2), (3, 4), (float("inf"), 4)), part) == expected
    assert quantile((), part) is None


def shown(row: Row) -> str:
    """As a terminal of 80 columns gets it: whole."""
    console = Console(width=80, record=True)
    console.print(table([row]), crop=False)
    return console.export_text()


def test_a_row_has_the_rates_of_the_interval() -> None:
    now = Snapshot(NOW, **parsed(pairing()), figures=parse(exposition(190, 10)))
    (row,) = rows(now, parse(exposition(90, 10)), 2.0)
    assert (row.hit_ratio, row.saved) == (1.0, 50)
    assert 256e-6 < (row.median or 0) < 512e-6
    line = shown(row).splitlines()[1].split()
    assert line[:9] == ["ns", "pool", "b", "l", "Connected", "512Mi", "300Mi", "100.0%", "384µs"]


def test_what_is_not_known_is_not_made_up() -> None:
    (row,) = rows(Snapshot(NOW, **parsed(pairing())), Figures(), 2.0)
    assert shown(row).splitlines()[1].split()[6:] == ["-", "-", "-", "-", "-"]


def test_a_lender_that_is_left_alone_is_shown_so() -> None:
    now = Snapshot(NOW, **parsed(pairing()), figures=parse(exposition(1, 1, breaker=1)))
    assert rows(now, Figures(), 1.0)[0].state == "Left alone"
