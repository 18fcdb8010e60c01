"""Objects that are right in every respect, for tests that make them wrong in one."""

from __future__ import annotations

import copy
from typing import Any

from tidepool_api import names

POOL: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryPool",
    "metadata": {"name": "pool"},
    "spec": {
        "lenders": {"selector": {"matchLabels": {"memory": "spare"}}, "maxLend": "1Gi", "reserve": "256Mi"},
        "borrowers": {"selector": {"matchLabels": {"memory": "short"}}, "size": "512Mi"},
        "encryption": "None",
    },
}

PAIRING: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryPairing",
    "metadata": {"name": "pool.b.l"},
    "spec": {
        "pool": "pool",
        "lender": {"guest": "l", "nodeName": "n1", "address": "10.0.0.1", "otherAddresses": ["fd00::1"], "port": 7470},
        "borrower": {
            "guest": "b",
            "nodeName": "n2",
            "devices": ["/dev/vdb"],
            "swap": {"backing": "File", "size": "1Gi", "write": "Through"},
            "force": ["/dev/vdb"],
            "applications": {"size": "256Mi", "mode": "0660", "group": "redis"},
        },
        "size": "512Mi",
        "reserve": "256Mi",
        "maxLend": "1Gi",
        "strategy": "NonInclusive",
        "filter": "Sequential",
        "encryption": "None",
        "deadline": "200ms",
        "latency": {
            "mode": "Thresholds",
            "short": {"resume": "2ms", "stop": "50ms"},
            "long": {"resume": "1500us", "stop": "2ms"},
        },
    },
}

GUEST: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryGuest",
    "metadata": {"name": "guest", "labels": {"memory": "spare"}},
    "spec": {
        "provider": "KubeVirt",
        "vm": {"name": "guest", "uid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"},
        "nodeName": "n1",
    },
}

GRANT: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryGrant",
    "metadata": {"name": "grant"},
    "spec": {"to": [{"namespace": "team", "pool": "pool"}], "selector": {"matchLabels": {"memory": "spare"}}},
}

QUOTA: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryQuota",
    "metadata": {"name": "quota"},
    "spec": {"maxBorrowed": "4Gi", "maxLent": "0"},
}

CLASS: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "MemoryPoolClass",
    "metadata": {"name": "class"},
    "spec": {
        "lenders": {"maxLend": "2Gi", "reserve": "512Mi", "overcommitted": "Lend"},
        "borrowers": {"priorities": [{"selector": {"matchLabels": {"tier": "gold"}}, "priority": 100}]},
        "strategy": "Exclusive",
        "placement": {"require": "SameZone"},
        "network": {"cidrs": ["10.20.0.0/16"]},
        "latency": {"mode": "Off"},
        "maxUnavailable": 1,
    },
}

MISSING = object()


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of an object with another value at a path such as `spec.lenders.maxLend`; MISSING removes it."""
    result = copy.deepcopy(base)
    *folders, last = path.split(".")
    place = result
    for folder in folders:
        place = place.setdefault(folder, {})
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return result


def within(namespace: str, *objects: dict[str, Any]) -> list[dict[str, Any]]:
    """Copies of the objects in a namespace; those of the cluster are called like it."""
    where = {CLASS["kind"]: "metadata.name"}
    return [changed(one, where.get(one["kind"], "metadata.namespace"), namespace) for one in objects]
