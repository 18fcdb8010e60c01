"""Reads objects of a test's API server by the words that kubectl takes: what tests ask for while they wait.

kubectl is a program that starts, and costs a tenth of a second of a processor each time.
"""

from __future__ import annotations

from typing import NamedTuple

from tidepool_api.kube import Api, Object, Refused, Resource


class Kind(NamedTuple):
    """Where objects of a kind are, and what they are called there."""

    resource: Resource
    kind: str
    namespaced: bool

    def path(self, namespace: str, name: str) -> str:
        """Of an object or, without name, of all; in a namespace or, without one, in all."""
        return self.resource.path(namespace if self.namespaced else "", name)


class Reader:
    """Reads as the one whose access it is given."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: dict[str, Kind] = {}

    def get(self, word: str, name: str = "", namespace: str = "") -> Object:
        """An object, or a List of them; raises `Refused`."""
        kind = self._kind(word)
        answer = self._api.get(kind.path(namespace, name))
        if not name:
            api = kind.resource.api
            answer["items"] = [{"apiVersion": api, "kind": kind.kind, **one} for one in answer["items"]]
        for one in [answer] if name else answer["items"]:
            one["metadata"].pop("managedFields", None)  # which kubectl does not show unless it is asked to
        return answer

    def _kind(self, word: str) -> Kind:
        """By plural, singular or short name; what was installed since the last look is there, too."""
        if word not in self._kinds:
            self._kinds = self._discovered()
        if word not in self._kinds:
            raise Refused(404, f"get {word}", f"the server doesn't have a resource type {word!r}")
        return self._kinds[word]

    def _discovered(self) -> dict[str, Kind]:
        """The first that is called so has the word: the core's, then each group's in the server's order."""
        kinds: dict[str, Kind] = {}
        groups = self._api.get("/apis")["groups"]
        for version in ("v1", *(group["preferredVersion"]["groupVersion"] for group in groups)):
            for one in self._api.get(Resource(version, "").path().rstrip("/"))["resources"]:
                kind = Kind(Resource(version, one["name"]), one["kind"], one["namespaced"])
                for word in (one["name"], one["singularName"], *one.get("shortNames", [])):
                    kinds.setdefault(word, kind)
        return kinds
