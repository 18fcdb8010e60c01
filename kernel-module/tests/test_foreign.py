"""Tests that others have written: stress-ng, which verifies what it does. Debian has neither xfstests nor LTP."""

from __future__ import annotations

import pytest

from bed import foreign
from bed.guest import Disk, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import start_stress, stress

# What reads, writes, maps or rearranges files.
STRESSORS = (
    *("aiol", "copy-file", "dentry", "fallocate", "fiemap", "flock", "fpunch", "fsize", "hdd", "io", "iomix", "link"),
    *("open", "readahead", "rename", "seek", "sendfile", "splice", "sync-file", "touch", "xattr"),
    *("madvise", "mmap", "mmapfork", "mmapmany", "mremap", "msync", "msyncmany", "munmap", "pagemove", "vm-splice"),
)
SECONDS, WORKERS = 2, 2
# With it madvise has its own pages fail (MADV_HWPOISON), and whether it then ends with 0 or 2 is chance.
WITHOUT = "/bin/setpriv --bounding-set=-sys_admin"
MEMORY_MIB = 288  # none of the stressors may be killed for want of it, so two of them take no more than it has:
SIZES = "--mremap-bytes 32m --mmap-bytes 64m"  # mmap locks what it maps, at times
MOST_MAPPINGS = 4096  # of a process; mmapmany makes, and fills, as many as it may and can in its time
NOISE_MIB = 256  # read beside them, more than the guest has memory for, so that pages are evicted all the time


def _results(guest: Guest) -> dict[str, int]:
    """Exit code of each: 0 is well, 2 something was wrong, 3 and 4 not possible here."""
    noise = start_stress(guest, "random /mnt/noise seconds=3600 threads=1")
    options = f"--timeout {SECONDS}s --verify --quiet --temp-path /mnt --mmap-file {SIZES}"
    program = f"{WITHOUT} stress-ng --$s {WORKERS} {options}"
    shown = guest.sh(f"for s in {' '.join(STRESSORS)}; do {program} > /tmp/said 2>&1; echo $s $?; done", timeout=1800)
    noise.kill()
    noise.result()
    return {name: int(code) for name, code in (line.split() for line in shown.splitlines())}


@pytest.mark.long
@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_same_result(kernel: str, filesystem: str) -> None:
    """Each ends as it does without the module, and nearly all of them well."""
    with (pair := Pair(kernel, borrower_mem=f"{MEMORY_MIB}M", disk=Disk("2G", filesystem))) as (borrower, _):
        foreign.install(borrower, "stress-ng", "usr/bin/stress-ng")
        foreign.install(borrower, "util-linux", "usr/bin/setpriv")
        borrower.write("/proc/sys/vm/max_map_count", str(MOST_MAPPINGS))
        stress(borrower, f"fill /mnt/noise mib={NOISE_MIB}")
        without = _results(borrower)
        assert list(without.values()).count(0) > len(STRESSORS) * 0.8, without
        pair.connect(size=256 * MIB, more=PATIENT)
        assert _results(borrower) == without
        assert pair.borrowed()["get_hits"] > 1000
        pair.assert_clean()
