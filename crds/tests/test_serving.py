"""Probes are answered, whoever else connects."""

from __future__ import annotations

import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler

from tidepool_api import serving


class Handler(BaseHTTPRequestHandler):
    """Answers everybody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_whoever_connects_and_asks_nothing_makes_room() -> None:
    """A pod of any tenant may connect as often as it likes: that costs a bounded number of threads, and no probe."""
    port, before = serving.start("127.0.0.1", 0, Handler), threading.active_count()
    crowd = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3 * serving.MOST)]
    for one in crowd[: 2 * serving.MOST]:
        assert one.recv(1) == b""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.status == 200
    assert threading.active_count() <= before + serving.MOST + 1
    for one in crowd:
        one.close()
