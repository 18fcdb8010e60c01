"""What a guest that takes long costs the others, of whom so many are talked to at a time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from objects import machine

from tidepool_agent import session
from tidepool_agent.errors import Unreachable
from tidepool_agent.provider import Machine
from tidepool_agent.session import Session
from tidepool_agent.store import Store

SOON = 10.0


def test_guests_that_take_long_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than there are slots: the next one is still looked at after a moment."""
    monkeypatch.setattr(session, "PLACE_SECONDS", 0.1, raising=False)
    late = threading.Event()

    def endpoint(one: Machine) -> str:
        if one.name.startswith("slow"):
            late.wait()
        raise Unreachable(f"{one.name} is not there", "HypervisorUnreachable")

    async def run() -> None:
        slots = asyncio.Semaphore(2)

        def connect(name: str) -> Session:
            return Session(machine(name), endpoint=endpoint, store=Store(tmp_path), slots=slots, proc=tmp_path)

        every = [connect(name) for name in ("slow1", "slow2", "slow3", "slow4", "quick")]
        *slow, quick = [asyncio.create_task(one.look()) for one in every]
        try:
            await asyncio.wait({quick}, timeout=SOON)
            assert quick.done()
            assert not any(one.done() for one in slow)
        finally:
            late.set()
        for task, one in zip((*slow, quick), every, strict=True):
            with pytest.raises(Unreachable, match=f"{one.machine.name} is not there"):
                await task
            one.close()

    asyncio.run(run())
