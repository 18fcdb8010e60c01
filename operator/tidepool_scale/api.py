"""A client that writes many objects at a time: it plays a thousand agents beside what it measures.

With the parts' own client each call in flight would have a thread; here all are in one event loop.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from tidepool_api_testing.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable

    from tidepool_api_testing.server import Server

Body = dict[str, Any]

AT_ONCE = 24
AGAIN_SECONDS = 0.5  # until a watch that has ended is begun anew, or a server asked that was too busy
GONE, CONFLICT = 404, 409
BUSY = (429, 500, 503, 504)


class Api:
    """The API server as the administrator."""

    def __init__(self, server: Server) -> None:
        self._base = f"https://127.0.0.1:{server.port}"
        self._trust = ssl.create_default_context(cafile=str(server.certificate))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            connector=aiohttp.TCPConnector(ssl=self._trust, limit=64),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Body | None = None, *, missing_is_fine: bool = False) -> Body:
        """One request, again while the server is too busy; raises RuntimeError with its words when it refuses."""
        data = None if body is None else json.dumps(body)
        status, text = await self._ask(method, path, data)
        while status in BUSY:
            await asyncio.sleep(AGAIN_SECONDS)
            status, text = await self._ask(method, path, data)
            missing_is_fine = True  # perhaps it was done, and only the answer failed
        if status >= 400 and not (missing_is_fine and status in (GONE, CONFLICT)):
            raise RuntimeError(f"{method} {path}: {status} {text[:300]}")
        found: Body = json.loads(text)
        return found

    async def _ask(self, method: str, path: str, data: str | None) -> tuple[int, str]:
        """One request, with its status and what the server says."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind}
        async with self._session.request(method, self._base + path, data=data, headers=headers) as answer:
            return answer.status, await answer.text()

    async def watch(self, path: str) -> AsyncIterator[Body]:
        """Every object of a listing, and every event from then on; begins anew when the server ends a watch."""
        while True:
            listing = await self.call("GET", path)
            for item in listing["items"]:
                yield {"type": "ADDED", "object": item}
            with suppress(aiohttp.ClientError):  # a server that is too busy breaks off in the middle of a word
                async for event in self._since(path, listing["metadata"]["resourceVersion"]):
                    yield event
            await asyncio.sleep(AGAIN_SECONDS)

    async def _since(self, path: str, version: str) -> AsyncIterator[Body]:
        """Events until the server has had enough: it is busy, the version is too old, or it is simply time."""
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"{self._base}{path}?watch=1&resourceVersion={version}"
        async with self._session.get(url, timeout=timeout) as answer:
            rest = b""
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for event in map(json.loads, lines):
                    if event.get("type", "ERROR") == "ERROR":
                        return
                    yield event


async def all_of(jobs: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Runs jobs, so many at a time."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
