"""The nodes of a lab: each has a network namespace, a cgroup, a containerd and a kubelet of its own.

The control plane is on the first one. Pods of one node reach those of another by routes, without any overlay.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidepool_lab import addresses, paths
from tidepool_lab.progress import LabError

MOST = 2
NETNS = f"tidepool-{paths.NAME}"  # of the first node
CGROUP = NETNS
COUNT = paths.STATE / "nodes"


@dataclass(frozen=True)
class Node:
    """One of them, counted from 1."""

    number: int

    @property
    def name(self) -> str:
        """What Kubernetes calls it."""
        return f"node{self.number}"

    @property
    def ip(self) -> str:
        """Its address."""
        return addresses.chosen().nodes.format(self.number)

    @property
    def pods(self) -> str:
        """The addresses of its pods."""
        return addresses.chosen().node_pods.format(self.number)

    @property
    def netns(self) -> str:
        """Its network namespace."""
        return NETNS if self.is_first else f"{NETNS}.{self.name}"

    @property
    def netns_file(self) -> Path:
        """The file by which that is entered."""
        return Path("/run/netns") / self.netns

    @property
    def cgroup(self) -> str:
        """Below which its pods are; kubelet takes for its own, and ends, whatever else is there."""
        return CGROUP if self.is_first else f"{CGROUP}/{self.name}"

    @property
    def state(self) -> Path:
        """What it keeps."""
        return paths.STATE if self.is_first else paths.STATE / self.name

    @property
    def run(self) -> Path:
        """Its sockets."""
        return paths.RUN if self.is_first else paths.RUN / self.name

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.run / "containerd.sock"

    @property
    def is_first(self) -> bool:
        """Whether the control plane is here."""
        return self.number == 1

    def daemon(self, kind: str) -> str:
        """The name of one of its daemons."""
        return kind if self.is_first else f"{kind}-{self.name}"


FIRST = Node(1)


def possible() -> list[Node]:
    """As many nodes as a lab can have."""
    return [Node(number) for number in range(1, MOST + 1)]


def every() -> list[Node]:
    """The nodes of this lab."""
    return possible()[: int(COUNT.read_text()) if COUNT.exists() else 1]


def choose(count: int) -> None:
    """So many nodes the lab that comes up has."""
    COUNT.write_text(str(count))


def named(name: str) -> Node:
    """The node that Kubernetes calls so."""
    found = next((one for one in every() if one.name == name), None)
    if found is None:
        raise LabError(f"there is no node {name!r}; there is {' and '.join(one.name for one in every())}")
    return found
