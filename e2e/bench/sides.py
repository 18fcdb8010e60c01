"""What is compared, each on the same borrower, disk and data, and how it is set up.

Every side gets the same memory of the lender. `dm-cache` and `bcache` are what one would build today without Tidepool:
a block cache on a network block device that the lender exports from its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bed.device import DISK
from bed.pair import LENDER_ADDRESS
from bed.tidepool import MIB, wait_until
from bench.machine import ROOT, Machine, Size, inside

SECTOR = 512
NBD_PORT = 10809
NBD_CONFIG = f"[generic]\nuser = root\ngroup = root\nport = {NBD_PORT}\n[cache]\nexportname = /dev/ram0\n"
NBD = "/dev/nbd0"
METADATA_MIB = 4  # of the exported memory, for dm-cache's own book-keeping
CACHE_BLOCK = 64  # sectors: 32 KiB, the smallest of dm-cache
LENDER_OWN_MIB = 192  # what the lender's system and its reserve take


class Side:
    """One way to use the lender's memory; `cache` is how much of it, in MiB."""

    name: ClassVar[str]
    kernel: ClassVar[str] = ""  # of its own, for which there is no module of ours; else that of the others
    modules: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()  # parts of the borrower's kernel, as /sys/module names them

    def __init__(self, cache: int) -> None:
        self.cache = cache

    def size(self, borrower: int) -> Size:
        """Memory of the guests for a borrower of so many MiB."""
        return Size(borrower, self.cache + LENDER_OWN_MIB)

    def device(self, machine: Machine) -> str:
        """What the borrower's data disk is from now on, with what this side puts before it."""
        del machine
        return DISK

    def set_up(self, machine: Machine) -> None:
        """Mounts the borrower's data from there."""
        machine.mount(self.device(machine))

    def lacks(self, machine: Machine) -> str:
        """A part of its kernel that the borrower has not got, and without which there is no such side; or ""."""
        return next((name for name in self.needs if machine.borrower.run(f"[ -d /sys/module/{name} ]").code), "")

    def counters(self, machine: Machine) -> dict[str, int]:
        """Counters whose differences are figures."""
        return {"disk_reads": machine.borrower.disk_reads(), "disk_writes": machine.borrower.disk_writes()}


class NoPool(Side):
    """(a) The borrower with its own memory only."""

    name = "no pool"


class Ideal(NoPool):
    """(f) The borrower with both memories."""

    name = "ideal"

    def size(self, borrower: int) -> Size:
        return Size(borrower + self.cache, LENDER_OWN_MIB)


@dataclass(frozen=True)
class Settings:
    """Attributes of a lender's directory in configfs (ABI.md) that a side is about."""

    strategy: str = "NonInclusive"
    encryption: str = "None"
    more: Mapping[str, object] = field(default_factory=dict)

    def attributes(self) -> dict[str, object]:
        return {"strategy": self.strategy, "encryption": self.encryption, **self.more}


class Pool(Side):
    """(b), (c), (d) Tidepool."""

    def __init__(self, cache: int, name: str, settings: Settings) -> None:
        super().__init__(cache)
        self.name = name  # type: ignore[misc]  # of this side, not of the class
        self._settings = settings

    def set_up(self, machine: Machine) -> None:
        super().set_up(machine)
        self.connect(machine)

    def connect(self, machine: Machine) -> None:
        """The pool alone; the data is mounted."""
        machine.pair.connect(size=self.cache * MIB, more=self._settings.attributes())

    def counters(self, machine: Machine) -> dict[str, int]:
        return {**super().counters(machine), **machine.pair.b.stats(), **machine.pair.borrowed()}


