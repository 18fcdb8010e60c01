"""The threads in which the API server is called: what it keeps waiting holds up only what is like it.

A write may hang, for a webhook is asked that never answers. So writes have threads of their own, and so has the Lease:
what is read, and the sign that this agent lives, never wait for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tidepool_api.turns import in_turn

T = TypeVar("T")

READS_AT_ONCE, WRITES_AT_ONCE = 4, 8
PLACE_SECONDS = 1.0  # after which a write makes room for another, and goes on
UNANSWERED_AT_MOST = 64  # writes
# When the API server gives a write up. A webhook has ten seconds unless it asks for more, and may be one to do without.
WRITE_SECONDS = 12


class Calls:
    """Calls that block, each kind in threads of its own."""

    def __init__(self) -> None:
        self._living = ThreadPoolExecutor(1, "lease")
        self._reading = ThreadPoolExecutor(READS_AT_ONCE, "read")
        self._writing = ThreadPoolExecutor(UNANSWERED_AT_MOST, "write")
        self._places = asyncio.Semaphore(WRITES_AT_ONCE)

    async def live(self, call: Callable[..., T], *what: Any, **options: Any) -> T:
        """Renews the Lease."""
        return await _in(self._living, partial(call, *what, **options))

    async def read(self, call: Callable[..., T], *what: Any, **options: Any) -> T:
        """Reads, a few at a time."""
        return await _in(self._reading, partial(call, *what, **options))

    async def write(self, call: Callable[..., T], *what: Any, **options: Any) -> T:
        """Writes, a few at a time; one that waits for its answer is none of them after a while.

        What is cancelled before it has a thread is not written.
        """
        write = partial(call, *what, **options, timeout=f"{WRITE_SECONDS}s")
        return await in_turn(self._places, PLACE_SECONDS, lambda: _in(self._writing, write))


def _in(threads: ThreadPoolExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(threads, call)
