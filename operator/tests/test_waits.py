"""When a pairing that is not connected yet is one that has failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from test_report import reported
from world import BORROWER, LENDER, LONG_AGO, guest, plan, pool

from tidepool_api import MemoryPairing, condition, find
from tidepool_operator.status import report
from tidepool_operator.status.waits import Waits

HOURS = timedelta(hours=3)
NOW = LONG_AGO + HOURS
LIMIT = timedelta(minutes=5)


def said(one: MemoryPairing, phase: str, status: bool | None, reason: str) -> MemoryPairing:
    """A pairing of which that has been said for hours."""
    ready = condition("Ready", status, reason, at=LONG_AGO)
    update = {"phase": phase, "conditions": (*one.status.conditions, ready)}
    return one.model_copy(update={"status": one.status.model_copy(update=update)})


def phases(one: MemoryPairing, *after: timedelta, waits: Waits | None = None) -> list[str]:
    """What it is called so long after the first look."""
    waits = waits or Waits()
    return [waits.judged(one, report.judge(one), NOW + later).phase for later in (timedelta(0), *after)]


@pytest.mark.parametrize(
    ("borrower", "phase", "message"),
    [
        ("Connecting", "Connecting", "connects to 10.0.0.1 port 7470; if this lasts, see whether the network lets it"),
        ("Pending", "Pending", "waiting for the agent to set up borrower b"),
    ],
)
def test_what_waits_for_five_minutes_waits_in_vain(borrower: str, phase: str, message: str) -> None:
    """A firewall keeps the port closed, an agent hangs: the pool is Degraded, about which there is an alert."""
    one, waits = reported("Listening", borrower), Waits()
    first = waits.judged(one, report.judge(one), NOW)
    assert (first.phase, first.late) == (phase, NOW + LIMIT)
    assert first.message.endswith(message)
    assert phases(one, LIMIT - timedelta(seconds=1), waits=waits) == [phase, phase]
    last = waits.judged(one, report.judge(one), NOW + LIMIT)
    assert (last.phase, last.reason, last.late) == ("Failed", first.reason, None)
    assert last.message == f"{first.message}; this takes longer than 5 minutes"
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    status = report.pool_status(pool(), made, [report.Judged(one, last)])
    degraded = find(status.conditions, "Degraded")
    assert degraded is not None
    assert (status.phase, degraded.status, degraded.reason) == ("Degraded", "True", "PairingFailed")
    silent = waits.judged(one, report.judge(one, ["n1", "n2"]), NOW + 2 * LIMIT)
    assert (silent.phase, silent.reason) == (phase, "AgentNotResponding")
    assert phases(one, waits=waits) == [phase]


@pytest.mark.parametrize(
    ("phase", "status", "reason"),
    [
        ("Connected", True, "Connected"),
        ("Connected", None, "AgentNotResponding"),
        ("Paused", False, "Paused"),
        ("Unstable", False, "ConnectionUnstable"),
        ("Failed", False, "NoSpace"),
        ("Pending", False, "IdentityNotGiven"),
    ],
)
def test_who_was_something_else_for_hours_has_only_begun_to_wait(phase: str, status: bool | None, reason: str) -> None:
    """A connection is lost, an agent is back, a guest runs again, a disk has room again."""
    one = said(reported("Listening", "Connecting"), phase, status, reason)
    assert phases(one, timedelta(minutes=4), LIMIT) == ["Connecting", "Connecting", "Failed"]
    refused = said(reported("Listening", "Rejected"), phase, status, reason)
    assert phases(refused, timedelta(seconds=14), timedelta(seconds=15)) == ["Connecting", "Connecting", "Failed"]


@pytest.mark.parametrize("phase", ["Connecting", "Failed"])
def test_an_operator_that_starts_goes_on_where_the_last_one_was(phase: str) -> None:
    """Or its restart would take the alert away for a quarter of an hour."""
    assert phases(said(reported("Listening", "Connecting"), phase, False, "Connecting")) == ["Failed"]


def test_who_is_connected_between_begins_again() -> None:
    waits = Waits()
    one, connected = reported("Listening", "Connecting"), reported("Connected", "Connected")
    assert phases(one, LIMIT, waits=waits) == ["Connecting", "Failed"]
    assert phases(connected, waits=waits) == ["Connected"]
    assert phases(one, timedelta(minutes=4), waits=waits) == ["Connecting", "Connecting"]
    waits.keep(())
    assert phases(one, waits=waits) == ["Connecting"]
