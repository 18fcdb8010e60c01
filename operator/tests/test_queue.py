"""The queue: bursts become one piece of work, a key is worked on once at a time, failures are tried again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidepool_api.kube import Refused
from tidepool_operator.cluster import queue as module
from tidepool_operator.cluster.queue import REST, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

A_MOMENT = 0.3  # in which nothing more is to happen


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def until(holds: Callable[[], bool]) -> None:
    """Waits until something holds; `run` has the patience, for a machine may be slow."""
    while not holds():  # noqa: ASYNC110 - the queue tells nobody what it has done
        await asyncio.sleep(0.02)


def test_a_burst_is_one_piece_of_work() -> None:
    done: Counter[str] = Counter()

    async def job(key: str) -> None:
        done[key] += 1

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        for _ in range(100):
            await queue.add("a", 0.5)
            await queue.add("b", 0.5)
        await until(lambda: len(done) == 2)
        await asyncio.sleep(A_MOMENT)
        await queue.stop()
        assert done == {"a": 1, "b": 1}

    run(scenario)


def test_a_key_is_worked_on_once_at_a_time_and_again_for_what_came_meanwhile() -> None:
    log: list[str] = []
    may_end = asyncio.Event()

    async def job(key: str) -> None:
        log.append(f"begin {key}")
        await may_end.wait()
        log.append(f"end {key}")

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        await queue.add("a", 0)
        await until(lambda: log == ["begin a"])
        await queue.add("a", 0)
        await queue.add("a", 0)
        await asyncio.sleep(A_MOMENT)
        may_end.set()
        await until(lambda: len(log) > 3)
        await asyncio.sleep(A_MOMENT)
        await queue.stop()
        assert log == ["begin a", "end a"] * 2

    run(scenario)


def test_a_key_rests_after_work_and_not_after_waiting() -> None:
    """Issue 28, fault 10: a large namespace keeps no processor busy, and a slow API server makes nobody wait longer."""
    began: list[float] = []

    def times(work: Callable[[], Awaitable[None]]) -> float:
        async def job(_: str) -> None:
            began.append(asyncio.get_running_loop().time())
            if len(began) == 1:
                await work()

        async def scenario() -> None:
            queue = WorkQueue(job)
            queue.start()
            began.clear()
            await queue.add("a", 0)
            while len(began) < 2:
                await asyncio.sleep(0.05)
                await queue.add("a", 0.05)
            await queue.stop()

        run(scenario)
        return began[1] - began[0]

    async def compute() -> None:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0.2)  # while it is asked for again

    assert times(lambda: asyncio.sleep(0.3)) < 0.3 + 0.3 * REST
    assert times(compute) > 0.3 + 0.3 * REST


def test_a_key_does_not_rest_for_what_others_have_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten namespaces wait for the API server, and the thread works for all of them: each rests for its share.

    The rest is long beside the work, which takes longer where others have the processor.
    """
    monkeypatch.setattr(module, "REST", 30)
    began: dict[str, list[float]] = defaultdict(list)

    async def job(key: str) -> None:
        began[key].append(asyncio.get_running_loop().time())
        if len(began[key]) == 1:
            end = time.thread_time() + 0.01
            while time.thread_time() < end:
                pass
            await asyncio.sleep(0.6)

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        for number in range(10):
            await queue.add(str(number), 0)
        while any(len(began[str(number)]) < 2 for number in range(10)):
            await asyncio.sleep(0.02)
            for number in range(10):
                await queue.add(str(number), 0.02)
        await queue.stop()

    run(scenario)
    apart = [again - first for first, again, *_ in began.values()]
    assert max(apart) < 10 * 0.01 * module.REST


def test_slow_keys_do_not_hold_up_others() -> None:
    """Thirty namespaces whose writes take seconds: as many as an hour of much coming and going has at a time."""
    done: list[str] = []

    async def job(key: str) -> None:
        await asyncio.sleep(600 if key.startswith("slow") else 0)
        done.append(key)

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        for number in range(30):
            await queue.add(f"slow-{number}", 0)
        for number in range(20):
            await queue.add(str(number), 0)
        await until(lambda: len(done) == 20)
        await queue.stop()

    run(scenario)


def test_failures_are_tried_again_and_counted() -> None:
    tries: list[str] = []
    failures: list[Exception] = []

    async def job(key: str) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise Refused(500, "write", "the API server is not well")

    async def scenario() -> None:
        queue = WorkQueue(job, on_failure=failures.append)
        queue.start()
        await queue.add("a", 0)
        await until(lambda: len(tries) > 1)
        assert not queue.is_broken
        await queue.stop()
        assert tries == ["a", "a"]
        assert [str(one) for one in failures] == ["could not write: the API server is not well (500)"]

    run(scenario)


def test_a_job_can_ask_for_another_turn() -> None:
    tries: list[str] = []

    async def job(key: str) -> float | None:
        tries.append(key)
        return 0.1 if len(tries) < 3 else None

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        await queue.add("a", 0)
        await until(lambda: len(tries) == 3)
        await asyncio.sleep(A_MOMENT)
        await queue.stop()
        assert len(tries) == 3

    run(scenario)


def test_the_sooner_of_two_times_counts() -> None:
    tries: list[str] = []

    async def job(key: str) -> None:
        tries.append(key)

    async def scenario() -> None:
        queue = WorkQueue(job)
        queue.start()
        await queue.add("a", 60)
        await queue.add("a", 0.1)
        await queue.add("a", 60)
        await until(lambda: bool(tries))
        await asyncio.sleep(A_MOMENT)
        await queue.stop()
        assert tries == ["a"]

    run(scenario)
