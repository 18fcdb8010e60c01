"""Taking turns in an event loop: a few calls at a time, of which none holds up the others for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

AT_ONCE = 8


async def in_turn(places: asyncio.Semaphore, seconds: float, begin: Callable[[], asyncio.Future[T]]) -> T:
    """Begins a call when there is a place for it, and waits for its answer; after so many seconds without the place.

    What is cancelled while it has its place is given up.
    """
    async with places:
        answer = begin()
        try:
            await asyncio.wait({answer}, timeout=seconds)
        except asyncio.CancelledError:
            answer.cancel()
            raise
    return await answer


async def at_once(steps: Generator[Awaitable[Any], None, None]) -> None:
    """Takes steps, a few at a time; after a failure, which is raised, none is begun."""

    async def some() -> None:
        try:
            for step in steps:
                await step
        except BaseException:
            steps.close()
            raise

    results = await asyncio.gather(*(some() for _ in range(AT_ONCE)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
