"""Which agents are taken for dead, and after how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidepool_api import names
from tidepool_operator.cluster.heartbeats import Heartbeats


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def lease(node: str, *, age: float = 0) -> dict[str, Any]:
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": names.agent_lease(node)}, "spec": {"renewTime": renewed}}


def test_an_agent_that_renews_is_alive() -> None:
    clock = Clock()
    beats = Heartbeats(clock=clock)
    for _ in range(10):
        beats.update([lease("n")])
        clock.time += 15
        assert not beats.is_silent("n")


def test_an_agent_that_stops_is_dead_after_forty_seconds() -> None:
    clock = Clock()
    beats = Heartbeats(clock=clock)
    last = lease("n")
    beats.update([last])
    clock.time += 39
    beats.update([last])
    assert not beats.is_silent("n")
    clock.time += 2
    assert beats.is_silent("n")
    beats.update([lease("n")])
    assert not beats.is_silent("n")


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00.000000Z", "10000-01-01T00:00:00Z", "now", "2026-01-01T00:00:00"])
def test_what_one_agent_writes_blinds_nobody_to_the_others(time: str) -> None:
    """Each writes its own lease as it likes, and whoever reads them all has to live with that."""
    clock = Clock()
    beats = Heartbeats(clock=clock)
    odd = {"metadata": {"name": names.agent_lease("odd")}, "spec": {"renewTime": time}}
    bare: dict[str, Any] = {"metadata": {"name": names.agent_lease("bare")}, "spec": None}
    for _ in range(10):
        beats.update([odd, bare, lease("n")])
        clock.time += 15
    assert not beats.is_silent("n")
    assert beats.is_silent("odd")


def test_a_lease_that_was_old_when_first_seen_counts_from_its_own_time() -> None:
    beats = Heartbeats(clock=Clock())
    beats.update([lease("n", age=60), lease("fresh", age=5)])
    assert beats.silent(["n", "fresh"]) == {"n"}


def test_a_clock_that_is_ahead_makes_nobody_dead() -> None:
    beats = Heartbeats(clock=Clock())
    beats.update([lease("n", age=-300)])
    assert not beats.is_silent("n")


def test_a_node_without_lease_gets_time_to_start() -> None:
    clock = Clock()
    beats = Heartbeats(clock=clock)
    beats.update([])
    assert not beats.is_silent("n")
    clock.time += 41
    assert beats.is_silent("n")
    beats.update([lease("n")])
    assert not beats.is_silent("n")


def test_nobody_is_dead_because_the_api_server_was() -> None:
    """While leases cannot be read they cannot be renewed either: everyone gets the full time again."""
    clock = Clock()
    beats = Heartbeats(clock=clock)
    last = lease("n")
    beats.update([last])
    beats.failed()
    clock.time += 600
    assert not beats.is_silent("n")
    beats.update([last])
    assert not beats.is_silent("n")
    clock.time += 41
    assert beats.is_silent("n")


def test_other_leases_are_ignored() -> None:
    beats = Heartbeats(clock=Clock())
    beats.update([{"metadata": {"name": "kube-scheduler"}, "spec": {}}, {"metadata": {"name": names.agent_lease("n")}}])
    assert not beats.is_silent("n")


def test_a_lease_first_seen_after_the_api_server_was_away_gets_the_full_time() -> None:
    """It is old because nobody could renew it, and it had not been looked at before the API server went."""
    clock = Clock()
    beats = Heartbeats(clock=clock)
    beats.failed()
    beats.update([lease("n", age=60)])
    assert not beats.is_silent("n")
    clock.time += 41
    assert beats.is_silent("n")
