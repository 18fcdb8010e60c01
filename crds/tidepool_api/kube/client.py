"""The API server: a handful of REST verbs and watches, on plain JSON.

Written out rather than taken from the generated client, because an agent runs on every node: its thousand classes
would be much of the agent's memory, and what is hard about the API (watches that end, versions that expire, server-
side apply) is the same with it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.util import make_headers, parse_url

from tidepool_api.kube.access import Access, NoAccess
from tidepool_api.kube.resources import Resource

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
TIMEOUT = "Timeout"  # a reason
CONNECT_SECONDS, PATIENCE_SECONDS = 5.0, 30.0
WATCH_SECONDS = 240
# A list comes in pages of so many objects, and of fewer where these would be more bytes: an author may make his own as
# large as he likes, and it takes several times that to read one.
PAGE, PAGE_BYTES = 50, 4 << 20
# A server that has vanished without a word is noticed within a minute, also by a watch on which nothing happens. Each
# system has its own names for it: macOS says TCP_KEEPALIVE for TCP_KEEPIDLE.
_IDLE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
KEEPALIVE = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _IDLE.items() if hasattr(socket, name)),
]

Object = dict[str, Any]
# What of an object is kept; its metadata has these as before.
Part = Callable[[Object], Object]
NAMED = ("namespace", "name", "uid", "resourceVersion")


def whole(item: Object) -> Object:
    """All of it."""
    return item


def named(item: Object) -> Object:
    """Nothing but which one it is."""
    return {"metadata": {name: text for name, text in item["metadata"].items() if name in NAMED}}


class Listing(NamedTuple):
    """All objects at a path, and the resource version at which they were all there."""

    items: list[Object]
    version: str


class _Page(NamedTuple):
    items: list[Object]
    version: str
    more: int  # so many objects are on the pages after it
    token: str  # by which the next one is asked for; empty if there is none


class Refused(Exception):
    """The API server did not do it, or could not be reached (status 0).

    `why` are its words, and `reason` is its one word; a proxy or whatever else answers in its place has none.
    """

    def __init__(self, status: int, what: str, why: str, reason: str = "") -> None:
        super().__init__(f"could not {what}: {why} ({status})")
        # A webhook gives its refusals whatever status it likes.
        self.status = 403 if "admission webhook" in why else status
        self.why, self.reason = why, reason

    @property
    def is_gone(self) -> bool:
        """Whether the API server itself says that the object is not there."""
        return self.status == HTTPStatus.NOT_FOUND and self.reason == "NotFound"

    @property
    def is_conflict(self) -> bool:
        """Whether it exists already, or is not what we thought."""
        return self.status == HTTPStatus.CONFLICT

    @property
    def is_timeout(self) -> bool:
        """Whether there was no answer in time, from the API server or from what it asks, such as a webhook."""
        return self.status == HTTPStatus.GATEWAY_TIMEOUT or self.reason == TIMEOUT

    @property
    def is_about_object(self) -> bool:
        """Whether other objects may fare better: it is not for who we are or how busy the API server is."""
        return self.is_timeout or self.status not in (0, 401, 429, 503)


class Api:
    """One API server and the identity with which to talk to it. Safe to use from several threads."""

    def __init__(self, access: Access, *, patience: float = PATIENCE_SECONDS, connections: int = 16) -> None:
        """`patience` is how many seconds an answer may take, but for the events of a watch.

        `connections` are kept; more calls at a time have one of their own each.
        """
        self._access = access
        self._timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=patience)
        options: dict[str, Any] = {"maxsize": connections, "ssl_context": access.context(), "socket_options": KEEPALIVE}
        options |= {"retries": False, "timeout": self._timeout}
        if access.server_name:
            options |= {"server_hostname": access.server_name, "assert_hostname": access.server_name}
        if access.is_insecure:
            options["assert_hostname"] = False
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # who asked for it knows
        try:
            self._http = _manager(access.proxy, options)
        except urllib3.exceptions.ProxySchemeUnknown as error:
            raise NoAccess(f"the proxy for the API server cannot be used: {error}") from error

    def get(self, path: str, **query: str) -> Object:
        """One object."""
        return self.call("GET", path, query)

    def list_all(self, path: str, part: Part = whole, /, **query: str) -> Listing:
        """The objects of a collection, or a `part` of each; the rest of a page is gone before the next one comes.

        Refused, too, where something else answers in the API server's place.
        """
        try:
            return self._listing(path, part, query)
        except Refused as error:
            if error.status != HTTPStatus.GONE:
                raise
        return self._listing(path, part, query)  # what was listed had expired before its last page came

    def count(self, path: str) -> int:
        """How many objects a collection has, of which one alone is read."""
        first = next(self._pages(path, whole, {}, limit=1))
        return len(first.items) + first.more

    def _listing(self, path: str, part: Part, query: Mapping[str, str]) -> Listing:
        pages = list(self._pages(path, part, query))
        return Listing([item for page in pages for item in page.items], pages[0].version)

    def _pages(self, path: str, part: Part, query: Mapping[str, str], limit: int = PAGE) -> Iterator[_Page]:
        token = ""
        while True:
            asked = {**query, "limit": str(limit)} | ({"continue": token} if token else {})
            body = self._body(path, asked, PAGE_BYTES if limit > 1 else None)
            if body is None:
                limit //= 2
                continue
            page = _page(path, body, part)
            yield page
            token = page.token
            if not token:
                return

    def _body(self, path: str, query: Mapping[str, str], most: int | None) -> bytes | None:
        """An answer of so many bytes at most; None where it has more, which are not read."""
        answer = self._send("GET", path, query, preload_content=False)
        try:
            with self._refusing(f"GET {path}"):
                if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
                    _checked(answer, f"GET {path}")
                body: bytes = answer.read(None if most is None else most + 1)
        finally:
            answer.close()
        return body if most is None or len(body) <= most else None

    def offers(self, resource: Resource) -> bool:
        """Whether the API server has such objects, by its own lists of what it has."""
        if "/" not in resource.api:
            return True  # the core's kinds are everywhere
        groups = self._listed("/apis", "APIGroupList", "groups")
        if not any(one["groupVersion"] == resource.api for group in groups for one in group["versions"]):
            return False
        kinds = self._listed(f"/apis/{resource.api}", "APIResourceList", "resources")
        return any(one["name"] == resource.plural for one in kinds)

    def _listed(self, path: str, kind: str, what: str) -> list[Object]:
        answer = self.get(path)
        if answer.get("kind") != kind:
            raise Refused(0, f"GET {path}", f"the answer is no {kind}: that is no API server")
        found: list[Object] = answer[what]
        return found

    def create(self, path: str, body: Object, **query: str) -> Object:
        """Creates an object in the collection."""
        return self.call("POST", path, query, body)

    def replace(self, path: str, body: Object) -> Object:
        """Replaces an object, if it still has the resource version of the body."""
        return self.call("PUT", path, {}, body)

    def delete(self, path: str, *, uid: str, version: str = "", **query: str) -> Object:
        """Deletes the object if it still is the one with that uid and, where one is given, that resource version."""
        conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        return self.call("DELETE", path, query, {"preconditions": conditions, "propagationPolicy": "Background"})

    def merge(self, path: str, body: Object, **query: str) -> Object:
        """Changes fields of an object."""
        return self.call("PATCH", path, query, body, MERGE)

    def apply(self, path: str, body: Object, *, manager: str, **query: str) -> Object:
        """Server-side apply: the object's fields that `manager` cares for are these, and no others."""
        return self.call("PATCH", path, {"fieldManager": manager, "force": "true", **query}, body, APPLY)

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        """Events since a resource version, until the server ends the watch."""
        seconds = str(WATCH_SECONDS)
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=WATCH_SECONDS + 30)
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        response = self._send("GET", path, query, timeout=timeout, preload_content=False)
        try:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                _checked(response, f"watch {path}")
            yield from map(json.loads, _lines(response))
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise Refused(0, f"watch {path}", str(error)) from error
        finally:
            response.close()

    def call(
        self, method: str, path: str, query: Mapping[str, str], body: Object | None = None, kind: str = JSON
    ) -> Object:
        """Any request, with a body of some kind, and an object as its answer."""
        data = None if body is None else json.dumps(body).encode()
        answer = self._send(method, path, query, body=data, headers={"Content-Type": kind})
        try:
            document: Object = json.loads(_checked(answer, f"{method} {path}"))
        except ValueError:
            raise Refused(0, f"{method} {path}", "the answer is not JSON: that is no API server") from None
        return document

    def read(self, path: str, **query: str) -> bytes:
        """The body of an answer as it is, which may be a log or what a pod says."""
        return _checked(self._send("GET", path, query), f"GET {path}")

    def _send(self, method: str, path: str, query: Mapping[str, str], **options: Any) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json, */*", **options.pop("headers", {})}
        url = f"{self._access.server}{path}?{urlencode(query)}"
        with self._refusing(f"{method} {path}"):
            if authorization := self._access.authorization():
                headers["Authorization"] = authorization
            return self._http.request(method, url, headers=headers, **options)

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """No answer is a refusal, too."""
        try:
            yield
        except urllib3.exceptions.ReadTimeoutError as error:
            raise Refused(0, what, f"no answer in {self._timeout.read_timeout:g} s", TIMEOUT) from error
        except (urllib3.exceptions.HTTPError, OSError, NoAccess) as error:
            raise Refused(0, what, str(error)) from error


def _manager(proxy: str, options: dict[str, Any]) -> urllib3.PoolManager:
    if not proxy:
        return urllib3.PoolManager(**options)
    login = parse_url(proxy).auth
    return urllib3.ProxyManager(proxy, proxy_headers=make_headers(proxy_basic_auth=login) if login else None, **options)


def _page(path: str, body: bytes, part: Part) -> _Page:
    """One page of a list, of whose objects only a part is left."""
    try:
        answer = json.loads(body)
        meta, items = answer["metadata"], list(answer["items"])
        version, more, token = meta["resourceVersion"], meta.get("remainingItemCount", 0), meta.get("continue", "")
    except (KeyError, TypeError, ValueError):
        raise Refused(0, f"GET {path}", "the answer is no list: that is no API server") from None
    return _Page(list(map(part, items)), version, more, token)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    pending = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, pending = (pending + chunk).split(b"\n")
        yield from filter(None, whole)


def _checked(answer: urllib3.BaseHTTPResponse, what: str) -> bytes:
    """The body of an answer that is no refusal; of what is not the API server's own only the beginning is quoted."""
    body: bytes = answer.data
    if answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return body
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":  # a webhook's refusal has no reason
        why = document.get("message") or answer.reason
        raise Refused(answer.status, what, str(why), str(document.get("reason") or ""))
    raise Refused(answer.status, what, body[:200].decode("utf-8", "replace") or str(answer.reason))
