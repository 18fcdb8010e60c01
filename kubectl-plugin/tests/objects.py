"""Objects as the operator and the agents leave them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, names

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEAD = {"apiVersion": names.API_VERSION}
PAIRING = "pool.b.l"


def condition(type_: str, status: str, reason: str = "AsExpected", message: str = "") -> dict[str, str]:
    at = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def guest(name: str, label: str = "", *conditions: dict[str, str], kernel: str = "6.1.0-1") -> dict[str, Any]:
    """A guest that can take part, but for these conditions."""
    usual = [condition(one, "True") for one in ("GuestAgentReady", "ModuleAvailable", "Ready")]
    odd = {one["type"] for one in conditions}
    labels = {"memory": label} if label else {}
    return {
        **HEAD,
        "kind": "MemoryGuest",
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"provider": "KubeVirt", "vm": {"name": name, "uid": name}, "nodeName": "n1"},
        "status": {
            "addresses": ["10.0.0.1"],
            "kernelRelease": kernel,
            "role": "None",
            "conditions": [*(one for one in usual if one["type"] not in odd), *conditions],
        },
    }


def pool(*conditions: dict[str, str]) -> dict[str, Any]:
    """A pool whose lenders are labelled memory=spare and its borrowers memory=short."""
    return {
        **HEAD,
        "kind": "MemoryPool",
        "metadata": {"name": "pool", "namespace": "ns"},
        "spec": {
            "lenders": {"selector": {"matchLabels": {"memory": "spare"}}, "maxLend": "1Gi"},
            "borrowers": {"selector": {"matchLabels": {"memory": "short"}}, "size": "512Mi"},
        },
        "status": {"phase": "Degraded" if conditions else "Ready", "conditions": list(conditions)},
    }


UNSTABLE = "the connection to the lender is lost again and again, as where large packets are dropped (MTU)"


def losing(body: dict[str, Any]) -> dict[str, Any]:
    """A pairing whose borrower's connection is lost between looks."""
    end = body["status"]["borrower"]
    told = condition("Configured", "True", "ConnectionUnstable", UNSTABLE)
    return {**body, "status": {**body["status"], "borrower": {**end, "conditions": [told]}}}


def of_class(body: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A pool that leaves maxLend out, and to which class gold gives something."""
    lenders = {name: value for name, value in body["spec"]["lenders"].items() if name != "maxLend"}
    told = {"className": "gold", "fromClass": given}
    return {**body, "spec": {**body["spec"], "lenders": lenders}, "status": {**body["status"], **told}}


def pairing(
    phase: str = "Connected", reason: str = "Connected", message: str = "", *conditions: dict[str, str]
) -> dict[str, Any]:
    """b borrows from l."""
    ready = condition("Ready", str(phase == "Connected"), reason, message)
    return {
        **HEAD,
        "kind": "MemoryPairing",
        "metadata": {"name": PAIRING, "namespace": "ns"},
        "spec": {
            "pool": "pool",
            "lender": {"guest": "l", "nodeName": "n1", "address": "10.0.0.1"},
            "borrower": {"guest": "b", "nodeName": "n1"},
            "size": "512Mi",
            "reserve": "256Mi",
            "maxLend": "1Gi",
        },
        "status": {
            "phase": phase,
            "conditions": [ready, *conditions],
            "borrower": {"state": "Connected", "hitRatio": "0.97"},
        },
    }


def parsed(*bodies: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The fields of a snapshot that hold these objects."""
    models = {"MemoryPool": MemoryPool, "MemoryPairing": MemoryPairing, "MemoryGuest": MemoryGuest}
    fields: dict[str, tuple[Any, ...]] = {
        field: tuple(models[kind].parse(body) for body in bodies if body["kind"] == kind)
        for field, kind in (("pools", "MemoryPool"), ("pairings", "MemoryPairing"), ("guests", "MemoryGuest"))
    }
    return fields | {"pools": tuple(one.in_effect for one in fields["pools"])}


def exposition(hits: int, misses: int, *, ping_us: int = 400, breaker: int = 0) -> str:
    """What an agent exports of the pairing: as many gets as pings, all within a bucket."""
    labels = f'guest="b",namespace="ns",pairing="{PAIRING}",pool="pool"'
    lines = [
        f"tidepool_guest_get_hits_total{{{labels}}} {hits}",
        f"tidepool_guest_get_misses_total{{{labels}}} {misses}",
        f"tidepool_guest_breaker_open{{{labels}}} {breaker}",
        f"tidepool_guest_used_bytes{{{labels}}} {300 << 20}",
    ]
    for kind in ("get", "ping"):
        name = f"tidepool_guest_{kind}_duration_seconds"
        counts = [(bound, hits if bound >= ping_us else 0) for bound in (256, 512, 1024)]
        lines += [f'{name}_bucket{{{labels},le="{bound / 1e6}"}} {count}' for bound, count in counts]
        lines += [f'{name}_bucket{{{labels},le="+Inf"}} {hits}', f"{name}_count{{{labels}}} {hits}"]
    return "\n".join([*lines, ""])


def programs(hits: int, misses: int, puts: int) -> str:
    """What an agent exports of the programs of guest b, and of two of their pools: a tenth of the hits are local."""
    figures = {"values": 1000, "values_bytes": 512 << 20, "values_limit_bytes": 1 << 30}
    all_pools = _calls('guest="b",namespace="ns"', "value", hits, misses, puts)
    lines = [f'tidepool_guest_{name}{{guest="b",namespace="ns"}} {one}' for name, one in figures.items()]
    for number, name in enumerate(("small", "redis"), 1):
        labels = f'guest="b",namespace="ns",value_pool="{name}"'
        lines += _calls(labels, "value_pool", hits, misses, puts)
        lines.append(f"tidepool_guest_value_pool_bytes{{{labels}}} {number << 20}")
    return "\n".join([*lines, *all_pools, ""])


def _calls(labels: str, of: str, hits: int, misses: int, puts: int) -> list[str]:
    """Counters, and times of 256 to 512 µs for gets and of 512 to 1024 for puts."""
    counts = {"hits": hits, "misses": misses, "puts": puts, "local_hits": hits // 10}
    lines = [f"tidepool_guest_{of}_{name}_total{{{labels}}} {count}" for name, count in counts.items()]
    for kind, count, most in (("get", hits, 512), ("put", puts, 1024)):
        name = f"tidepool_guest_{of}_{kind}_duration_seconds"
        buckets = [(bound, count if bound >= most else 0) for bound in (256, 512, 1024)]
        lines += [f'{name}_bucket{{{labels},le="{bound / 1e6}"}} {below}' for bound, below in buckets]
        lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {count}')
    return lines
