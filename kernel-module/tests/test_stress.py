"""All kinds of reads and changes at once while pages come and go: not one wrong page, nothing in the log."""

from __future__ import annotations

import pytest

from bed.guest import Disk, Guest
from bed.pair import ETHERNET, PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress

SECONDS = 30
MOST_ROUNDS = 4  # a slow machine needs more than one
KEPT_FREE_KIB = 4096  # so small a guest keeps 1 MiB free, and its network card may find no page to receive into
PER_CPU_FRACTION = 2000  # since 6.7 a processor keeps 2 MiB and more of free pages to itself, where the card has none


def keep_pages_for_the_card(borrower: Guest) -> None:
    """What a guest this small needs for much traffic of any kind, also without a pool (docs/troubleshoot.md)."""
    borrower.write("/proc/sys/vm/min_free_kbytes", f"{KEPT_FREE_KIB}")
    borrower.write("/proc/sys/vm/percpu_pagelist_high_fraction", f"{PER_CPU_FRACTION}")


@pytest.mark.parametrize(
    "filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.long), pytest.param("btrfs", marks=pytest.mark.long)]
)
def test_mix(kernel: str, filesystem: str) -> None:
    """The whole mixture, larger than the borrower's memory, with a lender that holds most of it."""
    with (pair := Pair(kernel, borrower_mem="160M", disk=filesystem, mtu=ETHERNET)) as (borrower, _):
        keep_pages_for_the_card(borrower)
        pair.connect(size=160 * MIB, more=PATIENT)
        pair.b.set("verify_one_in", 1)
        total = 0
        for _ in range(MOST_ROUNDS):
            total += stress(borrower, f"mix /mnt/mix mib=120 seconds={SECONDS} threads=6", timeout=400)["total"]
            if total > 300 and _has_flowed(pair):
                break
        assert total > 300
        assert _has_flowed(pair), pair.borrowed()
        pair.assert_clean()


def _has_flowed(pair: Pair) -> bool:
    figures = pair.borrowed()
    return figures["puts"] > 1000 and figures["get_hits"] > 500 and pair.b.stats()["verified"] > 1000


@pytest.mark.parametrize(
    "filesystem",
    [pytest.param("ext4", marks=pytest.mark.long), "xfs", pytest.param("btrfs", marks=pytest.mark.long)],
)
def test_races(kernel: str, filesystem: str) -> None:
    """Eviction against direct writes, punched holes and truncation of the very same pages."""
    with (pair := Pair(kernel, disk=Disk("1G", filesystem, write_iops=150))) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        pair.b.set("verify_one_in", 1)
        for change in ("direct", "punch", "truncate"):
            stress(borrower, f"race /mnt/race.{change} change={change} seconds=5")
        assert pair.borrowed()["puts"] > 100
        pair.assert_clean()


@pytest.mark.long
@pytest.mark.parametrize("filesystem", ["ext4", "xfs", "btrfs"])
def test_mix_for_long(kernel: str, filesystem: str) -> None:
    """Minutes of the mixture, with files that come and go and the caches dropped in between."""
    with (pair := Pair(kernel, borrower_mem="256M", lender_mem="512M", disk=filesystem)) as (borrower, _):
        keep_pages_for_the_card(borrower)
        pair.connect(size=256 * MIB, more=PATIENT)
        pair.b.set("verify_one_in", 1)
        for round_number in range(4):
            stress(borrower, f"mix /mnt/mix mib=260 seconds=50 threads=8 files={1 + round_number % 4}", timeout=400)
            borrower.drop_caches(1 + round_number % 3)
        pair.assert_clean()
