"""The network of a guest inside its pod: KubeVirt's masquerade binding, and the lab's own tap beside it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from tidepool_lab import addresses, guest_image, host, images, pages_network
from tidepool_lab.nodes import Node
from tidepool_lab.spec import GuestSpec

MIGRATION_PORTS = range(49152, 49216)  # libvirt's; KubeVirt has sockets of its own for this
# Of the gateways, the same in each pod as with KubeVirt: a guest that migrates goes on with the neighbours it knows.
POD_SIDE_MAC, LAB_SIDE_MAC = "02:00:00:00:00:00", "02:00:00:00:00:01"
RULES = """table {nat} nat {{
  chain prerouting {{
    type nat hook prerouting priority -100;
    {neighbours}
    iifname "eth0" tcp dport {first}-{last} accept;
    iifname "eth0" counter dnat to {inner};
  }}
  chain postrouting {{
    type nat hook postrouting priority 100;
    {nat} saddr {inner} oifname "eth0" counter masquerade;
  }}
}}
"""
NEIGHBOURS = 'iifname "eth0" meta l4proto icmpv6 accept'  # these ask the pod itself


def bind(pid: int, node: Node, spec: GuestSpec) -> None:
    """Sets up the network namespace of a guest's pod, that of this process."""
    inside, here = ["nsenter", f"--net=/proc/{pid}/ns/net"], addresses.chosen()
    tap = ["mode", "tap", "user", str(images.QEMU_USER), "group", str(images.QEMU_USER)]
    for command in (
        ["ip", "link", "add", "k6t-eth0", "address", POD_SIDE_MAC, "type", "bridge"],
        ["ip", "addr", "add", f"{here.pod_side}/{here.inner_bits}", "dev", "k6t-eth0", *host.at_once()],
        ["ip", "tuntap", "add", "dev", "tap0", *tap],
        ["ip", "link", "set", "tap0", "master", "k6t-eth0", "up"],
        ["ip", "link", "set", "k6t-eth0", "up"],
        ["ip", "tuntap", "add", "dev", "taplab", *tap],
        ["ip", "addr", "add", f"{guest_image.LAB_SIDE}/24", "dev", "taplab"],
        ["ip", "link", "set", "taplab", "address", LAB_SIDE_MAC, "up"],
        ["sysctl", "-qw", here.forwarding],
    ):
        subprocess.run([*inside, *command], check=True)
    subprocess.run([*inside, "nft", "-f", "-"], input=_rules(here), text=True, check=True)
    if spec.on_pages_network:
        pages_network.plug(pid, node, tap)
    _give_tun(Path(f"/proc/{pid}/root"))


def _rules(here: addresses.Addresses) -> str:
    return RULES.format(
        nat=here.nat,
        inner=here.inner,
        first=MIGRATION_PORTS.start,
        last=MIGRATION_PORTS.stop - 1,
        neighbours=NEIGHBOURS if here is addresses.IPV6 else "",
    )


def _give_tun(root: Path) -> None:
    """The device through which an unprivileged QEMU opens its tap; KubeVirt's device plugin does this in a cluster."""
    device = root / "dev/net/tun"
    device.parent.mkdir(exist_ok=True)
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 200))
    device.chmod(0o666)
