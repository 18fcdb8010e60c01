"""What a pool's borrowers have beside files, and is not as the pool asks, as their agents report it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidepool_api import ConditionType, Reason, Status, find
from tidepool_operator.planning.selection import Problem, ProblemReason, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidepool_api import MemoryGuest, Ref

_REASONS = {
    ConditionType.DEVICES_READY: ProblemReason.DEVICES_NOT_READY,
    ConditionType.SWAP_READY: ProblemReason.SWAP_NOT_READY,
    ConditionType.APPLICATIONS_READY: ProblemReason.APPLICATIONS_NOT_READY,
}


def not_as_asked(borrowers: Mapping[Ref, MemoryGuest]) -> Iterator[Problem]:
    """What is in the way of devices, swap and memory for programs; what is only being set up is not."""
    for kind, reason in _REASONS.items():
        found = {name: why for name, guest in borrowers.items() if (why := _trouble(guest, kind))}
        if found:
            first, *others = sorted(found)
            more = f"; not as asked in {listed(others)} either" if others else ""
            yield Problem(reason, f"{listed([first])}: {found[first]}{more}", tuple(sorted(found)))


def _trouble(guest: MemoryGuest, kind: ConditionType) -> str:
    """Why a guest has not what it is to have; empty if it has, or will."""
    one = find(guest.status.conditions, kind)
    if one is None or one.status is not Status.FALSE or one.reason == Reason.SETTING_UP:
        return ""
    return one.message
