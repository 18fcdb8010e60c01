"""What two readings of the agents' metrics say."""

from __future__ import annotations

import pytest
from objects import NOW, PAIRING, exposition, guest, pairing, parsed, programs
from rich.console import Console

from tidepool_kubectl import values
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


APPS = {"sizeBytes": 1 << 30, "usedBytes": 64 << 20, "values": 7, "hits": 3, "misses": 1, "localHits": 2}


def with_programs(text: str = "") -> Snapshot:
    """Guest b, whose programs have memory, and another one, whose have none."""
    body = guest("b")
    body["status"]["applications"] = APPS
    return Snapshot(NOW, **parsed(body, guest("c")), figures=parse(text))


def test_programs_of_a_guest_have_the_rates_of_the_interval() -> None:
    """And where nothing was got in it, the ratio since their device was made."""
    now = with_programs(programs(hits=40, misses=60, puts=30))
    each = values.rows(now, parse(programs(hits=30, misses=30, puts=10)), 10.0)
    row = each[0]
    assert (row.hit_ratio, row.local_ratio, row.gets, row.puts) == (0.25, 0.1, 4, 2)
    console = Console(width=80, record=True)
    console.print(values.table(each), crop=False)
    header, line, *pools = console.export_text().splitlines()
    head = [*["NAMESPACE", "GUEST", "POOL", "VALUES", "USED", "LIMIT"], "HIT", "RATIO", "LOCAL", "GETS/S", "PUTS/S"]
    assert header.split() == [*head, "GET", "P50", "GET", "P99", "PUT", "P99"]
    figures = ["25.0%", "10.0%", "4", "2", "384µs", "509µs", "1.0ms"]
    assert line.split() == ["ns", "b", "(all)", "1,000", "512Mi", "1.0Gi", *figures]
    assert [pool.split() for pool in pools] == [
        ["ns", "b", "redis", "-", "2Mi", "-", *figures],
        ["ns", "b", "small", "-", "1Mi", "-", *figures],
    ]
    idle = values.rows(now, now.figures, 10.0)[0]
    assert (idle.hit_ratio, idle.gets, idle.get) == (0.4, 0, row.get)
    anew = values.rows(now, parse(programs(hits=50, misses=60, puts=30)), 10.0)[0]
    assert (anew.hit_ratio, anew.gets) == (0.4, 10)


def test_times_of_programs_are_those_of_the_interval() -> None:
    """And not what was before: 10 gets of some 384 µs, and then 90 of less than 256."""
    before = parse(programs(hits=10, misses=0, puts=0))
    text = programs(hits=100, misses=0, puts=0).replace('le="0.000256"} 0', 'le="0.000256"} 90')
    whole, redis, _ = values.rows(with_programs(text), before, 10.0)
    assert whole.slow_get is not None
    assert whole.slow_get < 256e-6
    assert (redis.pool, redis.slow_get) == ("redis", whole.slow_get)


def test_what_an_agent_does_not_tell_of_programs_its_guest_says() -> None:
    (row,) = values.rows(with_programs(), Figures(), 2.0)
    assert (row.values, row.used_bytes, row.limit_bytes, row.hit_ratio) == (7, 64 << 20, 1 << 30, 0.75)
    assert (row.local_ratio, row.get) == (2 / 3, None)
    assert (row.gets, row.puts) == (None, None)
