"""All addresses of a guest are of use, and one that works is not given up for one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_agent.addresses import MOST, chosen, reachable
from tidepool_agent.guestfs import Peer

V4, V6, INNER = "10.0.0.2", "2001:db8::2", "10.0.2.2"


def peer(address: str, state: str = "Connecting", reason: str = "") -> Peer:
    """What the module says of a lender."""
    return Peer({"enabled": "1", "address": address, "state": state, "reason": reason})


@pytest.mark.parametrize(
    "useless",
    ["fe80::1%eth0", "fe80::1", "169.254.1.1", "127.0.0.1", "::1", "0.0.0.0", "::ffff:10.0.0.9", "ff02::1", "", "no"],
)
def test_an_address_that_means_nothing_to_others_is_not_told(useless: str) -> None:
    """A link-local one would lose its zone, and be looked for on whatever link the other guest has."""
    assert reachable((useless, V4, useless)) == (V4,)


def test_addresses_are_spelled_as_everybody_does_once_each() -> None:
    assert reachable(("2001:DB8:0:0::2", V4, V6, V4)) == (V6, V4)
    assert len(reachable(f"10.0.0.{at}" for at in range(99))) == MOST


@given(st.text() | st.ip_addresses().map(str))
def test_whatever_a_guest_calls_itself_is_an_address_or_left_out(text: str) -> None:
    assert reachable(reachable((text,))) == reachable((text,))


@pytest.mark.parametrize("named", [(V4, V6), (V6, V4), (INNER,), (INNER, V4)])
def test_an_address_that_works_is_kept(named: tuple[str, ...]) -> None:
    """Also when another one is named instead for a while: the session would end, and its cache with it."""
    assert chosen(named, peer(V4, "Connected")) == V4


def test_after_one_that_does_not_work_comes_the_next() -> None:
    """An IPv6 address that nobody reaches does not hide the IPv4 one; where all fail, each is tried again."""
    named, at, tried = (V6, V4, INNER), V6, []
    for _ in range(4):
        tried.append(at)
        at = chosen(named, peer(at, reason="Unreachable"))
    assert tried == [V6, V4, INNER, V6]
    for reason in ("NotALender", "OtherIdentity"):
        assert chosen(named, peer(V6, "Rejected", reason)) == V4


@pytest.mark.parametrize("reason", ["", "UnknownIdentity", "Disabled", "Full", "VersionMismatch"])
def test_a_lender_that_is_there_is_not_looked_for_elsewhere(reason: str) -> None:
    """It is being tried, or has answered."""
    assert chosen((V6, V4), peer(V4, "Rejected" if reason else "Connecting", reason)) == V4


@pytest.mark.parametrize("present", [None, Peer(), peer("10.9.9.9"), peer("nonsense", "Connected")])
def test_the_first_one_is_preferred(present: Peer | None) -> None:
    assert chosen((V6, V4), present) == V6
