"""All addresses of a guest are of use, and one that works is not given up for one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidepool_agent.addresses import chosen, distinct, interface, reachable
from tidepool_agent.guestfs import Peer
from tidepool_api import Interface, Network
from tidepool_api.network import MOST_ADDRESSES, MOST_INTERFACES

V4, V6, INNER = "10.0.0.2", "2001:db8::2", "10.0.2.2"
USELESS = ("fe80::1", "169.254.1.1", "127.0.0.1", "::1", "0.0.0.0", "::ffff:10.0.0.9", "ff02::1", "", "no")
ZONED = st.builds("{}%{}".format, st.ip_addresses(v=6), st.text(max_size=99))


def peer(address: str, state: str = "Connecting", reason: str = "") -> Peer:
    """What the module says of a lender."""
    return Peer({"enabled": "1", "address": address, "state": state, "reason": reason})


@pytest.mark.parametrize(
    "useless",
    ["fe80::1%eth0", *USELESS, *(f"2001:db8::9%{zone}" for zone in ("eth0", "1", "\x1b[2J", "x" * 300, "\ud800"))],
)
def test_an_address_that_means_nothing_to_others_is_not_told(useless: str) -> None:
    """A link-local one would lose its zone, and be looked for on whatever link the other guest has.

    Any address may have one, which may be any text: too long a one for the API once ended the agent of the whole node.
    """
    assert reachable((useless, V4, useless)) == (V4,)


def test_addresses_are_spelled_as_everybody_does_once_each() -> None:
    assert reachable(("2001:DB8:0:0::2", V4, V6, V4)) == (V6, V4)
    assert len(reachable(f"10.0.0.{at}" for at in range(99))) == MOST_ADDRESSES


@given(st.text() | st.ip_addresses().map(str) | ZONED)
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


@pytest.mark.parametrize(
    ("network", "at", "then"),
    [
        (Network(cidrs=("10.20.0.0/16",)), V4, "10.20.0.2"),
        (Network(multus="a/pages"), V4, "10.20.0.2"),
        (Network(cidrs=("10.20.0.0/16",)), "10.20.0.9", "10.20.0.9"),
        (Network(multus="a/pages"), "10.20.0.3", "10.20.0.3"),
    ],
)
def test_a_session_leaves_an_address_that_is_off_the_network(network: Network, at: str, then: str) -> None:
    """Though it works; one that is on the network stays, also when it is not named for a while."""
    assert chosen(("10.20.0.2", "10.20.0.3"), peer(at, "Connected"), network) == then


def test_an_interface_is_reported_whatever_the_guest_calls_it() -> None:
    assert interface("eth0", ("fe80::1%eth0", V4), "a/pages") == Interface(
        name="eth0", multus="a/pages", addresses=(V4,)
    )
    assert interface("\x1b[2J", ("no",), "pages") == Interface()


@given(st.text(), st.lists(st.text() | st.ip_addresses().map(str) | ZONED), st.text())
def test_any_interface_is_one_that_the_api_takes(name: str, found: list[str], multus: str) -> None:
    assert Interface.model_validate(interface(name, found, multus).to_dict())


def test_an_address_is_reported_once() -> None:
    """With the first interface that has it; of one without any it is told only that it is on a network."""
    first, again = interface("default", (V4,)), interface("eth0", (V4, V6))
    empty, unused = interface("nic1", (), "a/pages"), interface("eth2", ())
    assert distinct((first, again, empty, unused)) == (first, interface("eth0", (V6,)), empty)
    assert len(distinct(interface("x", (f"10.0.0.{at}",)) for at in range(99))) == MOST_INTERFACES
