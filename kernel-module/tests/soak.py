"""The whole mixture for long, on each kernel and file system, while all that can happen to a pair of guests happens.

soak [--kernels 6.1,6.12,7.2,debug] [--filesystems ext4,xfs,btrfs,device] [--seconds 180]
writes build/stress.json: one entry for each kernel and file system, of its latest run; exits with 1 if one of the
present runs found anything. `device` is a block device in front of a disk, with both policies by turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bed.device import DISK, MODULES, PATH, Device
from bed.device import NAME as DEVICE_NAME
from bed.guest import Disk, Guest, GuestError, Job
from bed.image import TOP
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import Report, finish_stress, start_stress, stress

RESULTS = TOP / "build" / "stress.json"
POOL = 200 * MIB
STREAM = "/mnt/stream"
OOM_REPORT = r"oom-kill|Out of memory|Call Trace|RIP:"  # of the program that was to be killed
REPORT_SECONDS = 1200  # a debug kernel verifies slowly,
EVICT_SECONDS = 600  # and takes a minute to empty a cache that programs fill meanwhile, with or without the module
CONNECT_SECONDS = 120
PAUSE_SECONDS = 30  # shorter than a lender lingers,
CUT_SECONDS = 12  # and longer than a borrower waits for a sign of life
SAMPLE_SECONDS, SAMPLE_PAGES = 40, 200  # for so long, or until so many pages of the pool were asked for
MOST_WORSE = 0.05  # of the pages that are asked for: what is put meanwhile, and what the lender gives back
OTHER_ADDRESS = "10.7.0.3"
# A memory cgroup that leaves the mixture about half of what it would have.
GROUP = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/part
echo 96M > /sys/fs/cgroup/part/memory.max
"""
DEVICE = "device"  # in place of a file system
JOIN = "echo $$ > /sys/fs/cgroup/part/cgroup.procs"

Fault = Callable[[Pair], None]


@dataclass
class Run:
    """One entry of build/stress.json."""

    kernel: str
    filesystem: str
    operations: int = 0
    bytes_verified: int = 0
    faults_injected: int = 0
    cuts_with_hits: int = 0
    errors: int = 0
    dmesg_clean: bool = True
    debug_locks: int | None = None

    @property
    def good(self) -> bool:
        return not self.errors and self.dmesg_clean and self.debug_locks in (None, 1)


def drop_caches(pair: Pair) -> None:
    """Pages, then inodes and dentries, then both."""
    for what in (1, 2, 3):
        pair.borrower.drop_caches(what, EVICT_SECONDS)


def _pause(guest: Guest) -> None:
    guest.stop()
    time.sleep(PAUSE_SECONDS)
    guest.cont()


def pause_lender(pair: Pair) -> None:
    """It stands still for longer than a borrower waits for it."""
    _pause(pair.lender)


def pause_borrower(pair: Pair) -> None:
    """It stands still for longer than a lender waits for it."""
    _pause(pair.borrower)


def move_lender(pair: Pair) -> None:
    """It is to be found at another address, and then at its own again."""
    pair.lender.sh(f"ip addr add {OTHER_ADDRESS}/24 dev eth0 2> /dev/null || true")
    for address in (OTHER_ADDRESS, LENDER_ADDRESS):
        pair.b.set(f"lenders/{NAME}/address", address)
        time.sleep(2)


def cut_network(pair: Pair) -> None:
    """No packet gets through, until the connections are given up."""
    assert pair.relay
    pair.relay.cut = True
    time.sleep(CUT_SECONDS)
    pair.relay.cut = False


def spoil_network(pair: Pair) -> None:
    """Packets are lost, overtaken and late for a while."""
    assert pair.relay
    pair.relay.loss, pair.relay.reorder, pair.relay.delay = 0.03, 0.2, 0.01
    time.sleep(6)
    pair.relay.loss, pair.relay.reorder, pair.relay.delay = 0.0, 0.0, 0.0


def exhaust_lender(pair: Pair) -> None:
    """A program on the lender wants all the memory that there is, until the kernel kills it."""
    wanted = pair.lender.meminfo("MemTotal") // MIB
    pair.lender.run(f"echo 1000 > /proc/self/oom_score_adj; exec stress anon {wanted}", timeout=300)


def kill_lender(pair: Pair) -> None:
    """Its host loses power; a new one is there, empty, a little later."""
    pair.lender.assert_clean(allow=OOM_REPORT)
    pair.lender.kill()
    pair.restart_lender()
    lend(pair)


def press_lender(pair: Pair) -> None:
    """A program on the lender wants most of its memory."""
    pair.lender.sh(f"stress anon {int(pair.lender.meminfo('MemTotal') / MIB * 0.75)}", timeout=300)


