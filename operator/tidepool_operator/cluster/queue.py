"""A queue of keys to be worked on: each at most once at a time, later calls for a waiting key cost nothing.

Events come in bursts; a short delay lets a burst become one piece of work. A key rests after its work in proportion to
its share of what this thread worked meanwhile, so that a large namespace in which something changes all the time keeps
no processor busy. Work that waits for answers is no reason to rest, nor is what others did meanwhile. What fails is
tried again, ever more slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

from tidepool_api.kube import Refused

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.3
WORKERS = 32  # keys at a time: most of the time each waits for the API server
FIRST_RETRY_SECONDS = 1.0
SLOWEST_RETRY_SECONDS = 60.0
REST = 3  # times as long as this thread was at work for it
LONGEST_REST_SECONDS = 5.0

Job = Callable[[str], Awaitable[float | None]]


def pause(tries: int) -> float:
    """The seconds until what has failed so often in a row is tried again."""
    return min(SLOWEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(tries - 1, 10))


class Shares:
    """What the thread works, shared out among those at work: each job's own part cannot be told from the others'.

    As a clock that runs more slowly the more there are, by which each only has to know when it began.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._seen = time.thread_time()

    def now(self, at_work: int) -> float:
        """The clock, in seconds; so many have been at work since it was asked last."""
        seen = time.thread_time()
        self._clock += (seen - self._seen) / max(1, at_work)
        self._seen = seen
        return self._clock


class WorkQueue:
    """Runs a job for every key that was asked for.

    The job returns after how many seconds it wants to be called again, or None.
    """

    def __init__(
        self, job: Job, *, workers: int = WORKERS, on_failure: Callable[[Exception], None] = lambda _: None
    ) -> None:
        self._job = job
        self._workers = workers
        self._on_failure = on_failure
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._failures: dict[str, int] = defaultdict(int)
        self._shares = Shares()
        self._rested: dict[str, float] = {}  # when a key may be worked on again
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts the workers."""
        self._tasks = [asyncio.create_task(self._run(), name=f"worker-{number}") for number in range(self._workers)]

    async def stop(self) -> None:
        """Lets nothing more begin."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def is_broken(self) -> bool:
        """Whether a worker has ended without having been told to."""
        return any(task.done() for task in self._tasks)

    async def add(self, key: str, delay: float = SETTLE_SECONDS) -> None:
        """Asks for a key after a delay, or sooner if it is due sooner already."""
        async with self._changed:
            due = max(asyncio.get_running_loop().time() + delay, self._rested.get(key, 0.0))
            if key not in self._due or due < self._due[key]:
                self._schedule(key, due)
                self._changed.notify()

    def _schedule(self, key: str, due: float) -> None:
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))

    async def _run(self) -> None:
        while True:
            key = await self._next()
            begin = self._shares.now(len(self._busy) - 1)
            try:
                again = await self._try(key)
            finally:
                rest = min(LONGEST_REST_SECONDS, REST * (self._shares.now(len(self._busy)) - begin))
                self._rested[key] = asyncio.get_running_loop().time() + rest
                async with self._changed:
                    self._busy.discard(key)
                    self._put_off(key)
                    self._changed.notify()
            if again is not None:
                await self.add(key, again)

    def _put_off(self, key: str) -> None:
        """What was asked for while a key was worked on waits until it has rested, too."""
        due = self._due.get(key)
        if due is not None and due < self._rested[key]:
            self._schedule(key, self._rested[key])

    async def _next(self) -> str:
        async with self._changed:
            while True:
                wait = self._seconds_to_wait()
                if wait == 0:
                    key = self._take()
                    if key is not None:
                        return key
                    continue
                # Not wait_for: before Python 3.12 it forgets a cancel that comes at the same time.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    def _seconds_to_wait(self) -> float | None:
        """0 when a key is due, None when there is none at all."""
        waiting = [due for due, key in self._heap if key not in self._busy]
        if not waiting:
            return None
        return max(0.0, min(waiting) - asyncio.get_running_loop().time())

    def _take(self) -> str | None:
        """The due key that waits longest; entries that an earlier one has overtaken are dropped on the way."""
        kept: list[tuple[float, str]] = []
        found: str | None = None
        now = asyncio.get_running_loop().time()
        while self._heap and found is None and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue
            if key in self._busy:
                kept.append((due, key))
            else:
                found = key
        for entry in kept:
            heapq.heappush(self._heap, entry)
        if found is not None:
            del self._due[found]
            self._busy.add(found)
        return found

    async def _try(self, key: str) -> float | None:
        try:
            again = await self._job(key)
        except Exception as error:
            # Whatever it was: the next try may do better, and the other keys go on.
            self._failures[key] += 1
            delay = pause(self._failures[key])
            log.warning("%s: %s; tried again in %.0f s", key, error, delay, exc_info=not isinstance(error, Refused))
            self._on_failure(error)
            return delay
        else:
            self._failures.pop(key, None)
            return again
