"""An HTTP server for probes and scrapes that costs its process little, whoever connects and however slowly he asks."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST = 32  # connections at a time; each has a thread


def start(address: str, port: int, handler: type[BaseHTTPRequestHandler]) -> int:
    """Serves in threads, at all addresses if none is given. Returns the port."""
    server = (_ServerOfBoth if _is_for_all(address) else _Server)((address, port), handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return int(server.server_address[1])


class _Server(ThreadingHTTPServer):
    """When there are too many connections the oldest makes room: a probe that has just come is answered."""

    request_queue_size = MOST

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread of its own."""
        with self._lock:
            self._open[request] = None
            crowd = list(self._open)[:-MOST]
        for one in crowd:
            with contextlib.suppress(OSError):  # it is just being closed
                one.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


class _ServerOfBoth(_Server):
    # Of IPv4 as well.
    address_family = socket.AF_INET6


def _is_for_all(address: str) -> bool:
    return ":" in address or (not address and socket.has_dualstack_ipv6())
