"""Addresses of guests: which of its own others can use, and at which of a lender's its borrower looks for it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from tidepool_agent.guestfs import Peer
from tidepool_api import Interface, Network, is_network_name
from tidepool_api.network import MOST_ADDRESSES, MOST_INTERFACES

_NAME = re.compile(r"[A-Za-z0-9._:@-]{1,63}")  # of an interface; a guest may call it anything

# What the module says of an address at which its lender is not.
NOT_THERE = frozenset({"Unreachable", "NotALender", "OtherIdentity"})


def reachable(found: Iterable[str]) -> tuple[str, ...]:
    """Those of a guest's addresses that mean the same to others, as everybody spells them, once each.

    Some come from the guest itself, which may say anything. A link-local one holds on its own link only.
    """
    return tuple(dict.fromkeys(one for text in found if (one := _for_others(text))))[:MOST_ADDRESSES]


def _for_others(text: str) -> str:
    one = spelled(text)
    if not one:
        return ""
    known = ipaddress.ip_address(one)
    useless = known.is_link_local or known.is_loopback or known.is_unspecified or known.is_multicast
    return "" if useless or getattr(known, "ipv4_mapped", None) else one


def spelled(text: str) -> str:
    """An address as everybody spells it; nothing of what is none.

    One with a zone (`fe80::1%eth0`) is none: that is any text, of any length, and holds in the guest alone.
    """
    try:
        return "" if "%" in text else str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def interface(name: str, found: Iterable[str], multus: str = "") -> Interface:
    """An interface as it is reported, whoever says what it is called and which addresses it has."""
    return Interface(
        name=name if _NAME.fullmatch(name) else "",
        multus=multus if is_network_name(multus) else None,
        addresses=reachable(found),
    )


def distinct(found: Iterable[Interface]) -> tuple[Interface, ...]:
    """Interfaces without the addresses that an earlier one has; without any, only one whose network is known."""
    told: set[str] = set()
    kept = []
    for one in found:
        fresh = tuple(address for address in one.addresses if address not in told)
        told.update(fresh)
        if fresh or one.multus:
            kept.append(one.model_copy(update={"addresses": fresh}))
    return tuple(kept[:MOST_INTERFACES])


def chosen(candidates: Sequence[str], peer: Peer | None, network: Network | None = None) -> str:
    """At which of these its borrower looks for a lender; the first one is preferred.

    One that works is kept for as long as it does, also when it is no longer named: what names it may be wrong for a
    while, and the session would end. Not so one that is off the network that the pool names. After one at which the
    lender is not comes the next.
    """
    current = spelled(peer.attributes.get("address", "")) if peer else ""
    allowed = network is None or current in candidates or (bool(current) and network.covers(current))
    if peer and current and peer.state == "Connected" and allowed:
        return current
    if peer is None or current not in candidates:
        return candidates[0]
    at = candidates.index(current)
    return candidates[(at + 1) % len(candidates)] if peer.reason in NOT_THERE else current
