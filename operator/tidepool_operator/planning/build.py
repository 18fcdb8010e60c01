"""The bodies of what the operator writes, as plain dictionaries; nothing here talks to anyone."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from tidepool_api import ApiObject, OwnerReference, format_quantity, names, now
from tidepool_api.base import rfc3339

if TYPE_CHECKING:
    from tidepool_api import Borrowers, MemoryGuest, MemoryPool, Network
    from tidepool_operator.planning.placement import Assignment

Body = dict[str, Any]

LONGEST_NAME = 240  # of a pairing
COMPONENT = "tidepool-operator"


def pairing_name(pool: str, borrower: str, lender: str) -> str:
    """A name that no other pool, borrower and lender have."""
    parts = (pool, borrower, lender)
    name = ".".join(parts).replace("/", ".")
    if not any("." in part or "/" in part for part in parts) and len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()[:10]
    return f"{name[: LONGEST_NAME - 11].rstrip('.-')}-{digest}"


def pairing_spec(pool: MemoryPool, one: Assignment, lender: MemoryGuest, borrower: MemoryGuest, port: int) -> Body:
    """The spec of the pairing that carries out an assignment; an address that is not known now is left out.

    Identities are not planned but follow from what guests report (see `identities`).
    """
    spec, place = pool.spec, whereabouts(lender, borrower, pool.spec.network)
    home = {"namespace": lender.namespace} if lender.namespace != pool.namespace else {}
    return {
        "pool": pool.name,
        "lender": {"guest": lender.name, "port": port, **home, **place["lender"]},
        "borrower": {"guest": one.borrower, **place["borrower"], **_beside_files(spec.borrowers)},
        "size": format_quantity(one.size),
        "reserve": format_quantity(spec.reserve_of(lender.status)),
        "maxLend": format_quantity(spec.max_lend_of(lender.status)) if lender.is_node else spec.lenders.max_lend,
        "strategy": spec.strategy.value,
        "filter": spec.filter.value,
        "encryption": spec.encryption.value,
        "deadline": spec.deadline,
        "latency": spec.latency.to_dict(),
    }


def _beside_files(borrowers: Borrowers) -> Body:
    """What lenders are for beside the files of a borrower; what the pool does not ask for is taken out."""
    swap = borrowers.swap and {"size": None, "device": None, **borrowers.swap.to_dict()}
    programs = borrowers.applications and {"mode": None, "group": None, **borrowers.applications.to_dict()}
    devices = {"devices": list(borrowers.devices), "force": list(borrowers.force), "swap": swap}
    return {**devices, "applications": programs}


def whereabouts(lender: MemoryGuest, borrower: MemoryGuest, network: Network | None) -> Body:
    """The part of a pairing's spec that says where its guests are, the lender on a network if one is named.

    An address that is not known now is left out, and so is the network then: what is there goes with it.
    """
    place: Body = {"nodeName": lender.spec.node_name}
    if addresses := lender.status.addresses_on(network):
        place["address"], *place["otherAddresses"] = addresses
        place["network"] = network and {"multus": None, **network.to_dict()}
    return {"lender": place, "borrower": {"nodeName": borrower.spec.node_name}}


def pairing(pool: MemoryPool, one: Assignment, spec: Body) -> Body:
    """A new pairing, with the finalizers of both agents from the start."""
    name = pairing_name(pool.name, one.borrower, one.lender)
    return {
        "apiVersion": names.API_VERSION,
        "kind": "MemoryPairing",
        "metadata": {
            "name": name,
            "namespace": pool.namespace,
            "labels": {names.POOL_LABEL: pool.name},
            "finalizers": [names.LENDER_FINALIZER, names.BORROWER_FINALIZER],
            "ownerReferences": [owner(pool)],
        },
        "spec": _without_nothing(spec),
    }


def _without_nothing(body: Body) -> Body:
    """What a patch takes out is not there to begin with."""
    inner = {key: _without_nothing(value) if isinstance(value, dict) else value for key, value in body.items()}
    return {key: value for key, value in inner.items() if value is not None}


def owner(one: ApiObject) -> Body:
    """A reference to what an object belongs to."""
    reference = OwnerReference(
        api_version=one.api_version,
        kind=one.kind,
        name=one.name,
        uid=one.metadata.uid,
        controller=True,
        block_owner_deletion=False,
    )
    return reference.to_dict()


def event(one: ApiObject, kind: str, reason: str, message: str) -> Body:
    """An Event about an object; `kind` is Normal or Warning."""
    time = rfc3339(now())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{one.name[:200]}.{secrets.token_hex(8)}", "namespace": one.namespace},
        "involvedObject": {
            "apiVersion": one.api_version,
            "kind": one.kind,
            "name": one.name,
            "namespace": one.namespace,
            "uid": one.metadata.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message[:1024],
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
    }


def difference(present: Body, wanted: Body) -> Body:
    """The merge patch that brings the wanted fields about; fields that `wanted` does not name stay as they are."""
    patch: Body = {}
    for key, value in wanted.items():
        old = present.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := difference(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch


def replacement(present: Body, wanted: Body) -> Body:
    """The merge patch that leaves exactly the wanted fields."""
    patch: Body = {key: None for key in present if key not in wanted}
    for key, value in wanted.items():
        old = present.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := replacement(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch
