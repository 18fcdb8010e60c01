"""What Helm does not do itself, for the Jobs that are the chart's hooks.

    python3 -m tidepool_operator.release crds       brings the CRDs to this version, and waits until they are served
    python3 -m tidepool_operator.release withdraw   deletes every pool, and waits until no guest has anything of it
    python3 -m tidepool_operator.release forget     deletes what operator and agents have written, once they are gone

Helm installs CRDs and never changes them; and it is the agents that take the module out of the guests, so that they
must not go before that is done.

A hook that is applied as a plain manifest is an ordinary Job, and runs at once. So each makes sure that its time has
come: pools go only for a Job that Helm has created, what agents have written only when they are gone, and nothing at
all while another release is the one at work.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import ObjectKey, crd, kube, names
from tidepool_api.kube import Access, NoAccess, Refused, Resource, kubeconfig, ours
from tidepool_api.kube.resources import CRDS, DAEMONSETS, DEPLOYMENTS, JOBS, LEASES, POLICIES
from tidepool_operator import logs, settings
from tidepool_operator.cluster.heartbeats import Heartbeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
log = logging.getLogger(__name__)

MANAGER = "tidepool-release"
RELEASE_ANNOTATION = f"{names.GROUP}/release"  # on the policy with which the chart keeps a second release out
LOOK_EVERY = 2.0
ESTABLISHED_SECONDS = 60.0
# The operator lets a pairing go after two minutes, whatever its agents do, and a module goes in its agent's next round.
# All that ends, with a word of what is left, before Helm's five minutes do.
PATIENCE_SECONDS = 240.0
# Answers of an API server that is busy or away, or that somebody else has just written to.
PASSING = frozenset({0, 409, 429, 500, 502, 503, 504})
# What operator and agents have taken off before an object goes, by its kind.
TAKEN_OFF = {
    "MemoryPool": {names.POOL_FINALIZER},
    "MemoryPairing": {names.LENDER_FINALIZER, names.BORROWER_FINALIZER},
}
# Exit codes: there is something to be done first, and trying again may help. The chart's Jobs go by them.
NOT_YET, AGAIN = 1, 2

Found = dict[str, Any]


class NotYet(Exception):
    """Something is in the way; the text says what, and what to do about it."""


@dataclass(frozen=True)
class Release:
    """One installation of the chart."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"release {self.name} in namespace {self.namespace}"


class Api:
    """The API server, as far as these Jobs use it."""

    def __init__(self, access: Access) -> None:
        self._api = kube.Api(access)

    def _list(self, resource: Resource, namespace: str = "") -> list[Found]:
        return self._api.list_all(resource.path(namespace)).items

    def apply_crd(self, body: Found) -> None:
        """Makes a CRD what it is to be, whoever has written it before."""
        self._api.apply(CRDS.path(*ObjectKey.of(body)), body, manager=MANAGER)

    def is_established(self, name: str) -> bool:
        """Whether the API server serves a CRD."""
        conditions = self._api.get(CRDS.path(name=name)).get("status", {}).get("conditions", [])
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def all(self, plural: str) -> list[Found]:
        """All objects of one of our kinds; none where its CRD is gone."""
        try:
            return self._list(ours(plural))
        except Refused as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND or self._api.offers(ours(plural)):
                raise
            return []

    def leases(self, namespace: str) -> list[Found]:
        """The Leases of operator and agents."""
        items = self._list(LEASES, namespace)
        return [one for one in items if one["metadata"]["name"].startswith((names.LEASE_PREFIX, names.OPERATOR_LEASE))]

    def releases(self) -> list[Release]:
        """The releases in the cluster, by the policies with which each keeps others out."""
        found = self._list(POLICIES)
        said = (one["metadata"].get("annotations", {}).get(RELEASE_ANNOTATION) for one in found)
        return [Release(*one.split("/", 1)) for one in said if one]

    def has_workloads(self, release: Release) -> bool:
        """Whether a release has an operator or agents that are to stay."""
        found = (one for kind in (DEPLOYMENTS, DAEMONSETS) for one in self._list(kind, release.namespace))
        return any(is_of(one, release) and "deletionTimestamp" not in one["metadata"] for one in found)

    def creator(self, namespace: str, job: str) -> str:
        """By which program a Job was created."""
        return writer(self._api.get(JOBS.path(namespace, job)))

    def delete(self, resource: Resource, found: Found) -> None:
        """Deletes an object, if it is still the same."""
        try:
            self._api.delete(resource.path(*ObjectKey.of(found)), uid=found["metadata"]["uid"])
        except Refused as refusal:
            if not (refusal.is_gone or refusal.is_conflict):
                raise
            log.info("%s is gone already", title(found))


