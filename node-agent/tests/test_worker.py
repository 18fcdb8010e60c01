"""How soon a guest is looked at again."""

from __future__ import annotations

from objects import observation, pairing, want

from tidepool_agent import plan
from tidepool_agent.guestfs import Peer, Side
from tidepool_agent.worker import COLLECT_EVERY, IDLE_EVERY, SETTLING_SECONDS, SOON, next_look

BORROWED = want(Side.LENDERS, pairing(address="10.0.0.2"))
WANTED = plan.desired("borrower", [BORROWED.pairing])


def pause(state: str, address: str = "10.0.0.2", idle: float = SETTLING_SECONDS) -> float:
    """Until the next look at a borrower whose module says this of its lender."""
    peer = Peer({**BORROWED.attributes, "enabled": "1", "state": state, "address": address})
    return next_look(WANTED, observation(loaded=True, peers={BORROWED.key: peer}), idle)


def test_a_session_at_an_address_that_is_no_longer_named_is_watched() -> None:
    """Its lender may have moved: when it ends the borrower is sent on at once, while the lender still has its pages."""
    assert pause("Connected") == COLLECT_EVERY
    assert pause("Connected", "10.0.0.9") == SOON


def test_what_was_done_is_soon_seen() -> None:
    assert (pause("Connecting", idle=1), pause("Connected", idle=1)) == (SOON, COLLECT_EVERY)
    assert (pause("Connecting"), next_look(plan.desired("x", []), observation(), 99)) == (COLLECT_EVERY, IDLE_EVERY)
