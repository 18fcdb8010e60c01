"""What the agent says about programs' memory in a guest: pure, from what was found to a status and a condition."""

from __future__ import annotations

from dataclasses import dataclass

from tidepool_agent.applications import Offer
from tidepool_agent.appmem import AppMemory
from tidepool_agent.errors import GuestError
from tidepool_agent.needs import settled
from tidepool_api import Condition, ConditionType, GuestApplications, Reason, condition
from tidepool_api.applications import DEVICE
from tidepool_api.fields import total

KIND = ConditionType.APPLICATIONS_READY


@dataclass(frozen=True)
class Standing:
    """How far a guest is with the memory that its programs are to have."""

    wanted: Offer | None = None
    failed: GuestError | None = None
    """Why they could not be given it, or it could not be taken from them."""
    holders: tuple[str, ...] = ()
    """Processes that keep the module, where it is to go."""


def described(there: AppMemory | None, before: GuestApplications | None) -> GuestApplications | None:
    """What programs keep, as the status of their guest has it."""
    if there is None:
        return None
    count = there.stats.get
    return GuestApplications(
        size_bytes=there.size_bytes,
        used_bytes=settled(total((count("bytes", 0),)), before.used_bytes if before else None),
        mode=there.mode,
        group=there.group,
        opened=there.opened,
        pools=count("pools", 0),
        values=count("values", 0),
        hits=count("hits", 0),
        misses=count("misses", 0),
        lost=count("lost", 0),
        puts=count("puts", 0),
        page_hits=count("page_hits", 0),
        local_hits=count("local", 0),
        front_bytes=total((count("front_bytes", 0),)),
        disk_reads=count("spilled", 0),
    )


def conditions(there: AppMemory | None, standing: Standing) -> list[Condition]:
    """ApplicationsReady, while there is something to say."""
    if standing.wanted is None:
        return [] if there is None else [_leftover(there, standing)]
    if there and standing.wanted.is_met(there):
        return [condition(KIND, True, "Given", f"{DEVICE} has mode {there.mode} and group {there.group}")]
    if error := standing.failed:
        return [condition(KIND, False, error.reason, f"{error}{_meanwhile(there)}")]
    return [condition(KIND, False, Reason.SETTING_UP, f"{DEVICE} is being set up")]


def _meanwhile(there: AppMemory | None) -> str:
    return f"; until then {DEVICE} keeps mode {there.mode} and group {there.group}" if there and there.mode else ""


def _leftover(there: AppMemory, standing: Standing) -> Condition:
    """Why the device is still there that nobody asks for."""
    if there.is_held:
        message = f"{held(standing.holders)}, and nothing more is put there: end what uses it"
        return condition(KIND, False, "StillInUse", message)
    if error := standing.failed:
        return condition(KIND, False, error.reason, str(error))
    return condition(KIND, False, Reason.SETTING_UP, f"{DEVICE} is being given up")


def held(holders: tuple[str, ...]) -> str:
    """That programs have the device open, and which, if they are known."""
    who = f" ({', '.join(holders)})" if holders else ""
    return f"{DEVICE} is open in the guest{who}"
