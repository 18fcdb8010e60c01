"""Serves /metrics to Prometheus and /healthz and /readyz to the kubelet."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

log = logging.getLogger(__name__)


def start(address: str, port: int, registry: CollectorRegistry, checks: dict[str, Callable[[], bool]]) -> int:
    """Serves in a thread; `checks` says by path what is well. Returns the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif self.path in checks:
                well = checks[self.path]()
                self._answer(200 if well else 503, b"ok\n" if well else b"not ok\n")
            else:
                self._answer(404, b"try /metrics, /healthz or /readyz\n")

        def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, template: str, *args: object) -> None:
            log.debug(template, *args)

    class Server(ThreadingHTTPServer):
        # Of IPv4 as well, unless an address of that is asked for, or the kernel has no IPv6.
        address_family = socket.AF_INET6 if _is_for_all(address) else socket.AF_INET

    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return int(server.server_address[1])


def _is_for_all(address: str) -> bool:
    return ":" in address or (not address and socket.has_dualstack_ipv6())