@dataclass(frozen=True)
class Task:
    """What a Job works with."""

    api: Api
    release: Release
    job: str
    patience: float


def title(found: Found) -> str:
    """An object as people call it."""
    return str(ObjectKey.of(found))


def kept(objects: Iterable[Found]) -> list[Found]:
    """Those that are not there for somebody else's finalizer alone: that keeps an object, and no memory."""
    return [one for one in objects if not _is_kept_by_others(one)]


def _is_kept_by_others(found: Found) -> bool:
    """Whether only finalizers keep it that nobody of ours takes off, whatever they are called."""
    metadata = found["metadata"]
    finalizers = metadata.get("finalizers") or ()
    is_ours = not TAKEN_OFF.get(found["kind"], set()).isdisjoint(finalizers)
    return "deletionTimestamp" in metadata and bool(finalizers) and not is_ours


def is_of(workload: Found, release: Release) -> bool:
    """Whether a Deployment or DaemonSet is a release's, by what cannot be changed: others may label it as they like."""
    selected: dict[str, str] = workload["spec"]["selector"].get("matchLabels", {})
    wanted = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/instance": release.name}
    return selected | wanted == selected


def left(until: float, look: Callable[[], list[str]]) -> list[str]:
    """Waits until nothing is found; what still is at that time. Says what it waits for."""
    said: list[str] = []
    while (found := patiently(look)) and time.monotonic() < until:
        if found != said:
            log.info("waiting for %s", ", ".join(found))
            said = found
        time.sleep(LOOK_EVERY)
    return found


def patiently(do: Callable[[], T]) -> T:
    """Does something again while the API server has no time for it."""
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while True:
        try:
            return do()
        except Refused as refusal:
            if refusal.status not in PASSING or time.monotonic() > deadline:
                raise
            log.warning("trying again: %s", refusal)
        time.sleep(LOOK_EVERY)


def are_ours(task: Task) -> bool:
    """Whether pools and guests are this release's, and not another one's, which is named. Of two at work neither's."""
    others = [str(one) for one in patiently(task.api.releases) if one != task.release]
    if not others:
        return True
    if patiently(lambda: task.api.has_workloads(task.release)):
        raise NotYet(f"there is {', '.join(others)}, too: take that away first, its operator may serve these pools")
    log.warning("pools and guests are those of %s: nothing of them is touched", ", ".join(others))
    return False


def bring_crds(task: Task) -> None:
    """The CRDs of this version."""
    if not are_ours(task):
        return
    bodies = [crd.build(kind) for kind in crd.KINDS]
    for body in bodies:
        patiently(partial(task.api.apply_crd, body))
        log.info("applied %s", body["metadata"]["name"])
    ours = [body["metadata"]["name"] for body in bodies]
    until = time.monotonic() + ESTABLISHED_SECONDS
    if waiting := left(until, lambda: [name for name in ours if not task.api.is_established(name)]):
        raise NotYet(f"the API server does not serve {', '.join(waiting)}: `kubectl describe crd` says why")


def withdraw(task: Task) -> None:
    """All pools deleted, with their pairings, and the module out of every guest."""
    api = task.api
    if not are_ours(task):
        return
    if patiently(lambda: api.all(names.POOLS)):
        require_helm(patiently(lambda: api.creator(task.release.namespace, task.job)))
    until = time.monotonic() + task.patience
    if waiting := left(until, partial(delete_pools, api, {})):
        raise NotYet(f"still there: {', '.join(waiting)}. Is the operator up? {advice(task.release)}")
    if waiting := left(until, partial(with_module, task, Heartbeats())):
        raise NotYet(f"memory may still be lent: {', '.join(waiting)}. {advice(task.release)}")
    log.info("no guest lends or borrows any more")


def delete_pools(api: Api, deleted: dict[str, int]) -> list[str]:
    """Deletes every pool, also one that somebody makes anew meanwhile; what is still there of pools and pairings.

    `deleted` counts how often each was.
    """
    waiting = []
    for pool in kept(api.all(names.POOLS)):
        if "deletionTimestamp" not in pool["metadata"]:
            api.delete(ours(names.POOLS), pool)
            log.info("deleted MemoryPool %s", title(pool))
            deleted[title(pool)] = deleted.get(title(pool), 0) + 1
        again = f" (made anew by {writer(pool)})" if deleted.get(title(pool), 0) > 1 else ""
        waiting.append(f"MemoryPool {title(pool)}{again}")
    return waiting + [f"MemoryPairing {title(one)}" for one in kept(api.all(names.PAIRINGS))]