class BlockCache(Side):
    """(e) What the two block caches have in common: the lender's memory as a block device of the borrower."""

    def export(self, machine: Machine, more: str = "") -> None:
        """The lender's RAM disk, in the borrower; `more` are further options of nbd-client."""
        machine.lender.sh(f"rmmod brd; insmod /lib/modules/brd.ko rd_nr=1 rd_size={self.cache * 1024}")
        machine.lender.write(f"{ROOT}/tmp/nbd.conf", NBD_CONFIG)
        machine.tool(machine.lender, "nbd-server -C /tmp/nbd.conf > /dev/null 2>&1")
        connect = inside(f"nbd-client {LENDER_ADDRESS} {NBD_PORT} {NBD} -N cache -C 4 -b {SECTOR} {more} 2>&1")
        wait_until("the exported memory is there", lambda: machine.borrower.run(connect).code == 0)

    def map(self, machine: Machine, name: str, table: str) -> None:
        """A device of the device mapper's, /dev/mapper/NAME; no udev is there to make the node."""
        create = f"DM_DISABLE_UDEV=1 dmsetup create {name}"
        machine.tool(machine.borrower, f"printf '{table}\\n' | {create} 2>&1")

    def sectors(self, machine: Machine, device: str) -> int:
        return int(machine.borrower.read(f"/sys/block/{device}/size"))


class DmCache(BlockCache):
    """The device mapper's cache, as in the paper's section 4.6, write-through as a cache that may vanish has to be."""

    name = "dm-cache"
    modules = ("nbd", "brd", "dm_mod", "dm_cache", "dm_cache_smq")

    def device(self, machine: Machine) -> str:
        self.export(machine)
        all_of, metadata = self.cache * MIB // SECTOR, METADATA_MIB * MIB // SECTOR
        self.map(machine, "metadata", f"0 {metadata} linear {NBD} 0")
        self.map(machine, "fast", f"0 {all_of - metadata} linear {NBD} {metadata}")
        machine.borrower.sh("dd if=/dev/zero of=/dev/mapper/metadata bs=4k count=1 conv=fsync 2>&1")
        fast, origin = "/dev/mapper/fast", DISK
        table = f"0 {self.sectors(machine, 'vda')} cache /dev/mapper/metadata {fast} {origin} {CACHE_BLOCK}"
        self.map(machine, "cached", f"{table} 1 writethrough smq 0")
        return "/dev/mapper/cached"


class Bcache(BlockCache):
    """bcache, writethrough. Its header goes before the disk without changing it: the header is on a RAM disk."""

    name = "bcache"
    modules = ("nbd", "brd", "dm_mod", "bcache")
    HEADER = 16  # sectors before the data

    def device(self, machine: Machine) -> str:
        self.export(machine)
        borrower = machine.borrower
        size = self.sectors(machine, "vda")
        table = f"0 {self.HEADER} linear /dev/ram0 0\\n{self.HEADER} {size} linear {DISK} 0"
        self.map(machine, "backing", table)
        format_ = f"make-bcache --wipe-bcache -o {self.HEADER} -B /dev/mapper/backing -C {NBD} 2>&1"
        machine.tool(borrower, format_)
        for device in ("/dev/mapper/backing", NBD):
            real = machine.tool(borrower, f"readlink -f {device}").strip()
            borrower.sh(f"echo {real} > /sys/fs/bcache/register")
        wait_until("bcache0 is there", lambda: borrower.run("[ -b /dev/bcache0 ]").code == 0)
        # The lender's memory is never too slow for a read, however short the disk's queue is.
        for name in ("congested_read_threshold_us", "congested_write_threshold_us"):
            borrower.sh(f"for f in /sys/fs/bcache/*-*/{name}; do echo 0 > $f; done")
        borrower.write("/sys/block/bcache0/bcache/sequential_cutoff", "0")
        return "/dev/bcache0"


POOLS: dict[str, Settings] = {
    "NonInclusive": Settings(),
    "Exclusive": Settings("Exclusive"),
    "NonInclusive encrypted": Settings("NonInclusive", "AES-GCM"),
    "Exclusive encrypted": Settings("Exclusive", "AES-GCM"),
}
OTHERS: tuple[type[Side], ...] = (NoPool, Ideal, DmCache, Bcache)
BLOCK_CACHES = (DmCache.name, Bcache.name)


def make_pool(name: str, cache: int, **more: object) -> Pool:
    """The pool of that name with so many MiB of the lender's; `more` are its attributes in configfs."""
    base = POOLS[name]
    return Pool(cache, name, Settings(base.strategy, base.encryption, {"breaker": "Off", **more}))


def make(name: str, cache: int, **more: object) -> Side:
    """The side of that name with so many MiB of the lender's; `more` is for pools."""
    if name in POOLS:
        return make_pool(name, cache, **more)
    return next(kind for kind in OTHERS if kind.name == name)(cache)
