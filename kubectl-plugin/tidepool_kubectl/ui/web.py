"""What answers the browser: this machine alone, who has the token alone, and reading alone.

Every path begins with a token that was drawn when the command was started, so that other users of the machine and other
pages cannot ask. A request whose Host is not ours is refused: a name of somebody else's may lead to 127.0.0.1 (DNS
rebinding). The page may load and ask nothing but what is here (Content-Security-Policy).
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tidepool_kubectl.cluster import Unusable
from tidepool_kubectl.ui.asked import Wrong, guest_and_size, nothing, parameters
from tidepool_kubectl.ui.view import Reading, UnknownGuest, guest_of, map_of

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

ADDRESS = "127.0.0.1"
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
FILES = ("style.css", "main.js", "map.js", "guest.js", "elements.js", "become.js", "ask.js", "place.js")
PAGES = {"": "index.html"} | {one: one for one in FILES}
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
    elsewhere: str = ""
    """Where to ask instead."""


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
        elsewhere = [("Location", answer.elsewhere)] if answer.elsewhere else []
        start(f"{answer.status.value} {answer.status.phrase}", [kind, length, *elsewhere, *SECURITY.items()])
        return [] if request["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """To a request that may come from anybody on this machine."""
        port = request["SERVER_PORT"]
        if request.get("HTTP_HOST") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return _said(HTTPStatus.MISDIRECTED_REQUEST, f"this is {ADDRESS}:{port}")
        token, slash, path = request["PATH_INFO"].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return _said(HTTPStatus.FORBIDDEN, "open the address that the command printed, with its token")
        if request["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "this only reads")
        if not slash:  # what the page names is relative to its folder
            return Answer(HTTPStatus.PERMANENT_REDIRECT, "text/plain", b"", f"/{self.token}/")
        return _page(PAGES[path]) if path in PAGES else self._asked(path, request.get("QUERY_STRING", ""))

    def _asked(self, path: str, query: str) -> Answer:
        try:
            found = self._found(path, query)
        except UnknownGuest as error:
            return _said(HTTPStatus.NOT_FOUND, str(error))
        except Wrong as error:
            return _said(HTTPStatus.BAD_REQUEST, str(error))
        except Unusable as error:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        if found is None:
            return _said(HTTPStatus.NOT_FOUND, "there is no such page")
        return Answer(HTTPStatus.OK, "application/json", json.dumps(found).encode())

    def _found(self, path: str, query: str) -> dict[str, Any] | None:
        """What is asked is looked at before the cluster is."""
        if path == "api/map":
            nothing(parameters(query))
            return map_of(self.read())
        if path == "api/guest":
            guest, size = guest_and_size(parameters(query))
            return guest_of(self.read(), guest, size)
        return None


def _page(name: str) -> Answer:
    content = files("tidepool_kubectl.ui").joinpath("static", name).read_bytes()
    return Answer(HTTPStatus.OK, KINDS[name.rpartition(".")[2]], content)
