"""Failures are remembered by subject, and tried again ever more slowly."""

from __future__ import annotations

from datetime import UTC, datetime

from tidepool_agent.errors import LoadFailed
from tidepool_agent.retry import FIRST_SECONDS, LAST_SECONDS, Failures

ERROR = LoadFailed("no")
WHEN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def test_what_never_failed_is_due() -> None:
    assert Failures().due(("module",), 0)


def test_each_failure_in_a_row_doubles_the_wait_up_to_a_limit() -> None:
    failures, moment, waits = Failures(), 0.0, []
    for _ in range(12):
        failures.failed(("module",), ERROR, moment, WHEN)
        begin = moment
        while not failures.due(("module",), moment):
            moment += 1
        waits.append(moment - begin)
    assert waits[:4] == [FIRST_SECONDS * 2**n for n in range(4)]
    assert waits[-1] == LAST_SECONDS


def test_one_failure_does_not_hold_up_others() -> None:
    failures = Failures()
    failures.failed(("peer", "lenders", "a", "1"), ERROR, 0, WHEN)
    assert failures.due(("peer", "lenders", "b", "1"), 0)
    assert failures.due(("peer", "lenders", "a", "2"), 0), "a changed spec is tried at once"


def test_what_is_part_of_something_waits_with_it() -> None:
    """A swap area that cannot be emptied is not made anew."""
    failures = Failures()
    failures.failed(("device", "a"), ERROR, 0, WHEN)
    assert not failures.due(("device", "a", "forced=True"), 0)
    assert failures.due(("device", "b", "forced=True"), 0)
    assert failures.due(("device",), 0)


def test_success_and_disinterest_forget() -> None:
    failures = Failures()
    failures.failed(("module",), ERROR, 0, WHEN)
    failures.failed(("settings",), ERROR, 0, WHEN)
    failures.succeeded(("module",))
    assert failures.error("module") is None
    failures.keep(())
    assert failures.error("settings") is None


def test_the_error_of_a_peer_is_found_whatever_its_generation() -> None:
    failures = Failures()
    failures.failed(("peer", "lenders", "a", "7"), ERROR, 0, WHEN)
    assert failures.error("peer", "lenders", "a") is ERROR
    assert failures.error("peer", "lenders", "b") is None


def test_the_wait_can_be_seen() -> None:
    """Item 8: how often, and when again."""
    failures = Failures()
    for times, moment, said in ((1, 0.0, "12:00:05"), (2, 5.0, "12:00:10"), (3, 15.0, "12:00:20")):
        failures.failed(("module",), LoadFailed("insmod: no"), moment, WHEN)
        word = "time" if times == 1 else "times"
        assert str(failures.error("module")) == f"insmod: no; tried {times} {word}, again at {said} UTC"
