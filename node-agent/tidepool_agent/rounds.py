"""Rounds over one guest or over the node itself, and what each of them writes and releases of its pairings.

A round whose failure is logged and tried again: nothing that goes wrong with one guest ever ends the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from tidepool_agent import report
from tidepool_agent.cluster import Cluster
from tidepool_agent.guestfs import Side
from tidepool_agent.metrics import Figures
from tidepool_agent.plan import Want
from tidepool_agent.report import Finding
from tidepool_api import ApiModel, GuestKey, GuestStatus, MemoryGuest, MemoryPairing, names, now
from tidepool_api.kube import Refused

log = logging.getLogger(__name__)

COLLECT_EVERY, IDLE_EVERY = 10.0, 30.0
GUEST = "guest"  # what is written beside pairings, which have UIDs
# A pairing that is being deleted waits no longer than this for an end that cannot be cleaned up.
RELEASE_AFTER = timedelta(seconds=60)
# A refusal that lasts is said again so often: Events are kept for an hour.
REPEAT_SECONDS = 1800.0


class Rounds(ABC):
    """Looks after one guest, or the node, until it is cancelled."""

    def __init__(self, cluster: Cluster, figures: Figures) -> None:
        self._of, self._figures = cluster, figures
        self._wake = asyncio.Event()
        self._written: dict[str, datetime] = {}
        self._refusal, self._refused_at = "", 0.0
        self.looked = False
        """Whether there has been a round, however it ended."""

    @property
    @abstractmethod
    def _about(self) -> GuestKey:
        """The MemoryGuest that it reports."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """By which it is logged."""

    @abstractmethod
    async def _round(self) -> float:
        """Looks, acts and reports; how long until it is looked at again, if nothing happens before."""

    def _patience(self, error: Refused) -> float:
        """How long until it is tried again after a refusal."""
        # A namespace that is not there will hardly be there soon.
        return IDLE_EVERY if error.is_gone else COLLECT_EVERY

    def _is_passing(self, error: Refused) -> bool:
        """Whether a refusal is for what has only just changed, or was never to be: nobody need do anything about it."""
        return error.is_gone or error.is_conflict

    @abstractmethod
    def _close(self) -> None:
        """What is done at the end."""

    def wake(self) -> None:
        """Something about it or its pairings has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Rounds, for ever."""
        self._figures.answer_for(self._of.node, self._about.namespace)
        try:
            while True:
                self._wake.clear()
                pause = await self._safe_round()
                # Not wait_for: before Python 3.12 it forgets that it was cancelled when it is woken at the same time.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
        finally:
            self._close()

    async def _safe_round(self) -> float:
        """A round whose failure is logged and tried again."""
        try:
            pause = await self._round()
            self._refusal = ""
            return pause
        except Refused as error:
            await self._tell(error)
            return self._patience(error)
        except Exception:
            log.exception("%s: the round failed", self._name)
            self._figures.failed(self._of.node, self._about.namespace)
        finally:
            self.looked = True
        return COLLECT_EVERY

    async def _tell(self, error: Refused) -> None:
        """Says what the API server refuses: each time as a figure, and now and then in the log and as an Event."""
        is_news = str(error) != self._refusal or time.monotonic() - self._refused_at >= REPEAT_SECONDS
        if is_news:
            log.warning("%s: the API server refused: %s", self._name, error)
            self._refusal, self._refused_at = str(error), time.monotonic()
        if self._is_passing(error):
            return
        self._figures.failed(self._of.node, self._about.namespace)
        if is_news and error.status:
            await self._event("WriteRefused", str(error), warning=True)

    async def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Records an Event about the MemoryGuest, if there is one."""
        guest = self._of.guest(self._about)
        if guest:
            with contextlib.suppress(Refused):
                await self._of.event(guest, reason, message, warning=warning)

    async def _write(
        self,
        fresh: MemoryGuest,
        present: MemoryGuest | None,
        before: GuestStatus | None,
        wants: tuple[Want, ...],
        found: Finding,
    ) -> None:
        """Writes a MemoryGuest and its end of pairings; that one of them is refused holds up no other."""
        self._forget({GUEST, *(want.name for want in wants)})
        refusals = [await tried(self._write_guest(fresh, present, before, wants))]
        refusals += [await tried(self._report_end(want, found)) for want in wants]
        for error in filter(None, refusals):
            raise error

    async def _write_guest(
        self, fresh: MemoryGuest, present: MemoryGuest | None, before: GuestStatus | None, wants: tuple[Want, ...]
    ) -> None:
        """Writes a MemoryGuest, unless what is there will do."""
        if present is None or report.head(fresh) != report.head(present):
            await self._of.claim(fresh)
        if self._worth_writing(GUEST, fresh.status, before, report.guest_wait(wants, self._of.figures_wait)):
            await self._of.write_guest(fresh)

    async def _report_end(self, want: Want, found: Finding) -> None:
        """Writes this end of a pairing."""
        status = want.pairing.status
        present = status.lender if want.side is Side.BORROWERS else status.borrower
        fresh = report.end(want, found)
        if self._worth_writing(want.name, fresh, present, self._of.figures_wait):
            await self._of.write_end(want.pairing, fresh)

    def _worth_writing(self, what: str, fresh: ApiModel, present: ApiModel | None, wait: timedelta) -> bool:
        """Whether to write a status now; remembers that it was.

        When it was written by an agent before this one is not known: agents that start together each suppose another
        time, and have their turns one after the other.
        """
        written = self._written.setdefault(what, now() - random.random() * wait)
        worth = report.worth_writing(fresh, present, now() - written, wait)
        if worth:
            self._written[what] = now()
        return worth

    def _forget(self, kept: set[str]) -> None:
        """Forgets when what is there no more was written."""
        self._written = {what: at for what, at in self._written.items() if what in kept}

    async def _let_pairings_go(
        self, key: GuestKey, pairings: Iterable[MemoryPairing], is_torn_down: Callable[[MemoryPairing], bool]
    ) -> bool:
        """Removes this side's finalizer from pairings whose tear-down is done, or has taken too long.

        False when one of them has to be tried again.
        """
        released = True
        for pairing in pairings:
            if pairing.terminating and (is_torn_down(pairing) or overdue(pairing)):
                finalizer = names.LENDER_FINALIZER if pairing.lender == key else names.BORROWER_FINALIZER
                released &= await self._of.release(pairing, finalizer)
        return released


async def tried(step: Awaitable[object]) -> Refused | None:
    """Takes a step about one object and returns how it was refused; raises where no other would fare better."""
    try:
        await step
    except Refused as error:
        if not error.is_about_object:
            raise
        return error
    return None


def overdue(pairing: MemoryPairing) -> bool:
    """Whether a pairing has been waiting for its end too long."""
    asked = pairing.metadata.deletion_timestamp
    return asked is not None and now() - asked >= RELEASE_AFTER
