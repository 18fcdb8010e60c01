"""Whose memory it is: the lender's, who gets it back at once, and all of it."""

from __future__ import annotations

import pytest

from bed.guest import Disk, Guest
from bed.pair import PACED, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress, stress

LEAK_MIB = 3


@pytest.mark.long
def test_lender_gets_its_memory_back(kernel: str) -> None:
    """A program on a fully lent lender takes more than its free memory: no OOM, and the borrower reads on."""
    disk = Disk("1G", "ext4", bytes_per_second=PACED)
    with (pair := Pair(kernel, borrower_mem="176M", lender_mem="384M", disk=disk)) as (borrower, lender):
        pair.connect(size=200 * MIB)
        stress(borrower, "fill /mnt/file mib=200")
        stress(borrower, "sequential /mnt/file passes=2")  # what found no buffer in one goes in the next
        lent, free = pair.lent()["lent_pages"] * 4096, lender.meminfo("MemFree")
        assert lent > 80 * MIB
        reads = start_stress(borrower, "random /mnt/file seconds=15 threads=2")
        taken = (free + lent * 3 // 4) // MIB
        before = pair.lent()["reclaimed"]
        assert stress(lender, f"anon {taken} hold=3")["mib"] == taken
        finish_stress(reads)
        assert (pair.lent()["reclaimed"] - before) * 4096 > lent // 2
        stress(borrower, "sequential /mnt/file")
        pair.assert_clean()


@pytest.mark.long
def test_reserve_is_kept(kernel: str) -> None:
    """A lender takes no page that would leave it less than its reserve."""
    reserve = 150 * MIB
    with (pair := Pair(kernel, borrower_mem="176M", lender_mem="320M")) as (borrower, lender):
        pair.l.load()
        pair.l.set("reserve_bytes", reserve)
        pair.connect(size=256 * MIB)
        stress(borrower, "fill /mnt/file mib=240")
        stress(borrower, "sequential /mnt/file passes=2")
        lent = pair.lent()["lent_pages"] * 4096
        assert lent > 32 * MIB
        assert lender.meminfo("MemAvailable") - lent > reserve - 16 * MIB
        pair.assert_clean()


def test_nothing_leaks(kernel: str) -> None:
    """Six times loaded, connected, used and unloaded: both guests have their memory again."""
    with (pair := Pair(kernel)) as (borrower, lender):
        stress(borrower, "fill /mnt/file mib=16")
        _cycle(pair)
        before = [_free(guest) for guest in (borrower, lender)]
        for _ in range(6):
            _cycle(pair)

        def lost() -> float:  # what comes back a little later is no leak
            after = [_free(guest) for guest in (borrower, lender)]
            return max(old - new for old, new in zip(before, after, strict=True)) / MIB

        wait_until(f"less than {LEAK_MIB} MiB are lost", lambda: lost() < LEAK_MIB)
        pair.assert_clean()


@pytest.mark.debug
def test_nothing_leaks_by_the_kernels_count(kernel: str) -> None:
    """After use and unloading, kmemleak finds no memory that nothing points to; nor while it is in use."""
    with (pair := Pair(kernel, lender_mem="384M", append="kmemleak=on")) as (borrower, lender):
        stress(borrower, "fill /mnt/file mib=16")
        for guest in (borrower, lender):
            guest.leaks()  # what is there before the module is not its own
            guest.write("/sys/kernel/debug/kmemleak", "clear")
        _cycle(pair)
        _cycle(pair)
        pair.connect(size=64 * MIB)
        stress(borrower, "sequential /mnt/file")
        for unload in (False, True):
            if unload:
                pair.b.unload()
                pair.l.unload()
            for guest in (borrower, lender):
                assert guest.leaks() == ""
        pair.assert_clean()


def _cycle(pair: Pair) -> None:
    pair.connect(size=64 * MIB)
    pair.borrower.drop_caches(1)
    stress(pair.borrower, "sequential /mnt/file")
    pair.borrower.drop_caches(1)
    stress(pair.borrower, "random /mnt/file reads=200")
    wait_until("there are puts", lambda: pair.borrowed()["puts"] > 0)
    pair.b.unload()
    pair.l.unload()


def _free(guest: Guest) -> int:
    guest.drop_caches(3)
    guest.sh("sleep 1")
    return guest.meminfo("MemFree")
