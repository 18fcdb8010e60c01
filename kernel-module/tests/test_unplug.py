"""Memory that is taken away from a lender as hardware is: by virtio-mem, while it lends."""

from __future__ import annotations

import time

from bed.guest import PAGE, Disk
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until

OWN_MIB, PLUGGED_MIB, FILE_MIB = 320, 256, 192
AGAIN_MIB = 16
SECONDS, FILLED_SECONDS = 60.0, 300.0


def lent_by_reading(pair: Pair) -> int:
    """Reads the file and evicts it: the bytes that are lent then. On a busy machine buffers run short once or twice."""
    pair.borrower.sh("cat /mnt/file > /dev/null")
    pair.evict()
    lent: int = pair.lent()["lent_pages"] * PAGE
    return lent


def test_memory_is_unplugged_while_it_is_lent(kernel: str) -> None:
    """Lent pages are in nobody's way: all goes at once. With what is left the guest lends, and no page is wrong."""
    pair = Pair(
        kernel, borrower_mem="256M", lender_mem=f"{OWN_MIB}M", lender_plugged=PLUGGED_MIB,
        disk=Disk(f"{2 * FILE_MIB}M"), modules=("virtio_mem",),
    )  # fmt: skip
    with pair as (borrower, lender):
        wait_until("all memory is plugged", lambda: lender.plugged() == PLUGGED_MIB * MIB, SECONDS)
        borrower.sh(f"dd if=/dev/urandom of=/mnt/file bs=1M count={FILE_MIB} 2>/dev/null && sync")
        pair.connect(size=(FILE_MIB + 16) * MIB, more=PATIENT)
        pair.b.set("verify_one_in", 1)
        wait_until("most is lent", lambda: lent_by_reading(pair) > 0.7 * FILE_MIB * MIB, timeout=FILLED_SECONDS)
        lent = pair.lent()["lent_pages"]
        begin = time.monotonic()
        lender.plug(0)
        wait_until("it is unplugged", lambda: lender.plugged() == 0, SECONDS)
        seconds, left = time.monotonic() - begin, pair.lent()["lent_pages"]
        print(f"\n{PLUGGED_MIB} MiB unplugged in {seconds:.1f} s; lent pages {lent} -> {left}")
        assert left < lent
        wait_until("it lends again", lambda: lent_by_reading(pair) > AGAIN_MIB * MIB)
        before = pair.borrowed()["get_hits"]
        borrower.sh("cat /mnt/file > /dev/null")
        assert (pair.borrowed()["get_hits"] - before) * PAGE > AGAIN_MIB * MIB // 2
        pair.assert_clean()
