"""What the operator knows of the cluster: the newest version of each object, by namespace.

Filled by watch events and by the answers to its own writes, whichever is newer. kopf's indexes are not used because an
object that is deleted while a watch has to be restarted would stay in them for ever; here a listing now and then
(`forget_missing`) takes out what is gone.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from tidepool_api import (
    ApiObject,
    Classes,
    MemoryGrant,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    MemoryPoolClass,
    MemoryQuota,
    ObjectKey,
    Unusable,
    complete,
    names,
)
from tidepool_operator.planning.inventory import Node

T = TypeVar("T", bound=ApiObject)

log = logging.getLogger(__name__)

ZONE_LABEL = "topology.kubernetes.io/zone"
MEMORY_PRESSURE = "MemoryPressure"  # the kubelet's word
# With a namespace, the group of the pairings in which its guests lend to other namespaces.
LENT_ELSEWHERE = "lent elsewhere by"

# Where the objects are that belong to the cluster.
NOWHERE = ""

Group = tuple[str, str]


def version(metadata: Mapping[str, Any]) -> int:
    """The resource version as the number that it is for the objects of one kind."""
    return int(metadata.get("resourceVersion") or 0)


@dataclass(frozen=True)
class Unreadable:
    """An object that the models refuse: written before a rule was added, or by a newer version."""

    head: ApiObject
    status: Mapping[str, Any]
    why: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.head.name


class Objects(Generic[T]):
    """The objects of one kind."""

    def __init__(
        self,
        model: type[T],
        plural: str,
        *,
        keeps_readable: bool = True,
        groups: Callable[[T], Iterable[Group]] = lambda _: (),
    ) -> None:
        """`keeps_readable`: whether the last version that could be read stands in for one that cannot.

        `groups` gives what `in_group` finds objects by; they never change for an object.
        """
        self._keeps_readable = keeps_readable
        self._groups_of = groups
        self._groups: dict[Group, dict[ObjectKey, T]] = defaultdict(dict)
        self._changes: Counter[str] = Counter()
        self._all_changes = 0
        self.model = model
        self.plural = plural
        self._objects: dict[str, dict[str, T]] = defaultdict(dict)
        self._unreadable: dict[str, dict[str, Unreadable]] = defaultdict(dict)
        self._deleted: set[str] = set()  # UIDs, since the last listing
        self._echoes: set[str] = set()  # versions that we made and that tell nothing, since the last listing

    def in_namespace(self, namespace: str) -> list[T]:
        """Those of a namespace."""
        return list(self._objects.get(namespace, {}).values())

    def in_group(self, kind: str, name: str) -> list[T]:
        """Those that belong together."""
        return list(self._groups.get((kind, name), {}).values())

    def changes(self, namespace: str = "") -> int:
        """How often something of a namespace, or of all, has come, gone, or become another (see `_gist`)."""
        return self._changes[namespace] if namespace else self._all_changes

    def unreadable(self, namespace: str) -> list[Unreadable]:
        """Those that could not be read."""
        return list(self._unreadable.get(namespace, {}).values())

    def namespaces(self) -> set[str]:
        """Where there are any."""
        return {name for name, found in (*self._objects.items(), *self._unreadable.items()) if found}

    def uids(self) -> set[str]:
        """The UIDs of all of them."""
        return {one.metadata.uid for found in self._objects.values() for one in found.values()}

    def get(self, namespace: str, name: str) -> T | None:
        """One of them."""
        return self._objects.get(namespace, {}).get(name)

    def lacks(self, body: Mapping[str, Any]) -> bool:
        """Whether a version is newer than what is known, which may be that the object has been deleted."""
        metadata = body["metadata"]
        known = self.get(*ObjectKey.of(body))
        is_newer = known is None or version(metadata) > int(known.metadata.resource_version or 0)
        return is_newer and metadata.get("uid") not in self._deleted

    def put(self, body: Mapping[str, Any]) -> T | None:
        """Takes in a version unless a newer one is known; returns the newest that can be read."""
        namespace, name = key = ObjectKey.of(body)
        known = self.get(namespace, name)
        if not self.lacks(body):
            return known
        try:
            fresh = self._read(body)
        except ValidationError as error:
            status = body.get("status", {})
            self._unreadable[namespace][name] = Unreadable(ApiObject.parse(body), status, explain(error))
            log.warning("cannot read %s %s: %s", self.plural, key, explain(error))
            if known is not None and not self._keeps_readable:
                self._count(namespace)
                self._drop(known)
            return known
        if known is None or _gist(fresh) != _gist(known):
            self._count(namespace)
        if known is not None:
            self._drop(known)
        self._objects[namespace][name] = fresh
        for group in self._groups_of(fresh):
            self._groups[group][key] = fresh
        self._unreadable[namespace].pop(name, None)
        return fresh

    def _read(self, body: Mapping[str, Any]) -> T:
        return self.model.parse(body)

    def _count(self, namespace: str) -> None:
        self._changes[namespace] += 1
        self._all_changes += 1

    def _drop(self, known: T) -> None:
        del self._objects[known.namespace][known.name]
        for group in self._groups_of(known):
            self._groups[group].pop(known.key, None)
            if not self._groups[group]:
                del self._groups[group]

    def bury(self, namespace: str, name: str, uid: str) -> None:
        """Forgets an object that has been deleted; versions that were asked for before are not believed any more."""
        self._deleted.add(uid)
        self.remove(namespace, name, uid)

    def remove(self, namespace: str, name: str, uid: str) -> None:
        """Forgets an object, but not another one that has its name by now."""
        known, broken = self.get(namespace, name), self._unreadable.get(namespace, {}).get(name)
        if known is not None and known.metadata.uid == uid:
            self._count(namespace)
            self._drop(known)
        if broken is not None and broken.head.metadata.uid == uid:
            del self._unreadable[namespace][name]

    def expect_echo(self, version: str) -> None:
        """Says that the event of a version that we made will tell nothing."""
        self._echoes.add(version)

    def is_echo(self, version: str) -> bool:
        """Whether that is the event; it comes once."""
        is_echo = version in self._echoes
        self._echoes.discard(version)
        return is_echo

    def forget_missing(self, present: Iterable[Mapping[str, Any]], at: int) -> set[str]:
        """Forgets what a listing made at that resource version does not have; returns the namespaces concerned."""
        there = {one["metadata"]["uid"] for one in present}
        every: list[ApiObject] = [one for found in self._objects.values() for one in found.values()]
        every += [one.head for found in self._unreadable.values() for one in found.values()]
        gone = [one for one in every if one.metadata.uid not in there and int(one.metadata.resource_version or 0) <= at]
        for one in gone:
            self.remove(one.namespace, one.name, one.metadata.uid)
        self._deleted.clear()
        self._echoes.clear()
        return {one.namespace for one in gone}


class Pools(Objects[MemoryPool]):
    """The pools, each with what its class gives."""

    def __init__(self, classes: Objects[MemoryPoolClass]) -> None:
        super().__init__(MemoryPool, names.POOLS, keeps_readable=False)
        self._classes = classes

    def renew(self) -> set[str]:
        """Asks the classes anew, one of which has changed; returns the namespaces of pools that are others for it."""
        classes, changed = self._known_classes(), set()
        for one in [one for found in self._objects.values() for one in found.values()]:
            fresh = complete(one, classes)
            if fresh != one or fresh.source.given.said() != one.source.given.said():
                self._objects[one.namespace][one.name] = fresh
                self._count(one.namespace)
                changed.add(one.namespace)
        return changed

    def _read(self, body: Mapping[str, Any]) -> MemoryPool:
        return complete(super()._read(body), self._known_classes())

    def _known_classes(self) -> Classes:
        known = {one.name: one for one in self._classes.in_namespace(NOWHERE)}
        broken = {one.name: Unusable(one.head, one.why) for one in self._classes.unreadable(NOWHERE)}
        return Classes(known, broken)


def _gist(one: Any) -> tuple[object, ...]:
    """What an object is beside its status; but that a guest is excluded or has ended nothing else says."""
    left_out = (one.is_excluded, one.has_ended) if isinstance(one, MemoryGuest) else ()
    return one.spec, one.metadata.labels, one.metadata.annotations, one.terminating, left_out


def _groups_of(one: MemoryPairing) -> Iterable[Group]:
    yield one.namespace, one.spec.pool
    if one.lender.namespace != one.namespace:
        yield LENT_ELSEWHERE, one.lender.namespace


class Nodes:
    """What matters of the cluster's nodes."""

    plural = "nodes"

    def __init__(self) -> None:
        self.known: dict[str, Node] = {}

    def put(self, body: Mapping[str, Any]) -> bool:
        """Takes in a node; returns whether something that matters has changed."""
        name, labels = body["metadata"]["name"], body["metadata"].get("labels") or {}
        conditions = {one["type"]: one["status"] for one in body.get("status", {}).get("conditions") or ()}
        node = Node(
            zone=labels.get(ZONE_LABEL, ""),
            cordoned=bool(body.get("spec", {}).get("unschedulable")),
            pressed=conditions.get(MEMORY_PRESSURE) == "True",
        )
        is_new = self.known.get(name) != node
        self.known[name] = node
        return is_new

    def remove(self, name: str) -> bool:
        """Forgets a node; returns whether it was known."""
        return self.known.pop(name, None) is not None


