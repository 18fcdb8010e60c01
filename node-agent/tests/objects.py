"""Objects of the API as tests need them."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.plan import Want, desired
from tidepool_agent.provider import Machine
from tidepool_api import GuestKey, MemoryPairing, Provider, names

LENDER, BORROWER, OTHER = (f"x25519:{digit * 64}" for digit in "123")  # identities
BOOT = "11111111-2222-3333-4444-555555555555"
RELEASE = "6.1.0-56-cloud-amd64"


def identity_of(guest: str) -> str:
    """The identity of a guest that is not really there; its last byte is such that it is a point of the curve."""
    return f"x25519:{hashlib.sha256(guest.encode()).hexdigest()[:62]}00"


def key(name: str) -> GuestKey:
    """A guest of the namespace that pairings are in."""
    return GuestKey("default", name)


def pairing(uid: str = "p1", *, lender: str = "lender", borrower: str = "borrower", **spec: Any) -> MemoryPairing:
    """A pairing between two guests; addresses and port are the lender's, `identities` those of lender and borrower.

    `block` is what the borrower's devices and swap are to be.
    """
    place: dict[str, Any] = {"address": spec.pop("address", "10.0.0.2"), "port": spec.pop("port", 7470)}
    place |= {"otherAddresses": spec.pop("others", ()), "network": spec.pop("network", None)}
    named = [{"identity": one} if one else {} for one in spec.pop("identities", (LENDER, BORROWER))]
    named[1] |= spec.pop("block", {})
    terminating = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if spec.pop("terminating", False) else {}
    return MemoryPairing.parse(
        {
            "kind": "MemoryPairing",
            "metadata": {"name": f"pool.{uid}", "namespace": "default", "uid": uid, "generation": 1, **terminating},
            "spec": {
                "pool": "pool",
                "lender": {"guest": lender, "nodeName": "node1"} | place | named[0],
                "borrower": {"guest": borrower, "nodeName": "node1"} | named[1],
                "size": "256Mi",
                "reserve": "64Mi",
                "maxLend": "512Mi",
                "encryption": "None",
            }
            | spec,
        }
    )


def pairing_body(
    name: str = "p", *, lender: str = "lender", node: str = "here", borrower: str = "elsewhere", other: str = "there"
) -> dict[str, Any]:
    """A pairing as the operator makes it, of a lender on a node and a borrower on another one that has an identity."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "MemoryPairing",
        "metadata": {"name": name, "finalizers": [names.LENDER_FINALIZER]},
        "spec": {
            "pool": "pool",
            "lender": {"guest": lender, "nodeName": node, "address": "10.9.8.7", "port": 7470},
            "borrower": {"guest": borrower, "nodeName": other, "identity": identity_of(borrower)},
            "size": "64Mi",
            "reserve": "16Mi",
            "maxLend": "64Mi",
            "encryption": "None",
        },
    }


def within(namespace: str, one: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy in a namespace, with other fields of the spec, or nothing but another status."""
    made = copy.deepcopy(one)
    made["metadata"]["namespace"] = namespace
    if "status" in fields:
        made = {name: made[name] for name in ("apiVersion", "kind", "metadata")} | fields
        for name in ("finalizers", "ownerReferences"):
            made["metadata"].pop(name, None)
    elif fields:
        made["spec"] |= fields
    return made


def want(side: Side, one: MemoryPairing) -> Want:
    """What a pairing asks of one of its guests."""
    return desired(one.lender if side is Side.BORROWERS else one.borrower, [one]).peers[0]


def observation(
    *, loaded: bool = False, peers: dict[tuple[Side, str], Peer] | None = None, **fields: Any
) -> Observation:
    """The state of a guest."""
    module = Module("0.1.0", "ABCDEF", LENDER, fields.pop("settings", {}), fields.pop("stats", {})) if loaded else None
    known = {"boot_id": BOOT, "release": RELEASE, "total_bytes": 512 << 20, "available_bytes": 300 << 20}
    return Observation(**(known | fields), module=module, peers=peers or {})


def machine(name: str = "lender", **fields: Any) -> Machine:
    """A virtual machine of this node."""
    known: dict[str, Any] = {
        "provider": Provider.KUBEVIRT,
        "namespace": "default",
        "name": name,
        "uid": f"uid-of-{name}",
        "domain": f"default_{name}",
        "place": "container",
        "addresses": ("10.0.0.2",),
    }
    return Machine(**(known | fields))


def alter(store: Path, old: bytes, new: bytes) -> bytes:
    """Alters the only module of a store, and its checksum with it; returns what it was."""
    file = next(store.glob("*/tidepool.ko"))
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new))
    file.with_name("tidepool.ko.sha256").write_text(hashlib.sha256(file.read_bytes()).hexdigest())
    return data
