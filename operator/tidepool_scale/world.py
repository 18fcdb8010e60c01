"""What is in the cluster: nodes in zones, and teams of guests with a namespace and a pool each.

Half of the guests have memory to spare, and half are short of it. In every fifth team all are poor: those who are short
borrow from the team before it, by a grant, and that one has no pool of its own.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidepool_api import GuestKey, names

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = dict[str, Any]

GUESTS_PER_TEAM, GUESTS_PER_NODE, ZONES = 50, 10, 10
LEAST_TEAMS = 5
MIB = 1 << 20
SINCE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Guest:
    """A guest of a team; `number` tells it from its predecessors of the same place."""

    place: int
    number: int
    teams: int
    nodes: int

    @property
    def team(self) -> int:
        """The team that it belongs to."""
        return self.place % self.teams

    @property
    def namespace(self) -> str:
        """That of its team."""
        return namespace(self.team)

    @property
    def name(self) -> str:
        """Its name."""
        return f"g{self.place:05d}-{self.number}"

    @property
    def key(self) -> GuestKey:
        """By which it is known everywhere."""
        return GuestKey(self.namespace, self.name)

    @property
    def lends(self) -> bool:
        """Whether it has memory to spare."""
        return not is_poor(self.team) and self.place // self.teams % 2 == 0

    @property
    def borrows(self) -> bool:
        """Whether it is short of memory."""
        return not is_bank(self.team) and self.place // self.teams % 2 == 1

    @property
    def node(self) -> str:
        """Where it runs."""
        return f"node-{self.place % self.nodes}"

    def body(self) -> Body:
        """The object without its status."""
        labels = {"team": f"t{self.team}", "lends": str(self.lends).lower(), "borrows": str(self.borrows).lower()}
        return {
            "apiVersion": names.API_VERSION,
            "kind": "MemoryGuest",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
            "spec": {"provider": "Libvirt", "vm": {"name": self.name, "uid": self.name}, "nodeName": self.node},
        }

    def report(self, chance: random.Random) -> Body:
        """Its status, with figures that move each time, as an agent rounds them."""
        available = (3072 if self.lends else 300) + 16 * chance.randint(-4, 4)
        address = f"10.{self.place >> 16 & 255}.{self.place >> 8 & 255}.{self.place & 255}"
        pressure = {"memorySome": 0, "memoryFull": 0, "ioSome": 0, "refaultsPerSecond": 0}
        if self.borrows:
            pressure |= {"ioSome": 20, "refaultsPerSecond": 100 + 10 * chance.randint(0, 3)}
        ready = {"type": "Ready", "status": "True", "reason": "Reachable", "lastTransitionTime": SINCE}
        return {
            "addresses": [address],
            "identity": f"x25519:{hashlib.sha256(self.name.encode()).hexdigest()}",
            "memory": {"totalBytes": 4096 * MIB, "availableBytes": available * MIB},
            "pressure": pressure,
            "role": "Lender" if self.lends else "Borrower" if self.borrows else "None",
            "conditions": [ready],
        }


def guests(count: int) -> Iterator[Guest]:
    """The first generation."""
    for place in range(count):
        yield Guest(place, 0, teams_of(count), nodes_of(count))


def teams_of(count: int) -> int:
    """How many teams there are for so many guests."""
    return max(LEAST_TEAMS, count // GUESTS_PER_TEAM // LEAST_TEAMS * LEAST_TEAMS)


def nodes_of(count: int) -> int:
    """How many nodes there are for so many guests."""
    return max(1, count // GUESTS_PER_NODE)


def nodes(count: int) -> Iterator[Body]:
    """The nodes for so many guests."""
    for at in range(nodes_of(count)):
        labels = {"topology.kubernetes.io/zone": f"zone-{at % ZONES}"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{at}", "labels": labels}}


def namespace(team: int) -> str:
    """The namespace of a team."""
    return f"team-{team}"


def is_poor(team: int) -> bool:
    """Whether nobody of a team has memory to spare."""
    return team % LEAST_TEAMS == LEAST_TEAMS - 1


def is_bank(team: int) -> bool:
    """Whether a team lends to the poor one after it."""
    return is_poor(team + 1)


def grants(count: int) -> Iterator[Body]:
    """What lets the poor teams borrow from their neighbours."""
    for at in filter(is_poor, range(teams_of(count))):
        metadata = {"name": "neighbour", "namespace": namespace(at - 1)}
        spec = {"to": [{"namespace": namespace(at)}], "selector": {"matchLabels": {"lends": "true"}}}
        yield {"apiVersion": names.API_VERSION, "kind": "MemoryGrant", "metadata": metadata, "spec": spec}


def pools(count: int) -> Iterator[Body]:
    """A pool for each team but those whose lenders are for their neighbours."""
    for at in range(teams_of(count)):
        if not is_bank(at):
            head = {"apiVersion": names.API_VERSION, "kind": "MemoryPool"}
            yield {**head, "metadata": {"name": "pool", "namespace": namespace(at)}, "spec": _pool(at)}


def _pool(team: int) -> Body:
    """Sizes given, sizes planned and roles by need in turn; from the neighbour where a team is poor."""
    lenders, borrowers = ({"matchLabels": {role: "true"}} for role in ("lends", "borrows"))
    lending: Body = {"selector": lenders, "maxLend": "2Gi"}
    if is_poor(team):
        lending["namespaces"] = [namespace(team - 1)]
    elif team % 3 == 2:
        everybody = {"matchLabels": {"team": f"t{team}"}}
        return {"role": "Auto", "selector": everybody, "lenders": {"maxLend": "2Gi"}, "borrowers": {"size": "512Mi"}}
    elif team % 3 == 1:
        return {"lenders": lending, "borrowers": {"selector": borrowers, "minimum": "256Mi", "maximum": "1Gi"}}
    return {"lenders": lending, "borrowers": {"selector": borrowers, "size": "512Mi"}}
