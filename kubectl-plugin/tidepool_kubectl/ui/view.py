"""What the page shows, as JSON. Pure. Texts are as objects have them: the page shows them as text and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidepool_api import GuestKey, MemoryGuest, ObjectKey, Role, Status
from tidepool_api.curve import curve_of, value_at
from tidepool_api.worth import known_sum
from tidepool_kubectl import plan, who
from tidepool_kubectl.snapshot import Lendings

Json = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """How a cluster is at one moment."""

    at: str
    lendings: Lendings
    spared: Mapping[ObjectKey, float] = field(default_factory=dict)
    """Reads a second that pairings answer; of those that were counted."""

    @property
    def guests(self) -> dict[GuestKey, MemoryGuest]:
        """Those that one may see."""
        return {one.key: one for one in self.lendings.guests}


class UnknownGuest(Exception):
    """Nobody of that name is there, or one may not see it."""


def map_of(now: Reading) -> Json:
    """Nodes with their guests, and who lends to whom."""
    pairings = _pairings(now)
    guests = {str(key): (guest.spec.node_name, _guest(guest)) for key, guest in now.guests.items()}
    for one in pairings:
        for end in ("lender", "borrower"):  # a guest that migrates is where it says: its pairings follow
            is_node = end == "lender" and one["isNode"]
            guests.setdefault(one[end], (one[f"{end}Node"], _hidden(one[end], end.title(), is_node=is_node)))
    nodes: dict[str, list[Json]] = {}
    for _, (node, guest) in sorted(guests.items()):
        nodes.setdefault(node, []).append(guest)
    listed = [{"node": node, "guests": found} for node, found in sorted(nodes.items())]
    return {"at": now.at, "nodes": listed, "pairings": pairings, "remarks": list(who.remarks(now.lendings))}


def guest_of(now: Reading, key: GuestKey, size: int | None = None) -> Json:
    """One guest: what it has, what it reads, and what a pool of some size, in bytes, would spare it.

    Raises UnknownGuest.
    """
    guest = now.guests.get(key)
    if guest is None:
        raise UnknownGuest(f"no MemoryGuest {key} that you may see")
    status, curve = guest.status, curve_of(guest.status)
    pairings = _pairings(now, key)
    borrows = [one for one in pairings if one["borrower"] == str(key)]
    memory = status.memory
    return {
        **_guest(guest),
        "at": now.at,
        "node": guest.spec.node_name,
        "kernel": status.kernel_release,
        "message": guest.ready.message if guest.ready else "",
        "totalBytes": memory.total_bytes if memory else None,
        "availableBytes": memory.available_bytes if memory else None,
        "readsPerSecond": status.misses_per_second,
        "sparedPerSecond": known_sum(one["sparedPerSecond"] for one in borrows),
        "curve": [{"sizeBytes": point.size, "readsPerSecond": point.reads} for point in curve],
        "doubt": "" if curve else plan.doubt(status, bool(borrows)) or "its page cache answers all that it reads",
        "whatIf": {"sizeBytes": size, "readsPerSecond": value_at(curve, size)} if curve and size is not None else None,
        "lends": [one for one in pairings if one["lender"] == str(key)],
        "borrows": borrows,
    }


def _guest(guest: MemoryGuest) -> Json:
    is_ready = guest.ready is not None and guest.ready.status is Status.TRUE
    role = guest.status.role or Role.NONE
    return {"guest": str(guest.key), "role": role, "isReady": is_ready, "isHidden": False, "isNode": guest.is_node}


def _hidden(name: str, role: str, *, is_node: bool) -> Json:
    """A guest or node that one may not see, as a pairing names it."""
    return {"guest": name, "role": role, "isReady": True, "isHidden": True, "isNode": is_node}


def _pairings(now: Reading, guest: GuestKey | None = None) -> list[Json]:
    found = who.rows(now.lendings.pairings, guest)
    keys = {(one.lender, one.borrower, one.spec.pool): one.key for one in now.lendings.pairings}
    return [_pairing(row, now.spared.get(keys[row.lender, row.borrower, row.pool])) for row in found]


def _pairing(row: who.Row, spared: float | None) -> Json:
    return {
        "lender": str(row.lender),
        "lenderNode": row.lender_node,
        "isNode": row.is_node,
        "borrower": str(row.borrower),
        "borrowerNode": row.borrower_node,
        "pool": row.pool,
        "state": row.state,
        "sizeBytes": row.size_bytes,
        "usedBytes": row.used_bytes,
        "lentBytes": row.lent_bytes,
        "sparedPerSecond": spared,
    }
