"""What can go wrong with a peer: the application notices nothing but, at most, the speed of its own disk."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bed.guest import Guest
from bed.pair import IN_TIME_US, LENDER_ADDRESS, NAME, Pair
from bed.protocol import somebody
from bed.tidepool import MIB, wait_until
from bed.workload import end_stress, finish_stress, start_stress, stress

LENDER = f"lenders/{NAME}"
BORROWER = f"borrowers/{NAME}"
OOM_REPORT = r"oom-kill|Out of memory|Call Trace|RIP:"
FREEZE_SECONDS = 30
STRANGERS = 100


def fill_pool(pair: Pair, mib: int = 110) -> None:
    """A file whose pages are, for the greater part, with the lender."""
    stress(pair.borrower, f"fill /mnt/file mib={mib}")
    assert_serves(pair)


def assert_serves(pair: Pair) -> None:
    """Pages come from the lender now."""
    before = pair.borrowed()["get_hits"]

    def serves() -> bool:
        stress(pair.borrower, "sequential /mnt/file")
        return pair.borrowed()["get_hits"] > before

    wait_until("pages come from the lender", serves)


@pytest.mark.long
def test_lender_killed(kernel: str) -> None:
    """SIGKILL of the lender during reads: no error, no wrong byte, no read that waits; a new lender is taken up."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, lender):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        time.sleep(4)
        lender.kill()
        report = finish_stress(reads)
        assert report["max_us"] < IN_TIME_US
        assert pair.borrowed()["get_late"] > 0
        wait_until("the loss is noticed", lambda: pair.b.get(f"{LENDER}/state") == "Connecting")
        stress(borrower, "sequential /mnt/file")
        pair.restart_lender()
        pair.l.load()
        pair.l.lend(NAME, quota=256 * MIB)
        pair.b.wait_state(LENDER, "Connected")
        assert_serves(pair)
        pair.assert_clean()


@pytest.mark.long
def test_lender_frozen(kernel: str) -> None:
    """A lender that stands still for half a minute (SIGSTOP) and goes on."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, lender):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        reads = start_stress(borrower, f"random /mnt/file seconds={FREEZE_SECONDS + 6} threads=4")
        time.sleep(3)
        lender.stop()
        time.sleep(FREEZE_SECONDS)
        lender.cont()
        report = finish_stress(reads)
        assert report["max_us"] < IN_TIME_US
        assert pair.borrowed()["get_late"] > 0
        pair.b.wait_state(LENDER, "Connected")
        assert_serves(pair)
        pair.assert_clean()


def use_all_memory(guest: Guest) -> None:
    """A program wants all the memory that there is, and the kernel kills it."""
    wanted = guest.meminfo("MemTotal") // MIB
    killed = guest.run(f"echo 1000 > /proc/self/oom_score_adj; exec stress anon {wanted}")
    assert killed.code == -9, killed


@pytest.mark.parametrize("whose", ["lender", pytest.param("borrower", marks=pytest.mark.long)])
def test_out_of_memory(kernel: str, whose: str) -> None:
    """Until the kernel kills: reads are right and in time, and the module is there and serves afterwards."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, lender):
        pair.connect(size=200 * MIB)
        fill_pool(pair)
        reads = start_stress(borrower, "random /mnt/file seconds=600 threads=2")
        time.sleep(2)
        use_all_memory(borrower if whose == "borrower" else lender)
        time.sleep(2)
        report = end_stress(reads)
        if whose == "lender":
            assert report["max_us"] < IN_TIME_US
        pair.b.wait_state(LENDER, "Connected")
        assert_serves(pair)
        pair.assert_clean(allow=OOM_REPORT)


def freeze(pair: Pair) -> None:
    pair.lender.stop()


def cut(pair: Pair) -> None:
    assert pair.relay
    pair.relay.cut = True


def lose(pair: Pair) -> None:
    assert pair.relay
    pair.relay.loss = 0.2


def kill(pair: Pair) -> None:
    pair.lender.kill()


def recover(pair: Pair) -> None:
    """The wire is good again, and a lender is there."""
    assert pair.relay
    pair.relay.cut, pair.relay.loss = False, 0.0
    try:
        pair.lender.cont()
    except ProcessLookupError:
        pair.restart_lender()
        pair.l.load()
        pair.l.lend(NAME, quota=256 * MIB)


@pytest.mark.long
@pytest.mark.parametrize("fault", [freeze, cut, lose, kill])
def test_unloaded_while(kernel: str, fault: Callable[[Pair], None]) -> None:
    """The borrower's module goes and comes at the worst moment, twice, and the mixture on top of it stays right."""
    with (pair := Pair(kernel, borrower_mem="160M", relay=True)) as (borrower, _):
        pair.connect(size=256 * MIB)
        mixture = start_stress(borrower, "mix /mnt/mix mib=120 seconds=30 threads=4")
        for _ in range(2):
            time.sleep(4)
            fault(pair)
            time.sleep(0.5)
            pair.b.unload()
            pair.b.load()
            pair.b.borrow(NAME, address=LENDER_ADDRESS, size=256 * MIB)
            recover(pair)
            pair.b.wait_state(LENDER, "Connected")
        finish_stress(mixture)
        pair.assert_clean()


@pytest.mark.long
@pytest.mark.parametrize("how", ["frozen", "cut"])
def test_lender_unloaded_while_its_borrower_is(kernel: str, how: str) -> None:
    """A lender's module goes although its borrower does not answer any more."""
    with (pair := Pair(kernel, borrower_mem="160M", relay=True)) as (borrower, _):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        time.sleep(2)
        if how == "cut":
            cut(pair)
        else:
            borrower.stop()
        time.sleep(0.5)
        pair.l.unload()
        pair.l.load()
        borrower.cont()
        recover(pair)
        pair.l.lend(NAME, quota=256 * MIB)
        finish_stress(reads)
        pair.b.wait_state(LENDER, "Connected")
        assert_serves(pair)
        pair.assert_clean()


@pytest.mark.long
def test_stress_while_lender_is_killed(kernel: str) -> None:
    """The whole mixture goes on, and stays right, while its lender dies and comes back empty."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, lender):
        pair.connect(size=256 * MIB)
        mixture = start_stress(borrower, "mix /mnt/mix mib=120 seconds=25 threads=4")
        time.sleep(12)
        lender.kill()
        pair.restart_lender()
        pair.l.load()
        pair.l.lend(NAME, quota=256 * MIB)
        finish_stress(mixture)
        pair.b.wait_state(LENDER, "Connected")
        pair.assert_clean()


def test_strangers_are_rejected(kernel: str) -> None:
    """Not known, or switched off: the borrower is told so, nothing is served, its reads come from disk; then it is."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.l.load()
        pair.b.load()
        pair.l.lend(NAME, quota=128 * MIB, identity=somebody())
        pair.b.borrow(NAME, address=LENDER_ADDRESS, size=128 * MIB, identity=pair.l.identity)
        pair.b.wait_state(LENDER, "Rejected")
        assert pair.b.get(f"{LENDER}/reason") == "UnknownIdentity"
        assert f"{LENDER}: refused: UnknownIdentity" in borrower.log()
        stress(borrower, "fill /mnt/file mib=40")
        borrower.drop_caches(1)
        stress(borrower, "sequential /mnt/file")
        figures = pair.borrowed()
        assert figures["puts"] == figures["get_hits"] == 0
        assert pair.lent()["lent_pages"] == 0
        assert pair.l.get(f"{BORROWER}/state") == "Listening"
        pair.l.mkdir("borrowers/known")
        pair.l.set("borrowers/known/identity", pair.b.identity)
        wait_until("it is told so", lambda: pair.b.get(f"{LENDER}/reason") == "Disabled")
        assert pair.b.get(f"{LENDER}/state") == "Rejected"
        pair.l.set(f"{BORROWER}/identity", pair.b.identity)
        pair.b.wait_state(LENDER, "Connected")
        assert pair.b.get(f"{LENDER}/reason") == ""
        pair.assert_clean()