def press_borrower(pair: Pair) -> None:
    """A program on the borrower takes a third of its memory."""
    pair.borrower.sh(f"stress anon {int(pair.borrower.meminfo('MemTotal') / MIB / 3)}", timeout=300)


def reload_borrower(pair: Pair) -> None:
    """Unloaded and loaded while pages flow."""
    pair.b.unload()
    pair.b.load()
    borrow(pair)


def reload_lender(pair: Pair) -> None:
    """Unloaded and loaded while pages flow."""
    pair.l.unload()
    lend(pair)


def resize(pair: Pair) -> None:
    """Quotas shrink and grow in use, and the strategy changes."""
    for mib, strategy in ((16, "Exclusive"), (200, "NonInclusive")):
        pair.l.set(f"borrowers/{NAME}/quota_bytes", mib * MIB)
        pair.b.set(f"lenders/{NAME}/strategy", strategy)
        time.sleep(2)


def stream(pair: Pair) -> None:
    """A file is read in order and evicted, with the sequential filter and without."""
    for chosen in (1, 0):
        pair.b.set(f"lenders/{NAME}/sequential_filter", chosen)
        stress(pair.borrower, f"sequential {STREAM}")
        pair.borrower.drop_caches(1, EVICT_SECONDS)


FAULTS: tuple[Fault, ...] = (
    drop_caches,
    stream,
    resize,
    pause_lender,
    press_lender,
    cut_network,
    pause_borrower,
    exhaust_lender,
    spoil_network,
    reload_borrower,
    press_borrower,
    move_lender,
    kill_lender,
    reload_lender,
)


def other_policy(pair: Pair) -> None:
    """The device gets another table: from now on it writes through if it wrote behind, or the other way round."""
    device = Device(pair)
    sectors = pair.borrower.sh(f"blockdev --getsz {DISK}")
    policy = "writethrough" if "log_pages" in device.status() else "behind"
    device.exchange(DEVICE_NAME, f"0 {sectors} tidepool - {DISK} {policy}")


def forget(pair: Pair) -> None:
    """The pool is to forget all that it has of the device."""
    Device(pair).dmsetup(f"message {DEVICE_NAME} 0 forget")


# Files are not read in order on a device, and the module stays as long as somebody has the device open.
OF_FILES = (stream, reload_borrower)
DEVICE_FAULTS: tuple[Fault, ...] = (forget, *(fault for fault in FAULTS if fault not in OF_FILES), other_policy)
# After these the session goes on: all that was with the lender is still there.
HARMLESS = (pause_lender, cut_network, pause_borrower, spoil_network, move_lender)
# And these end its connections, whatever else is going on.
CUTS = (pause_lender, cut_network, pause_borrower, move_lender)


def lend(pair: Pair) -> None:
    """The lender's end of the pairing."""
    pair.l.load()
    pair.l.lend(NAME, quota=POOL, reserve=16 * MIB)


def borrow(pair: Pair) -> None:
    """The borrower's end, which compares what it gets with its disk."""
    pair.b.set("verify_one_in", 1)
    pair.b.borrow(NAME, address=LENDER_ADDRESS, size=POOL)


def goes_on(fault: Fault, pair: Pair) -> bool:
    """When it is over the same session goes on, and what is asked for is there; whether anything was.

    How many pages there are says nothing: the mixture goes on, and what it writes while nothing can be put is not with
    the lender any more.
    """
    pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=CONNECT_SECONDS)
    usual = hit_share(pair)
    begun, resumes = sessions_begun(pair), pair.borrowed()["resumes"]
    fault(pair)
    if fault in CUTS:
        wait_until("the session is resumed", lambda: pair.borrowed()["resumes"] > resumes, CONNECT_SECONDS)
    pair.b.wait_state(f"lenders/{NAME}", "Connected", timeout=CONNECT_SECONDS)
    assert sessions_begun(pair) == begun, f"{fault.__name__} cost the borrower its pages"
    time.sleep(1)
    found = hit_share(pair)
    say(f"    of the pages asked for came {usual} before, {found} after")
    assert None in (usual, found) or found >= usual - MOST_WORSE, f"{fault.__name__}: {found} come, {usual} before"
    return found is not None


def hit_share(pair: Pair) -> float | None:
    """Which part of the pages that the borrower asks for is with its lender, from now on; None: it asks for none.

    Pages that are late, or not asked for because the breaker is open, say nothing of it.
    """
    first, end = pair.borrowed(), time.monotonic() + SAMPLE_SECONDS
    hits = misses = 0
    while hits + misses < SAMPLE_PAGES and time.monotonic() < end:
        time.sleep(1)
        now = pair.borrowed()
        hits, misses = (now[name] - first[name] for name in ("get_hits", "get_misses"))
    return hits / (hits + misses) if hits + misses else None


