"""What is in the cluster: nodes in zones, teams of guests with a pool each, half of them with memory to spare."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidepool_api import names

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]

NAMESPACE = "scale"
GUESTS_PER_POOL, GUESTS_PER_NODE, ZONES = 50, 10, 10
MIB = 1 << 20
SINCE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Guest:
    """A guest of a team; `number` tells it from its predecessors of the same place."""

    place: int
    number: int
    pools: int
    nodes: int

    @property
    def name(self) -> str:
        """Its name."""
        return f"g{self.place:05d}-{self.number}"

    @property
    def lends(self) -> bool:
        """Whether it has memory to spare."""
        return self.place // self.pools % 2 == 0

    @property
    def node(self) -> str:
        """Where it runs."""
        return f"node-{self.place % self.nodes}"

    def body(self) -> Body:
        """The object without its status."""
        labels = {"team": f"t{self.place % self.pools}", "lends": str(self.lends).lower()}
        return {
            "apiVersion": names.API_VERSION,
            "kind": "MemoryGuest",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"provider": "Libvirt", "vm": {"name": self.name, "uid": self.name}, "nodeName": self.node},
        }

    def report(self, chance: random.Random) -> Body:
        """Its status, with figures that move a little each time, as an agent rounds them."""
        available = (3072 if self.lends else 300) + 16 * chance.randint(-4, 4)
        address = f"10.{self.place >> 16 & 255}.{self.place >> 8 & 255}.{self.place & 255}"
        pressure = {"memorySome": 0, "memoryFull": 0, "ioSome": 0, "refaultsPerSecond": 0}
        if not self.lends:
            pressure |= {"ioSome": 20, "refaultsPerSecond": 100 + 10 * chance.randint(0, 3)}
        ready = {"type": "Ready", "status": "True", "reason": "Reachable", "lastTransitionTime": SINCE}
        return {
            "addresses": [address],
            "identity": f"x25519:{hashlib.sha256(self.name.encode()).hexdigest()}",
            "memory": {"totalBytes": 4096 * MIB, "availableBytes": available * MIB},
            "pressure": pressure,
            "conditions": [ready],
        }


def guests(count: int) -> Iterator[Guest]:
    """The first generation."""
    for place in range(count):
        yield Guest(place, 0, pools_of(count), nodes_of(count))


def pools_of(count: int) -> int:
    """How many pools there are for so many guests."""
    return max(1, count // GUESTS_PER_POOL)


def nodes_of(count: int) -> int:
    """How many nodes there are for so many guests."""
    return max(1, count // GUESTS_PER_NODE)


def nodes(count: int) -> Iterator[Body]:
    """The nodes for so many guests."""
    for at in range(nodes_of(count)):
        labels = {"topology.kubernetes.io/zone": f"zone-{at % ZONES}"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{at}", "labels": labels}}


def pools(count: int) -> Iterator[Body]:
    """A pool for each team: sizes given, sizes planned and roles by need in turn."""
    for at in range(pools_of(count)):
        lenders, borrowers = ({"matchLabels": {"team": f"t{at}", "lends": lends}} for lends in ("true", "false"))
        spec: Body = {"lenders": {"selector": lenders, "maxLend": "2Gi"}}
        if at % 3 == 0:
            spec["borrowers"] = {"selector": borrowers, "size": "512Mi"}
        elif at % 3 == 1:
            spec["borrowers"] = {"selector": borrowers, "minimum": "256Mi", "maximum": "1Gi"}
        else:
            spec = {"role": "Auto", "selector": {"matchLabels": {"team": f"t{at}"}}, "lenders": {"maxLend": "2Gi"}}
            spec["borrowers"] = {"size": "512Mi"}
        head = {"apiVersion": names.API_VERSION, "kind": "MemoryPool"}
        yield {**head, "metadata": {"name": f"pool-{at}", "namespace": NAMESPACE}, "spec": spec}