def writer(found: Found) -> str:
    """The program that wrote an object first, as the API server has noted it; somebody, where that was taken away."""
    fields = found["metadata"].get("managedFields") or []
    writers = sorted((str(one.get("time")), str(one.get("manager"))) for one in fields if "subresource" not in one)
    return writers[0][1] if writers else "somebody"


def require_helm(creator: str) -> None:
    """Helm creates this Job when it uninstalls, and at no other time. What uses it as a library is named after it."""
    if "helm" not in creator:
        raise NotYet(
            f"this Job was created by {creator} and not by Helm, so that all pools stay. "
            "To remove Tidepool, delete the MemoryPools first: docs/how-to/plain-manifests.md"
        )


def with_module(task: Task, heartbeats: Heartbeats) -> list[str]:
    """The guests that have last been seen with the module or an inflated balloon, and whether there is an agent.

    That takes the module out, and gives back what the balloon holds.
    """
    heartbeats.update(task.api.leases(task.release.namespace))
    guests = [(one, what) for one in task.api.all(names.GUESTS) if (what := _left_in(one.get("status", {})))]
    return [f"guest {title(one)} {what}" + unattended(one["spec"]["nodeName"], heartbeats) for one, what in guests]


def _left_in(status: Found) -> str:
    """What of ours is in a guest, as its status says; empty if there is nothing."""
    if status.get("moduleVersion"):
        return "has the module"
    return "has memory in its balloon" if status.get("balloon") else ""


def unattended(node: str, heartbeats: Heartbeats) -> str:
    """That the agent of a node does not answer, where that is so."""
    return f" and the agent on node {node} does not answer" if heartbeats.is_silent(node) else ""


def advice(release: Release) -> str:
    """The ways on from an uninstallation that has not come to its end."""
    name, where = release.name, f"-n {release.namespace}"
    return (
        "Nothing else was taken away, so that agents that come back do the rest. "
        f"Then `helm uninstall {name} {where}` once more. "
        f"Or keep Tidepool: `helm rollback {name} REVISION {where}`; `helm history {name} {where}` has the last one. "
        f"Or give these guests up: `helm uninstall {name} {where} --no-hooks`; the module leaves them when they reboot"
    )


def forget(task: Task) -> None:
    """No MemoryGuest and no Lease is left, now that nobody writes them any more."""
    api = task.api
    if not are_ours(task):
        return
    if patiently(lambda: api.has_workloads(task.release)):
        raise NotYet(f"operator and agents of {task.release} are still there: nothing is forgotten")
    for lease in patiently(lambda: api.leases(task.release.namespace)):
        patiently(partial(api.delete, LEASES, lease))
    for guest in patiently(lambda: api.all(names.GUESTS)):
        patiently(partial(api.delete, ours(names.GUESTS), guest))
    until = time.monotonic() + ESTABLISHED_SECONDS
    if waiting := left(until, lambda: [title(one) for one in kept(api.all(names.GUESTS))]):
        raise NotYet(f"MemoryGuests are still there: {', '.join(waiting)}")


TASKS = {"crds": bring_crds, "withdraw": withdraw, "forget": forget}


def carry_out(name: str, task: Callable[[], Task]) -> int:
    """Does one task; its exit code. What went wrong is said in words, for Helm shows them."""
    try:
        TASKS[name](task())
    except NotYet as reason:
        log.error("%s", reason)
        return NOT_YET
    except NoAccess as error:
        log.error("%s", error)
        return AGAIN
    except Refused as refusal:
        if refusal.status == HTTPStatus.UNAUTHORIZED:
            log.error(
                "the API server no longer knows this Job: Helm has given up waiting for it; "
                "start again, with --timeout 10m"
            )
            return NOT_YET
        log.error("%s", refusal)
        return AGAIN
    return 0


def main(arguments: Sequence[str]) -> int:
    """Does one task; 0 if it is done."""
    parser = argparse.ArgumentParser(prog="python3 -m tidepool_operator.release", description="A step of Helm's hooks.")
    parser.add_argument("task", choices=TASKS)
    text = "seconds that pools, pairings and modules have to go (default: %(default)s)"
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS, help=text)
    chosen = parser.parse_args(arguments)
    logs.set_up("text", "INFO")
    release = Release(settings.parse([]).own_namespace, os.environ["TIDEPOOL_RELEASE"])
    job = os.environ["TIDEPOOL_JOB"]
    return carry_out(chosen.task, lambda: Task(Api(kubeconfig.found()), release, job, chosen.patience))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
