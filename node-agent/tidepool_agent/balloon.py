"""How much of a guest its balloon holds for the node: pure, from what its driver and its host say of it.

The guest is believed in one direction only. A word of it has memory given back, at once and all of it; to have some
taken it has to say for a while that it lies idle. A page is never counted twice: what the guest has never touched, or
has reported free, its node has already, and taking that brings nothing (`unbacked`).

TCC 2022 (section 3.3) takes what a working set leaves, and guarantees each guest the memory that it began with. Puma
(section 4.7) shows what it costs to be late: allocations that wait for a balloon took 20 ms on average, some a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidepool_agent.errors import GuestError
from tidepool_api.units import MIB

# How often the guest is looked at, and its driver asked for figures. Puma's allocations of 4.7 take all of a guest's
# memory within ten minutes: between two looks that is a 300th of it.
EVERY_SECONDS = 2.0
# A step is taken so seldom that what it does to the guest is seen before the next: five looks.
STEP_SECONDS = 10.0
# And so small that all that is idle is taken in five minutes at the earliest. TCC 2022 (3.1.2) asks of whoever finds
# out what a guest needs that the guest does not feel it.
STEP_PART = 32
# Less than this is not worth the pages that a guest has to look for, and what is available always moves so much.
LEAST_STEP = 32 * MIB
# Of what is taken at least this part has to be news to the node. Nobody chooses which pages a guest gives: it may give
# first what it has never touched, or has reported free.
WORTH_PART = 4
# So much more than the reserve stays available, as a part of it: what is given back at the reserve is not taken again
# at once. With 1Gi it is 128Mi, sixteen times what the guest of Puma's 4.7 (4.5 GB) allocates between two looks.
SLACK_PART = 8
# So long a guest has to have been without pressure before anything is taken: memory that one was short of a moment ago
# is no idle memory, and this is as long as the averages go by which Tidepool judges pressure elsewhere.
CALM_SECONDS = 60.0
# A driver that has said nothing for so long says nothing of what the guest needs now (TCC 2022, 3.1.3: the controller
# acts on working sets that are told periodically). KubeVirt and Nova have drivers asked every 10 s.
STALE_SECONDS = 25.0
# Pages that programs wait for the disk to bring, each second: more than a start of a program in an idle guest brings,
# and few for one whose program text has been evicted (the buffer cache method of TCC 2022, 3.1.2, counts reloads).
MAJOR_FAULTS = 100.0
# Below this part of the reserve what is missing is not counted: all is given back.
SHORT_PART = 2
# A balloon that has not moved for so long does not.
STALL_SECONDS = 30.0
# So long a balloon has another size than it was told until somebody else is said to have changed it: a guest that
# reboots begins with an empty one, and fills it again within seconds.
STRANGE_SECONDS = 20.0


@dataclass(frozen=True)
class Figures:
    """What is known of a guest's memory at one time; sizes in bytes."""

    at: float
    """When that was, in seconds by the host's clock."""
    updated: float
    """When the guest's driver has last told anything of it; 0 if never."""
    full: int
    """What the guest has without a balloon."""
    actual: int
    """What it has now."""
    available: int | None
    """What it could use without evicting what it needs, by its kernel; None where the driver does not say."""
    resident: int | None = None
    """What the host has behind it, with QEMU's own."""
    swapped_in: int = 0
    """What it has read back from swap since it was booted."""
    major_faults: int = 0
    """Pages for which programs have waited for its disk, since then."""

    @property
    def gathered(self) -> int:
        """What the balloon holds."""
        return max(0, self.full - self.actual)

    @property
    def unbacked(self) -> int:
        """What the guest could use and its node has: it has never touched it, or has reported it free."""
        return 0 if self.resident is None else max(0, self.actual - self.resident)


@dataclass(frozen=True)
class Note:
    """What has last been told to a balloon. It is kept in the domain, not here: an agent may end at any time."""

    target: int
    """Bytes that the guest is to have."""
    reached: bool = False
    """Whether it had them once."""
    period: int = 0
    """How often the driver was asked for figures before, in seconds."""


@dataclass(frozen=True)
class Wish:
    """What is wanted of a guest."""

    reserve: int | None = None
    """Bytes that stay available in it; None where it is to have all of its memory."""
    steady: bool = False
    """Whether nothing more is taken for now."""


@dataclass(frozen=True)
class Verdict:
    """What a balloon is to be told."""

    target: int
    reason: str
    """In one word, for a condition."""


class SetByAnother(GuestError):
    """Somebody else changes this balloon."""

    reason = "SetByAnother"


class NotMoving(GuestError):
    """The guest does not do what its balloon is told."""

    reason = "NotMoving"


def remembered(history: Sequence[Figures], fresh: Figures) -> tuple[Figures, ...]:
    """The history with what is new; no longer than it takes to call a guest calm."""
    begin = fresh.at - CALM_SECONDS
    first = next((at for at, one in enumerate(history) if one.at > begin), len(history))
    return (*history[max(0, first - 1) :], fresh)


# ------------------------------------------------------------------------------------------------- what is to be done


def decide(history: Sequence[Figures], told: int, wish: Wish) -> Verdict:
    """How many bytes the guest should have now, where it has last been told to have so many."""
    if wish.reserve is None:
        return Verdict(history[-1].full, "GivingBack")
    return _given_back(history, told, wish.reserve) or _taken(history, told, wish.reserve, steady=wish.steady)


