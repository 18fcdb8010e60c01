"""A guest's balloon in the hands of its node's agent: the agent's own rule and device, without a cluster."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bed.domain import Domain
from tidepool_agent import balloon, hypervisor
from tidepool_agent.balloon import Figures, Note, Wish
from tidepool_agent.balloondevice import BalloonDevice


@functools.cache
def _start_event_loop() -> None:
    """libvirt's, once in this process."""
    hypervisor.start_event_loop()


class Gatherer:
    """Looks at a guest and tells its balloon what the agent would.

    `hastened` is how many times as fast as the agent it goes on: what the agent does in a minute takes it a second
    with 60. The guest feels each step as it does of the agent, and more of them in a second.
    """

    def __init__(self, domain: Domain, name: str, reserve: int, hastened: float = 1.0) -> None:
        _start_event_loop()
        self._device = BalloonDevice(lambda: domain.uri, name)
        self._wish, self._hastened, self._begin = Wish(reserve), hastened, time.time()
        self._ended = threading.Event()
        self._history: tuple[Figures, ...] = ()
        self._told: int | None = None
        self._failed: Exception | None = None
        self.gathered = 0
        """What the balloon holds, in bytes."""
        self.reason = ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """It does so meanwhile; what went wrong is raised at the end."""
        self._device.ask_every(max(1, round(balloon.EVERY_SECONDS / self._hastened)))
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._device.close()
        if self._failed:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._ended.wait(balloon.EVERY_SECONDS / self._hastened):
                self._look()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._failed = error

    def _look(self) -> None:
        figures = self._by_its_clock(self._device.look().figures)
        self._history = balloon.remembered(self._history, figures)
        told = figures.actual if self._told is None else self._told
        verdict = balloon.decide(self._history, told, self._wish)
        if verdict.target != told:
            self._device.tell(Note(verdict.target))
        self._told, self.gathered, self.reason = verdict.target, figures.gathered, verdict.reason

    def _by_its_clock(self, seen: Figures) -> Figures:
        at, updated = ((when - self._begin) * self._hastened for when in (seen.at, seen.updated))
        return replace(seen, at=at, updated=updated)
