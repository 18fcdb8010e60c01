"""Serves /metrics to Prometheus and /healthz and /readyz to the kubelet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tidepool_api import serving

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

    return serving.start(address, port, Handler)
