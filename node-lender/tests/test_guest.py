"""A guest with the real module borrows from the daemon on this machine, and cannot tell it from another guest."""

from __future__ import annotations

import pytest
from daemon import MIB, Allowed, Config, Daemon

from bed.guest import HOST_ADDRESS
from bed.pair import NAME, PATIENT, Pair
from bed.protocol import KIND
from bed.tidepool import wait_until
from bed.workload import stress

LENDER = f"lenders/{NAME}"
FILE_MIB = 16
PAGES = FILE_MIB * 256


def _read(pair: Pair) -> int:
    """Evict the file and read it again; how many of its pages came from the daemon."""
    before = pair.borrowed()["get_hits"]
    pair.evict()
    stress(pair.borrower, "sequential /mnt/file passes=1")
    return pair.borrowed()["get_hits"] - before


@pytest.mark.long
@pytest.mark.parametrize("encryption", ["AES-GCM", "None"])
def test_a_guest_borrows(encryption: str) -> None:
    """Its file's pages are put and come back; the kernel takes them and it reads its disk; nothing is ever corrupt."""
    with Daemon(Config()) as daemon, (pair := Pair("6.1", borrower_mem="160M", lender_mem="128M", host=True)):
        pair.b.load()
        daemon.config.borrowers[daemon.NAME] = Allowed(pair.b.identity)
        daemon.reload()
        more = {"port": daemon.port, "encryption": encryption, **PATIENT}
        identity = KIND + daemon.lender.hex()
        pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=identity, more=more)
        pair.b.wait_state(LENDER, "Connected")
        stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
        wait_until("its pages are with the daemon", lambda: _read(pair) > PAGES * 0.9)
        assert daemon.lent()["lent_pages"] > PAGES * 0.9
        daemon.page_out()
        wait_until("it is noticed", lambda: daemon.lent()["reclaimed"] > PAGES / 2)
        wait_until("it is told", lambda: daemon.lent()["untold"] == 0)
        misses = pair.borrowed()["get_misses"]
        assert _read(pair) < PAGES / 2
        assert pair.borrowed()["get_misses"] == misses
        figures = pair.borrowed()
        print(f"\n{figures}\n{daemon.lent()}")
        assert figures["get_corrupt"] == figures["bad_frames"] == figures["disconnects"] == 0
        pair.assert_clean()


@pytest.mark.long
def test_a_restart_costs_a_guest_its_pages_and_nothing_else() -> None:
    """Another daemon answers at the same place: it is refused until its identity is told, then what is put comes back.

    Every page that is read is compared with what was written, also while there is no lender.
    """
    with (pair := Pair("6.1", borrower_mem="160M", lender_mem="128M", host=True)):
        pair.b.load()
        with Daemon(Config(borrowers={Daemon.NAME: Allowed(pair.b.identity)})) as before:
            more = {"port": before.port, **PATIENT}
            identity = KIND + before.lender.hex()
            pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=identity, more=more)
            pair.b.wait_state(LENDER, "Connected")
            stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
            wait_until("its pages are with the daemon", lambda: _read(pair) > PAGES * 0.9)
        config = Config(listen=f"127.0.0.1:{before.port}", borrowers=before.config.borrowers)
        with Daemon(config) as after:
            assert after.lender != before.lender
            wait_until("it is refused", lambda: after.state()["rejected"] > 0)
            assert _read(pair) == 0
            pair.b.set(f"{LENDER}/identity", KIND + after.lender.hex())
            pair.b.wait_state(LENDER, "Connected")
            assert after.lent()["lent_pages"] == 0
            wait_until("its pages are there again", lambda: _read(pair) > PAGES * 0.9)
            figures = pair.borrowed()
            assert figures["get_corrupt"] == figures["bad_frames"] == 0
            pair.assert_clean()
