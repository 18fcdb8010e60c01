"""Gathers memory from the guests of this node that the operator has marked, and gives it back: a loop for each.

A guest is looked at only while its MemoryGuest has the mark, or says that its balloon holds something, or its domain
does. So nothing is asked of libvirt where no pool names a balloon. And before anything is taken that is written there:
an agent that comes after this one finds all guests that have less than their memory, be they still marked or not, and
also when somebody has deleted their MemoryGuest.

Each has a connection and a thread of its own. A guest agent that hangs, or a module that is being built, keeps no guest
from its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tidepool_agent import balloon, balloonreport
from tidepool_agent.balloon import Figures, Note, NotMoving, SetByAnother, Verdict, Wish
from tidepool_agent.balloondevice import BalloonDevice, Sight
from tidepool_agent.balloonreport import NOTHING, Standing
from tidepool_agent.cluster import Cluster
from tidepool_agent.errors import GuestError, Unreachable
from tidepool_agent.hypervisor import Lane
from tidepool_agent.metrics import Figures as Metrics
from tidepool_agent.provider import Machine
from tidepool_api import GuestKey, MemoryGuest, names, parse_quantity
from tidepool_api.kube import Object

log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS = 10.0
# So long a guest that is to lend waits for its own memory: a balloon that does not give it back in that time does not.
EMPTY_SECONDS = 30.0
NOBODY = "no pool has memory gathered from it any more"
NO_LENDER = "the node lender of its node is not there"
BUSY = "it lends or borrows itself"
MOVES = "it is about to be on another node, where nobody may look after its balloon"
# A change by so much of a guest's memory is reported before its turn.
NEWS_PART = 16


@dataclass(frozen=True)
class Tools:
    """What every donor needs."""

    cluster: Cluster
    metrics: Metrics
    connect: Callable[[Machine], BalloonDevice]
    lends: Callable[[], bool]
    """Whether the node lender is there, for which all of this is done."""
    changed: Callable[[GuestKey], None]
    """Told of a guest of which there is something to report."""


class Donors:
    """The guests of this node from which memory is gathered, or was."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._donors: dict[GuestKey, tuple[Donor, asyncio.Task[None]]] = {}
        self._found: set[GuestKey] = set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._settle()
            except Exception:
                log.exception("cannot settle from whom memory is gathered")
                self._tools.metrics.failed(self._tools.cluster.node, "")
            await asyncio.sleep(balloon.EVERY_SECONDS)

    def standing(self, key: GuestKey) -> Standing | None:
        """What to say of a guest's balloon; None where that is not known, or there is nothing to say."""
        found = self._donors.get(key)
        return found[0].standing if found else None

    def gathered(self) -> int:
        """What all balloons hold for the node."""
        return sum(donor.standing.gathered for donor, _ in self._donors.values() if donor.standing)

    def keeps(self, key: GuestKey) -> bool:
        """Whether a guest that is to lend has not all of its memory yet, and is about to."""
        found = self._donors.get(key)
        return found is not None and found[0].keeps()

    def found(self, key: GuestKey) -> None:
        """A guest's domain says that something was gathered from it, whoever knows of that."""
        self._found.add(key)

    async def _settle(self) -> None:
        """One donor for each guest that is to be one, or was and has not all of its memory yet."""
        cluster = self._tools.cluster
        marked = {key for key, body in cluster.guests().items() if concerns(body)}
        begun = {key for key, (donor, _) in self._donors.items() if donor.is_at_work()}
        wanted = {key: one for key in marked | begun | self._found if (one := cluster.machine(key))}
        self._found.clear()
        for key, (donor, _) in list(self._donors.items()):
            if key not in wanted or not donor.is_for(wanted[key]):
                await self._end(key)
        for key in wanted.keys() - self._donors.keys():
            donor = Donor(wanted[key], self._tools)
            self._donors[key] = donor, asyncio.create_task(donor.run())

    async def _end(self, key: GuestKey) -> None:
        _, task = self._donors.pop(key)
        task.cancel()
        await asyncio.wait({task})


def concerns(body: Object) -> bool:
    """Whether a MemoryGuest is that of a donor, or of one that was."""
    annotations = body["metadata"].get("annotations", {})
    return names.BALLOON_ANNOTATION in annotations or "balloon" in body.get("status", {})


