"""A guest without any memory but its reserves swaps on, whatever its lender does; and who is killed for memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from bed.device import DISK, MODULES, PATH, SWAPPED, Device, FileDevice, faults_of_wire, until_used
from bed.guest import Disk, Guest
from bed.pair import IN_TIME_US, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import end_stress, start_stress, stress

pytestmark = pytest.mark.long
DISKS = {
    "through": Disk("256M", None),
    "behind": Disk("256M", None),
    "file": Disk("400M", "ext4", options=("-b", "4096")),
}
FILE = "/mnt/swap"
STALLS = ("allocstall_normal", "allocstall_dma32", "allocstall_dma", "allocstall_movable")
# All but so many KiB of what is available is taken by files that are nowhere else, so that none of it can be had back.
TAKEN = r"""
mkdir /taken && mount -t ramfs taken /taken
available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
dd if=/dev/zero of=/taken/file bs=1k count=$((available - 30000))
"""


@contextmanager
def swapping(pair: Pair, kind: str) -> Iterator[Device]:
    """The borrower swaps to its disk, or to a file on that, with its lender in front."""
    with ExitStack() as stack:
        disk = DISK
        if kind == "file":
            pair.borrower.sh(f"dd if=/dev/zero of={FILE} bs=1M count=192 oflag=direct conv=fsync")
            disk = stack.enter_context(FileDevice(pair.borrower, FILE, 192 * MIB)).PATH
        fast = stack.enter_context(Device(pair, disk, policy="behind 4" if kind == "behind" else ""))
        pair.borrower.sh(SWAPPED)
        yield fast
        pair.borrower.sh(f"swapoff {PATH}")


def stalls(guest: Guest) -> int:
    """How often a program found no more free than the reserves, and had to make room itself."""
    return sum(guest.vmstat(name) for name in STALLS)


@pytest.mark.parametrize("kind", DISKS)
def test_only_the_reserves_are_free(kernel: str, kind: str) -> None:
    """While the lender is slow, cut off, frozen and killed: the guest goes on, and each page is as it was."""
    pair = Pair(kernel, borrower_mem="160M", disk=DISKS[kind], modules=MODULES, relay=True)
    with pair as (borrower, lender):
        pair.connect(size=100 * MIB, more=PATIENT)
        with swapping(pair, kind) as fast:
            borrower.sh(TAKEN)
            scan = start_stress(borrower, "scan 60 seconds=300")
            until_used(pair, fast, 100)
            for fault in (*faults_of_wire(pair), lender.stop, lender.cont, lender.kill):
                before = stalls(borrower)
                fault()
                time.sleep(3)
                assert stalls(borrower) > before, f"memory was not short enough after {fault}"
            report = end_stress(scan)
            borrower.sh("umount /taken")
        assert report["max_us"] < IN_TIME_US, report
        assert borrower.vmstat("oom_kill") == 0
        borrower.assert_clean()


@pytest.mark.parametrize("kind", DISKS)
def test_who_is_killed_for_memory(kernel: str, kind: str) -> None:
    """A program that is killed without swap is not with it, be its lender there or not."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=DISKS[kind], modules=MODULES)) as (borrower, lender):
        pair.connect(size=100 * MIB, more=PATIENT)
        borrower.write("/proc/sys/vm/overcommit_memory", "1")  # or the kernel would refuse it at once
        assert borrower.run("stress anon 150").code != 0
        assert borrower.vmstat("oom_kill") == 1
        borrower.sh("dmesg -c > /dev/null")
        with swapping(pair, kind) as fast:
            stress(borrower, "anon 150")
            assert fast.status()["puts"] > 1000, fast.status()
            lender.kill()
            stress(borrower, "anon 150")
        assert borrower.vmstat("oom_kill") == 1
        borrower.assert_clean()
