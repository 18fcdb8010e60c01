"""Answers the kubelet, from the first moment on and whether or not there is an API server to talk to.

An operator that waits for its API server is alive, and would not find it sooner if it were started again; but it is not
ready. Served in the event loop, so that a loop which no longer turns is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

SECONDS = 5  # that a request may take to arrive
ANSWERS = {True: (200, "OK", "ok\n"), False: (503, "Service Unavailable", "not ok\n"), None: (404, "Not Found", "\n")}


async def serve(address: str, port: int, checks: Mapping[str, Callable[[], bool]]) -> asyncio.Server:
    """Serves; `checks` says by path what is well. Without an address all of the host's are listened on."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, checks))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, address or None, port)


def _response(head: bytes, checks: Mapping[str, Callable[[], bool]]) -> bytes:
    """The answer to a request by its path, whatever else it says."""
    path = head.partition(b" ")[2].partition(b" ")[0].decode("ascii", "replace")
    status, reason, text = ANSWERS[checks[path]() if path in checks else None]
    lines = (f"HTTP/1.1 {status} {reason}", "Content-Type: text/plain", f"Content-Length: {len(text)}")
    return "\r\n".join([*lines, "Connection: close", "", text]).encode()
