"""When a pairing gets another key, and how far that is. Pure.

A key is never changed in its Secret. Another Secret is made and the pairing names it; the agents write its key into
their guests, where the session that there is goes on and the next handshake uses it; when both have done so, the former
Secret goes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from tidepool_api import Condition, ConditionType, Status, condition, find

if TYPE_CHECKING:
    from tidepool_api import KeySecret, MemoryPairing, MemoryPool

# A guest that does not answer for a moment is no reason to call anybody.
OVERDUE_AFTER = timedelta(minutes=10)
# Keys that were made together are replaced in the last tenth of their lifetime, not all at a time.
SPREAD = 0.1
NOT_TAKEN_UP = "NotTakenUp"
NAMES = ("{}-key", "{}-key-b")  # by turns, so that an interrupted replacement leaves nothing that is not found again


def first_name(pairing: str) -> str:
    """The Secret of a new pairing of that name."""
    return NAMES[0].format(pairing)


def next_name(pairing: MemoryPairing) -> str:
    """The Secret after the present one."""
    names = [name.format(pairing.name) for name in NAMES]
    return names[1] if pairing.spec.key_secret.name == names[0] else names[0]


def made_at(pairing: MemoryPairing) -> datetime | None:
    """When the present key was made."""
    return pairing.spec.key_secret.made_at or pairing.metadata.creation_timestamp


def expiry(pool: MemoryPool, pairing: MemoryPairing) -> datetime | None:
    """When the present key is to be replaced; None if never. While it is still being taken up, it is not."""
    made, wanted = made_at(pairing), pool.spec.keys
    if made is None or pairing.spec.key_secret.former:
        return None
    moments = []
    if wanted.lifetime_seconds is not None:
        part = crc32(pairing.metadata.uid.encode()) / 0xFFFFFFFF
        moments.append(made + timedelta(seconds=wanted.lifetime_seconds * (1 - SPREAD * part)))
    if wanted.not_before is not None and made < wanted.not_before:
        moments.append(wanted.not_before)
    return min(moments, default=None)


def successor(pairing: MemoryPairing, at: datetime) -> KeySecret:
    """What the pairing says of its key once that is replaced."""
    present = pairing.spec.key_secret
    return present.model_copy(update={"name": next_name(pairing), "made_at": at, "former": present.name})


def behind(pairing: MemoryPairing) -> list[str]:
    """The guests that do not have the present key yet."""
    status, name = pairing.status, pairing.spec.key_secret.name
    ends = ((status.lender, pairing.lender_ref), (status.borrower, pairing.spec.borrower.guest))
    return [guest for end, guest in ends if end is None or end.key_secret != name]


def overdue_at(pairing: MemoryPairing) -> datetime | None:
    """From when on it is too long that a guest does not take the present key up; None if none is to."""
    made = made_at(pairing)
    return made + OVERDUE_AFTER if made and pairing.spec.key_secret.former and behind(pairing) else None


def is_overdue(pairing: MemoryPairing, at: datetime) -> bool:
    """Whether a guest should have the present key by now."""
    limit = overdue_at(pairing)
    return limit is not None and at >= limit and not pairing.terminating


def judge(pairing: MemoryPairing, at: datetime) -> Condition | None:
    """What to say of a key that is being replaced, or has been; None of one that never was."""
    secret, guests = pairing.spec.key_secret, behind(pairing)
    if secret.former and guests:
        names = " and ".join(guests)
        reason, message = "BeingReplaced", f"{names} to be given the key of the Secret {secret.name}"
        if is_overdue(pairing, at):
            reason = NOT_TAKEN_UP
            message = (
                f"{names} did not get the key of the Secret {secret.name}; pages still flow, but a connection that is "
                f"lost cannot be made again: see the MemoryGuest, and this pairing's status.lender and status.borrower"
            )
        return _current(pairing, Status.FALSE, reason, message)
    if secret.former or find(pairing.status.conditions, ConditionType.KEY_CURRENT):
        return _current(pairing, Status.TRUE, "TakenUp", f"both guests have the key of the Secret {secret.name}")
    return None


def is_bad_news(pairing: MemoryPairing, fresh: Condition) -> bool:
    """Whether a key has become overdue since the pairing's status was written."""
    before = find(pairing.status.conditions, ConditionType.KEY_CURRENT)
    return fresh.reason == NOT_TAKEN_UP and (before is None or before.reason != NOT_TAKEN_UP)


def _current(pairing: MemoryPairing, status: Status, reason: str, message: str) -> Condition:
    generation = pairing.metadata.generation
    return condition(ConditionType.KEY_CURRENT, status, reason, message, observed_generation=generation)
