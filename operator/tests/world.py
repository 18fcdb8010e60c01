"""Pools, guests and pairings for the planner's tests, and what carrying out a plan makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cast import identity_of, instance

from tidepool_api import GuestRole, MemoryGuest, MemoryPairing, MemoryPool, format_quantity
from tidepool_operator.planning import build, planner
from tidepool_operator.planning.inventory import Inventory, Node
from tidepool_operator.planning.quotas import Limits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_operator.planning.planner import Plan

MIB = 1 << 20
LENDER = {"lends": "yes"}
BORROWER = {"borrows": "yes"}
TEAM = {"team": "a"}
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def plan(
    pool: MemoryPool,
    guests: Iterable[MemoryGuest],
    pairings: Iterable[MemoryPairing],
    *,
    claimed: Mapping[str, str] | None = None,
    silent: Collection[str] = (),
    nodes: Mapping[str, Node] | None = None,
    at: datetime = LONG_AGO,
    limits: Limits = planner.UNLIMITED,
) -> Plan:
    """The plan for a pool when there is nothing else."""
    inventory = Inventory(guests, pairings, nodes=nodes, silent=silent)
    return planner.plan(pool, inventory, claimed=claimed, at=at, limits=limits)


def pool(
    name: str = "pool",
    *,
    size: int = 512,
    max_lend: int = 1024,
    reserve: int = 256,
    margin: int = 0,
    spread: int = 1,
    between: tuple[int, int] | None = None,
    weights: Mapping[str, int] | None = None,
    priorities: Mapping[str, int] | None = None,
    max_unavailable: int | str = "25%",
    overcommitted: str = "Exclude",
    block: Mapping[str, object] | None = None,
    **more: object,
) -> MemoryPool:
    """A pool; sizes in MiB. `between` is for minimum and maximum instead of size.

    `block` is what it says of its borrowers' devices and swap, `weights` and `priorities` are by the label `app`.
    `more` are further fields of the spec, by their names there.
    """
    weighed, ranked = (
        [{"selector": {"matchLabels": {"app": app}}, what: one} for app, one in (by_app or {}).items()]
        for what, by_app in (("weight", weights), ("priority", priorities))
    )
    planned = {"minimum": f"{between[0]}Mi", "maximum": f"{between[1]}Mi", "weights": weighed} if between else {}
    lenders = {"maxLend": f"{max_lend}Mi", "reserve": f"{reserve}Mi", "spread": spread}
    lenders["overcommitted"] = overcommitted
    spec = {
        "lenders": {"selector": {"matchLabels": LENDER}} | lenders | ({"margin": f"{margin}Mi"} if margin else {}),
        "borrowers": {
            "selector": {"matchLabels": BORROWER},
            "priorities": ranked,
            **(planned or {"size": f"{size}Mi"}),
            **(block or {}),
        },
        "encryption": "None",
        "maxUnavailable": max_unavailable,
    }
    return MemoryPool.parse({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec | more})


def auto_pool(
    *,
    size: int = 512,
    max_lend: int = 1024,
    reserve: int = 256,
    roles: Iterable[GuestRole] = (),
    overcommitted: str = "Exclude",
) -> MemoryPool:
    """A pool that chooses among the guests of the team, with the roles that it remembers; sizes in MiB."""
    spec = {
        "role": "Auto",
        "selector": {"matchLabels": TEAM},
        "lenders": {"maxLend": f"{max_lend}Mi", "reserve": f"{reserve}Mi", "overcommitted": overcommitted},
        "borrowers": {"size": f"{size}Mi"},
        "encryption": "None",
    }
    status = {"roles": [one.to_dict() for one in roles]}
    return MemoryPool.parse(
        {"metadata": {"name": "pool", "namespace": "ns", "uid": "pool"}, "spec": spec, "status": status}
    )


def guest(
    name: str,
    labels: dict[str, str],
    *,
    total: int = 2048,
    available: int | None = None,
    node: str = "n1",
    ready: bool = True,
    reason: str = "NotConnected",
    address: str = "10.0.0.1",
    working_set: int | None = None,
    stalled: int = 0,
    io_wait: int = 0,
    refaults: int = 0,
    misses: int = 0,
    curve: Mapping[int, float] | None = None,
    references: int = 5000,
    overcommitted: int = 0,
    message: str = "install qemu-guest-agent",
    migrating: bool = False,
) -> MemoryGuest:
    """A guest; sizes in MiB, waiting in percent of the time, refaults and misses a second.

    Its pod requests all of its memory but what is `overcommitted`.
    """
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": "Reachable" if ready else reason,
        "message": "" if ready else message,
        "lastTransitionTime": LONG_AGO,
    }
    overcommitted = min(overcommitted, total)
    memory = {"totalBytes": total * MIB, "availableBytes": (total if available is None else available) * MIB}
    if working_set is not None:
        memory["workingSetBytes"] = working_set * MIB
    report = {
        "addresses": [address],
        "memory": memory,
        "conditions": [condition],
        "pressure": {"memorySome": stalled, "memoryFull": 0, "ioSome": io_wait, "refaultsPerSecond": refaults},
        "curve": [{"sizeBytes": size * MIB, "hitRatio": f"{ratio:.2f}"} for size, ratio in (curve or {}).items()],
        "curveReferences": references,
        "missesPerSecond": misses,
        "migrating": migrating or None,
        "backing": {"requestBytes": (total - overcommitted) * MIB, "overcommittedBytes": overcommitted * MIB},
    }
    return MemoryGuest.parse(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": labels,
                "ownerReferences": [instance(name, uid=name)],
            },
            "spec": {"provider": "KubeVirt", "vm": {"name": name, "uid": name}, "nodeName": node},
            "status": report,
        }
    )


def pairing(
    borrower: str, lender: str, size: int, *, of: str = "pool", terminating: bool = False, connected: bool = False
) -> MemoryPairing:
    """An existing pairing, which names the identities of its guests; size in bytes."""
    name = build.pairing_name(of, borrower, lender)
    metadata: dict[str, object] = {"name": name, "namespace": "ns", "uid": name}
    if terminating:
        metadata["deletionTimestamp"] = LONG_AGO
    spec = {
        "pool": of,
        "lender": {"guest": lender, "nodeName": "n1", "address": "10.0.0.1", "identity": identity_of(lender)},
        "borrower": {"guest": borrower, "nodeName": "n1", "identity": identity_of(borrower)},
        "size": format_quantity(size),
        "reserve": "256Mi",
        "maxLend": "1Gi",
        "encryption": "None",
    }
    status = {"phase": "Connected", "borrower": {"state": "Connected"}} if connected else {}
    return MemoryPairing.parse({"metadata": metadata, "spec": spec, "status": status})


def carried_out(plan: Plan, of: str = "pool", *, connected: bool = False) -> list[MemoryPairing]:
    """The pairings that exist when a plan has been carried out and everything that had to go is gone."""
    return [pairing(one.borrower, one.lender, one.size, of=of, connected=connected) for one in plan.assignments]


def mib(plan: Plan) -> dict[tuple[str, str], int]:
    """Who borrows how much from whom, in MiB."""
    return {(one.borrower, one.lender): one.size // MIB for one in plan.assignments}


def reasons(plan: Plan) -> list[str]:
    """The reasons of its problems."""
    return [one.reason.value for one in plan.problems]


def lent(pairings: Iterable[MemoryPairing], lender: str) -> int:
    """What a lender has lent in all."""
    return sum(one.spec.size_bytes for one in pairings if one.spec.lender.guest == lender)
