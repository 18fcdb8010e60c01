"""What answers the browser: this machine alone, who has the token alone, and reading alone.

Every path begins with a token that was drawn when the command was started, so that other users of the machine and other
pages cannot ask. A request whose Host is not ours is refused: a name of somebody else's may lead to 127.0.0.1 (DNS
rebinding). The page may load and ask nothing but what is here (Content-Security-Policy).
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tidepool_api import GuestKey, parse_quantity
from tidepool_kubectl.cluster import Unusable
from tidepool_kubectl.ui.reading import Reader
from tidepool_kubectl.ui.view import Reading, UnknownGuest, guest_of, map_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

ADDRESS = "127.0.0.1"
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
PAGES = {"": "index.html"} | {one: one for one in ("style.css", "main.js", "map.js", "guest.js", "elements.js")}
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: HTTPStatus
    kind: str
    body: bytes


def _said(status: HTTPStatus, why: str) -> Answer:
    return Answer(status, "application/json", json.dumps({"error": why}).encode())


@dataclass(frozen=True)
class App:
    """The application; its host is known once a server listens."""

    read: Callable[[], Reading]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __call__(self, request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """As WSGI has it."""
        answer = self.answer(request)
        length = ("Content-Length", str(len(answer.body)))
        kind = ("Content-Type", f"{answer.kind}; charset=utf-8")
        start(f"{answer.status.value} {answer.status.phrase}", [kind, length, *SECURITY.items()])
        return [] if request["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """To a request that may come from anybody on this machine."""
        port = request["SERVER_PORT"]
        if request.get("HTTP_HOST") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return _said(HTTPStatus.MISDIRECTED_REQUEST, f"this is {ADDRESS}:{port}")
        _, token, *rest = f"{request['PATH_INFO']}/".split("/", 2)
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return _said(HTTPStatus.FORBIDDEN, "open the address that the command printed, with its token")
        if request["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "this only reads")
        path = "".join(rest).strip("/")
        if path in PAGES:
            return _page(PAGES[path])
        return self._asked(path, {key: values[0] for key, values in parse_qs(request.get("QUERY_STRING", "")).items()})

    def _asked(self, path: str, query: Mapping[str, str]) -> Answer:
        try:
            found = self._found(path, query)
        except UnknownGuest as error:
            return _said(HTTPStatus.NOT_FOUND, str(error))
        except ValueError as error:
            return _said(HTTPStatus.BAD_REQUEST, str(error))
        except Unusable as error:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        if found is None:
            return _said(HTTPStatus.NOT_FOUND, "there is no such page")
        return Answer(HTTPStatus.OK, "application/json", json.dumps(found).encode())

    def _found(self, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        if path == "api/map":
            return map_of(self.read())
        if path == "api/guest":
            size = parse_quantity(query["size"]) if "size" in query else None
            return guest_of(self.read(), GuestKey.parse(query.get("guest", "")), size)
        return None


def _page(name: str) -> Answer:
    content = files("tidepool_kubectl.ui").joinpath("static", name).read_bytes()
    return Answer(HTTPStatus.OK, KINDS[name.rpartition(".")[2]], content)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Reads one request, and says nothing of it on the terminal."""

    timeout = 10  # seconds that somebody may take to ask

    def handle(self) -> None:
        """One request; who says nothing, or goes away in the middle, is nobody's trouble."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base
        """Nothing of requests: their paths have the token in them."""


@contextmanager
def server(reader: Reader, port: int) -> Iterator[tuple[Callable[[], None], str]]:
    """What answers until it is interrupted, and the address. Raises `Unusable` where the port cannot be had."""
    app = App(reader.now)
    try:
        listening = make_server(ADDRESS, port, app, server_class=_Server, handler_class=Quiet)
    except OSError as error:
        raise Unusable(
            f"cannot listen at {ADDRESS}:{port}: {error.strerror}; choose another --port, or none"
        ) from error
    with listening:
        yield listening.serve_forever, f"http://{ADDRESS}:{listening.server_port}/{app.token}/"
