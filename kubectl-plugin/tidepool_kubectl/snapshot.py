"""What is known of a cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidepool_api import GuestKey, MemoryGrant, MemoryGuest, MemoryPairing, MemoryPool, MemoryQuota, names
from tidepool_kubectl.figures import Figures


@dataclass(frozen=True)
class Workload:
    """The operator's Deployment or the agents' DaemonSet."""

    name: str
    wanted: int
    ready: int
    advice: str = ""
    """What its pods that are not ready say of themselves."""


@dataclass(frozen=True)
class Lendings:
    """Who lends to whom, as far as one may look."""

    pairings: tuple[MemoryPairing, ...] = ()
    """Those that begin or end in the namespaces asked for."""
    guests: tuple[MemoryGuest, ...] = ()
    grants: tuple[MemoryGrant, ...] = ()
    hidden: tuple[str, ...] = ()
    """Namespaces that may borrow from these, and whose pairings one may not list."""


@dataclass(frozen=True)
class Fleet:
    """The pools of the namespaces asked for, who borrows and lends there, and who else may lend to them."""

    pools: tuple[MemoryPool, ...] = ()
    pairings: tuple[MemoryPairing, ...] = ()
    guests: tuple[MemoryGuest, ...] = ()
    """Also those of other namespaces that the pools name."""
    grants: tuple[MemoryGrant, ...] = ()
    """Those of these namespaces."""
    quotas: tuple[MemoryQuota, ...] = ()
    """Likewise, as far as one may list them."""
    hidden: tuple[str, ...] = ()
    """Namespaces that the pools name, and whose guests one may not list."""
    home: str = ""
    """The namespace of the release, in which nodes are that lend."""
    figures: Figures = field(default_factory=Figures)
    unread: tuple[str, ...] = ()
    """Agents whose metrics could not be read, and why."""


@dataclass(frozen=True)
class Snapshot:
    """The objects of the namespaces asked for, and Tidepool's own workloads; None where one may not look."""

    at: datetime
    pools: tuple[MemoryPool, ...] = ()
    pairings: tuple[MemoryPairing, ...] = ()
    guests: tuple[MemoryGuest, ...] = ()
    machines: Mapping[GuestKey, str] = field(default_factory=dict)
    """KubeVirt's instances that have not ended: the node of each, empty while there is none; only those one may see."""
    workloads: Mapping[str, Workload] | None = field(default_factory=dict)
    """By component: operator, agent."""
    heartbeats: Mapping[str, datetime] | None = field(default_factory=dict)
    """The last sign of life of the agent of each node."""
    figures: Figures = field(default_factory=Figures)
    unread: tuple[str, ...] = ()
    """Agents whose metrics could not be read, and why."""

    def silence(self, node: str) -> float | None:
        """Seconds since the agent of that node was heard; None if it never was, or if one may not look."""
        heard = (self.heartbeats or {}).get(node)
        return None if heard is None else max(0.0, (self.at - heard).total_seconds())

    def is_silent(self, node: str) -> bool:
        """Whether the agent of that node is missing or dead, as far as one may look."""
        silence = self.silence(node)
        return self.heartbeats is not None and (silence is None or silence > names.LEASE_STALE_SECONDS)

    def pairings_of(self, guest: MemoryGuest) -> tuple[MemoryPairing, ...]:
        """The pairings in which a guest lends or borrows."""
        return tuple(one for one in self.pairings if guest.key in one.ends)
