"""A guest with the real module borrows from the daemon on this machine, and cannot tell it from another guest.

Or a guest is the node, with the version of control groups that this machine may not have.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from daemon import MIB, Allowed, Config, Daemon, program
from inside import guest_with, started

from bed.guest import HOST_ADDRESS, PAGE, PORT_FOR_HOST
from bed.hostile import PlainBorrower, hear
from bed.pair import NAME, PATIENT, Pair, free_port
from bed.protocol import KIND, KeyPair, point_of
from bed.tidepool import wait_until
from bed.workload import stress

LENDER = f"lenders/{NAME}"
FILE_MIB = 16
PAGES = FILE_MIB * 256
GROUPS = "/sys/fs/cgroup"
GROUP = f"{GROUPS}/lender"
LIMITED = (
    f"mount -t cgroup2 none {GROUPS} && echo +memory > {GROUPS}/cgroup.subtree_control"
    f" && mkdir {GROUP} && echo {64 * MIB} > {GROUP}/memory.max"
)
LENT_PAGES, WANTED_MIB = 40_000, 530  # of a guest of 704 MiB: a program wants more than is free
CONFIG, CONTROL, LOG = "/tmp/lender.toml", Path("/tmp/lender.sock"), "/tmp/lender.log"


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


@pytest.mark.long
def test_more_is_put_than_a_cgroup_of_version_2_may_have() -> None:
    """A limit of 64 MiB, into which 156 MiB are put: it is known, the kernel drops pages, and kills nobody."""
    pages, own, port = 40_000, KeyPair(), free_port()
    listen = f"0.0.0.0:{PORT_FOR_HOST}"
    config = Config(listen=listen, borrowers={Daemon.NAME: Allowed(own.identity, 200 * MIB)})
    with guest_with(program(), "512M", port=port) as guest:
        guest.sh(LIMITED)
        guest.write(CONFIG, config.toml(CONTROL))
        run = f"exec {started(program())} --config {CONFIG} 2> {LOG}"
        job = guest.start(f"echo $$ > {GROUP}/cgroup.procs && {run}")
        wait_until("it lends", lambda: "metrics" in guest.sh(f"cat {LOG} 2> /dev/null || :"))
        log = guest.read(LOG)
        assert "LimitBelowMaxLend" in log
        (lender,) = re.findall(r"identity=(x25519:[0-9a-f]{64})", log)
        with contextlib.closing(PlainBorrower(("127.0.0.1", port), own, point_of(lender))) as borrower:
            borrower.put_all(pages)
            assert borrower.stored == pages
            hear(borrower, lambda: len(borrower.told(pages)) > pages / 2)
            borrower.ask_all(pages)
            print(f"\n{borrower.hits} of {pages} pages are left, {len(borrower.told(pages))} were taken")
            assert borrower.hits > pages / 5
        assert job.running
        events = dict(line.split() for line in guest.read(f"{GROUP}/memory.events").splitlines())
        assert int(events["max"]) > 0
        assert int(events["oom"]) == int(events["oom_kill"]) == 0
        guest.assert_clean()


@pytest.mark.long
def test_pages_go_before_the_kernel_has_to_take_them() -> None:
    """They lie in huge pages. A program wants memory: the kernel takes some, the daemon lets the rest go in time."""
    own, port = KeyPair(), free_port()
    config = Config(listen=f"0.0.0.0:{PORT_FOR_HOST}", borrowers={Daemon.NAME: Allowed(own.identity, 200 * MIB)})
    with guest_with(program(), "704M", port=port) as guest:
        guest.write(CONFIG, config.toml(CONTROL))
        guest.start(f"exec {started(program())} --config {CONFIG} 2> {LOG}")
        wait_until("it lends", lambda: "metrics" in guest.sh(f"cat {LOG} 2> /dev/null || :"))
        (lender,) = re.findall(r"identity=(x25519:[0-9a-f]{64})", guest.read(LOG))
        with contextlib.closing(PlainBorrower(("127.0.0.1", port), own, point_of(lender))) as borrower:
            borrower.put_all(LENT_PAGES)
            assert borrower.stored == LENT_PAGES
            memory = guest.sh("cat /proc/$(pidof tidepool-node-lender)/smaps_rollup")
            (huge,) = re.findall(r"AnonHugePages: *(\d+) kB", memory)
            assert int(huge) * 1024 > LENT_PAGES * PAGE / 2, memory
            before = guest.vmstat("pglazyfreed")
            stress(guest, f"anon {WANTED_MIB}")
            taken = guest.vmstat("pglazyfreed") - before
            borrower.ask_all(LENT_PAGES)
            gone = LENT_PAGES - borrower.hits
            print(f"\n{gone} of {LENT_PAGES} pages went, of which the kernel took {taken}")
            assert gone > 1.2 * taken > 0
