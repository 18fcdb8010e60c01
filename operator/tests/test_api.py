"""The operator's client: writes that hang, in a namespace beside another, and when this operator no longer acts."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tidepool_api import names
from tidepool_api.kube import Access
from tidepool_operator.cluster.api import UNANSWERED_AT_MOST, Cluster, at_once
from tidepool_operator.status.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server(ThreadingHTTPServer):
    """An API server that answers no write to the namespace `deaf` until it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        asked, answers = self.asked, self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                """A write."""
                self.rfile.read(int(self.headers["Content-Length"]))
                asked.append(self.path)
                if "/deaf/" in self.path:
                    answers.wait(30)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

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
        deaf = Outcome("deaf")

        async def pool(number: int) -> None:
            await at_once(one(f"pool-{number}", at) for at in range(20))

        async def one(pool: str, at: int) -> None:
            await attempt(cluster, deaf, pool, f"{pool}-{at}", "deaf")

        hanging = asyncio.create_task(at_once(pool(number) for number in range(10)))
        while not hanging.done():
            begin = time.monotonic()
            assert await attempt(cluster, Outcome("fine"), "pool", "fine", "fine") is not None
            assert time.monotonic() - begin < 4
            await asyncio.sleep(0.5)
        await hanging
        assert sum("/deaf/" in one for one in server.asked) <= UNANSWERED_AT_MOST // 2
        deaf.end()

    with served() as (server, cluster):
        asyncio.run(passes(server, cluster))
