"""Everything that is asked of the API server, with the rights and the configuration of whoever runs kubectl."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Self, TypeVar

from prometheus_client.samples import Sample
from pydantic import ValidationError

from tidepool_api import (
    ApiObject,
    GuestKey,
    MemoryGrant,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    MemoryQuota,
    ObjectKey,
    names,
)
from tidepool_api.kube import Api, NoAccess, Object, Refused, Resource, kubeconfig, ours
from tidepool_api.kube.resources import DAEMONSETS, DEPLOYMENTS, FINAL_PHASES, INSTANCES, LEASES, PODS, parse_time
from tidepool_kubectl.figures import Figures, figures_of, samples
from tidepool_kubectl.snapshot import Fleet, Lendings, Snapshot, Workload

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")

SELECTOR = "app.kubernetes.io/name=tidepool"
COMPONENT = "app.kubernetes.io/component"
PATIENCE_SECONDS = 15.0


class Unusable(Exception):
    """There is no way to the cluster, or Tidepool is not in it; the text says what to do."""


class Cluster:
    """A cluster, as it looks from a namespace, or with `everywhere` from all."""

    def __init__(self, api: Api, namespace: str, *, everywhere: bool, system: str) -> None:
        """`system` is the namespace in which Tidepool is installed."""
        self._api, self.namespace, self._system = api, namespace, system
        self._everywhere = everywhere
        self._where = "" if everywhere else namespace

    @classmethod
    def reached(cls, *, context: str | None, namespace: str | None, everywhere: bool, system: str) -> Self:
        """As a context of the kubeconfig reaches it, the current one unless another is named; raises `Unusable`."""
        try:
            access = kubeconfig.access(context)
            api = Api(access, patience=PATIENCE_SECONDS)
        except NoAccess as error:
            raise Unusable(f"no cluster: {error}") from error
        return cls(api, namespace or access.namespace, everywhere=everywhere, system=system)

    def snapshot(self, *, metrics: bool = False) -> Snapshot:
        """How everything is now, with or without the agents' metrics; raises `Unusable`."""
        counted, unread = self._metrics() if metrics else (Figures(), ())
        return Snapshot(
            at=datetime.now(UTC),
            pools=self._pools(),
            pairings=self._all(MemoryPairing, names.PAIRINGS),
            guests=self._all(MemoryGuest, names.GUESTS),
            machines=self._machines(),
            workloads=_if_allowed(self._workloads),
            heartbeats=_if_allowed(self._heartbeats),
            figures=counted,
            unread=unread,
        )

    def lendings(self) -> Lendings:
        """Who lends to whom; raises `Unusable`.

        A pairing is in the namespace of its borrower: who may not list all of them is shown those of the namespaces
        that a grant of his own names.
        """
        grants = self._allowed(MemoryGrant, names.GRANTS, self._where) or ()
        guests = self._all(MemoryGuest, names.GUESTS)
        found = self._allowed(MemoryPairing, names.PAIRINGS, "")
        if found is not None:
            return Lendings(tuple(one for one in found if self._concerns(one)), guests, grants)
        found, hidden = self._all(MemoryPairing, names.PAIRINGS), []
        for other in sorted({to.namespace for grant in grants for to in grant.spec.to} - {self.namespace}):
            there = self._allowed(MemoryPairing, names.PAIRINGS, other)
            if there is None:
                hidden.append(other)
            found += tuple(one for one in there or () if self._concerns(one))
        return Lendings(found, guests, grants, tuple(hidden))

    def fleet(self) -> Fleet:
        """What memory may go where, and the agents' metrics; raises `Unusable`."""
        counted, unread = self._metrics()
        pools, guests = self._pools(), self._all(MemoryGuest, names.GUESTS)
        grants = self._allowed(MemoryGrant, names.GRANTS, self._where) or ()
        quotas = self._allowed(MemoryQuota, names.QUOTAS, self._where) or ()
        named = {name for pool in pools for name in pool.spec.lenders.namespaces}
        named |= {self._system} if any(pool.spec.lenders.nodes for pool in pools) else set()
        hidden = []
        for other in sorted(named - {self.namespace}) if not self._everywhere else ():
            there = self._allowed(MemoryGuest, names.GUESTS, other)
            given = self._allowed(MemoryGrant, names.GRANTS, other)
            if there is None or given is None:
                hidden.append(other)
            guests, grants = guests + (there or ()), grants + (given or ())
            quotas += self._allowed(MemoryQuota, names.QUOTAS, other) or ()
        pairings = self._all(MemoryPairing, names.PAIRINGS)
        return Fleet(pools, pairings, guests, grants, quotas, tuple(hidden), self._system, counted, unread)

    def _allowed(self, model: type[T], plural: str, where: str) -> tuple[T, ...] | None:
        """All objects of a kind in a namespace, or in all; None where one may not look."""
        return _if_allowed(lambda: self._parsed(model, plural, where))

    def _concerns(self, one: MemoryPairing) -> bool:
        return self._everywhere or self.namespace in (one.namespace, one.lender.namespace)

    def read(self, path: str, **query: str) -> bytes:
        """The body of an answer; raises `Refused`, and `Unusable` when there is none."""
        return _answered(lambda: self._api.read(path, **query))

    def figures(self) -> Figures:
        """The agents' metrics alone; raises `Unusable`."""
        return self._metrics()[0]

    def guest_names(self) -> list[str]:
        """The guests of the namespace, for completion; raises `Unusable`."""
        return [one.name for one in self._all(MemoryGuest, names.GUESTS)]

    def pool_names(self) -> list[str]:
        """The pools of the namespace, for completion; raises `Unusable`."""
        return [one.name for one in self._all(MemoryPool, names.POOLS)]

    def _machines(self) -> dict[GuestKey, str]:
        try:
            found = self._list(INSTANCES, self._where)
        except Refused:
            return {}  # no KubeVirt, or one may not look
        said = ((GuestKey.of(one), one.get("status", {})) for one in found)
        return {key: status.get("nodeName", "") for key, status in said if status.get("phase") not in FINAL_PHASES}

    def _pools(self) -> tuple[MemoryPool, ...]:
        """The pools with what their classes give, by their status: not everybody may look at what is the cluster's."""
        return tuple(one.in_effect for one in self._all(MemoryPool, names.POOLS))

    def _all(self, model: type[T], plural: str) -> tuple[T, ...]:
        try:
            return self._parsed(model, plural, self._where)
        except Refused as error:
            raise Unusable(_why(error, f"{plural}.{names.GROUP}")) from error

    def _parsed(self, model: type[T], plural: str, where: str) -> tuple[T, ...]:
        return tuple(_understood(model, plural, one) for one in self._list(ours(plural), where))

    def _workloads(self) -> dict[str, Workload]:
        pods = self._list(PODS, self._system, labelSelector=SELECTOR)
        found = [
            (one, one["spec"]["replicas"], one["status"].get("readyReplicas", 0))
            for one in self._list(DEPLOYMENTS, self._system, labelSelector=SELECTOR)
        ]
        found += [
            (one, one["status"]["desiredNumberScheduled"], one["status"]["numberReady"])
            for one in self._list(DAEMONSETS, self._system, labelSelector=SELECTOR)
        ]
        return {
            (component := one["metadata"]["labels"][COMPONENT]): Workload(
                one["metadata"]["name"], wanted, ready, _troubles(_of(pods, component))
            )
            for one, wanted, ready in found
        }

    def _heartbeats(self) -> dict[str, datetime]:
        leases = self._list(LEASES, self._system)
        renewed = {one["metadata"]["name"]: parse_time(one["spec"].get("renewTime") or "") for one in leases}
        return {
            name.removeprefix(names.LEASE_PREFIX): at
            for name, at in renewed.items()
            if name.startswith(names.LEASE_PREFIX) and at
        }

    def _metrics(self) -> tuple[Figures, tuple[str, ...]]:
        """What the agents export, read through the API server, and those of which it could not be."""
        found, unread = list[Sample](), list[str]()
        try:
            pods = _of(self._list(PODS, self._system, labelSelector=SELECTOR), "agent")
        except Refused as error:
            return Figures(), (f"the agents: {error.why}",)
        for pod in pods:
            name = pod["metadata"]["name"]
            try:
                path = PODS.path(self._system, f"{name}:{names.AGENT_METRICS_PORT}", "proxy/metrics")
                found += samples(self.read(path).decode())
            except Refused as error:
                unread.append(f"{name}: {error.why}")
            except Unusable as error:  # the API server does not hear from that node, or nobody hears from it
                unread.append(f"{name}: {error}")
            except ValueError:
                unread.append(f"{name}: what it says is no metrics")
        return figures_of(found), tuple(unread)

    def _list(self, resource: Resource, namespace: str, **query: str) -> list[Object]:
        return _answered(lambda: self._api.list_all(resource.path(namespace), **query)).items


