"""What the agent says of a guest from which memory is gathered: pure, from what its balloon does to its MemoryGuest."""

from __future__ import annotations

from dataclasses import dataclass

from tidepool_agent.balloon import Figures, Verdict
from tidepool_agent.errors import GuestError
from tidepool_api import Condition, ConditionType, GuestBalloon, GuestStatus, condition, merge, without
from tidepool_api.fields import readable

KIND = ConditionType.BALLOON_READY
_STATUS = {"NoStatistics": False, "GivingBack": False, "Watching": None}
_WORDS = {
    "Gathering": "what it has available beyond {reserve} is its node's until it needs it",
    "Beginning": "what it has available beyond {reserve} is about to be its node's, until it needs it",
    "NothingIdle": "it has nothing idle beyond {reserve} that its node has not already",
    "GivenBack": "it needs its memory: it has got back what it was short of, and nothing is taken for a minute",
    "Watching": "nothing is taken before it has been without pressure for a minute",
    "NoStatistics": "its balloon driver says nothing of its memory: it needs one that does, such as Linux's "
    "virtio_balloon, or on Windows the balloon service",
    "GivingBack": "{why}: it has all of its memory again, or is about to",
}

_TAKING = frozenset({"Gathering", "Beginning"})
_ALONE = "; its domain has no autodeflate, so while no agent runs it gets nothing back"


@dataclass(frozen=True)
class Standing:
    """What a guest's status says of its balloon; nothing of one from which nothing is gathered."""

    balloon: GuestBalloon | None = None
    condition: Condition | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the balloon has not been seen yet: what was said of it before may still be so."""
        return self.balloon is None and self.condition is not None

    @property
    def gathered(self) -> int:
        """Bytes that its node has of it."""
        return self.balloon.gathered_bytes if self.balloon else 0


NOTHING = Standing()


def standing(now: Figures, reserve: int | None, verdict: Verdict, why: str = "", *, deflates: bool = False) -> Standing:
    """How far a balloon is; `why` says why all is to be given back, where it is.

    `deflates`: whether the guest also helps itself. If not it depends on an agent that runs, and that is said.
    """
    message = _WORDS[verdict.reason].format(reserve=readable(reserve or 0), why=why)
    if verdict.reason in _TAKING and not deflates:
        message += _ALONE
    return _said(now, reserve, condition(KIND, _STATUS.get(verdict.reason, True), verdict.reason, message))


def troubled(now: Figures, reserve: int | None, error: GuestError, *, ours: bool = True) -> Standing:
    """How a balloon is that does not do what it should; one that is not `ours` holds nothing for the node."""
    found = _said(now, reserve, condition(KIND, False, error.reason, str(error)))
    if ours or found.balloon is None:
        return found
    return Standing(GuestBalloon(full_bytes=now.full, gathered_bytes=0, reserve_bytes=reserve), found.condition)


def unknown(before: Standing, error: GuestError) -> Standing:
    """How a balloon was, of which nothing is known now."""
    return Standing(before.balloon, condition(KIND, None, error.reason, str(error)))


def _said(now: Figures, reserve: int | None, said: Condition) -> Standing:
    held = GuestBalloon(full_bytes=now.full, gathered_bytes=now.gathered, reserve_bytes=reserve)
    return Standing(held, said)


def shown(status: GuestStatus, found: Standing | None, before: GuestStatus) -> GuestStatus:
    """A status with what is to be said of the guest's balloon; None leaves what was said `before`."""
    if found is None:
        return status if before.balloon is None else status.model_copy(update={"balloon": before.balloon})
    balloon = before.balloon if found.is_unknown else found.balloon
    said = (found.condition,) if found.condition else ()
    present = status.conditions if said else without(status.conditions, KIND)
    return status.model_copy(update={"balloon": balloon, "conditions": merge(present, *said)})
