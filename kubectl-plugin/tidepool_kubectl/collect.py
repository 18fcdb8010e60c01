"""`kubectl tidepool collect`: what a bug report needs, in one archive, as far as one may read it.

Nothing is asked for that could hold a secret or a page: no Secret, no ConfigMap, no VirtualMachineInstance (cloud-init
has passwords), nothing in a guest. Of pods and nodes only fields that are named here are kept.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Protocol

from tidepool_api import names
from tidepool_api.kube import Refused, ours
from tidepool_api.kube.resources import DAEMONSETS, DEPLOYMENTS, EVENTS, LEASES, NODES, PODS
from tidepool_kubectl.cluster import COMPONENT, SELECTOR, Unusable

Part = tuple[str, bytes]  # the name of a file, and what is in it


class Read(Protocol):
    """Reads the body of an answer; raises `Refused`, and `Unusable` when there is none."""

    def __call__(self, path: str, **query: str) -> bytes: ...


KINDS = (names.POOLS, names.PAIRINGS, names.GUESTS, names.GRANTS, names.QUOTAS)
PORTS = {
    "agent": names.AGENT_METRICS_PORT,
    "operator": names.OPERATOR_METRICS_PORT,
    "node-lender": names.NODE_LENDER_METRICS_PORT,
}
LOG_LINES, LOG_BYTES = 10_000, 4 << 20
NODE_INFO = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeletVersion", "osImage")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Tokens should be in no log; a line that has one all the same keeps the rest.
_TOKENS = re.compile(rb"(?i)\bbearer\s+\S+|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*")


class Collector:
    """Reads what there is; `unread` says afterwards what could not be read, and why."""

    def __init__(self, read: Read, *, namespace: str, system: str) -> None:
        """`namespace` limits which of Tidepool's objects are collected; empty for all. Raises `Unusable` later."""
        self._read = read
        self._where, self._system = namespace, system
        self.unread: list[str] = []

    def parts(self) -> Iterator[Part]:
        """The files, one after the other; raises `Unusable` if there is no cluster."""
        yield "version.json", self._read("/version")
        for kind in KINDS:
            yield from self._list(f"objects/{kind}.json", ours(kind).path(self._where), _cleaned)
        yield from self._list(f"objects/{names.CLASSES}.json", ours(names.CLASSES).path(), _cleaned)
        about = f"involvedObject.apiVersion={names.API_VERSION}"
        yield from self._list("events.json", EVENTS.path(self._where), _cleaned, fieldSelector=about)
        yield from self._list("system/events.json", EVENTS.path(self._system), _cleaned)
        yield from self._list("nodes.json", NODES.path(), _node)
        yield from self._installation()

    def _installation(self) -> Iterator[Part]:
        for kind in (DEPLOYMENTS, DAEMONSETS):
            path = kind.path(self._system)
            yield from self._list(f"system/{kind.plural}.json", path, _workload, labelSelector=SELECTOR)
        yield from self._list("system/leases.json", LEASES.path(self._system), _cleaned)
        pods = self._items(PODS.path(self._system), labelSelector=SELECTOR)
        if pods is None:
            return
        yield "system/pods.json", _json([_workload(pod) for pod in pods])
        for pod in pods:
            yield from self._of(pod)

    def _of(self, pod: Mapping[str, Any]) -> Iterator[Part]:
        """Logs, those of a container that has ended too, and metrics of a pod."""
        name, component = pod["metadata"]["name"], pod["metadata"]["labels"].get(COMPONENT)
        log = PODS.path(self._system, name, "log")
        for status in pod.get("status", {}).get("containerStatuses", ()):
            asked = {"container": status["name"], "tailLines": f"{LOG_LINES}", "limitBytes": f"{LOG_BYTES}"}
            yield from self._text(f"logs/{name}.{status['name']}.log", log, **asked)
            if status.get("restartCount"):
                yield from self._text(f"logs/{name}.{status['name']}.previous.log", log, **asked, previous="true")
        if component in PORTS:
            metrics = PODS.path(self._system, f"{name}:{PORTS[component]}", "proxy/metrics")
            yield from self._text(f"metrics/{name}.txt", metrics)

    def _list(self, file: str, path: str, keep: Callable[[Any], Any], **query: str) -> Iterator[Part]:
        items = self._items(path, **query)
        if items is not None:
            yield file, _json([keep(one) for one in items])

    def _items(self, path: str, **query: str) -> list[Any] | None:
        body = self._try(path, **query)
        found: list[Any] | None = None if body is None else json.loads(body)["items"]
        return found

    def _text(self, file: str, path: str, **query: str) -> Iterator[Part]:
        body = self._try(path, **query)
        if body is not None:
            yield file, _TOKENS.sub(b"[removed]", body)

    def _try(self, path: str, **query: str) -> bytes | None:
        try:
            return self._read(path, **query)
        except (Refused, Unusable) as error:
            former = " (of the container before)" if "previous" in query else ""
            # The one word of a refusal: its sentence names who asks.
            why = error.reason or error.why if isinstance(error, Refused) else error
            self.unread.append(f"{path}{former}: {why}")
            return None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _cleaned(one: dict[str, Any]) -> dict[str, Any]:
    """An object without what the API server and kubectl note down for themselves."""
    meta = {name: value for name, value in one["metadata"].items() if name != "managedFields"}
    if "annotations" in meta:
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**one, "metadata": meta}


def _node(one: dict[str, Any]) -> dict[str, Any]:
    info = one.get("status", {}).get("nodeInfo", {})
    conditions = {each["type"]: each["status"] for each in one.get("status", {}).get("conditions", ())}
    kept = {name: info[name] for name in NODE_INFO if name in info}
    return {"name": one["metadata"]["name"], **kept, "conditions": conditions} | _if_cordoned(one)


def _if_cordoned(one: dict[str, Any]) -> dict[str, Any]:
    return {"unschedulable": True} if one.get("spec", {}).get("unschedulable") else {}


def _workload(one: dict[str, Any]) -> dict[str, Any]:
    """A pod, or what makes pods: which version of the chart and of the images, with which arguments, and how it is."""
    meta, spec = one["metadata"], one["spec"]
    containers = spec.get("template", {}).get("spec", spec).get("containers", ())
    kept = ("name", "image", "args", "resources")
    return {
        "name": meta["name"],
        "labels": meta.get("labels", {}),
        "created": meta.get("creationTimestamp"),
        "node": spec.get("nodeName"),
        "containers": [{name: each[name] for name in kept if name in each} for each in containers],
        "status": one.get("status", {}),
    }


def write(file: IO[bytes], folder: str, collector: Collector, at: datetime) -> list[str]:
    """Writes the archive into a file, everything in one folder; returns the names of what is in it."""
    found = []
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in collector.parts():
            _add(archive, f"{folder}/{name}", data, at)
            found.append(name)
        _add(archive, f"{folder}/index.txt", _index(found, collector.unread, at).encode(), at)
    return found


def _add(archive: tarfile.TarFile, name: str, data: bytes, at: datetime) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = len(data), int(at.timestamp()), 0o600
    archive.addfile(entry, io.BytesIO(data))


def _index(found: Sequence[str], unread: Sequence[str], at: datetime) -> str:
    missing = [f"- {one}" for one in unread] or ["- nothing"]
    lines = [f"kubectl tidepool collect, {at:%Y-%m-%d %H:%M:%S} UTC", "", "In here:", *(f"- {one}" for one in found)]
    return "\n".join([*lines, "", "Could not be read:", *missing, ""])
