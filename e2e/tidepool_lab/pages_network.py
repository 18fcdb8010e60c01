"""A second network of guests, for pages alone: a bridge on each node and a wire between them, beside the pods' network.

It is what Multus and KubeVirt's bridge binding would make: a guest is on the wire itself, with a MAC and an address
that it keeps wherever it goes.
"""

from __future__ import annotations

import subprocess

from tidepool_lab import guest_image, nodes
from tidepool_lab.nodes import Node

NAME = "pages"  # of the instance's interface
MULTUS = f"default/{NAME}"  # the NetworkAttachmentDefinition that it would have
CIDR = "10.77.0.0/16"
DEVICE = "eth2"  # in the guest, after the pod's and the lab's own
BRIDGE, TAP = "pages0", "tap1"
FILE = "/etc/systemd/network/30-pages.network"


def mac(uid: str) -> str:
    """Of the guest that has this UID."""
    return "52:54:00:04:{:02x}:{:02x}".format(*_own(uid))


def address(uid: str) -> str:
    """Of the guest that has this UID."""
    return "10.77.{}.{}".format(*_own(uid))


def _own(uid: str) -> tuple[int, int]:
    """Two bytes; few guests meet in them, and none has the first or the last address of the range."""
    return divmod(1 + int(uid.replace("-", ""), 16) % 0xFFFE, 256)


def laid(node: Node) -> list[list[str]]:
    """The commands that make it on a node; the first node has been done before."""
    here, there = ["ip", "-n", node.netns], ["ip", "-n", nodes.FIRST.netns]
    bridge = [[*here, "link", "add", BRIDGE, "type", "bridge"], [*here, "link", "set", BRIDGE, "up"]]
    if node.is_first:
        return bridge
    end = f"pages-{node.name}"
    wire = [*here, "link", "add", "pages-wire", "type", "veth", "peer", "name", end, "netns", nodes.FIRST.netns]
    ends = [[*here, "link", "set", "pages-wire"], [*there, "link", "set", end]]
    return [*bridge, wire, *([*one, "master", BRIDGE, "up"] for one in ends)]


def plug(pid: int, node: Node, tap: list[str]) -> None:
    """Brings it to the pod that this process belongs to, and there to a tap, which is made with these options."""
    outside, inside = ["ip", "-n", node.netns], ["nsenter", f"--net=/proc/{pid}/ns/net", "ip"]
    for command in (
        [*outside, "link", "add", f"pages{pid}", "type", "veth", "peer", "name", "net1", "netns", str(pid)],
        [*outside, "link", "set", f"pages{pid}", "master", BRIDGE, "up"],
        [*inside, "link", "add", "k6t-net1", "type", "bridge"],
        [*inside, "link", "set", "net1", "master", "k6t-net1", "up"],
        [*inside, "tuntap", "add", "dev", TAP, *tap],
        [*inside, "link", "set", TAP, "master", "k6t-net1", "up"],
        [*inside, "link", "set", "k6t-net1", "up"],
    ):
        subprocess.run(command, check=True)


def script(uid: str) -> str:
    """What gives the guest of this UID its address, for good, when it is run there."""
    text = guest_image.network(mac(uid), f"{address(uid)}/{CIDR.partition('/')[2]}")
    return f"cat > {FILE} <<'END'\n{text}END\nnetworkctl reload"