def _answered(ask: Callable[[], R]) -> R:
    """What the API server says; raises `Refused`, and `Unusable` when that is nothing."""
    try:
        return ask()
    except Refused as refusal:
        if not refusal.status:
            raise Unusable(f"the API server does not answer: {refusal.why}") from refusal
        raise


def _understood(model: type[T], plural: str, body: Object) -> T:
    """An object of the cluster; raises `Unusable` with the field that this version does not understand."""
    try:
        return model.parse(body)
    except ValidationError as error:
        wrong = error.errors()[0]
        field, value = ".".join(map(str, wrong["loc"])), repr(wrong["input"])[:60]
        why = f"{field} is {value}: {wrong['msg']}"
        raise Unusable(
            f"cannot read {plural} {ObjectKey.of(body)}: {why}; use the plugin of the version that is installed"
        ) from error


def _of(pods: Iterable[Any], component: str) -> list[Any]:
    return [pod for pod in pods if pod["metadata"]["labels"].get(COMPONENT) == component]


def _why(error: Refused, what: str) -> str:
    if error.status == HTTPStatus.NOT_FOUND:
        return f"the cluster does not know {what}: Tidepool is not installed there"
    if error.status == HTTPStatus.FORBIDDEN:
        return f"you may not list {what} there; choose a namespace with -n"
    return f"cannot list {what}: {error.why}"


def _if_allowed(look: Callable[[], R]) -> R | None:
    """What is found, or None where one may not look; raises `Unusable`."""
    try:
        return look()
    except Refused as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise Unusable(f"the API server refused: {error.why}") from error


def _troubles(pods: Iterable[Any]) -> str:
    """What pods that do not run say of themselves."""
    waiting = [
        f"{pod['metadata']['name']}: {why['reason']}"
        for pod in pods
        for one in pod["status"].get("containerStatuses", ())
        if (why := one["state"].get("waiting"))
    ]
    return "; ".join(waiting[:5])
