"""Whose identity is whose, and whether the two guests of a pairing have been given each other's. Pure.

An identity is the public key of a guest's module, which draws another one each time it is loaded. The guest's agent
reports it, the pairing names it, and the agents write each guest's into the other. What is not known now, because an
agent is down or a module not loaded, stays in the pairing as it was.

Nobody can pose as a guest by claiming its identity: that takes the private half. But a lender takes an identity from
one borrower only, so whoever claimed another's could keep that one out. So a guest keeps what a pairing names it by,
and of those that claim the same without having it, nobody is believed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tidepool_api import Condition, ConditionType, Reason, Status, condition, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidepool_api import MemoryGuest, MemoryPairing, Ref
    from tidepool_operator.planning.build import Body

# A guest that reboots, or whose module is brought to it, takes a minute or two and is no reason to call anybody.
OVERDUE_AFTER = timedelta(minutes=5)


class Gap(NamedTuple):
    """What is still to be done before two guests know each other."""

    reason: str
    message: str


@dataclass(frozen=True)
class Claims:
    """What the guests report of their identities, by guest."""

    believed: Mapping[Ref, str] = field(default_factory=dict)
    disputed: Mapping[Ref, str] = field(default_factory=dict)
    """Those that are not believed, because somebody else has them or claims them, too."""


class _End(NamedTuple):
    side: str
    guest: Ref
    identity: str | None
    given: str | None  # what its guest has been told of the other


def claims(
    guests: Mapping[Ref, MemoryGuest], pairings: Iterable[MemoryPairing], others: Mapping[str, Ref] | None = None
) -> Claims:
    """Which of the reported identities are believed; `others` are those of pairings elsewhere, each with its guest."""
    reported = {name: one.status.identity for name, one in guests.items() if one.status.identity}
    count = Counter(reported.values())
    owners = {**(others or {}), **{end.identity: end.guest for one in pairings for end in _ends(one) if end.identity}}
    believed = {
        name: identity
        for name, identity in reported.items()
        if owners.get(identity) == name or (identity not in owners and count[identity] == 1)
    }
    return Claims(believed, {name: identity for name, identity in reported.items() if name not in believed})


def elsewhere(namespace: str, pairings: Iterable[MemoryPairing]) -> dict[str, Ref]:
    """The guests that pairings of other namespaces name, by their identities, as this namespace knows them."""
    found = {}
    for one in pairings:
        for key, end in ((one.lender, one.spec.lender), (one.borrower, one.spec.borrower)):
            if end.identity:
                found[end.identity] = key.seen_from(namespace)
    return found


def introduced(spec: Body, lender: Ref, borrower: Ref, known: Claims) -> Body:
    """The spec of a new pairing with the identities of its guests, as far as they are known."""
    ends = {"lender": known.believed.get(lender), "borrower": known.believed.get(borrower)}
    return spec | {side: spec[side] | {"identity": one} for side, one in ends.items() if one}


def news(pairing: MemoryPairing, known: Claims) -> Body:
    """The patch of a pairing's spec that names its guests as they are known now; empty if it does so already."""
    return {
        end.side: {"identity": known.believed[end.guest]}
        for end in _ends(pairing)
        if known.believed.get(end.guest, end.identity) != end.identity
    }


def gap(pairing: MemoryPairing) -> Gap | None:
    """What keeps the two guests of a pairing from knowing each other; None if nothing does."""
    ends = _ends(pairing)
    unknown = [f"{end.side} {end.guest}" for end in ends if end.identity is None]
    if unknown:
        message = f"waiting for the identity of {' and '.join(unknown)}, which is known once the module is loaded there"
        return Gap("IdentityUnknown", message)
    waiting = [
        f"{end.side} {end.guest} that of {peer.side} {peer.guest}"
        for end, peer in zip(ends, reversed(ends), strict=True)
        if end.given != peer.identity
    ]
    if waiting:
        return Gap("IdentityNotGiven", f"waiting for the identities to be written: to {' and to '.join(waiting)}")
    return None


def judge(pairing: MemoryPairing, known: Claims, at: datetime) -> Condition:
    """What to say of the exchange: the first thing that is in its way, and whether that takes too long."""
    found = next(_disputes(pairing, known), None) or gap(pairing)
    if found is None:
        return _exchanged(pairing, Status.TRUE, "Exchanged", "each guest has been given the other's identity")
    limit = overdue_at(pairing)
    if limit is None or at < limit:
        return _exchanged(pairing, Status.FALSE, found.reason, found.message)
    message = (
        f"{found.message}; this takes longer than {OVERDUE_AFTER.seconds // 60} minutes: see the conditions of both "
        f"MemoryGuests, and this pairing's status.lender and status.borrower"
    )
    return _exchanged(pairing, Status.FALSE, Reason.OVERDUE, message)


def overdue_at(pairing: MemoryPairing) -> datetime | None:
    """From when on the exchange takes too long; None if none is under way, as far as the pairing says."""
    before = find(pairing.status.conditions, ConditionType.IDENTITIES_EXCHANGED)
    waits = before is not None and before.status is Status.FALSE and not pairing.terminating
    return before.last_transition_time + OVERDUE_AFTER if before and waits else None


def is_overdue(pairing: MemoryPairing, at: datetime) -> bool:
    """Whether the two guests should know each other by now."""
    limit = overdue_at(pairing)
    return limit is not None and at >= limit


def is_bad_news(pairing: MemoryPairing, fresh: Condition) -> bool:
    """Whether the exchange has become overdue since the pairing's status was written."""
    before = find(pairing.status.conditions, ConditionType.IDENTITIES_EXCHANGED)
    return fresh.reason == Reason.OVERDUE and (before is None or before.reason != Reason.OVERDUE)


def _ends(pairing: MemoryPairing) -> tuple[_End, _End]:
    spec, status = pairing.spec, pairing.status
    to_lender = status.lender.peer_identity if status.lender else None
    to_borrower = status.borrower.peer_identity if status.borrower else None
    return (
        _End("lender", pairing.lender_ref, spec.lender.identity, to_lender),
        _End("borrower", pairing.borrower_ref, spec.borrower.identity, to_borrower),
    )


def _disputes(pairing: MemoryPairing, known: Claims) -> Iterator[Gap]:
    for end in _ends(pairing):
        if end.guest in known.disputed:
            message = (
                f"{end.side} {end.guest} reports the identity {known.disputed[end.guest]}, which another guest has or "
                f"reports, too: if it is a copy of that one's memory load its module anew, else look at node and agent"
            )
            yield Gap("IdentityDisputed", message)


def _exchanged(pairing: MemoryPairing, status: Status, reason: str, message: str) -> Condition:
    generation = pairing.metadata.generation
    return condition(ConditionType.IDENTITIES_EXCHANGED, status, reason, message, observed_generation=generation)