def explain(error: ValidationError) -> str:
    """The fields that are wrong, and why."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())


class State:
    """Everything that is planned with."""

    def __init__(self, home: str = "") -> None:
        """`home` is the namespace of the release, in which nodes are that lend."""
        self.home = home
        self.classes = Objects(MemoryPoolClass, names.CLASSES)
        self.pools = Pools(self.classes)
        self.pairings = Objects(MemoryPairing, names.PAIRINGS, groups=_groups_of)
        self.guests = Objects(MemoryGuest, names.GUESTS)
        self.grants = Objects(MemoryGrant, names.GRANTS, keeps_readable=False)
        self.quotas = Objects(MemoryQuota, names.QUOTAS)
        self.nodes = Nodes()

    @property
    def kinds(self) -> tuple[Objects[Any], ...]:
        """All five of those that are in namespaces."""
        return (self.pools, self.pairings, self.guests, self.grants, self.quotas)

    def uids(self) -> set[str]:
        """The UIDs of all pools and pairings."""
        return self.pools.uids() | self.pairings.uids()

    def node_lenders(self) -> list[MemoryGuest]:
        """The nodes that lend, or would."""
        return [one for one in self.guests.in_namespace(self.home) if one.is_node and not one.terminating]

    def lending(self, pool: MemoryPool) -> set[str]:
        """The namespaces beside a pool's own whose guests or nodes it asks for."""
        nodes = {self.home} if pool.spec.lenders.nodes else set()
        return ({*pool.spec.lenders.namespaces} | nodes) - {pool.namespace}

    def namespaces(self) -> set[str]:
        """Where something is to be done: namespaces with pools, or with pairings or donors that outlived theirs."""
        return self.pools.namespaces() | self.pairings.namespaces() | self._with_donors()

    def _with_donors(self) -> set[str]:
        """Namespaces with a guest that is marked as one whose memory is gathered."""
        return {
            name
            for name in self.guests.namespaces()
            if any(names.BALLOON_ANNOTATION in one.metadata.annotations for one in self.guests.in_namespace(name))
        }
