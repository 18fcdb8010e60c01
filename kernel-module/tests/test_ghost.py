"""Ghost mode: what pools of several sizes would be worth, without a page being kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bed.guest import PAGE, Disk, Guest
from bed.image import CFLAGS, TESTS, build_program
from bed.pair import NAME, PATIENT, Pair
from bed.tidepool import MIB, Tidepool, wait_until
from bed.workload import stress

SOURCES = [TESTS / "curve" / "main.c", TESTS.parent / "base/missratio.c", TESTS.parent / "base/missratio.h"]
INCLUDES = [f"-I{TESTS / 'curve'}", f"-I{TESTS.parent}"]
TOLERANCE = 0.05
MOST_NANOSECONDS = 250.0  # at 40,000 reads a second this is 1 % of a processor
MOST_BYTES = 4 * MIB
ENOUGH_READS, MOST_ROUNDS = 20_000, 24
LEAST_RATIO = 2 * TOLERANCE  # a curve that expects nothing is wrong then


def _curve(program: Path, arguments: str) -> dict[str, Any]:
    run = subprocess.run([program, *arguments.split()], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def _largest_error(report: dict[str, Any]) -> float:
    return max(abs(one - other) for one, other in zip(report["predicted"], report["exact"], strict=True))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("trace", ["uniform", "loop", "mixed", "zipf", "shift"])
def test_curve_is_that_of_exact_pools(trace: str, exclusive: int) -> None:
    """Sampled, the hit ratios of all sizes are within 0.05 of those of a simulation of every page, and cheap."""
    report = _curve(build_program("curve", SOURCES, [*CFLAGS, *INCLUDES]), f"{trace} exclusive={exclusive}")
    assert _largest_error(report) <= TOLERANCE, report
    assert max(report["exact"]) > 0.5 > min(report["exact"]), "a trace that shows nothing"
    assert report["ns"] < MOST_NANOSECONDS
    assert report["bytes"] <= MOST_BYTES


@pytest.mark.parametrize("exclusive", [0, 1])
def test_curve_knows_what_changes(exclusive: int) -> None:
    """Pages that are overwritten cannot be hit: a quarter of the hits and more is lost, and the curve says so."""
    program = build_program("curve", SOURCES, [*CFLAGS, *INCLUDES])
    quiet, changed = (_curve(program, f"uniform exclusive={exclusive} drops={drops}") for drops in (0, 50))
    assert changed["exact"][-1] < quiet["exact"][-1] - 0.25
    assert _largest_error(changed) <= TOLERANCE, changed


def test_curve_is_consistent() -> None:
    """Millions of random calls with sanitizers on: no list is broken, no entry lost, no pool too large."""
    flags = [flag for flag in CFLAGS if flag != "-static"] + ["-fsanitize=address,undefined", *INCLUDES]
    assert _curve(build_program("curve-checked", SOURCES, flags), "fuzz") == {"entries": 0}


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """Two guests without the module, the borrower with a disk of its own speed."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=Disk("1G", "ext4", iops=600))):
        yield pair
        pair.assert_clean()


def _evict(guest: Guest) -> None:
    """All that is cached of files: a page that is in use for a moment goes the second time."""
    guest.sh("sync")
    for _ in range(2):
        guest.drop_caches(1)


def test_without_any_lender(pair: Pair) -> None:
    """Evictions are followed and reads are hits; what is overwritten, cut off, removed or unmounted is forgotten."""
    borrower, tidepool = pair.borrower, pair.b
    tidepool.load()
    assert tidepool.get("ghost") == "Off"
    assert tidepool.get("ghost_curve") == ""
    for strategy in ("NonInclusive", "Exclusive"):
        tidepool.set("ghost", strategy)
        assert tidepool.get("ghost") == strategy
        stress(borrower, "fill /mnt/file mib=24")
        _evict(borrower)
        followed = tidepool.ghost_figures()["samples"]
        assert followed > 100
        stress(borrower, "sequential /mnt/file")
        sizes = sorted(tidepool.ghost_ratios())
        assert [round(size * 8 / sizes[3]) for size in sizes] == [1, 2, 4, 8, 16, 32, 64]
        assert tidepool.ghost_ratios()[sizes[-1]] > 0.9
        left = tidepool.ghost_figures()["samples"]
        assert left == followed if strategy == "NonInclusive" else left < followed // 10  # evicted anew since
        _assert_forgotten(borrower, tidepool)
    tidepool.set("ghost", "Off")
    assert tidepool.get("ghost_curve") == ""
    assert "tide_ghost" not in borrower.read("/proc/vmallocinfo")
    tidepool.set("ghost", "Exclusive")
    assert "tide_ghost" in borrower.read("/proc/vmallocinfo")
    assert borrower.meminfo("MemTotal") == sorted(tidepool.ghost_ratios())[3]
    tidepool.unload()


