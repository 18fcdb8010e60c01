"""What the page's tests show, and how they ask for it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from objects import PAIRING, guest, pairing, parsed

from tidepool_api import ObjectKey
from tidepool_kubectl.snapshot import Lendings
from tidepool_kubectl.ui.listen import server
from tidepool_kubectl.ui.view import Reading

MIB = 1 << 20
WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 360, "height": 640}


def borrower(namespace: str = "ns") -> dict[str, Any]:
    """A guest whose curve is known."""
    body = guest("b", "short")
    body["metadata"]["namespace"] = namespace
    points = [{"sizeBytes": size * MIB, "hitRatio": ratio} for size, ratio in ((256, "0.20"), (1024, "0.80"))]
    body["status"] |= {"curve": points, "curveReferences": 5000, "missesPerSecond": 1000, "role": "Borrower"}
    return body


def lender(namespace: str = "ns") -> dict[str, Any]:
    body = guest("l", "spare")
    body["metadata"]["namespace"] = namespace
    body["spec"]["nodeName"] = "n2"
    return body


def lending(namespace: str = "ns") -> dict[str, Any]:
    body = pairing()
    body["metadata"]["namespace"] = namespace
    body["spec"]["lender"]["nodeName"] = "n2"
    body["status"]["borrower"]["usedBytes"] = 300 * MIB
    return body


def reading(*bodies: dict[str, Any], spared: float | None = None) -> Reading:
    found = parsed(*bodies)
    counted = {} if spared is None else {ObjectKey("ns", PAIRING): spared}
    return Reading("2026-01-01T12:00:00+00:00", Lendings(found["pairings"], found["guests"]), counted)


@dataclass(frozen=True)
class Shown:
    """The command while it runs."""

    address: str

    def call(self, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=10)
        connection.request(method, path, headers=headers)
        return connection.getresponse()

    @property
    def host(self) -> str:
        """Address and port."""
        return urlsplit(self.address).netloc

    @property
    def place(self) -> tuple[str, int]:
        """Likewise, for a socket."""
        return "127.0.0.1", int(self.host.rpartition(":")[2])

    @property
    def path(self) -> str:
        """With the token."""
        return urlsplit(self.address).path


@contextmanager
def served(read: Callable[[], Reading]) -> Iterator[Shown]:
    """The page as the command serves it, with a cluster that is read in this way."""
    with server(read, 0) as (listening, address):
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield Shown(address)
        listening.shutdown()
