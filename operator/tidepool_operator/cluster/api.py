"""The API server, as far as the operator uses it: calls run in threads, answers are plain dictionaries."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from tidepool_api import names

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

Body = dict[str, Any]

TIMEOUT_SECONDS = 20
AT_ONCE = 8  # calls
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Refused(Exception):
    """The API server did not do it, or could not be reached (status 0)."""

    def __init__(self, status: int, what: str, why: str) -> None:
        super().__init__(f"could not {what}: {why} ({status})")
        # A webhook gives its refusals whatever status it likes.
        self.status = 403 if "admission webhook" in why else status
        self.why = why

    @property
    def is_gone(self) -> bool:
        """Whether there is no such object."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether it exists already, or is not what we thought."""
        return self.status == 409

    @property
    def is_about_object(self) -> bool:
        """Whether other objects may fare better: it is not for who we are or how busy the API server is."""
        return self.status not in (0, 401, 429, 503, 504)


async def at_once(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs jobs, a few at a time; after a failure, which is raised, none is begun."""
    waiting = iter(jobs)

    async def work() -> None:
        try:
            for job in waiting:
                await job
        except BaseException:
            for left in waiting:
                left.close()
            raise

    results = await asyncio.gather(*(work() for _ in range(AT_ONCE)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def load_config() -> None:
    """Takes the pod's ServiceAccount, or else the kubeconfig of whoever starts this."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config()  # type: ignore[no-untyped-call]


class Cluster:
    """A client; `on_write` is told of every object that was written."""

    def __init__(self, *, namespaces: Sequence[str] = (), on_write: Callable[[str], None] = lambda _: None) -> None:
        self._namespaces = tuple(namespaces)
        self._on_write = on_write
        self._api = client.ApiClient()
        self._pool = ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="api")

    def close(self) -> None:
        """Waits for no call that has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def list_all(self, plural: str) -> tuple[list[Body], int]:
        """All objects of a kind, and the resource version at which they were all there."""
        if not self._namespaces or plural == names.CLASSES:
            return await self._list(f"/apis/{names.API_VERSION}/{plural}")
        answers = [await self._list(_path(plural, namespace)) for namespace in self._namespaces]
        return [one for items, _ in answers for one in items], min(at for _, at in answers)

    async def list_nodes(self) -> list[Body]:
        """The nodes of the cluster."""
        items, _ = await self._list("/api/v1/nodes")
        return items

    async def list_leases(self, namespace: str) -> list[Body]:
        """The leases of the agents."""
        selector = ",".join(f"{key}={value}" for key, value in names.LEASE_LABELS.items())
        items, _ = await self._list(_lease(namespace), labelSelector=selector)
        return items

    async def get_lease(self, namespace: str, name: str) -> Body:
        """One Lease."""
        return await self._call("GET", _lease(namespace, name), None, {})

    async def create_lease(self, body: Body) -> None:
        """Creates a Lease."""
        await self._call("POST", _lease(body["metadata"]["namespace"]), body, {})

    async def replace_lease(self, body: Body) -> None:
        """Replaces a Lease, unless somebody else has changed it meanwhile."""
        metadata = body["metadata"]
        await self._call("PUT", _lease(metadata["namespace"], metadata["name"]), body, {})

    async def create(self, plural: str, body: Body) -> Body:
        """Creates one of our objects."""
        return await self._write("POST", _path(plural, body["metadata"]["namespace"]), plural, body)

    async def patch(self, plural: str, namespace: str, name: str, body: Body, *, status: bool = False) -> Body:
        """Merges fields into one of our objects, or into its status."""
        path = _path(plural, namespace, name) + ("/status" if status else "")
        return await self._write("PATCH", path, plural, body)

    async def delete(self, plural: str, namespace: str, name: str, uid: str) -> Body:
        """Deletes an object if it is still the one that we know."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        return await self._write("DELETE", _path(plural, namespace, name), plural, body)

    async def offer(self, body: Body) -> None:
        """Applies a MemoryGuest in its agent's name, unless somebody has changed it, so that the agent can undo it."""
        metadata = body["metadata"]
        query = {"fieldManager": names.AGENT_FIELD_MANAGER, "force": "true"}
        try:
            await self._call("PATCH", _path(names.GUESTS, metadata["namespace"], metadata["name"]), body, query, APPLY)
        except Refused as refusal:
            if not (refusal.is_gone or refusal.is_conflict):
                raise
        self._on_write(names.GUESTS)

    async def create_event(self, body: Body) -> None:
        """Posts an Event."""
        await self._write("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/events", "events", body)

    async def _list(self, path: str, **query: str) -> tuple[list[Body], int]:
        answer = await self._call("GET", path, None, query)
        try:
            return list(answer["items"]), int(answer["metadata"]["resourceVersion"])
        except (KeyError, TypeError, ValueError):
            raise Refused(0, f"GET {path}", "the answer is no list: that is no API server") from None

    async def _write(self, method: str, path: str, what: str, body: Body | None) -> Body:
        answer = await self._call(method, path, body, {"fieldManager": names.OPERATOR_FIELD_MANAGER})
        self._on_write(what)
        return answer

    async def _call(
        self, method: str, path: str, body: Body | None, query: Mapping[str, str], content: str = ""
    ) -> Body:
        call = partial(self._call_now, method, path, body, list(query.items()), content)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def _call_now(self, method: str, path: str, body: Body | None, query: list[tuple[str, str]], content: str) -> Body:
        usual = MERGE if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": content or usual}
        self._api.update_params_for_auth(headers, query, ["BearerToken"], path, method, body)
        url = f"{self._api.configuration.host}{path}?{urlencode(query)}"
        try:
            send: Any = self._api.rest_client.request
            answer = send(method, url, headers, body, _request_timeout=TIMEOUT_SECONDS)
            text = answer.read()
        except HTTPError as error:
            raise Refused(0, f"{method} {path}", str(error)) from None
        if answer.status >= 400:
            raise Refused(answer.status, f"{method} {path}", _why(text) or str(answer.reason))
        try:
            data: Body = json.loads(text)
        except ValueError:
            raise Refused(0, f"{method} {path}", "the answer is not JSON: that is no API server") from None
        return data


def _path(plural: str, namespace: str, name: str = "") -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def _lease(namespace: str, name: str = "") -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


def _why(text: bytes) -> str:
    """The server's own words, where it has any."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return ""
