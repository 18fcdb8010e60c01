"""Sides of which the device is what counts: a guest swaps on it, or reads and writes it without a file system.

Tidepool's are its device-mapper target (BLOCK.md), one side for each line of TARGETS.
"""

from __future__ import annotations

from bed.device import DISK, PATH, Device
from bench import sides
from bench.machine import Machine, Size
from bench.sides import NBD, BlockCache, Pool, Settings, Side

# What each is: the policy, a word of the target's table, and how its pages are encrypted.
TARGETS = {
    "write-through": ("writethrough", "None"),
    "write-through encrypted": ("writethrough", "AES-GCM"),
    "behind": ("behind", "None"),
    "behind encrypted": ("behind", "AES-GCM"),
}
IN_FRONT, BEHIND = 10, 1  # priorities of swap areas
COMPRESSOR = "zstd"
GENERAL_KERNEL_MIB = 20  # that the general kernel takes more than the cloud kernel: as much is free with both
ALLOCATOR = "zsmalloc"  # zram's, and zswap's only one in later kernels
# Who swaps over a socket allocates without bounds while it sends: what it copies into sockets, 4 MiB for each, has to
# be less than the kernel keeps free, or nothing is left for the answers that would free it.
SWAPS_OVER_SOCKETS = {"vm/min_free_kbytes": "8192", "net/ipv4/tcp_wmem": "4096 16384 131072"}


class Target(Pool):
    """Tidepool in front of the disk."""

    modules = ("dm-mod",)
    needs = ("dm_mod",)

    def __init__(self, cache: int, name: str, settings: Settings, policy: str) -> None:
        super().__init__(cache, name, settings)
        self._policy = policy

    def device(self, machine: Machine) -> str:
        self.connect(machine)
        Device(machine.pair, policy=self._policy).create()
        return PATH


class Nbd(BlockCache):
    """The lender's memory as it is, with no disk below: what the borrower swaps is there and nowhere else."""

    name = "nbd"
    modules = ("nbd", "brd")
    needs = ("nbd",)

    def device(self, machine: Machine) -> str:
        for name, value in SWAPS_OVER_SOCKETS.items():
            machine.borrower.write(f"/proc/sys/{name}", value)
        self.export(machine, "-swap")
        return NBD


class Zram(Side):
    """Half of the borrower's memory for what it swaps, compressed; what that does not hold goes to the disk."""

    name = "zram"
    modules = ("zram", COMPRESSOR)
    needs = ("zram",)

    def device(self, machine: Machine) -> str:
        borrower = machine.borrower
        borrower.write("/sys/block/zram0/comp_algorithm", COMPRESSOR)
        borrower.write("/sys/block/zram0/disksize", str(borrower.meminfo("MemTotal") // 2))
        swap_on(machine, DISK, BEHIND)
        return "/dev/zram0"


class Zswap(Side):
    """The kernel's compressed cache in front of swap on the disk, as large as it is by default."""

    name = "zswap"
    kernel = "6.1-amd64"  # the cloud kernel has none
    modules = (COMPRESSOR, ALLOCATOR)
    needs = ("zswap",)

    def size(self, borrower: int) -> Size:
        return super().size(borrower + GENERAL_KERNEL_MIB)

    def device(self, machine: Machine) -> str:
        for name, value in (("compressor", COMPRESSOR), ("zpool", ALLOCATOR), ("enabled", "Y")):
            machine.borrower.write(f"/sys/module/zswap/parameters/{name}", value)
        return DISK


OTHERS: tuple[type[Side], ...] = (Nbd, Zram, Zswap)


def make(name: str, cache: int, strategy: str) -> Side:
    """The side of that name with so many MiB of the lender's; the strategy is Tidepool's."""
    if name in TARGETS:
        policy, encryption = TARGETS[name]
        return Target(cache, name, Settings(strategy, encryption, {"breaker": "Off"}), policy)
    own = [kind(cache) for kind in OTHERS if kind.name == name]
    return own[0] if own else sides.make(name, cache)


def swap_on(machine: Machine, device: str, priority: int = IN_FRONT) -> None:
    """The borrower swaps there, and on what has a lower priority when it is full."""
    machine.tool(machine.borrower, f"mkswap {device} > /dev/null 2>&1 && swapon -p {priority} {device}")
