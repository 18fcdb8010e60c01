"""What the agent reads from the API server, and what it writes there.

Reads come from copies that watches keep (see `watch`); writes go straight to the server, and its answer is taken into
the copy so that the next look already sees it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError

from tidepool_agent import consent, report
from tidepool_agent.calls import Calls
from tidepool_agent.errors import Excluded
from tidepool_agent.provider import Machine, Source
from tidepool_api import (
    ApiObject,
    BorrowerStatus,
    GuestKey,
    LenderStatus,
    MemoryGuest,
    MemoryPairing,
    ObjectKey,
    Provider,
    Reason,
    cadence,
    names,
)
from tidepool_api.base import rfc3339
from tidepool_api.kube import Api, Copy, Object, Refused, Resource, named, ours
from tidepool_api.kube.resources import EVENTS, LEASES, NAMESPACES, NODES
from tidepool_api.pairing import ends

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)
GUESTS, PAIRINGS = ours(names.GUESTS), ours(names.PAIRINGS)
# So long a lender's module keeps a session whose connection is lost (`linger_s`). Until then a guest that may be on its
# way to another node, whose agent may be away, has a cache to lose with its pairings.
LINGER_SECONDS = 60
# So long any other guest that is nowhere may take to turn up.
LEAVING_SECONDS = 10
# What the status of a guest has while something of ours is in it: the module, or what its balloon holds.
_LEFT_BEHIND = ("identity", "balloon")


class Cluster:
    """The API server as one node's agent sees it. `touched` is told which guest a change is about."""

    def __init__(
        self,
        api: Api,
        node: str,
        sources: Sequence[Source],
        touched: Callable[[GuestKey], None],
        *,
        namespaces: Collection[str] = (),
    ) -> None:
        """`namespaces` are those whose guests are looked at; all if there are none."""
        self._api, self.node, self._sources, self._touched = api, node, sources, touched
        self._calls, self._namespaces = Calls(), namespaces
        self._home: Object | None = None  # an ownerReference to the node, once that is known
        self._departed = set[str]()  # the UIDs of machines that have been migrated away, as their source says
        self._guests = Copy(GuestKey, api, GUESTS, self._guest, fieldSelector=f"spec.nodeName={node}")
        self._lending = Copy(ObjectKey, api, PAIRINGS, self._pairing, fieldSelector=f"spec.lender.nodeName={node}")
        self._borrowing = Copy(ObjectKey, api, PAIRINGS, self._pairing, fieldSelector=f"spec.borrower.nodeName={node}")
        excluding = consent.SELECTOR
        self._unwilling = Copy(ObjectKey, api, NAMESPACES, self._namespace, part=named, labelSelector=excluding)
        copies = (self._guests, self._lending, self._borrowing, self._unwilling)
        self._followed: tuple[Copy[Any] | Source, ...] = (*copies, *sources)
        self.figures_wait = timedelta(seconds=cadence.LEAST_SECONDS)
        """How long figures wait here until they are written."""

    # -------------------------------------------------------------------------------------------------------- reading

    async def start(self) -> None:
        """Follows everything; returns when each copy is complete."""
        for one in self._followed:
            one.start(asyncio.get_running_loop())
        for one in self._followed:
            await one.synced.wait()

    def machines(self) -> dict[GuestKey, Machine]:
        """The machines that run on this node, and are to be looked at."""
        every = ((key, one) for source in self._sources for key, one in source.machines().items())
        found = {key: owned(one, self._owner(key)) for key, one in every}
        return {key: machine for key, machine in found.items() if self._concerns(key)}

    def machine(self, key: GuestKey) -> Machine | None:
        """The machine of that name, if it is one of these."""
        found = next((machine for source in self._sources if (machine := source.machine(key))), None)
        return owned(found, self._owner(key)) if found and self._concerns(key) else None

    def _owner(self, key: GuestKey) -> Object | None:
        """The Node; as long as that is not known, what a MemoryGuest belongs to already."""
        owners = self._guests.objects.get(key, {}).get("metadata", {}).get("ownerReferences") or [None]
        owner: Object | None = self._home or owners[0]
        return owner

    def ended(self, key: GuestKey) -> str:
        """How the machine of a MemoryGuest has ended; empty if it has not, or is not known any more."""
        uid = self._guests.objects.get(key, {}).get("spec", {}).get("vm", {}).get("uid")
        found = next((ended for source in self._sources if (ended := source.ended(key))), None)
        return found.words if found and found.uid == uid else ""

    def excluded(self, machine: Machine) -> Excluded | None:
        """Why no command may be run in a machine, if none may."""
        return consent.excluded(machine, self._namespaces, {one.name for one in self._unwilling.objects})

    def _concerns(self, key: GuestKey) -> bool:
        """Whether a machine's namespace is served, or was: then what is ours is taken out of it first."""
        status = self._guests.objects.get(key, {}).get("status", {})
        return consent.serves(self._namespaces, key.namespace) or not status.keys().isdisjoint(_LEFT_BEHIND)

    def guests(self) -> dict[GuestKey, Object]:
        """The MemoryGuests of this node as the API server has them."""
        return self._guests.objects

    def guest(self, key: GuestKey) -> MemoryGuest | None:
        """A MemoryGuest of this node."""
        present = self._guests.objects.get(key)
        return _parsed(MemoryGuest, _own(present)) if present else None

    def pairings(self, key: GuestKey) -> list[MemoryPairing]:
        """The pairings in which a guest lends or borrows on this node."""
        return list(self._parsed_pairings(lambda item: key in ends(item)))

    async def paired(self, key: GuestKey) -> frozenset[str]:
        """The UIDs of all pairings of a guest that are not being deleted, wherever they say that it is."""
        lists = [await self._naming(end, key.name) for end in ("lender", "borrower")]
        return frozenset(
            one["metadata"]["uid"]
            for one in itertools.chain(*lists)
            if key in ends(one) and "deletionTimestamp" not in one["metadata"]
        )

    async def _naming(self, end: str, name: str) -> list[Object]:
        """The pairings of all namespaces of which one end has that name."""
        query = {"fieldSelector": f"spec.{end}.guest={name}"}
        return (await self._calls.read(self._api.list_all, PAIRINGS.path(), **query)).items

    def terminating(self) -> list[MemoryPairing]:
        """The pairings with an end on this node that are being deleted."""
        return list(self._parsed_pairings(lambda item: "deletionTimestamp" in item["metadata"]))

    def _parsed_pairings(self, chosen: Callable[[Object], bool]) -> Iterator[MemoryPairing]:
        for item in (self._lending.objects | self._borrowing.objects).values():
            pairing = _parsed(MemoryPairing, item) if chosen(item) else None
            if pairing:
                yield pairing

    async def measure(self) -> None:
        """Finds out how large the cluster is, and so how long figures wait."""
        guests, pairings = [await self._count(kind) for kind in (GUESTS, PAIRINGS)]
        self.figures_wait = timedelta(seconds=cadence.figures_seconds(guests, pairings))

    async def _count(self, kind: Resource) -> int:
        """How many objects there are, in all namespaces."""
        return await self._calls.read(self._api.count, kind.path())

    # -------------------------------------------------------------------------------------------------------- writing

    async def claim(self, guest: MemoryGuest) -> MemoryGuest | None:
        """Applies what a MemoryGuest is, beside its status; returns it with the status that it has now."""
        self._departed.discard(guest.spec.vm.uid)
        body, meta = _body(guest), guest.metadata
        body["metadata"] |= {"labels": meta.labels, "ownerReferences": [one.to_dict() for one in meta.owner_references]}
        answer = await self._apply(GUESTS.path(*guest.key), body | {"spec": guest.spec.to_dict()}, self._guests)
        return _parsed(MemoryGuest, _own(answer))

    async def write_guest(self, guest: MemoryGuest) -> None:
        """Applies the status of a MemoryGuest."""
        status = guest.status.to_dict() | {"observedAt": _seconds()}
        await self._apply(GUESTS.path(*guest.key, "status"), _body(guest) | {"status": status}, self._guests)

    async def write_ended(self, key: GuestKey, words: str) -> None:
        """Says on a MemoryGuest how its machine has ended, unless it says so already."""
        present = self.guest(key)
        if present and not (present.ready and (present.ready.reason, present.ready.message) == (Reason.ENDED, words)):
            await self.write_guest(report.ended(present, words))

    async def write_end(self, pairing: MemoryPairing, end: LenderStatus | BorrowerStatus) -> None:
        """Applies one end of a pairing's status."""
        lender = isinstance(end, LenderStatus)
        path = PAIRINGS.path(*pairing.key, "status")
        body = {
            "apiVersion": names.API_VERSION,
            "kind": pairing.kind,
            # The uid makes the server refuse this for another pairing of the same name.
            "metadata": {"name": pairing.name, "namespace": pairing.namespace, "uid": pairing.metadata.uid},
            "status": {"lender" if lender else "borrower": end.to_dict()},
        }
        manager = names.LENDER_FIELD_MANAGER if lender else names.BORROWER_FIELD_MANAGER
        await self._apply(path, body, self._lending if lender else self._borrowing, manager=manager)

    async def release(self, pairing: MemoryPairing, finalizer: str) -> bool:
        """Removes this side's finalizer from a pairing that is being deleted.

        False when somebody else has changed the pairing meanwhile: it is to be tried again with the new version, which
        may differ in its status only, so nobody would be woken by it.
        """
        left = [one for one in pairing.metadata.finalizers if one != finalizer]
        if len(left) == len(pairing.metadata.finalizers):
            return True
        meta = {"finalizers": left, "resourceVersion": pairing.metadata.resource_version, "uid": pairing.metadata.uid}
        try:
            await self._calls.write(self._api.merge, PAIRINGS.path(*pairing.key), {"metadata": meta})
        except Refused as error:
            if not (error.is_conflict or error.is_gone):
                raise
            return error.is_gone
        return True

    async def let_go(self, guest: Object) -> None:
        """Lets a MemoryGuest go whose machine is not here: the agent of another node may take it, else it is deleted.

        What another agent has taken meanwhile is left alone.
        """
        path = GUESTS.path(*GuestKey.of(guest))
        meta = guest["metadata"]
        since = meta.get("annotations", {}).get(names.LEAVING_ANNOTATION, "")
        try:
            if not since:
                await self._apply(path, _leaving(guest), self._guests)
            elif since <= _seconds(-self._leaves_for(guest)) and "deletionTimestamp" not in meta:
                await self._calls.write(self._api.delete, path, uid=meta["uid"], version=meta["resourceVersion"])
        except Refused as error:
            if not (error.is_conflict or error.is_gone):
                raise

    def _leaves_for(self, guest: Object) -> int:
        """How many seconds a guest that is not here has: nobody waits for what is not on its way to another node.

        An instance may be wherever it is not seen to be; its MemoryGuest, which belongs to it, goes with it anyway.
        """
        is_instances = guest["spec"]["provider"] == Provider.KUBEVIRT and bool(guest["metadata"].get("ownerReferences"))
        is_here = any(source.machine(GuestKey.of(guest)) for source in self._sources)
        migrates = guest["spec"]["vm"]["uid"] in self._departed or guest.get("status", {}).get("migrating", False)
        return LINGER_SECONDS if migrates or (is_instances and not is_here) else LEAVING_SECONDS

    @property
    def is_at_home(self) -> bool:
        """Whether it is known which Node this node is."""
        return self._home is not None

    def departed(self, uid: str) -> None:
        """A machine has been migrated away, by what its source says."""
        if any(one["spec"]["vm"]["uid"] == uid for one in self._guests.objects.values()):
            self._departed.add(uid)

    async def event(self, guest: MemoryGuest, reason: str, message: str, *, warning: bool = False) -> None:
        """Records an Event about a MemoryGuest."""
        now = _seconds()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{guest.name}.", "namespace": guest.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": guest.kind,
                "name": guest.name,
                "namespace": guest.namespace,
                "uid": guest.metadata.uid,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": names.AGENT_FIELD_MANAGER, "host": self.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._calls.write(self._api.create, EVENTS.path(guest.namespace), body)

    async def renew_lease(self, namespace: str) -> None:
        """Shows that this agent is alive. The Lease goes with the node."""
        owners = {"ownerReferences": [self._home]} if self._home else {}
        name = names.agent_lease(self.node)
        body = {
            "apiVersion": LEASES.api,
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace, "labels": names.LEASE_LABELS, **owners},
            "spec": {
                "holderIdentity": self.node,
                "leaseDurationSeconds": names.LEASE_STALE_SECONDS,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        path = LEASES.path(namespace, name)
        await self._calls.live(self._api.apply, path, body, manager=names.AGENT_FIELD_MANAGER)

    async def find_home(self) -> None:
        """Finds out which Node this node is: another one once it has registered anew, to which its guests belong then.

        One that is deleted stays theirs, so that they go with it.
        """
        uid = (await self._calls.read(self._api.get, NODES.path(name=self.node)))["metadata"]["uid"]
        before, self._home = self._home, {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
        if self._home != before:
            for key in self.machines():
                self._touched(key)

    async def _apply(
        self, path: str, body: Object, copy: Copy[Any], *, manager: str = names.AGENT_FIELD_MANAGER
    ) -> Object:
        answer = await self._calls.write(self._api.apply, path, body, manager=manager)
        copy.absorb(answer)
        return answer

    # -------------------------------------------------------------------------------------------------------- changes

    def _guest(self, old: Object | None, new: Object | None) -> None:
        if old and new is None:
            self._departed.discard(old["spec"]["vm"]["uid"])
        if old is None or new is None or _mark(old) != _mark(new):
            self._touched(GuestKey.of(new or old or {}))

    def _namespace(self, old: Object | None, new: Object | None) -> None:
        """A namespace wants Tidepool no more, or again."""
        name = ObjectKey.of(new or old or {}).name
        for key in self.machines():
            if key.namespace == name and (old is None or new is None):
                self._touched(key)

    def _pairing(self, old: Object | None, new: Object | None) -> None:
        if _wanted(old) == _wanted(new):
            return
        for key in ends(new or old or {}):
            self._touched(key)


def owned(machine: Machine, home: Object | None) -> Machine:
    """A machine with what it belongs to: its node, where it is of no other object."""
    return machine if machine.owner or home is None else replace(machine, owner=home)


def _body(guest: MemoryGuest) -> Object:
    meta = {"name": guest.name, "namespace": guest.namespace}
    return {"apiVersion": names.API_VERSION, "kind": guest.kind, "metadata": meta}


def _own(guest: Object) -> Object:
    """A MemoryGuest with what agents have given it: others' labels and annotations are neither compared nor applied.

    Who may change an object may also have it forget who wrote what: then nothing is ours until it is applied again.
    """
    meta = guest["metadata"]
    managed = [one for one in meta.get("managedFields", ()) if one.get("manager") == names.AGENT_FIELD_MANAGER]
    fields = [one.get("fieldsV1", {}).get("f:metadata", {}) for one in managed]
    return {**guest, "metadata": meta | {what: _of(meta, what, fields) for what in ("labels", "annotations")}}


def _of(meta: Object, what: str, fields: Sequence[Object]) -> dict[str, str]:
    """Those labels or annotations that are among some managed fields."""
    ours = {name for one in fields for name in one.get(f"f:{what}", {})}
    return {name: value for name, value in meta.get(what, {}).items() if f"f:{name}" in ours}


def _mark(guest: Object) -> Any:
    """What stays available in a guest from which memory is gathered."""
    return guest["metadata"].get("annotations", {}).get(names.BALLOON_ANNOTATION)


def _leaving(guest: Object) -> Object:
    """A MemoryGuest as it is, with the mark that lets other agents take it; they apply it without, which removes it."""
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    ours = _own(guest)["metadata"]
    meta = {name: ours[name] for name in kept if name in ours}
    meta["annotations"] = {names.LEAVING_ANNOTATION: _seconds()}
    return {"apiVersion": names.API_VERSION, "kind": guest["kind"], "metadata": meta, "spec": guest["spec"]}


def _seconds(later: float = 0) -> str:
    return rfc3339(datetime.now(UTC) + timedelta(seconds=later))


def _wanted(pairing: Object | None) -> tuple[Any, ...] | None:
    """What the agent acts on: not the status, which it writes itself."""
    if pairing is None:
        return None
    meta = pairing["metadata"]
    return meta["uid"], meta.get("generation"), meta.get("deletionTimestamp"), meta.get("finalizers")


def _parsed(kind: type[T], item: Object) -> T | None:
    try:
        return kind.parse(item)
    except ValidationError as error:
        log.warning("%s %s is not understood: %s", item.get("kind"), ObjectKey.of(item), error)
        return None
