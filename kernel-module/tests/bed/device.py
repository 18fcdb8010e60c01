"""A block device in front of the borrower's disk, made with dmsetup, as BLOCK.md describes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Self

from bed.guest import Guest, GuestError
from bed.pair import DEADLINE_US, Pair
from bed.tidepool import wait_until
from bed.workload import stress, wrong_pages

MODULES = ("dm-mod", "loop")
DISK, NAME = "/dev/vda", "fast"
PATH = f"/dev/mapper/{NAME}"
CHECKS = {"ext4": ("fsck.ext4", "-f", "-n"), "xfs": ("xfs_repair", "-n"), "btrfs": ("btrfs", "check")}
SWAPPED = f"mkswap {PATH} > /dev/null && swapon {PATH}"
MIXED_SECONDS = 300  # until a mixture has shown what it is to show, however slow the machine


def dmsetup(arguments: str) -> str:
    """A command for a guest, in which there is no udev that would make the nodes."""
    return f"DM_DISABLE_UDEV=1 dmsetup {arguments}"


def load_target(guest: Guest, name: str) -> None:
    """Its `tidepool-NAME.ko`, where that is not loaded yet."""
    if guest.run(f"[ -d /sys/module/tidepool_{name} ]").code:
        if not guest.module:
            raise GuestError("the guest was given no module")
        file = f"tidepool-{name}.ko"
        guest.start(f"cat > /lib/{file} && insmod /lib/{file}", guest.module.with_name(file).read_bytes()).wait()


class FileDevice:
    """`with FileDevice(guest, "/mnt/swap", 8 * MIB):` its blocks are /dev/mapper/below; the guest has MODULES."""

    NAME = "below"
    PATH = f"/dev/mapper/{NAME}"

    def __init__(self, guest: Guest, file: str, size: int) -> None:
        self.guest = guest
        self.table = f"0 {size // 512} tidepool-file {file}"

    def __enter__(self) -> Self:
        load_target(self.guest, "file")
        self.guest.sh(dmsetup(f'create {self.NAME} --table "{self.table}"'))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.guest.run(dmsetup(f"remove {self.NAME}")).code
        assert error or code == 0, "it is in use"

    def extents(self) -> int:
        """In how many pieces the file lies on its disk."""
        return int(self.guest.sh(dmsetup(f"status {self.NAME}")).split()[-1])


class Device:
    """`with Device(pair):` there is /dev/mapper/fast over `disk`; both guests have the modules of MODULES.

    It has all of the disk's sectors if not told how many. `policy` is as in its table, the module's own if not told.
    """

    def __init__(self, pair: Pair, disk: str = DISK, *, lender: str = "-", sectors: int = 0, policy: str = "") -> None:
        self.pair = pair
        self.disk = disk
        self.lender = lender
        self.sectors = sectors
        self.policy = policy
        self._load()

    def __enter__(self) -> Self:
        self.create()
        return self

    def create(self) -> None:
        """It is there from now on."""
        sectors = self.sectors or int(self.pair.borrower.sh(f"blockdev --getsz {self.disk}"))
        table = f"0 {sectors} tidepool {self.lender} {self.disk} {self.policy}".rstrip()
        self.dmsetup(f'create {NAME} --table "{table}"')

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.dmsetup(f"remove {NAME}")
        except GuestError:
            if not error:
                raise

    def _load(self) -> None:
        """The modules, where they are not loaded yet."""
        if not self.pair.b.loaded:
            self.pair.b.load()
        load_target(self.pair.borrower, "block")

    def dmsetup(self, arguments: str) -> str:
        """Its output."""
        return self.pair.borrower.sh(dmsetup(arguments))

    def exchange(self, name: str, table: str) -> None:
        """Gives a mapping another table, as one does with a device that is in use."""
        resume = f"dmsetup resume {name}"
        self.dmsetup(f'suspend {name} && {{ dmsetup load {name} --table "{table}" || ! {resume}; }} && {resume}')

    def status(self) -> dict[str, int]:
        """What it counts."""
        return self.figures(self.dmsetup(f"status {NAME}"))

    @staticmethod
    def figures(status: str) -> dict[str, int]:
        """What a line of `dmsetup status` counts."""
        words = status.split()[3:]
        return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def mixture(device: Device, arguments: str, seconds: int, *, proper: bool, seen: Collection[str] = ()) -> None:
    """All kinds of requests. Nothing is wrong for so long, and again until the device has counted each of `seen`.

    Unless it is proper: then something is wrong before long, which ends it.
    """
    guest, command, end = device.pair.borrower, f"device {PATH} {arguments}", time.monotonic() + MIXED_SECONDS
    if not proper:
        assert wrong_pages(guest, f"{command} seconds={MIXED_SECONDS} first=1", timeout=2 * MIXED_SECONDS) > 0
        return
    while True:
        stress(guest, f"{command} seconds={seconds}")
        figures = device.status()
        if all(figures[name] > 0 for name in seen):
            return
        assert time.monotonic() < end, f"not all of {seen}: {figures}"


def random_data(pair: Pair, kib: int) -> None:
    """The borrower's /tmp/data has so many KiB at random."""
    pair.borrower.sh(f"dd if=/dev/urandom of=/tmp/data bs=1k count={kib}")


def removed_by_force(pair: Pair, device: Device) -> int:
    """Makes a device, and removes it by force while /tmp/data is written to it; how many bytes were acknowledged.

    What is left of it, if it was open then, can be removed as usual.
    """
    device.create()
    random_data(pair, 24 * 1024)
    job = pair.borrower.start(f"dd if=/tmp/data of={PATH} bs=4k oflag=direct 2>&1")
    wait_until("it is written", lambda: _has_blocks(device))
    pair.borrower.run(dmsetup(f"remove --force {NAME}"))
    written = int(job.result().output.rsplit("+", 2)[0].split()[-1]) * 4096
    assert written > 0
    return written


def _has_blocks(device: Device) -> bool:
    """Whether something that was written went to a lender or a log."""
    figures = device.status()
    return any(figures.get(name, 0) > 0 for name in ("puts", "log_pages", "log_written"))


def faults_of_wire(pair: Pair) -> Iterator[Callable[[], None]]:
    """It is slow, fast, cut and whole."""
    for what, value in (("delay", 0.3), ("delay", 0.0), ("cut", True), ("cut", False)):
        yield functools.partial(setattr, pair.relay, what, value)


def until_used(pair: Pair, device: Device, hits: int) -> None:
    """Until so many blocks came from the lender, however slow the machine; then it has as long as by default."""
    wait_until("the lender is used", lambda: device.status()["hits"] > hits, timeout=120)
    pair.b.set(f"lenders/{pair.name}/deadline_us", DEADLINE_US)
