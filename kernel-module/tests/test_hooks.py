"""Each hook is needed: a module built without it serves wrong pages, and these workloads see them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from test_unmount import known_after_unmount

from bed.guest import Disk, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress, stress, wrong_pages

RACE_SECONDS, MIXTURE_SECONDS = 20, 60  # at most: one wrong page is enough
ROUNDS = 6


def _mixture(pair: Pair) -> int:
    return wrong_pages(pair.borrower, f"mix /mnt/mix mib=120 seconds={MIXTURE_SECONDS} threads=6 first=1", timeout=400)


def _race(change: str) -> Callable[[Pair], int]:
    def race(pair: Pair) -> int:
        return wrong_pages(pair.borrower, f"race /mnt/race change={change} seconds={RACE_SECONDS} first=1", timeout=400)

    return race


BREAKS: dict[str, list[Callable[[Pair], int]]] = {
    "DIRTY": [_mixture],
    "TRUNCATE_RETURN": [_race("truncate"), _race("punch"), _mixture],
    "DIRECT_IO": [_race("direct"), _mixture],
    # A direct write's own gate covers its invalidations too, so these two go together.
    "INVALIDATE,DIRECT_IO": [_race("direct"), _mixture],
}


@pytest.mark.parametrize("hook", list(BREAKS))
def test_without(kernel: str, hook: str) -> None:
    """Wrong pages are seen, within a few rounds of the workloads that meet this hook."""
    disk = Disk("1G", "ext4", write_iops=150 if "DIRECT_IO" in hook else None)
    with (pair := Pair(kernel, borrower_mem="160M", disk=disk, broken=hook)):
        pair.connect(size=128 * MIB, more=PATIENT)
        assert any(workload(pair) > 0 for _ in range(ROUNDS) for workload in BREAKS[hook])


def test_without_unmount(kernel: str) -> None:
    """Files outlive their mount: another file system at the same address would be served their pages."""
    with (pair := Pair(kernel, disk="ext4", broken="UNMOUNT")):
        pair.connect(size=100 * MIB, more=PATIENT)
        assert known_after_unmount(pair) > 0


# What a process writes takes its time: half a MiB a second, until nobody need wait for it any more.
GROUP = "/sys/fs/cgroup/slow"
SLOW = f"""
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +io > /sys/fs/cgroup/cgroup.subtree_control
mkdir {GROUP}
echo "$(cat /sys/block/vda/dev) wbps=524288" > {GROUP}/io.max
"""
STATES = f"for pid in $(cat {GROUP}/cgroup.procs); do cat /proc/$pid/stat; done"  # D is who waits for the disk
FAST = f'echo "$(cat /sys/block/vda/dev) wbps=max" > {GROUP}/io.max'


def _waits(guest: Guest) -> bool:
    """Whether the writer has been waiting for the disk for a while: not to open the file, but to write."""
    before = guest.sh(STATES)
    time.sleep(2)
    return re.search(r"\) D ", before) is not None and guest.sh(STATES) == before


def _evicted(guest: Guest) -> bool:
    guest.sh("echo 1 > /proc/sys/vm/drop_caches")
    return stress(guest, "resident /mnt/file")["resident"] == 0


def _overwritten_while_borrowing_begins(pair: Pair) -> int:
    """A direct write of more than a minute begins before a lender is enabled; the old pages are evicted under it.

    All of them: while one is cached the writer invalidates what it has written, which is seen.
    """
    borrower, size = pair.borrower, 40
    borrower.write("/proc/sys/kernel/hung_task_timeout_secs", "0")  # the writer waits for as long as all this takes
    borrower.sh(SLOW)
    stress(borrower, f"fill /mnt/file mib={size}")
    for side in (pair.l, pair.b):
        side.load()
    write = start_stress(borrower, "overwrite /mnt/file version=2", f"echo $$ > {GROUP}/cgroup.procs")
    wait_until("it writes", lambda: _waits(borrower))
    pair.connect(size=64 * MIB, more=PATIENT)
    borrower.sh(f"dd if=/mnt/file of=/dev/null bs=1M skip={size - 2}")  # what will be written last
    wait_until("nothing of it is cached", lambda: _evicted(borrower))
    assert write.running, "the write was over too soon to show anything"
    borrower.sh(FAST)
    finish_stress(write)
    return wrong_pages(borrower, "sequential /mnt/file version=2")


@pytest.mark.parametrize("broken", ["", "SETTLE"], ids=["proper", "broken"])
def test_changes_that_began_before(kernel: str, broken: str) -> None:
    """What was changing a file when this guest began to borrow is in no section: the file is left alone for so long."""
    with (pair := Pair(kernel, broken=broken)):
        wrong = _overwritten_while_borrowing_begins(pair)
        assert (wrong > 0) == bool(broken)
        assert (pair.b.stats()["drop_gate"] > 0) == (not broken)
        pair.assert_clean()