def sessions_begun(pair: Pair) -> int:
    """How often the borrower has connected and found nothing of its own."""
    figures = pair.borrowed()
    return figures["connects"] - figures["resumes"]


def inject(pair: Pair, mixture: Job, run: Run, seconds: float) -> None:
    """One fault after the other until the mixture's time is up."""
    end = time.monotonic() + seconds
    for fault in itertools.cycle(DEVICE_FAULTS if run.filesystem == DEVICE else FAULTS):
        if time.monotonic() > end or not mixture.running:
            return
        time.sleep(3)
        say(f"  {fault.__name__}")
        if fault in HARMLESS:
            run.cuts_with_hits += goes_on(fault, pair) and fault in CUTS
        else:
            fault(pair)
        run.faults_injected += 1


def remount_and_verify(borrower: Guest, filesystem: str) -> None:
    """After the mixture: a small file goes through a remount."""
    stress(borrower, "fill /mnt/last mib=20")
    borrower.drop_caches(3, EVICT_SECONDS)
    borrower.umount()
    borrower.mount(filesystem)
    for _ in range(2):
        stress(borrower, "sequential /mnt/last")
        borrower.drop_caches(1, EVICT_SECONDS)


def soak_device(run: Run, seconds: int) -> None:
    """One run on a block device; what it found is in `run`."""
    disk = Disk("1G", None)
    pair = Pair(run.kernel, disk=disk, relay=True, borrower_mem="208M", lender_mem="384M", modules=MODULES)
    with pair as (borrower, _):
        pair.b.load()
        lend(pair)
        borrow(pair)
        with Device(pair, policy="behind"):
            mixture = start_stress(borrower, f"device {PATH} beside={DISK} mib=64 seconds={seconds} threads=6")
            inject(pair, mixture, run, seconds)
            report = finish_stress(mixture, timeout=REPORT_SECONDS)
            note(run, report, report["operations"])
        run.debug_locks = borrower.debug_locks()
        pair.assert_clean(allow=OOM_REPORT)


def soak(run: Run, seconds: int) -> None:
    """One run on a file system; what it found is in `run`."""
    pair = Pair(run.kernel, disk=run.filesystem, relay=True, borrower_mem="208M", lender_mem="384M")
    with pair as (borrower, _):
        pair.b.load()
        lend(pair)
        borrow(pair)
        borrower.sh(f"set -e{GROUP}")
        stress(borrower, f"fill {STREAM} mib=24")
        mixture = start_stress(borrower, f"mix /mnt/mix mib=140 seconds={seconds} threads=6", before=JOIN)
        inject(pair, mixture, run, seconds)
        report = finish_stress(mixture, timeout=REPORT_SECONDS)
        note(run, report, report["total"])
        remount_and_verify(borrower, run.filesystem)
        run.debug_locks = borrower.debug_locks()
        pair.assert_clean(allow=OOM_REPORT)


def note(run: Run, report: Report, operations: int) -> None:
    run.operations = operations
    run.bytes_verified = report["bytes_verified"]
    run.errors = report["wrong_pages"] + report["errors"]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def attempt(run: Run, seconds: int) -> None:
    """A run that fails is an entry, too."""
    say(f"{run.kernel} on {run.filesystem}, {seconds} s and verification")
    try:
        (soak_device if run.filesystem == DEVICE else soak)(run, seconds)
    except GuestError as error:
        run.errors = max(run.errors, 1)
        say(str(error))
    except AssertionError as error:
        run.dmesg_clean = False
        say(str(error))


def record(run: Run) -> None:
    """In place of an earlier run of the same kernel and file system."""
    runs = [Run(**entry) for entry in json.loads(RESULTS.read_text())] if RESULTS.exists() else []
    others = [each for each in runs if (each.kernel, each.filesystem) != (run.kernel, run.filesystem)]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(each) for each in [*others, run]], indent=2) + "\n")


def main() -> int:
    """Every kernel with every file system."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kernels", default="6.1,6.12,7.2,debug")
    parser.add_argument("--filesystems", default="ext4,xfs,btrfs,device")
    parser.add_argument("--seconds", type=int, default=180)
    options = parser.parse_args()
    runs = [Run(*pair) for pair in itertools.product(options.kernels.split(","), options.filesystems.split(","))]
    for run in runs:
        attempt(run, options.seconds)
        record(run)
        say(f"  {asdict(run)}")
    return 0 if all(run.good for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
