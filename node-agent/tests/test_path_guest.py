"""How large a packet gets to a lender, as a real guest tells: its own `ping`, over a path that drops larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE, wait_for
from daemon import Daemon, end
from tiny import Kernel, archive, copy_program, unpack

from tidepool_agent.guest import Guest
from tidepool_agent.hypervisor import Domain
from tidepool_agent.losses import Reach
from tidepool_agent.qga import GuestAgent
from tidepool_agent.store import Store

FAR4, FAR6, NOBODY = "10.9.0.2", "fd09::2", "10.9.0.3"
ETHERNET = 1500
HEADER = 14  # of a frame, before the packet
MODULES = ("veth", "ipv6", "sch_ingress", "cls_matchall", "act_police")
# The lender's side of the path is a network namespace of the guest; where the path narrows, nobody says so.
PREPARE = f"""
for module in $(cat /wire/order); do insmod "$module"; done
unshare -n sleep 1000000 &
sleep 1
far=$!
ip link add near type veth peer name far
ip link set far netns "$far"
within() {{ nsenter -t "$far" -n /bin/"$@"; }}
ip address add 10.9.0.1/24 dev near
ip -6 address add fd09::1/64 dev near nodad
ip link set near up
within ip link set lo up
within ip address add {FAR4}/24 dev far
within ip -6 address add {FAR6}/64 dev far nodad
within ip link set far up
tc qdisc add dev near clsact
"""
NARROW = """
tc filter del dev near egress
tc filter add dev near egress matchall action police rate 10gbit burst 10m mtu {} conform-exceed drop
"""


@pytest.fixture(scope="module")
def shell(daemon: Daemon, kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestAgent]:
    """A way into a guest that has such a path."""
    root = tmp_path_factory.mktemp("wire")
    for folder in ("bin", "wire"):
        (root / folder).mkdir()
    for program in ("dash", "ip", "ping", "tc"):
        copy_program(program, root)
    (root / "bin/sh").symlink_to("dash")  # busybox's own would prefer its own programs
    order = [f"/{path.relative_to(root)}" for path in unpack(kernel.modules(*MODULES), root / "wire")]
    (root / "wire/order").write_text("\n".join(order))
    (root / "prepare").write_text(PREPARE)
    initrd = daemon.folder / "wire.img"
    initrd.write_bytes(daemon.initrd.read_bytes() + archive(root))
    guest = daemon.start("default_path", boot=(daemon.vmlinuz, initrd))
    way_in = Domain(daemon.uri, "default_path")
    agent = GuestAgent(way_in.command)
    wait_for(lambda: agent.blocked() == [])
    yield agent
    way_in.close()
    end(guest)


@pytest.mark.parametrize(("address", "largest"), [(FAR4, ETHERNET), (FAR4, 1450), (FAR6, 1300)])
def test_a_guest_tells_how_large_a_packet_gets_to_a_lender(
    shell: GuestAgent, tmp_path: Path, address: str, largest: int
) -> None:
    """To the byte, and how large its card sends them."""
    done = shell.run(["/bin/sh", "-c", NARROW.format(largest + HEADER)], seconds=PATIENCE)
    assert done.code == 0, done.err
    assert Guest(shell, Store(tmp_path)).reach(address) == Reach(address, largest, ETHERNET)


def test_a_guest_that_gets_no_answer_tells_nothing(shell: GuestAgent, tmp_path: Path) -> None:
    """Whoever is not there is no reason to speak of sizes."""
    assert Guest(shell, Store(tmp_path)).reach(NOBODY) is None
