"""The addresses of a lab: those of IPv4, or of IPv6 alone. Guests' own interface has both, its pod has one kind."""

from __future__ import annotations

from dataclasses import dataclass

from tidepool_lab import paths

FILE = paths.STATE / "addresses"


@dataclass(frozen=True)
class Addresses:
    """What is written where an address is wanted; nodes are counted from 1."""

    nodes: str
    """A node's, by its number."""
    node_bits: int
    node_pods: str
    """Those of a node's pods, by its number."""
    pods: str
    """Those of all pods."""
    services: str
    api_service: str
    """The API server's, among them."""
    everywhere: str
    any_host: str
    """What a server listens on."""
    pod_side: str
    """A guest's way out of its pod."""
    inner: str
    """The guest's own."""
    inner_bits: int
    nat: str
    """What nftables calls the family."""
    forwarding: str
    """The kernel's setting."""


IPV4 = Addresses(
    nodes="10.99.0.{}",
    node_bits=24,
    node_pods="10.88.{}.0/24",
    pods="10.88.0.0/16",
    services="10.96.0.0/16",
    api_service="10.96.0.1",
    everywhere="0.0.0.0/0",
    any_host="0.0.0.0",
    pod_side="10.0.2.1",
    inner="10.0.2.2",
    inner_bits=24,
    nat="ip",
    forwarding="net.ipv4.ip_forward=1",
)
IPV6 = Addresses(
    nodes="fd99::{}",
    node_bits=64,
    node_pods="fd88:0:0:{}::/64",
    pods="fd88::/48",
    services="fd96::/112",
    api_service="fd96::1",
    everywhere="::/0",
    any_host="::",
    pod_side="fd10:0:2::1",  # as KubeVirt has it
    inner="fd10:0:2::2",
    inner_bits=120,
    nat="ip6",
    forwarding="net.ipv6.conf.all.forwarding=1",
)


def in_url(address: str) -> str:
    """An address as a URL has it."""
    return f"[{address}]" if ":" in address else address


def chosen() -> Addresses:
    """Those of this lab."""
    return IPV6 if FILE.exists() and FILE.read_text() == "6" else IPV4


def choose(family: int) -> None:
    """Those that the lab that comes up has."""
    FILE.write_text(str(family))