class Donor:
    """Looks after the balloon of one guest until it is cancelled."""

    def __init__(self, machine: Machine, tools: Tools) -> None:
        self._machine, self._tools = machine, tools
        self._device = tools.connect(machine)
        self._lane = Lane(f"balloon {machine.key}")
        self.standing: Standing | None = None
        self._history: tuple[Figures, ...] = ()
        self._told_at: float | None = None
        self._told: int | None = None  # by this agent; the one before may have ended before it could
        self._leaving: float | None = None
        self._stuck: GuestError | None = None

    def is_for(self, machine: Machine) -> bool:
        """Whether this still is the way to the machine."""
        mine = self._machine
        return (mine.uid, mine.place, mine.domain) == (machine.uid, machine.place, machine.domain)

    def is_at_work(self) -> bool:
        """Whether there is, or may be, something left to be done."""
        return self.standing != NOTHING

    def keeps(self) -> bool:
        """Whether the balloon of a guest that is to lend holds something, so that this is waited for, but not for ever.

        That is asked before the balloon is looked at again, too: then it is about to be given back.
        """
        self._leaving = self._leaving or time.monotonic()
        holds = self.standing is None or self.standing.is_unknown or self.standing.gathered > 0
        return holds and time.monotonic() - self._leaving < EMPTY_SECONDS

    async def run(self) -> None:
        """Looks, for ever."""
        try:
            while True:
                await self._safe_look()
                await asyncio.sleep(balloon.EVERY_SECONDS)
        finally:
            self._lane.close(self._device.close)
            self._tools.metrics.gather(self._machine.key, None)

    async def _safe_look(self) -> None:
        try:
            await self._look()
        except GuestError as error:
            if self.standing is None or not isinstance(error, Unreachable):
                log.info("balloon of %s: %s: %s", self._machine.key, error.reason, error)
            self._say(balloonreport.unknown(self.standing or NOTHING, error))
        except Exception:
            log.exception("balloon of %s: the look failed", self._machine.key)
            self._tools.metrics.failed(self._tools.cluster.node, self._machine.namespace)

    # ---------------------------------------------------------------------------------------------- look, compare, act

    async def _look(self) -> None:
        wish, why = self._wish()
        sight = await self._call(self._device.look)
        self._history = balloon.remembered(self._history, sight.figures)
        self._told_at = self._told_at or sight.figures.at
        if balloon.has_booted(self._history):
            self._stuck = None
        error = sight.barred or self._stuck
        is_ours = self._is_ours() and sight.figures.gathered > 0
        if sight.note is None and (wish.reserve is None or error) and not is_ours:
            self._say(balloonreport.troubled(sight.figures, wish.reserve, error) if wish.reserve and error else NOTHING)
            return
        await self._follow(sight, wish, why, error)

    async def _follow(self, sight: Sight, wish: Wish, why: str, error: GuestError | None) -> None:
        """Does what is due with a balloon that may be ours."""
        now = sight.figures
        try:
            note, stuck = self._noted(sight)
        except SetByAnother as other:
            await self._leave_alone(sight, wish, other)
            return
        error = error or stuck
        has_helped_itself = sight.deflates and balloon.has_more(now, note)
        if balloon.is_strange(now, note) and not (balloon.has_booted(self._history) or has_helped_itself):
            return
        verdict = self._decided(note, wish if error is None else Wish())
        await self._carry_out(sight, note, verdict)
        if wish.reserve is None and _is_empty(now, note):
            await self._finish(note)
            return
        said = balloonreport.standing(now, wish.reserve, verdict, why, deflates=sight.deflates)
        self._say(said if error is None else balloonreport.troubled(now, wish.reserve, error))

    def _noted(self, sight: Sight) -> tuple[Note, GuestError | None]:
        """What the balloon was last told, and that it does not move if so; one that never has is not tried again."""
        now = sight.figures
        try:
            since, ours = self._told_at or now.at, self._is_ours()
            found = balloon.present(self._history, sight.note, ours=ours, since=since, deflates=sight.deflates)
        except NotMoving as stuck:
            self._stuck = stuck if now.actual == now.full else None
            return sight.note or Note(now.actual), stuck
        return found, None

    def _decided(self, note: Note, wish: Wish) -> Verdict:
        """What is to be told; a balloon that is strange is emptied: its guest has rebooted, or was short of memory."""
        now = self._history[-1]
        if balloon.is_strange(now, note):
            return Verdict(now.full, "GivenBack")
        return balloon.decide(self._history, note.target, wish)

    async def _carry_out(self, sight: Sight, note: Note, verdict: Verdict) -> None:
        """Tells the balloon what is new, and notes what is known of it."""
        if sight.note is None:
            note = replace(note, period=sight.period)
            await self._call(lambda: self._device.ask_every(round(balloon.EVERY_SECONDS)))
        if verdict.target != note.target or not (note.reached or self._told == note.target):
            told = Note(verdict.target, period=note.period)
            await self._call(lambda: self._device.tell(told))
            self._told, self._told_at = told.target, sight.figures.at
            log.log(*_news(verdict, note), self._machine.key, verdict.target >> 20, verdict.reason)
        elif note != sight.note:
            await self._call(lambda: self._device.note(note))

    async def _leave_alone(self, sight: Sight, wish: Wish, error: SetByAnother) -> None:
        """Of a balloon that somebody else has nothing is ours, and it is told nothing."""
        if wish.reserve is None:
            if sight.note is not None:
                await self._finish(sight.note)
            self._say(NOTHING)
            return
        self._say(balloonreport.troubled(sight.figures, wish.reserve, error, ours=False))

    async def _finish(self, note: Note) -> None:
        """Leaves the domain as it was."""
        await self._call(lambda: self._device.ask_every(note.period))
        await self._call(self._device.forget)
        self._say(NOTHING)

    async def _call(self, function: Callable[[], T]) -> T:
        return await self._lane.call(function, CALL_SECONDS)

    # --------------------------------------------------------------------------------------------------- what is known

    def _wish(self) -> tuple[Wish, str]:
        """What is wanted of the guest now, and why if it is to have all of its memory."""
        why = self._unwanted()
        if why:
            self._leaving = self._leaving or time.monotonic()
            return Wish(), why
        self._leaving = None
        present = self._present()
        is_written = present is not None and present.status.balloon is not None
        return Wish(self._reserve(), steady=not is_written), ""

    def _unwanted(self) -> str:
        """Why nothing is to be gathered from the guest; empty if something is."""
        cluster, key = self._tools.cluster, self._machine.key
        if self._reserve() is None:
            return NOBODY
        machine = self._newest()
        if excluded := cluster.excluded(machine):
            return str(excluded)
        if machine.migrating:
            return MOVES
        if cluster.pairings(key):
            return BUSY
        return "" if self._tools.lends() else NO_LENDER

    def _reserve(self) -> int | None:
        """What stays available in the guest, by its mark."""
        meta = self._tools.cluster.guests().get(self._machine.key, {}).get("metadata", {})
        said = meta.get("annotations", {}).get(names.BALLOON_ANNOTATION, "")
        with contextlib.suppress(ValueError):
            return parse_quantity(said)
        return None

    def _newest(self) -> Machine:
        return self._tools.cluster.machine(self._machine.key) or self._machine

    def _present(self) -> MemoryGuest | None:
        """What the API server has of this machine, and not of an earlier one of its name."""
        present = self._tools.cluster.guest(self._machine.key)
        return present if present and present.spec.vm.uid == self._machine.uid else None

    def _is_ours(self) -> bool:
        """Whether an agent has reported that the balloon holds something for the node."""
        present = self._present()
        return present is not None and present.status.balloon is not None and present.status.balloon.gathered_bytes > 0

    # ---------------------------------------------------------------------------------------------------------- report

    def _say(self, fresh: Standing) -> None:
        """What is to be said from now on; where it is news the guest's worker writes it at once."""
        before, self.standing = self.standing, fresh
        self._tools.metrics.gather(self._machine.key, fresh.gathered if fresh.balloon else None)
        if before is None or _gist(before) != _gist(fresh):
            self._tools.changed(self._machine.key)


def _gist(one: Standing) -> tuple[object, ...]:
    """What of a standing is worth a look at the guest beside its turn."""
    said = (one.condition.status, one.condition.reason) if one.condition else ()
    if one.balloon is None:
        return said
    return *said, one.balloon.reserve_bytes, one.gathered > 0, one.gathered * NEWS_PART // (one.balloon.full_bytes or 1)


def _is_empty(now: Figures, note: Note) -> bool:
    """Whether the guest has all of its memory, and is to have it."""
    return now.actual == note.target == now.full


def _news(verdict: Verdict, note: Note) -> tuple[int, str]:
    """Level and words in which an order is logged: that a guest gets memory back is worth more of them."""
    level = logging.INFO if verdict.target > note.target else logging.DEBUG
    return level, "balloon of %s: the guest is to have %d MiB (%s)"
