"""The operator's client: writes that hang, in a namespace beside another, and when this operator no longer acts."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from world import pool

from tidepool_api import names
from tidepool_api.kube import Access
from tidepool_api.turns import at_once
from tidepool_operator.cluster import api
from tidepool_operator.cluster.api import (
    EVENTS_AT_ONCE,
    PLACE_SECONDS,
    UNANSWERED_AT_MOST,
    WRITES_AT_ONCE,
    Cluster,
)
from tidepool_operator.cluster.writing import EVENT_SECONDS, Writer
from tidepool_operator.status.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator


DEAF = "ns"


class Server(ThreadingHTTPServer):
    """An API server that answers no write to the namespace `ns` until it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        asked, answers = self.asked, self.answers

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                """A write."""
                self.rfile.read(int(self.headers["Content-Length"]))
                asked.append(self.path.partition("?")[0])
                if f"/{DEAF}/" in self.path:
                    answers.wait(30)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PATCH = do_POST = answer  # noqa: N815 - so they are asked for

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def served() -> Iterator[tuple[Server, Cluster]]:
    """A server, and a client of it."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        cluster = Cluster(Access(f"http://127.0.0.1:{server.server_port}"))
        try:
            yield server, cluster
        finally:
            server.answers.set()
            cluster.close()
            server.shutdown()
            thread.join()


async def attempt(cluster: Cluster, outcome: Outcome, pool: str, name: str, namespace: str) -> object:
    """A write, as a pass does it."""

    async def write() -> object:
        return await cluster.patch(names.POOLS, namespace, name, {})

    return await outcome.attempt(pool, name, "write", None, write)


def test_a_namespace_where_everything_hangs_leaves_threads_to_another() -> None:
    """Ten pools of twenty pairings, eight of each at a time; all the while another namespace's writes are answered."""

    async def passes(server: Server, cluster: Cluster) -> None:
        deaf = Outcome(DEAF)

        async def write(number: int) -> None:
            await at_once(one(f"pool-{number}", at) for at in range(20))

        async def one(pool: str, at: int) -> None:
            await attempt(cluster, deaf, pool, f"{pool}-{at}", DEAF)

        hanging = asyncio.create_task(at_once(write(number) for number in range(10)))
        while not hanging.done():
            fine = Outcome("fine", patience=10)
            assert await attempt(cluster, fine, "pool", "fine", "fine") is not None, "no thread is left"
            await asyncio.sleep(0.5)
        await hanging
        assert sum(f"/{DEAF}/" in one for one in server.asked) <= UNANSWERED_AT_MOST // 2
        deaf.end()

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))


def test_no_write_waits_for_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are to be said, and however slowly they are answered."""
    monkeypatch.setattr(api, "PLACE_SECONDS", 20.0)

    async def passes(server: Server, cluster: Cluster) -> None:
        metadata = {"namespace": DEAF}
        events = [asyncio.create_task(cluster.create_event({"metadata": metadata})) for _ in range(2 * WRITES_AT_ONCE)]
        await asyncio.sleep(0.1)
        begin = time.monotonic()
        await cluster.patch(names.POOLS, "fine", "pool", {})
        assert time.monotonic() - begin < api.PLACE_SECONDS / 2
        assert sum(f"/{DEAF}/" in one for one in server.asked) <= EVENTS_AT_ONCE
        server.answers.set()
        await asyncio.gather(*events)

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))


def test_how_long_writes_wait_for_others_is_known() -> None:
    """So that a pass that waits for its turn does not take a busy server for one that hangs."""

    async def passes(server: Server, cluster: Cluster) -> None:
        await cluster.patch(names.POOLS, "fine", "pool", {})
        assert cluster.waited < PLACE_SECONDS / 2
        hanging = [asyncio.create_task(cluster.patch(names.POOLS, DEAF, f"{at}", {})) for at in range(WRITES_AT_ONCE)]
        await asyncio.sleep(0.1)
        await cluster.patch(names.POOLS, "fine", "pool", {})
        assert PLACE_SECONDS / 2 < cluster.waited < 10 * PLACE_SECONDS
        server.answers.set()
        await asyncio.gather(*hanging)

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))


def test_a_write_that_is_cancelled_before_it_has_a_thread_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """This operator leads no longer: what waited would else be written into what another does."""
    monkeypatch.setattr(api, "UNANSWERED_AT_MOST", 2)
    monkeypatch.setattr(api, "PLACE_SECONDS", 0.5)

    async def passes(server: Server, cluster: Cluster) -> None:
        writes = [asyncio.create_task(cluster.patch(names.POOLS, DEAF, f"{at}", {})) for at in range(2)]
        late = [asyncio.create_task(cluster.patch(names.POOLS, "fine", f"{at}", {})) for at in range(2)]
        await asyncio.sleep(0.2)
        late[0].cancel()
        await asyncio.sleep(0.5)
        late[1].cancel()  # which others may overtake by now
        await asyncio.sleep(0.1)
        server.answers.set()
        await asyncio.gather(*writes)
        await asyncio.gather(*late, return_exceptions=True)
        await cluster.patch(names.POOLS, "fine", "last", {})
        assert [one.rpartition("/")[2] for one in server.asked[2:]] == ["last"]

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))


def test_events_of_a_namespace_where_they_hang_are_few_and_end_with_the_one_that_acts() -> None:
    """However many are to be said at a time."""

    async def passes(server: Server, cluster: Cluster) -> None:
        writer = Writer(cluster)
        pools = [pool(f"pool-{at}") for at in range(20)]
        begin = time.monotonic()
        await asyncio.gather(*(writer.say(one, "Normal", "Ready", "") for one in pools[:4]))
        assert time.monotonic() - begin < EVENT_SECONDS / 2, "somebody waits for an Event"
        await asyncio.gather(*(writer.say(one, "Normal", "Ready", "") for one in pools[4:]))
        assert len(server.asked) == 4
        writer.end()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))