def _assert_forgotten(borrower: Guest, tidepool: Tidepool) -> None:
    for change in (
        "dd if=/dev/zero of=/mnt/file bs=1M count=24 conv=notrunc oflag=direct 2> /dev/null",
        "for i in 0 1 2 3 4 5 6 7; do dd if=/dev/zero of=/mnt/file bs=64k count=48 seek=$((i * 48)) conv=notrunc; done",
        "truncate -s 4096 /mnt/file",
        "rm /mnt/file",
        "umount /mnt && mount -t ext4 /dev/vda /mnt",
    ):
        stress(borrower, "fill /mnt/file mib=24")
        _evict(borrower)
        assert tidepool.ghost_figures()["samples"] > 100, f"nothing is followed before: {change}"
        read = tidepool.ghost_figures()["sampled_references"]
        borrower.sh(change)
        left = tidepool.ghost_figures()["samples"]
        assert left <= 1, f"{left} still followed after: {change}"
        assert tidepool.ghost_figures()["sampled_references"] <= read + 1, f"written pages count as read: {change}"


def _mounted_anew(pair: Pair) -> bool:
    """Nothing is known of its files; while the module looks at a superblock, that one stays in memory."""
    pair.borrower.umount()
    pair.borrower.mount("ext4")
    return pair.borrowed()["catalog_pages"] == 0


@pytest.mark.parametrize("strategy", ["NonInclusive", pytest.param("Exclusive", marks=pytest.mark.long)])
def test_predicts_what_a_lender_brings(pair: Pair, strategy: str) -> None:
    """Random reads with a lender of half the guest's memory: its hit ratio is what the curve expects for that size.

    The file is larger than page cache and pool together: where they have nearly all of it, a few pages decide. Pool,
    curve and page cache begin empty: memory for the first two pushes pages of the third into the pool.
    """
    borrower = pair.borrower
    memory = borrower.meminfo("MemTotal")
    stress(borrower, f"fill /mnt/file mib={memory * 3 // 2 // MIB}")
    pair.b.load("put_buffers=4096")  # every evicted page finds one
    pair.b.set("ghost", strategy)
    size = sorted(pair.b.ghost_ratios())[2]
    pair.connect(size=size, more={"strategy": strategy, **PATIENT})
    wait_until("it begins empty", lambda: _mounted_anew(pair))
    pair.b.set("ghost", "Off")
    pair.b.set("ghost", strategy)
    before = borrower.disk_read_bytes()
    borrower.sh(f"dd if=/mnt/file of=/dev/null bs=1M count={memory // 3 // MIB}")
    for _ in range(MOST_ROUNDS):  # a slow machine needs more of them: where few were read, few can be hits
        stress(borrower, "random /mnt/file seconds=25 threads=4")
        predicted, figures = pair.b.ghost_ratios()[size], pair.borrowed()
        read = figures["get_hits"] + (borrower.disk_read_bytes() - before) // PAGE
        measured = figures["get_hits"] / read
        if read > ENOUGH_READS and measured > LEAST_RATIO:
            break
    print(f"{strategy}: predicted {predicted:.3f}, measured {measured:.3f} of {read} reads, {NAME}: {figures}")
    assert read > ENOUGH_READS
    assert measured > LEAST_RATIO
    assert abs(predicted - measured) <= TOLERANCE
    pair.b.unload()
    pair.l.unload()
