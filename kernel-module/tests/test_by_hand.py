"""The module by hand: what its pages say to type is typed, in a guest, as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bed.device import MODULES
from bed.documented import Page
from bed.guest import Guest
from bed.image import tools_disk, with_tools
from bed.pair import Pair
from bed.tidepool import ROOT

BLOCK, APPMEM, ABI = (Page(f"kernel-module/{name}.md") for name in ("BLOCK", "APPMEM", "ABI"))
DEVICES = Page("docs/how-to/devices-and-swap.md")
KO = "tidepool.ko", "tidepool-app.ko", "tidepool-block.ko", "tidepool-file.ko"
SECTORS, MIB = 64 * 2048, 64
# Where the pages have a disk, a file system and sizes of their reader's.
INSTEAD = {
    "/dev/vdb": "/dev/loop0",
    " /swapfile": " /mnt/swapfile",
    "of=/swapfile": "of=/mnt/swapfile",
    "count=1024": f"count={MIB}",
    "0 2097152 ": f"0 {SECTORS} ",
    "$((2 << 30))": "$((64 << 20))",
}
# There is no udev, and busybox has its own way with these two.
ENVIRONMENT = f"""
export DM_DISABLE_UDEV=1
cd /lib/modules/$(uname -r)
swapon() {{ {with_tools("swapon")} "$@"; }}
dd() {{ {with_tools("dd")} "$@"; }}
"""


def test_nothing_else_is_to_be_typed() -> None:
    """Each block of commands on the module's pages is one that a test below asks for."""
    asked = re.findall(r'commands\("([^"]+)"\)', Path(__file__).read_text())
    blocks = [block.strip() for page in (BLOCK, APPMEM, ABI) for block in page.blocks()]
    assert [block for block in blocks if not block.startswith(tuple(asked))] == []


@pytest.fixture(scope="module")
def guest(kernel: str) -> Iterator[Guest]:
    """One with all modules beside each other, of which none is loaded, and a loop device in place of a second disk."""
    with (pair := Pair(kernel, modules=MODULES, tools=tools_disk("swapon", "dd"), borrower_mem="384M")) as (one, _):
        assert one.module
        for name in KO:
            one.start(f"cat > /lib/modules/{name}", one.module.with_name(name).read_bytes()).wait()
        one.sh("mkdir /tools /lib/modules/$(uname -r) && mv /lib/modules/*.ko /lib/modules/$(uname -r)/ && depmod")
        one.sh("mount -o ro /dev/vdb /tools && echo redis:x:7: >> /etc/group")
        one.sh(f"truncate -s {MIB}M /mnt/disk && losetup /dev/loop0 /mnt/disk")
        yield one
        pair.assert_clean()


def type_in(guest: Guest, commands: list[str]) -> str:
    """Each must succeed; what they print."""
    script = "\n".join(commands)
    for written, here in INSTEAD.items():
        script = script.replace(written, here)
    return guest.sh(f"set -e\n{ENVIRONMENT}\n{script}")


def swap(guest: Guest) -> list[str]:
    """What is swapped to, with its priority."""
    return [re.sub(r"\s+", " ", line) for line in guest.read("/proc/swaps").splitlines()[1:]]


def test_the_module_is_loaded(guest: Guest) -> None:
    """With what it needs, and goes again."""
    type_in(guest, ABI.commands("modprobe configfs"))
    assert guest.read(f"{ROOT}/identity").startswith("x25519:")
    guest.sh("rmmod tidepool")


def test_a_device_is_put_over_a_disk(guest: Guest) -> None:
    """As swap, larger while it is in use, and taken away; with the policy for swap as well."""
    create = BLOCK.commands("modprobe dm-mod")
    type_in(guest, create)
    type_in(guest, BLOCK.commands("mkswap"))
    assert [line.split()[-1] for line in swap(guest)] == ["10"]
    type_in(guest, BLOCK.commands("dmsetup load"))
    (shown,) = BLOCK.examples("text")[-1:]
    counters = re.sub(r"\d+", "N", shown)
    assert re.sub(r"\d+", "N", type_in(guest, BLOCK.commands("dmsetup status")) + "\n") == counters
    away = BLOCK.commands("swapoff")
    type_in(guest, away)
    assert swap(guest) == []
    type_in(guest, ["insmod tidepool-block.ko", *BLOCK.commands("dmsetup create fast")])
    assert [line.split()[-1] for line in swap(guest)] == ["10"]
    type_in(guest, [*away, "rmmod tidepool"])


def test_swap_is_in_a_file(guest: Guest) -> None:
    type_in(guest, ["insmod tidepool.ko", "insmod tidepool-block.ko", *BLOCK.commands("dd ")])
    assert [line.split()[-1] for line in swap(guest)] == ["10"]
    type_in(guest, ["swapoff /dev/mapper/fast", "dmsetup remove fast", "dmsetup remove swapfile"])
    type_in(guest, ["rmmod tidepool-file", "rmmod tidepool-block", "rmmod tidepool"])


def test_programs_have_the_device(guest: Guest) -> None:
    """Those of a group that may use it."""
    type_in(guest, APPMEM.commands("insmod tidepool.ko"))
    assert guest.sh("stat -c '%a %g' /dev/tidepool") == "660 7"
    type_in(guest, ["rmmod tidepool-app", "rmmod tidepool"])


def test_data_is_reached_without_the_agent(guest: Guest) -> None:
    type_in(guest, DEVICES.commands("dmsetup create by-hand"))
    assert guest.sh("blockdev --getsz /dev/mapper/by-hand") == str(SECTORS)
    type_in(guest, ["dmsetup remove by-hand"])
