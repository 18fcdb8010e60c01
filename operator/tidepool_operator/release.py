"""What Helm does not do itself, for the Jobs that are the chart's hooks.

    python3 -m tidepool_operator.release crds       brings the CRDs to this version, and waits until they are served
    python3 -m tidepool_operator.release withdraw   deletes every pool, and waits until no guest has anything of it
    python3 -m tidepool_operator.release forget     deletes what operator and agents have written, once they are gone

Helm installs CRDs and never changes them; and it is the agents that take the module out of the guests, so that they
must not go before that is done.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from kubernetes import client, dynamic
from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError, NotFoundError

from tidepool_api import crd, names
from tidepool_operator import logs, settings
from tidepool_operator.cluster import load_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

MANAGER = "tidepool-release"
CRD_API = "apiextensions.k8s.io/v1"
LEASE_API = "coordination.k8s.io/v1"
LOOK_EVERY = 2.0
ESTABLISHED_SECONDS = 60.0
# A pairing waits a minute for a guest that does not answer, and is let go then.
PATIENCE_SECONDS = 240.0
# After its last pairing the module goes in the agent's next round.
UNLOADED_SECONDS = 60.0
# Answers of an API server that is busy, or that somebody else has just written to.
PASSING = frozenset({409, 429, 500, 502, 503, 504})

Found = dict[str, Any]


class Api:
    """The API server, as far as these Jobs use it."""

    def __init__(self) -> None:
        load_config()
        self._client: Any = dynamic.DynamicClient(client.ApiClient())  # type: ignore[no-untyped-call]

    def _resource(self, kind: str, api_version: str = names.API_VERSION) -> Any:
        return self._client.resources.get(api_version=api_version, kind=kind)

    def apply_crd(self, body: Found) -> None:
        """Makes a CRD what it is to be, whoever has written it before."""
        crds = self._resource("CustomResourceDefinition", CRD_API)
        crds.server_side_apply(body=body, field_manager=MANAGER, force_conflicts=True)

    def is_established(self, name: str) -> bool:
        """Whether the API server serves a CRD."""
        found: Found = self._resource("CustomResourceDefinition", CRD_API).get(name=name).to_dict()
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def all(self, kind: str) -> list[Found]:
        """All objects of one of our kinds; none where its CRD is gone."""
        try:
            items: list[Found] = self._resource(kind).get().to_dict()["items"]
        except (NotFoundError, dynamic.exceptions.ResourceNotFoundError):
            return []
        return items

    def leases(self, namespace: str) -> list[Found]:
        """The Leases of operator and agents."""
        items: list[Found] = self._resource("Lease", LEASE_API).get(namespace=namespace).to_dict()["items"]
        return [one for one in items if one["metadata"]["name"].startswith((names.LEASE_PREFIX, names.OPERATOR_LEASE))]

    def delete(self, found: Found) -> None:
        """Deletes an object, if it is still the same."""
        metadata = found["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        try:
            resource = self._resource(found["kind"], found["apiVersion"])
            resource.delete(name=metadata["name"], namespace=metadata["namespace"], body=body)
        except (NotFoundError, ConflictError):
            log.info("%s %s is gone already", found["kind"], title(found))


def title(found: Found) -> str:
    """An object as people call it."""
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def left(seconds: float, look: Callable[[], list[str]]) -> list[str]:
    """Waits until nothing is found; what still is after so long. Says what it waits for."""
    deadline = time.monotonic() + seconds
    said: list[str] = []
    while (found := look()) and time.monotonic() < deadline:
        if found != said:
            log.info("waiting for %s", ", ".join(found))
            said = found
        time.sleep(LOOK_EVERY)
    return found


def patiently(do: Callable[[], None]) -> None:
    """Does something again while the API server has no time for it."""
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while True:
        try:
            return do()
        except DynamicApiError as error:
            if error.status not in PASSING or time.monotonic() > deadline:
                raise
            log.warning("trying again: %s %s", error.status, error.reason)
        time.sleep(LOOK_EVERY)


def bring_crds(api: Api, _: float) -> int:
    """The CRDs of this version."""
    bodies = [crd.build(kind) for kind in crd.KINDS]
    for body in bodies:
        patiently(partial(api.apply_crd, body))
        log.info("applied %s", body["metadata"]["name"])
    ours = [body["metadata"]["name"] for body in bodies]
    waiting = left(ESTABLISHED_SECONDS, lambda: [name for name in ours if not api.is_established(name)])
    for name in waiting:
        log.error("the API server does not serve %s: `kubectl describe crd %s` says why", name, name)
    return 1 if waiting else 0


def withdraw(api: Api, patience: float) -> int:
    """All pools deleted, with their pairings, and the module out of every guest that answers."""
    for pool in api.all("MemoryPool"):
        api.delete(pool)
        log.info("deleted MemoryPool %s", title(pool))
    kinds = ("MemoryPool", "MemoryPairing")
    waiting = left(patience, lambda: [f"{kind} {title(one)}" for kind in kinds for one in api.all(kind)])
    for one in waiting:
        log.error("%s is still there: is the operator up, and the agents of both its guests?", one)
    if waiting:
        return 1
    for guest in left(UNLOADED_SECONDS, lambda: [title(one) for one in api.all("MemoryGuest") if has_module(one)]):
        log.warning("guest %s has not said that the module is out of it; it is, once that guest reboots", guest)
    log.info("no guest lends or borrows any more")
    return 0


def has_module(guest: Found) -> bool:
    """Whether a guest has last been seen with the module."""
    return bool(guest.get("status", {}).get("moduleVersion"))


def forget(api: Api, _: float) -> int:
    """No MemoryGuest and no Lease is left, now that nobody writes them any more."""
    for lease in api.leases(settings.parse([]).own_namespace):
        api.delete(lease)
    for guest in api.all("MemoryGuest"):
        api.delete(guest)
    return 1 if left(ESTABLISHED_SECONDS, lambda: [title(one) for one in api.all("MemoryGuest")]) else 0


TASKS = {"crds": bring_crds, "withdraw": withdraw, "forget": forget}


def main(arguments: Sequence[str]) -> int:
    """Does one task; 0 if it is done."""
    parser = argparse.ArgumentParser(prog="python3 -m tidepool_operator.release", description="A step of Helm's hooks.")
    parser.add_argument("task", choices=TASKS)
    text = "seconds that pools and pairings have to go (default: %(default)s)"
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help=text)
    chosen = parser.parse_args(arguments)
    logs.set_up("text", "INFO")
    return TASKS[chosen.task](Api(), chosen.patience)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
