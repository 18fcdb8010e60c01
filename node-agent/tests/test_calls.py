"""What an API server that hangs costs: each kind of call waits for its own kind only."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tidepool_agent import calls, controller
from tidepool_agent.cluster import Cluster
from tidepool_agent.controller import Controller
from tidepool_agent.metrics import Figures
from tidepool_api import MemoryGuest

GUESTS = 40
SOON = 10.0


class Webhook:
    """An API server that answers no write about a guest before it is told to."""

    def __init__(self) -> None:
        self.asked, self.leases, self.answers = list[str](), 0, threading.Event()

    def apply(self, path: str, body: dict[str, Any], **_more: Any) -> dict[str, Any]:
        if body["kind"] == "Lease":
            self.leases += 1
        else:
            self.asked.append(path)
            self.answers.wait()
        return body | {"metadata": body["metadata"] | {"uid": "u", "resourceVersion": "2"}}

    def get(self, _: str) -> dict[str, Any]:
        return {"metadata": {"uid": "u"}}


@contextlib.contextmanager
def silent() -> Iterator[Webhook]:
    """Answers in the end, or its threads would never."""
    one = Webhook()
    try:
        yield one
    finally:
        one.answers.set()


def guest(number: int) -> MemoryGuest:
    spec = {"provider": "KubeVirt", "vm": {"name": "g", "uid": "u"}, "nodeName": "here"}
    return MemoryGuest.parse({"metadata": {"namespace": "a", "name": f"g{number}"}, "spec": spec})


async def reached(count: int, webhook: Webhook) -> None:
    async with asyncio.timeout(SOON):
        while len(webhook.asked) < count:  # noqa: ASYNC110 - it is asked in threads
            await asyncio.sleep(0.01)


def test_the_lease_and_what_is_read_wait_for_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do other writes, which get the places of those that hang; all are answered in the end."""
    monkeypatch.setattr(calls, "PLACE_SECONDS", 0.05)

    async def run() -> None:
        with silent() as webhook:
            api: Any = webhook
            cluster = Cluster(api, "here", (), lambda _: None)
            writes = [asyncio.create_task(cluster.write_guest(guest(number))) for number in range(GUESTS)]
            await reached(GUESTS, webhook)
            async with asyncio.timeout(SOON):
                await cluster.find_home()
                await cluster.renew_lease("tidepool-system")
            assert not any(write.done() for write in writes)
        await asyncio.gather(*writes)
        assert (webhook.leases, len(webhook.asked)) == (1, GUESTS)

    asyncio.run(run())


def test_writes_have_places() -> None:
    """A few at a time; who is cancelled while he waits for one writes nothing."""

    async def run() -> None:
        with silent() as webhook:
            api: Any = webhook
            cluster = Cluster(api, "here", (), lambda _: None)
            writes = [asyncio.create_task(cluster.write_guest(guest(number))) for number in range(GUESTS)]
            await reached(calls.WRITES_AT_ONCE, webhook)
            await asyncio.sleep(calls.PLACE_SECONDS / 4)
            assert len(webhook.asked) == calls.WRITES_AT_ONCE
            for write in writes:
                write.cancel()
            await asyncio.wait(writes)
        assert len(webhook.asked) == calls.WRITES_AT_ONCE

    asyncio.run(run())


class Silent:
    """A cluster whose API server lists what there is, and answers nothing else."""

    node = "here"

    async def start(self) -> None:
        pass

    def machines(self) -> dict[Any, Any]:
        return {}

    guests = machines

    def terminating(self) -> list[Any]:
        return []

    async def find_home(self) -> None:
        await asyncio.Event().wait()

    async def measure(self) -> None:
        await asyncio.Event().wait()

    async def renew_lease(self, _: str) -> None:
        await asyncio.Event().wait()


def test_an_agent_lives_though_nobody_answers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else kubelet would start it again and again, which helps nobody."""
    monkeypatch.setattr(controller, "BEAT_SECONDS", 0.05, raising=False)
    monkeypatch.setattr(controller, "BEAT_STALE_SECONDS", 1.0)
    tools: Any = type("Tools", (), {"cluster": Silent(), "figures": Figures(), "donors": None})
    one = Controller(tools, "tidepool-system")

    async def run() -> None:
        running = asyncio.create_task(one.run())
        await asyncio.sleep(2)
        assert not running.done()
        assert one.alive()
        assert one.ready()
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