def test_garbage_before_the_handshake(kernel: str) -> None:
    """A hundred connections that send nonsense, or nothing: the paired borrower is served all the while."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        silent = start_stress(borrower, f"half-open {LENDER_ADDRESS} connections=50 seconds=6")
        garbage = stress(borrower, f"garbage {LENDER_ADDRESS} connections={STRANGERS}")
        assert garbage["connections"] == STRANGERS
        assert_serves(pair)
        pair.b.set(f"{LENDER}/enabled", 0)  # and can come anew beside the silent ones
        pair.b.set(f"{LENDER}/enabled", 1)
        pair.b.wait_state(LENDER, "Connected")
        finish_stress(silent)
        wait_until("strangers are gone", lambda: pair.lent()["connections"] == 1 + pair.borrowed()["lanes"])
        pair.assert_clean()


def test_reloaded_under_load(kernel: str) -> None:
    """Unloaded and loaded three times on the borrower, then on the lender, while the mixture runs."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.connect(size=256 * MIB)
        mixture = start_stress(borrower, "mix /mnt/mix mib=120 seconds=3000 threads=4")
        for _ in range(3):
            time.sleep(2)
            pair.b.unload()
            pair.b.load()
            pair.b.borrow(NAME, address=LENDER_ADDRESS, size=256 * MIB)
            pair.b.wait_state(LENDER, "Connected")
        for _ in range(2):
            time.sleep(2)
            pair.l.unload()
            pair.l.load()
            pair.l.lend(NAME, quota=256 * MIB)
            pair.b.wait_state(LENDER, "Connected")
        end_stress(mixture)
        pair.assert_clean()


@pytest.mark.long
def test_reconfigured_under_load(kernel: str) -> None:
    """Lent memory shrinks and grows, peers are disabled and enabled, while pages flow."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        reads = start_stress(borrower, "random /mnt/file seconds=12 threads=4")
        for limit in (32, 8, 256):
            pair.l.set("lend_bytes", limit * MIB)
            _wait_lent_within(pair, limit)
            pair.l.set(f"{BORROWER}/quota_bytes", limit // 2 * MIB)
            _wait_lent_within(pair, limit // 2)
        for size in (32, 96):  # within the quota that the last round left
            pair.b.set(f"{LENDER}/size_bytes", size * MIB)
            wait_until(f"{size} MiB are granted", lambda: pair.borrowed()["granted_bytes"] == size * MIB)  # noqa: B023
        for side, path in ((pair.b, LENDER), (pair.l, BORROWER)):
            side.set(f"{path}/enabled", 0)
            side.set(f"{path}/enabled", 1)
        finish_stress(reads)
        pair.b.wait_state(LENDER, "Connected")
        assert_serves(pair)
        pair.assert_clean()


def _wait_lent_within(pair: Pair, mib: int) -> None:
    wait_until(f"at most {mib} MiB are lent", lambda: pair.lent()["lent_pages"] * 4096 <= mib * MIB)


@pytest.mark.long
def test_slow_lender_is_cut_off(kernel: str) -> None:
    """With a deadline that hardly any answer meets, reads come from disk, and are right."""
    with (pair := Pair(kernel, borrower_mem="160M")) as (borrower, _):
        pair.connect(size=256 * MIB)
        fill_pool(pair)
        pair.b.set(f"{LENDER}/enabled", 0)
        pair.b.set(f"{LENDER}/deadline_us", 1000)
        pair.b.set(f"{LENDER}/enabled", 1)
        pair.b.wait_state(LENDER, "Connected")
        stress(borrower, "sequential /mnt/file passes=1")
        pair.assert_clean()
