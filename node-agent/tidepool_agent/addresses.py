"""Addresses of guests: which of its own others can use, and at which of a lender's its borrower looks for it. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from tidepool_agent.guestfs import Peer

MOST = 16

# What the module says of an address at which its lender is not.
NOT_THERE = frozenset({"Unreachable", "NotALender", "OtherIdentity"})


def reachable(found: Iterable[str]) -> tuple[str, ...]:
    """Those of a guest's addresses that mean the same to others, as everybody spells them, once each.

    Some come from the guest itself, which may say anything. A link-local one holds on its own link only, and its zone
    (`fe80::1%eth0`) in the guest alone.
    """
    return tuple(dict.fromkeys(one for text in found if (one := _for_others(text))))[:MOST]


def _for_others(text: str) -> str:
    one = spelled(text)
    if not one:
        return ""
    known = ipaddress.ip_address(one)
    useless = known.is_link_local or known.is_loopback or known.is_unspecified or known.is_multicast
    return "" if useless or getattr(known, "ipv4_mapped", None) else one


def spelled(text: str) -> str:
    """An address as everybody spells it; nothing of what is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def chosen(candidates: Sequence[str], peer: Peer | None) -> str:
    """At which of these its borrower looks for a lender; the first one is preferred.

    One that works is kept for as long as it does, also when it is no longer named: what names it may be wrong for a
    while, and the session would end. After one at which the lender is not comes the next.
    """
    current = spelled(peer.attributes.get("address", "")) if peer else ""
    if peer and current and peer.state == "Connected":
        return current
    if peer is None or current not in candidates:
        return candidates[0]
    at = candidates.index(current)
    return candidates[(at + 1) % len(candidates)] if peer.reason in NOT_THERE else current
