"""The two guests of a trial: a borrower with a slow disk and a lender, both with the benchmarks' programs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bed.guest import Disk, Guest
from bed.image import fetch_kernel, has_module
from bed.pair import Pair

ROOT = "/tools"  # where the programs are, and the root of those that run
FOLDER = "/mnt"  # the borrower's data, there and inside
HELD_IN_MEMORY = ("tmp", "run", "var/lib", "var/log")
PATIENCE_SECONDS = 900.0
# A hard disk, the paper's baseline: 166 reads a second (table 2), and in order 80 MB/s.
DISK_IOPS, DISK_BYTES_PER_SECOND = 166, 80_000_000
READ_AHEAD_KIB = 512  # long enough for that
# Jumbo frames, as the emulated cards have no segmentation offload, with which others send 64 KiB at a time. TCP carries
# 36 MiB/s between these guests with packets of 1500 bytes and some 130 with these; the paper's network could carry 117.
MTU = 9000


@dataclass(frozen=True)
class Size:
    """MiB of memory; the lender's is what it needs itself and what it lends."""

    borrower: int
    lender: int


class Machine:
    """Both guests, up; the data disk is not mounted and no module is loaded. Made by `booted`."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    @property
    def borrower(self) -> Guest:
        return self.pair.borrower

    @property
    def lender(self) -> Guest:
        return self.pair.lender

    def mount(
        self, device: str = "/dev/vda", options: str = "noatime", guest: Guest | None = None, filesystem: str = "ext4"
    ) -> None:
        """The borrower's data, or another guest's, where its programs see it."""
        guest = guest or self.borrower
        self.tool(guest, f"blockdev --setra {READ_AHEAD_KIB * 2} {device}")
        guest.sh(f"mount -t {filesystem} -o {options} {device} {FOLDER} && mount --bind {FOLDER} {ROOT}{FOLDER}")

    def unmount(self) -> None:
        """The borrower's data is no longer there."""
        self.borrower.sh(f"umount {ROOT}{FOLDER} && umount {FOLDER}")

    @contextmanager
    def fast_disk(self) -> Iterator[None]:
        """For what is not measured: the borrower's disk is not throttled meanwhile."""
        self.throttle(0)
        yield
        self.hard_disk()

    def hard_disk(self) -> None:
        """The borrower's disk is as slow as it is when it is booted."""
        self.throttle(DISK_IOPS, DISK_BYTES_PER_SECOND)

    def throttle(self, iops: int, bytes_per_second: int = 0) -> None:
        """So much the borrower's disk does from now on, data and programs together; 0: as much as it can."""
        self.borrower.throttle(iops, bytes_per_second, ("disk", "tools"))

    def tool(self, guest: Guest, command: str, timeout: float = PATIENCE_SECONDS) -> str:
        """Runs a shell command among the programs; its output."""
        return guest.sh(inside(command), timeout)


def inside(command: str, root: str = ROOT) -> str:
    """A shell command as it runs among the programs."""
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/lib/postgresql/15/bin"
    return f"PATH={path} HOME=/tmp LC_ALL=C exec chroot {root} /bin/sh -c {shlex.quote(command)}"


@contextmanager
def booted(
    size: Size, data: Path | None, tools: Path, *, fast_disk: bool = False, kernel: str = "6.1",
    modules: tuple[str, ...] = (), balloon: bool = False, counted: bool = False, lender_data: Path | None = None,
    processors: int = 2, module: bool = True,
) -> Iterator[Machine]:  # fmt: skip
    """Boots both; what they write to the data disk is gone afterwards.

    `counted`: their clocks go by instructions, and each has one processor. `lender_data` is a disk of the lender's own.
    `processors` are the borrower's. With `fast_disk` no disk is throttled. Without `module` they have none of ours.
    """
    pair = Pair(
        kernel, borrower_mem=f"{size.borrower}M", lender_mem=f"{size.lender}M", disk=_disk(data, fast_disk),
        processors=1 if counted else processors, modules=modules, tools=tools, lender_balloon=balloon, counted=counted,
        lender_disk=_disk(lender_data, fast_disk), mtu=MTU, module=module,
    )  # fmt: skip
    with pair:
        for guest in (pair.borrower, pair.lender):
            furnish(guest)
        yield Machine(pair)


def there(modules: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    """Those of these modules that come with the kernel as files: what is built in needs not be loaded."""
    return tuple(name for name in modules if has_module(fetch_kernel(kernel), name.replace("-", "_")))


def _disk(image: Path | None, fast: bool) -> Disk | None:
    if not image:
        return None
    if fast:
        return Disk(filesystem=None, image=image)
    return Disk(filesystem=None, image=image, iops=DISK_IOPS, bytes_per_second=DISK_BYTES_PER_SECOND)


def furnish(guest: Guest) -> None:
    """The programs' disk, found by its serial number, with what a root file system has."""
    find = 'for d in /sys/block/vd*; do [ "$(cat $d/serial)" != tools ] || echo ${d##*/}; done'
    device = guest.sh(find)
    guest.sh(f"mkdir -p {ROOT} && mount -t ext4 -o ro,noatime /dev/{device} {ROOT}")
    for name in ("proc", "sys", "dev"):
        guest.sh(f"mount --rbind /{name} {ROOT}/{name}")
    for name in HELD_IN_MEMORY:
        guest.sh(f"mount -t tmpfs -o mode=1777 tmp {ROOT}/{name}")
