"""The borrower that the tests run in, a lender beside it, and what makes pages come and go meanwhile."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bed.channel import Result
from bed.guest import Disk
from bed.image import FILESYSTEM_MODULES, fetch_kernel, has_module
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from xfstests.programs import FOLDERS, HOME

ROOT = "/programs"  # where the borrower has them
POOL = 256 * MIB
MEMORY_MIB = 352  # the borrower's, beside its programs
MODULES = ("loop", "dm-mod", "dm-flakey")  # what some tests need
TEST_DISK, SCRATCH_DISK = "/dev/vda1", "/dev/vda2"
DISK_SIZE, PARTITIONS = "6G", ",3G\n,\n"
RESULTS = "/results"
GROUP = "/sys/fs/cgroup/test"
GROUP_MEMORY = "160M"
HUNG_SECONDS = 120  # as the kernel has it by itself: what the tests do may take long when it is emulated
END_SECONDS = 120  # until what was killed has ended, on a busy machine
# All pages leave, again and again. The first line keeps the kernel from writing a line of log for each time.
EVICT = "echo 4 > /proc/sys/vm/drop_caches; while sleep 1; do echo 1 > /proc/sys/vm/drop_caches; done"
WHERE = f"""
for p in $(cat {GROUP}/cgroup.procs); do
    echo "$p $(tr '\\0' ' ' < /proc/$p/cmdline) $(grep State /proc/$p/status)"; cat /proc/$p/stack
done 2>&1 || true
"""
FURNISH = f"""
for d in /sys/block/vd*; do [ "$(cat $d/serial)" != tools ] || archive=/dev/${{d##*/}}; done
mkdir {ROOT} && mount -t tmpfs -o size=90% programs {ROOT}
tar -xf $archive -C {ROOT}
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir -p /dev/shm /dev/pts && mount -t devpts pts /dev/pts && mount -t tmpfs shm /dev/shm
for name in proc sys dev; do mount --rbind /$name {ROOT}/$name; done
mkdir -m 1777 {ROOT}/var/tmp
echo {HUNG_SECONDS} > /proc/sys/kernel/hung_task_timeout_secs
"""


class Machine:
    """Both guests, up, with nothing of a test in the borrower."""

    def __init__(self, pair: Pair, filesystem: str) -> None:
        self.pair = pair
        self.filesystem = filesystem

    def furnish(self) -> None:
        """Its programs, and its two disks: one with a file system, one without."""
        self.pair.borrower.sh(f"set -e{FURNISH}")
        self.inside(f"printf '{PARTITIONS}' | sfdisk -q /dev/vda && {self._make(TEST_DISK)}")

    def _make(self, device: str) -> str:
        return f"mkfs -t {self.filesystem} {'-F -q' if self.filesystem == 'ext4' else '-f -q'} {device}"

    def inside(self, command: str) -> Result:
        """Runs a shell command among the programs."""
        return self.pair.borrower.run(self._inside(command))

    def _inside(self, command: str) -> str:
        test, scratch = FOLDERS
        known = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp",
            "LC_ALL": "C",
            "FSTYP": self.filesystem,
            "TEST_DEV": TEST_DISK,
            "TEST_DIR": f"/{test}",
            "SCRATCH_DEV": SCRATCH_DISK,
            "SCRATCH_MNT": f"/{scratch}",
            "RESULT_BASE": RESULTS,
        }
        variables = " ".join(f"{name}={value}" for name, value in known.items())
        return f"{variables} exec chroot {ROOT} /bin/sh -c {shlex.quote(command)}"

    def check(self, test: str, limit: float) -> tuple[str, bool]:
        """What `check` prints of a test, and whether it took more than so many seconds and was killed.

        What was killed is named, with where in the kernel it was.
        """
        borrower = self.pair.borrower
        group = f"mkdir {GROUP} && echo {GROUP_MEMORY} > {GROUP}/memory.max && echo $$ > {GROUP}/cgroup.procs"
        job = borrower.start(f"{group} && {self._inside(f'cd {HOME} && exec ./check {test} 2>&1')}")
        deadline = time.monotonic() + limit
        while job.running and time.monotonic() < deadline:
            time.sleep(0.2)
        late = job.running
        where = borrower.sh(WHERE) if late else ""
        borrower.sh(f"echo 1 > {GROUP}/cgroup.kill")  # of a test that has ended, too, something may be left
        result = job.result(END_SECONDS)
        borrower.sh(f"until rmdir {GROUP} 2> /dev/null; do sleep 0.1; done", END_SECONDS)
        if late:
            self._clear()
        return f"{result.output}\n{where}", late

    def _clear(self) -> None:
        """Takes away what a test that was killed has left: mounts in mounts, devices on the disks."""
        mounts = f"for n in 1 2 3; do umount -A -R /{FOLDERS[1]} /{FOLDERS[0]}; done"
        self.inside(f"{mounts} 2> /dev/null; dmsetup remove_all; losetup -D; rm -rf /tmp/*; true")

    def notes(self, test: str) -> str:
        """What a test has left for whoever looks into its failure."""
        return self.inside(f"cd {RESULTS} && tail -n 400 {test}.* 2>&1").output

    def flowed(self) -> tuple[int, int]:
        """Pages put, and pages got that the disk was spared, so far; none without a pool."""
        if not self.pair.b.loaded:
            return 0, 0
        figures = self.pair.borrowed()
        return figures["puts"], figures["get_hits"]

    def complaint(self) -> str:
        """What the kernels and the module complain of since the last time, or nothing."""
        try:
            self.pair.assert_clean()
        except AssertionError as error:
            return str(error)
        finally:
            for guest in (self.pair.borrower, self.pair.lender):
                guest.sh("dmesg -c > /dev/null")
        return ""


@contextmanager
def booted(kernel: str, filesystem: str, archive: Path, *, pool: bool) -> Iterator[Machine]:
    """Boots both. With a pool the borrower compares each page that it gets with its disk."""
    wanted = (*FILESYSTEM_MODULES.get(filesystem, ()), *MODULES)
    there = tuple(name for name in wanted if has_module(fetch_kernel(kernel), name.replace("-", "_")))
    memory = f"{MEMORY_MIB + archive.stat().st_size // MIB}M"
    pair = Pair(
        kernel, borrower_mem=memory, lender_mem="448M", disk=Disk(DISK_SIZE, None), modules=there, tools=archive,
        module=pool,
    )  # fmt: skip
    with pair as (borrower, _):
        machine = Machine(pair, filesystem)
        machine.furnish()
        if pool:
            pair.connect(size=POOL, more=PATIENT)
            pair.b.set("verify_one_in", 1)
        evicting = borrower.start(EVICT)
        yield machine
        evicting.kill()
