"""The API server, as far as the agent needs it: a handful of REST verbs and watches, on plain JSON.

Written out rather than taken from the generated client, because an agent runs on every node: its thousand classes
would be most of the agent's memory, and what is hard about the API (watches that end, versions that expire, server-
side apply) is the same with it.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.connection import HTTPConnection

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
TIMEOUT = urllib3.Timeout(connect=5, read=30)
WATCH_SECONDS = 240
# A server that has vanished without a word is noticed within a minute, also by a watch on which nothing happens.
KEEPALIVE = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]

Object = dict[str, Any]


class ApiError(Exception):
    """The API server refused a request or could not be reached (status 0).

    `reason` is the API server's own word; a proxy or whatever else answers in its place has none.
    """

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.reason = status, reason

    @property
    def not_found(self) -> bool:
        """Whether the API server itself says that the object is not there."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def conflict(self) -> bool:
        """Whether the object has changed since it was read."""
        return self.status == 409


class Api:
    """One API server and the identity with which to talk to it. Safe to use from several threads."""

    def __init__(self, url: str, *, ca: Path, token: Path) -> None:
        self._url = url.rstrip("/")
        self._token = token
        context = ssl.create_default_context(cafile=str(ca))
        self._http = urllib3.PoolManager(
            maxsize=16, ssl_context=context, timeout=TIMEOUT, retries=False, socket_options=KEEPALIVE
        )

    @classmethod
    def in_cluster(cls, account: Path) -> Api:
        """The API server of the cluster that this pod runs in."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        if ":" in host:
            host = f"[{host}]"
        return cls(f"https://{host}:{port}", ca=account / "ca.crt", token=account / "token")

    def get(self, path: str, **query: str) -> Object:
        """One object, or a list."""
        return self._request("GET", path, query)

    def offers(self, path: str) -> bool:
        """Whether the API server has the kind at that path, by its own lists of what it has."""
        version, _, kind = path.removeprefix("/apis/").rpartition("/")
        if version.startswith("/api/"):
            return True  # the core's kinds are everywhere
        groups = self._listed("/apis", "APIGroupList", "groups")
        if not any(one["groupVersion"] == version for group in groups for one in group["versions"]):
            return False
        return any(one["name"] == kind for one in self._listed(f"/apis/{version}", "APIResourceList", "resources"))

    def _listed(self, path: str, kind: str, what: str) -> list[Object]:
        answer = self.get(path)
        if answer.get("kind") != kind:
            raise ApiError(0, f"GET {path}: the answer is no {kind}: that is no API server")
        found: list[Object] = answer[what]
        return found

    def create(self, path: str, body: Object) -> Object:
        """Creates an object in the collection."""
        return self._request("POST", path, {}, body)

    def delete(self, path: str, *, uid: str, version: str) -> None:
        """Deletes the object if it still is the one with that uid and resource version."""
        self._request("DELETE", path, {}, {"preconditions": {"uid": uid, "resourceVersion": version}})

    def merge(self, path: str, body: Object) -> Object:
        """Changes fields of an object."""
        return self._request("PATCH", path, {}, body, MERGE)

    def apply(self, path: str, body: Object, *, manager: str) -> Object:
        """Server-side apply: the object's fields that `manager` cares for are these, and no others."""
        return self._request("PATCH", path, {"fieldManager": manager, "force": "true"}, body, APPLY)

    def watch(self, path: str, **query: str) -> Iterator[Object]:
        """Events since a resource version, until the server ends the watch."""
        seconds = str(WATCH_SECONDS)
        timeout = urllib3.Timeout(connect=5, read=WATCH_SECONDS + 30)
        query |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        response = self._send("GET", path, query, timeout=timeout, preload_content=False)
        try:
            if response.status >= 400:
                raise _refused(response.status, response.read())
            yield from map(json.loads, _lines(response))
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ApiError(0, f"watch of {path}: {error}") from error
        finally:
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        response = self._send(method, path, query, body=data, headers={"Content-Type": kind})
        if response.status >= 400:
            raise _refused(response.status, response.data)
        try:
            document: Object = json.loads(response.data)
        except ValueError as error:
            raise ApiError(0, f"{method} {path}: the answer is not JSON") from error
        return document

    def _send(self, method: str, path: str, query: Mapping[str, str], **options: Any) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", **options.pop("headers", {})}
        try:
            # Read every time: the kubelet replaces the token before it expires.
            headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
            return self._http.request(method, f"{self._url}{path}?{urlencode(query)}", headers=headers, **options)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    pending = b""
    for chunk in response.stream(65536, decode_content=True):
        *whole, pending = (pending + chunk).split(b"\n")
        yield from filter(None, whole)


def _refused(status: int, body: bytes) -> ApiError:
    """What the API server says in a Status; of anything else only the beginning is quoted."""
    try:
        document = json.loads(body)
        if document["kind"] == "Status":
            return ApiError(status, str(document["message"]), str(document["reason"]))
    except (ValueError, KeyError, TypeError):
        pass
    return ApiError(status, body[:200].decode("utf-8", "replace"))
