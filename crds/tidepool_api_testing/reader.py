"""Reads objects of a test's API server over one connection a thread: what tests ask for while they wait.

kubectl is a program that starts, and costs a tenth of a second of a processor each time.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from pathlib import Path
from typing import Any, NamedTuple

DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SECONDS = 30


class Missing(Exception):
    """The API server has no such kind, or no such object; the text is what it said."""


class Kind(NamedTuple):
    """Where objects of a kind are."""

    version: str  # apiVersion
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None) -> str:
        """Of an object or, without name, of all; in a namespace or, without one, in all."""
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        within = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{within}/{self.plural}" + (f"/{name}" if name else "")


class Reader:
    """Reads as the one whose token it has."""

    def __init__(self, port: int, certificate: Path, token: str) -> None:
        self._port, self._token, self._certificate = port, token, certificate
        self._kinds: dict[str, Kind] = {}
        self._local = threading.local()

    def get(self, kind: str, name: str | None, namespace: str | None) -> Any:
        """An object, or a List of them; raises `Missing`."""
        found = self._kind(kind)
        answer = self._ask(found.path(namespace, name), "application/json")
        if name is None:
            answer["items"] = [{"apiVersion": found.version, "kind": found.kind, **one} for one in answer["items"]]
        for one in answer["items"] if name is None else [answer]:
            one["metadata"].pop("managedFields", None)  # which kubectl does not show unless it is asked to
        return answer

    def _kind(self, word: str) -> Kind:
        """By plural, singular or short name; what was installed since the last look is there, too."""
        if word not in self._kinds:
            self._kinds = {**self._discovered("/apis"), **self._discovered("/api")}
        if word not in self._kinds:
            raise Missing(f"the server doesn't have a resource type {word!r}")
        return self._kinds[word]

    def _discovered(self, path: str) -> dict[str, Kind]:
        kinds: dict[str, Kind] = {}
        for group in self._ask(path, DISCOVERY)["items"]:
            for version in group["versions"][:1]:
                name = group["metadata"].get("name")
                where = f"{name}/{version['version']}" if name else version["version"]
                for one in version.get("resources", []):
                    kind = Kind(where, one["responseKind"]["kind"], one["resource"], one["scope"] == "Namespaced")
                    words = (one["resource"], one.get("singularResource"), *one.get("shortNames", []))
                    kinds |= {word: kind for word in words if word and word not in kinds}
        return kinds

    def _ask(self, path: str, accept: str) -> Any:
        status, body = self._request(path, accept)
        if status == http.client.OK:
            return json.loads(body)
        try:
            said = json.loads(body)
        except ValueError:
            said = {"reason": status, "message": body.decode(errors="replace")}
        raise Missing(f"Error from server ({said.get('reason')}): {said.get('message')}")

    def _request(self, path: str, accept: str) -> tuple[int, bytes]:
        """Once more if it was over a connection that the server has closed meanwhile."""
        kept = getattr(self._local, "connection", None)
        connection = kept or self._connect()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}", "Accept": accept})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._local.connection = None
            if kept is None:
                raise Missing(f"The connection to the server 127.0.0.1:{self._port} was refused: {error}") from None
        return self._request(path, accept)

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self._certificate))
        context.check_hostname = False
        self._local.connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=SECONDS, context=context)
        connection: http.client.HTTPSConnection = self._local.connection
        return connection