def _given_back(history: Sequence[Figures], told: int, reserve: int) -> Verdict | None:
    """What it is to have because it is short of memory, or says nothing; None if it has enough."""
    now = history[-1]
    if is_stale(history):
        return Verdict(now.full, "NoStatistics")
    if now.available is None:
        return Verdict(told, "Watching")
    if _pressed(history[-2:]) or now.available < reserve // SHORT_PART:
        return Verdict(now.full, "GivenBack")
    if now.available < reserve:
        missing = _above(reserve) - now.available
        return Verdict(max(told, min(now.full, _rounded_up(now.actual + missing))), "GivenBack")
    return None


def _taken(history: Sequence[Figures], told: int, reserve: int, *, steady: bool) -> Verdict:
    """What it is to have when what lies idle is taken, a step further if it is time."""
    now = history[-1]
    if not is_calm(history, reserve):
        return Verdict(told, "Watching")
    reason = "Gathering" if now.gathered else "Beginning"
    if steady or not _is_settled(history, told):
        return Verdict(told, reason)
    brings = _idle(now, reserve)
    step = min(brings, now.full // STEP_PART)
    if step < min(LEAST_STEP, now.full // STEP_PART) or brings * WORTH_PART < brings + now.unbacked:
        return Verdict(told, "Gathering" if now.gathered else "NothingIdle")
    return Verdict(min(told, _rounded_up(now.actual - step)), reason)


def is_stale(history: Sequence[Figures]) -> bool:
    """Whether the driver has said nothing for so long, in which somebody has listened."""
    heard = max((one.updated for one in history if one.available is not None), default=0.0)
    return history[-1].at - max(heard, history[0].at) >= STALE_SECONDS


def is_calm(history: Sequence[Figures], reserve: int) -> bool:
    """Whether the guest has had no pressure for as long as matters."""
    now = history[-1]
    has_enough = all(one.available is not None and one.available >= reserve for one in history)
    return now.at - history[0].at >= CALM_SECONDS and has_enough and not _pressed(history)


def _pressed(history: Sequence[Figures]) -> bool:
    """Whether the guest has read memory back, or was booted: then it needs what it can get.

    Any page from swap counts: a guest that swaps has less than it was given for. Counters that are lower than before
    are those of another boot.
    """
    return any(_is_worse(before, after) for before, after in itertools.pairwise(history))


def _is_worse(before: Figures, after: Figures) -> bool:
    faults = after.major_faults - before.major_faults
    seconds = max(after.at - before.at, after.updated - before.updated, 1.0)
    return before.swapped_in != after.swapped_in or faults < 0 or faults / seconds >= MAJOR_FAULTS


def _is_settled(history: Sequence[Figures], told: int) -> bool:
    """Whether the last step was done long enough ago to have been felt."""
    since = history[-1].at - STEP_SECONDS
    return all(one.actual == told for one in history if one.at >= since)


def _idle(now: Figures, reserve: int) -> int:
    """What the guest does not use and the node has not yet."""
    return (now.available or 0) - _above(reserve) - now.unbacked


def _above(reserve: int) -> int:
    """What stays available while more is taken."""
    return reserve + reserve // SLACK_PART


def _rounded_up(size: int) -> int:
    """A size that balloons have exactly, whatever the size of a guest's pages."""
    return -(-size // MIB) * MIB


# ------------------------------------------------------------------------------------------------- whose balloon it is


def present(history: Sequence[Figures], note: Note | None, *, ours: bool, since: float, deflates: bool = False) -> Note:
    """What the balloon was last told, as it is now; raises SetByAnother where that was somebody else.

    `ours`: whether the MemoryGuest says that an agent has filled it, for a note may be lost on the way to another node.
    `since` is when it was told, or this agent began to look. `deflates`: whether the guest may take out of it what it
    needs; who has more than it was told then has done that.
    """
    now = history[-1]
    if note is None:
        if now.actual == now.full or ours:
            return Note(now.actual, reached=True)
        raise SetByAnother("its balloon was filled before anything was gathered: whoever did that keeps it")
    if now.actual == note.target:
        return replace(note, reached=True)
    if note.reached:
        if not (deflates and has_more(now, note)):
            _check_ours(history, note)
        return note
    return _stalled(history, note) if now.at - since >= STALL_SECONDS else note


def is_strange(now: Figures, note: Note) -> bool:
    """Whether the balloon has left the size that it was told and had: nothing is done until it is known why."""
    return note.reached and now.actual != note.target


def has_more(now: Figures, note: Note) -> bool:
    """Whether the guest has more memory than its balloon was told to leave it, and had left it."""
    return note.reached and now.actual > note.target


def has_booted(history: Sequence[Figures]) -> bool:
    """Whether the guest was booted a short while ago: its kernel counts from the beginning."""
    return any(after.major_faults < before.major_faults for before, after in itertools.pairwise(history))


def _check_ours(history: Sequence[Figures], note: Note) -> None:
    now = history[-1]
    recent = [one for one in history if one.at >= now.at - STRANGE_SECONDS]
    if now.at - history[0].at >= STRANGE_SECONDS and all(one.actual != note.target for one in recent):
        raise SetByAnother(
            "somebody else changes its balloon (virsh setmem, another memory manager): it is left alone; have "
            "them stop, and take the guest out of the pool and in again"
        )


def _stalled(history: Sequence[Figures], note: Note) -> Note:
    """The note of a balloon that should have got there by now. What a guest has not given it keeps."""
    now = history[-1]
    recent = {one.actual for one in history if one.at >= now.at - STALL_SECONDS}
    if len(recent) > 1:
        return note
    if now.actual < note.target:
        raise NotMoving("the guest does not take back what its balloon holds: look at its kernel's log")
    if now.actual == now.full:
        raise NotMoving("its balloon does not move: the guest needs a driver for it, such as virtio_balloon")
    return replace(note, target=now.actual, reached=True)
