"""What the module costs a guest, as tests and benchmarks measure it: its memory, and processor time."""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bed.guest import COUNTED_SHIFT, PAGE, Disk, Guest, Spec
from bed.image import build_module, fetch_kernel
from bed.tidepool import MIB, Tidepool
from bed.workload import stress

GIB = 1024 * MIB
MOST_PER_GIB = 2.25 * MIB  # that a dense catalog may take for a GiB of pages
CATALOG_CACHES = ("tidepool_file", "tidepool_leaf", "radix_tree_node")
INSTRUCTIONS_PER_SECOND = 1e9 / 2**COUNTED_SHIFT  # of a counted guest
KASAN: dict[str, bool] = {}  # whether a kernel's release has it; to look takes a second, emulated
NOW, IDLE, WAITING = r"now at (\d+)", r"idle_sleeptime\s*: (\d+)", r"iowait_sleeptime\s*: (\d+)"


def catalog_bytes(guest: Guest) -> int:
    """Memory of the objects that the catalog is made of, without what waits in the allocator. Empties the caches."""
    for _ in range(3):  # what else is made of such nodes goes first
        guest.sh("sync")
        guest.drop_caches(3)
    guest.sh("sleep 2")  # what was freed is free after a grace period
    # Counted by one shell that starts nothing: a processor's current slab counts as used up.
    count = "echo 1 > $c/shrink; read n rest < $c/objects; read s < $c/slab_size; echo $((n * s))"
    folders = " ".join(f"/sys/kernel/slab/{cache}" for cache in CATALOG_CACHES)
    return sum(map(int, guest.sh(f"for c in {folders}; do {count}; done").split()))


def catalog_cost(full: int, empty: int, pages: int) -> float:
    """What a catalog takes for a GiB of pages, by what it takes with so many and without, in bytes."""
    cost = (full - empty) / (pages * PAGE) * GIB
    print(f"{cost / MIB:.3f} MiB to a GiB of {pages} pages; {full} {empty}")
    return cost


def has_kasan(guest: Guest) -> bool:
    """Whether its kernel watches each object, which makes each larger; a kernel is asked once."""
    release = guest.sh("uname -r")
    if release not in KASAN:
        KASAN[release] = guest.run("grep -q ' kasan_report$' /proc/kallsyms").code == 0
    return KASAN[release]


def kept_bytes(guest: Guest) -> int:
    """What a guest's kernel keeps in slabs and in the page cache: in a lender without a disk, what it lends and why."""
    caches = " ".join(f"/sys/kernel/slab/{cache}/shrink" for cache in ("inode_cache", "dentry", *CATALOG_CACHES))
    shrink = f"for c in {caches}; do [ ! -e $c ] || echo 1 > $c; done"  # what is free in them is not kept
    count = "awk '/^(Slab|Cached|Buffers):/ { kib += $2 } END { print kib }' /proc/meminfo"
    return int(guest.sh(f"{shrink}; {count}")) * 1024


def processor_seconds(guest: Guest) -> float:
    """Time that its only processor has not been idle, interrupts included; a difference is what something took."""
    return _busy(guest.read("/proc/timer_list"))


def _busy(timers: str) -> float:
    now, idle, waiting = (int(re.search(name, timers)[1]) for name in (NOW, IDLE, WAITING))  # type: ignore[index]
    return (now - idle - waiting) / 1e9


def eviction_seconds(guest: Guest, path: str) -> float:
    """Processor time that the guest takes to evict a file's pages, which it has just read."""
    guest.drop_caches(1)
    clock = "cat /proc/timer_list >"
    guest.sh(f"cat {path} > /dev/null; {clock} /tmp/before; echo 1 > /proc/sys/vm/drop_caches; {clock} /tmp/after")
    before, after = (_busy(guest.read(f"/tmp/{name}")) for name in ("before", "after"))
    return after - before


@contextmanager
def counted_guest(kernel: str) -> Iterator[Guest]:
    """One guest whose clock goes by the instructions that it executes, so that a percent can be seen."""
    files = fetch_kernel(kernel)
    folder = Path(tempfile.mkdtemp(prefix="tidepool-bed-", dir="/var/tmp"))
    spec = Spec("lone", "1024M", 1, Disk("1G", "ext4"), append="nokaslr", counted=True)
    guest = Guest.boot(spec, files, build_module(files), folder)
    try:
        guest.wait_ready()
        guest.mount("ext4")
        yield guest
    finally:
        guest.close()
        shutil.rmtree(folder, ignore_errors=True)


def work_seconds(guest: Guest) -> float:
    """Processor time of work that is mostly the kernel's page cache, once what was done before is no longer felt."""
    stress(guest, "work /mnt/work rounds=2")
    return float(stress(guest, "work /mnt/work rounds=6")["processor_seconds"])


def idle_times(guest: Guest, turns: int) -> dict[str, list[float]]:
    """`work_seconds` by turns without the module, with it loaded, and with ghost mode; it has no peer."""
    tidepool = Tidepool(guest)
    times: dict[str, list[float]] = {"unloaded": [], "loaded": [], "ghost": []}
    stress(guest, "work /mnt/work rounds=40")  # the first ones are quicker
    for _ in range(turns):
        times["unloaded"].append(work_seconds(guest))
        tidepool.load()
        times["loaded"].append(work_seconds(guest))
        tidepool.set("ghost", "NonInclusive")
        times["ghost"].append(work_seconds(guest))
        tidepool.unload()
    return times


def idle_costs(times: dict[str, list[float]]) -> dict[str, float]:
    """Which part more the loaded module and ghost mode take, in the median of the turns."""
    beside = {
        name: [one / without for one, without in zip(times[name], times["unloaded"], strict=True)]
        for name in ("loaded", "ghost")
    }
    return {name: statistics.median(ratios) - 1 for name, ratios in beside.items()}
