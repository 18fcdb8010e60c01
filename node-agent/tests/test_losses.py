"""A connection that is there at every look, and was lost between them."""

from __future__ import annotations

from objects import observation, pairing, want

from tidepool_agent import report
from tidepool_agent.guestfs import Peer, Side
from tidepool_agent.losses import WINDOW_SECONDS, Losses
from tidepool_agent.report import Finding
from tidepool_api import Status

BORROWED = want(Side.LENDERS, pairing())


def look(losses: Losses, now: float, lost: int, side: Side = Side.LENDERS) -> bool:
    """Whether the lender counts as one that is lost again and again, after so many losses."""
    peer = Peer({"enabled": "1", "state": "Connected"}, {"disconnects": lost})
    return (side, "p1") in losses.add(observation(loaded=True, peers={(side, "p1"): peer}), now)


def test_a_connection_that_is_lost_every_ten_seconds_is_noticed() -> None:
    losses = Losses()
    assert [look(losses, 10.0 * at, at) for at in range(5)] == [False, False, False, True, True]
    assert look(losses, 10 + WINDOW_SECONDS, 4)
    assert not look(losses, 11 + WINDOW_SECONDS, 4)


def test_a_few_losses_are_nothing_to_speak_of() -> None:
    """Nor is one that counts anew, nor a borrower that comes and goes: that one says it itself."""
    losses = Losses()
    assert not any(look(losses, 60.0 * at, at) for at in range(20))
    assert not look(losses, 1201.0, 0)
    assert not look(losses, 1202.0, 2)
    assert not any(look(losses, 1300.0 + at, 5 * at, Side.BORROWERS) for at in range(5))


def test_the_borrower_says_what_makes_a_connection_be_lost_like_that() -> None:
    """It is set up as it should be; what is in the way is the path."""
    peer = Peer({"enabled": "1", "state": "Connected"})
    seen = observation(loaded=True, peers={BORROWED.key: peer})
    (said,) = report.end(BORROWED, Finding(seen=seen, losing=frozenset({BORROWED.key}))).conditions
    assert (said.status, said.reason) == (Status.TRUE, "ConnectionUnstable")
    assert "MTU" in said.message
    (fine,) = report.end(BORROWED, Finding(seen=seen)).conditions
    assert fine.reason == "Configured"
