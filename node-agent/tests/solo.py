"""The agent of one guest without an API server: rounds of a real worker, each when a test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from conftest import wait_for
from objects import machine, pairing

from tidepool_agent.metrics import Figures
from tidepool_agent.session import Session
from tidepool_agent.store import Store
from tidepool_agent.worker import Tools, Worker
from tidepool_api import GuestStatus, MemoryGuest, MemoryPairing, find


class Solo:
    """What a worker finds in its cluster: one guest, and the pairing by which it borrows, or none."""

    node = "node1"
    figures_wait = timedelta()

    def __init__(self, uri: Callable[[], str], domain: str, store: Path) -> None:
        self._machine = machine("borrower", domain=domain)
        self._uri, self._store = uri, store
        self._known: list[MemoryPairing] = []
        self._present: MemoryGuest | None = None
        self._runner = asyncio.Runner()
        self.begin()

    def begin(self) -> None:
        """Starts the agent; again, as one that knows nothing of the one before."""
        cluster: Any = self
        slots = asyncio.Semaphore(1)

        def connect(_: object) -> Session:
            proc, store = Path("/proc"), Store(self._store)
            return Session(self._machine, endpoint=lambda _: self._uri(), store=store, slots=slots, proc=proc)

        self.figures = Figures()
        tools = Tools(cluster, Store(self._store), self.figures, asyncio.Semaphore(1), connect)
        self._worker = Worker(self._machine, tools)

    def want(self, **block: Any) -> GuestStatus:
        """What the pool's devices and swap are from now on, as its spec has them; how the guest is after a round."""
        self._known = [pairing(block=block)]
        return self.round()

    def leave(self) -> GuestStatus:
        """The pool is gone; how the guest is after a round."""
        self._known = []
        return self.round()

    def round(self) -> GuestStatus:
        """How the guest is after one more round."""
        self._runner.run(self._worker._round())  # noqa: SLF001 - `run` goes on for ever
        assert self._present is not None
        return self._present.status

    def until(self, check: Callable[[GuestStatus], bool]) -> GuestStatus:
        """How the guest is when something holds, after as many rounds as that takes."""
        found: list[GuestStatus] = []

        def look() -> bool:
            found.append(self.round())
            return check(found[-1])

        wait_for(look)
        return found[-1]

    def close(self) -> None:
        """Ends the agent; the guest stays as it is."""
        self._worker._session.close()  # noqa: SLF001
        self._runner.close()

    def machine(self, _: object) -> Any:
        return self._machine

    def excluded(self, _: object) -> None:
        """It takes part."""

    def guest(self, _: object) -> MemoryGuest | None:
        return self._present

    def pairings(self, _: object) -> list[MemoryPairing]:
        return self._known

    async def paired(self, _: object) -> frozenset[str]:
        return frozenset(one.metadata.uid for one in self._known)

    async def claim(self, guest: MemoryGuest) -> MemoryGuest:
        return guest

    async def write_guest(self, guest: MemoryGuest) -> None:
        self._present = guest

    async def write_end(self, *_: Any) -> None:
        """Told to nobody."""

    async def event(self, *_: Any, **__: Any) -> None:
        """Told to nobody."""


def said(status: GuestStatus, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    found = find(status.conditions, kind)
    assert found is not None, kind
    return found.status, found.reason, found.message
