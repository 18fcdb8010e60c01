"""The latency breaker: a lender that is slow is left alone, and used again when it is fast (issue 4, item 3)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bed.guest import HOST_ADDRESS, Disk
from bed.pair import PATIENT, Pair
from bed.protocol import Lender
from bed.relay import Relay
from bed.tidepool import MIB, parse_histogram, wait_until
from bed.workload import stress

SLOW_SECONDS = 0.25  # one way
LATE_SECONDS = 2.5  # so late is each answer of a slow lender,
PINGS_US = "700000 800000"  # and this is too slow: far from what a busy test machine makes of one that is not
STREAM_MIB = 12
BUFFERS, ONE_BATCH = 8192, 64
LARGEST_WINDOW, PROBES_APART = 256, 4  # 1 MiB is read ahead, and a slow one goes to the lender every 4 s
SLOW_IOPS = 15  # of a disk that any pool is faster than, also on a busy test machine
SLOWER_IOPS = 2  # the same where 1 MiB is read at a time,
NARROW = 6e5  # and bytes a second of a wire that takes longer for these, and no time for a page
VERY_PATIENT = {"deadline_us": 20_000_000}
PINGS = 4  # as many as it takes
TRIES = 5  # to have no session lost, on a busy test machine
NEVER, SOON = "59000000 60000000", "100000 200000"
BY_SHORT, BY_LONG, BY_DISK = "by-short", "by-long", "by-disk"
MODES: dict[str, dict[str, object]] = {
    BY_SHORT: {"breaker": "Thresholds", "breaker_short": PINGS_US, "breaker_long": NEVER},
    BY_LONG: {"breaker": "Thresholds", "breaker_short": NEVER, "breaker_long": PINGS_US},
    BY_DISK: {"breaker": "Automatic"},
}

Figures = dict[str, dict[str, int]]


def relay_of(pair: Pair) -> Relay:
    assert pair.relay
    return pair.relay


def figures(pair: Pair) -> Figures:
    return {name: pair.b.stats(f"lenders/{name}") for name in MODES}


def read(pair: Pair, reads: int) -> Figures:
    """Reads at random from a cold cache: by how much each lender's figures grew."""
    before = figures(pair)
    pair.borrower.drop_caches()
    stress(pair.borrower, f"random /mnt/file reads={reads} threads=2")
    after = figures(pair)
    return {name: {one: after[name][one] - before[name][one] for one in after[name]} for name in MODES}


def total(growth: Figures, name: str) -> int:
    return sum(one[name] for one in growth.values())


def used(pair: Pair) -> bool:
    """Each lender gives pages: one that was slow for a while, as on a busy test machine, is left alone at first."""
    return all(one["get_hits"] > 30 for one in read(pair, 300).values())


def are_open(pair: Pair) -> list[int]:
    return [one["breaker_open"] for one in figures(pair).values()]


def connect(pair: Pair) -> list[Lender]:
    """Three lenders on this machine, each with a third of a file."""
    pair.b.load("put_buffers=8192")
    lenders = [Lender() for _ in MODES]
    for lender, (name, mode) in zip(lenders, MODES.items(), strict=True):
        more = {"port": lender.port, **PATIENT, **mode}
        pair.b.borrow(name, address=HOST_ADDRESS, size=32 * MIB, identity=lender.identity, more=more)
    for name in MODES:
        pair.b.wait_state(f"lenders/{name}", "Connected")
    stress(pair.borrower, "fill /mnt/file mib=24")
    evict_until(pair, lambda: total(figures(pair), "catalog_pages") > 4096)
    return lenders


def evict_until(pair: Pair, enough: Callable[[], bool]) -> None:
    """Lenders that a busy test machine takes away for a while get none of the file then, and it is read once more."""

    def evicted() -> bool:
        pair.evict()
        if enough():
            return True
        stress(pair.borrower, "sequential /mnt/file")
        return False

    wait_until("enough of the file is lent", evicted, timeout=120)


def delay(lenders: list[Lender], seconds: float) -> None:
    """So much later than at once their answers come."""
    for lender in lenders:
        lender.delay = seconds


def read_while_open(pair: Pair) -> tuple[Figures, Figures, float]:
    """While all breakers are open: the figures before some reads, by how much these grew, and the seconds that it took.

    Of a session that begins meanwhile nothing is measured yet: then it is done again.
    """

    def opened() -> bool:
        read(pair, 6)  # once in ten seconds a read goes to the disk all the same, to know how long it takes
        return are_open(pair) == [1, 1, 1]

    for _ in range(TRIES):
        wait_until("all breakers are open", opened, timeout=120, every=0.5)
        held, start = figures(pair), time.monotonic()
        growth = read(pair, 60)
        if total(growth, "connects") == total(growth, "disconnects") == 0:
            return held, growth, time.monotonic() - start
    raise AssertionError(f"sessions are lost again and again: {figures(pair)}")


def test_slow_lenders_are_left_alone(kernel: str) -> None:
    """By each of the averages, and by comparison with the disk: no gets, no puts, and nothing is lost by it."""
    with (pair := Pair(kernel, host=True, disk=Disk(iops=SLOW_IOPS))):
        lenders = connect(pair)
        wait_until("all lenders are used", lambda: used(pair) and are_open(pair)[:2] == [0, 0], timeout=120)

        delay(lenders, LATE_SECONDS)
        held, stopped, seconds = read_while_open(pair)
        probes = seconds / PROBES_APART + 8  # at most
        assert total(stopped, "puts_sent") == 0
        assert total(stopped, "drop_breaker") > 0
        assert all(one["get_skipped"] > 5 for one in stopped.values())
        assert stopped[BY_SHORT]["gets_sent"] == stopped[BY_LONG]["gets_sent"] == 0
        assert stopped[BY_DISK]["gets_sent"] <= probes
        assert stopped[BY_SHORT]["breaker_opened"] == stopped[BY_LONG]["breaker_opened"] == 0, "they stay open"
        assert all(one["catalog_pages"] == held[name]["catalog_pages"] for name, one in figures(pair).items())

        delay(lenders, 0)
        pair.b.set(f"lenders/{BY_LONG}/breaker_long", NEVER)  # its memory is long; thresholds change at any time
        wait_until("they are closed", lambda: total(read(pair, 20), "get_skipped") == 0, timeout=120, every=0.5)
        wait_until("they are used again", lambda: used(pair), timeout=120, every=0.5)

        disk = parse_histogram(pair.b.get("latency"), "disk")
        assert sum(count for _, count in disk) > 5
        assert pair.b.stats()["disk_us"] > 1000
        assert sum(count for _, count in pair.b.latency(f"lenders/{BY_DISK}", "put")) > 5
        _assert_others_are_used(pair)
        pair.assert_clean()


def _assert_others_are_used(pair: Pair) -> None:
    """One breaker is open: what is evicted goes to the other lenders."""
    pair.b.set(f"lenders/{BY_DISK}/breaker", "Off")
    pair.b.set(f"lenders/{BY_SHORT}/breaker_short", "1 2")
    wait_until("one is open", lambda: are_open(pair) == [1, 0, 0])
    pair.settle()
    before = figures(pair)
    stress(pair.borrower, "fill /mnt/more mib=8")
    pair.borrower.drop_caches()
    wait_until("the others have the file", lambda: total(figures(pair), "puts") > total(before, "puts") + 1024)
    after = figures(pair)
    assert after[BY_SHORT]["puts"] == before[BY_SHORT]["puts"]
    assert total(after, "drop_breaker") == total(before, "drop_breaker")


def _buffers(pair: Pair) -> int:
    return pair.b.stats()["buffers_total"]


@pytest.mark.long
def test_a_lender_left_alone_costs_little(kernel: str) -> None:
    """While the breaker is open its probes are few, and the guest has the memory of the buffers."""
    with (pair := Pair(kernel, relay=True, disk=Disk(iops=SLOW_IOPS))) as (borrower, _):
        pair.b.load(f"put_buffers={BUFFERS}")
        pair.connect(size=64 * MIB, more={**PATIENT, "breaker": "Automatic"})
        stress(borrower, f"fill /mnt/file mib={STREAM_MIB}")
        pair.evict()
        wait_until("there are buffers", lambda: _buffers(pair) == BUFFERS)
        relay_of(pair).delay = SLOW_SECONDS

        def opened() -> int:
            borrower.drop_caches()
            stress(borrower, "random /mnt/file reads=6")
            return pair.borrowed()["breaker_open"]

        wait_until("the breaker is open", opened, timeout=120, every=0.5)
        wait_until("the buffers are given back", lambda: _buffers(pair) == ONE_BATCH, timeout=60)
        pair.read_ahead(1024)
        there = _there(pair)
        growth, seconds = _stream(pair)
        probed = LARGEST_WINDOW * (seconds / PROBES_APART + 2)  # at most
        assert growth["get_hits"] <= probed
        assert growth["get_skipped"] >= there - probed

        relay_of(pair).delay = 0
        wait_until("the breaker is closed", lambda: not opened(), timeout=120, every=0.5)
        wait_until("there are buffers again", lambda: _buffers(pair) == BUFFERS)
        pair.disconnect()  # one that goes while it has them all leaves nothing behind
        pair.b.unload()
        pair.assert_clean()


def _there(pair: Pair) -> int:
    """How many pages the lender has, most of the file."""
    pages = pair.borrowed()["catalog_pages"]
    assert pages > STREAM_MIB * 256 * 0.8
    return pages


def _stream(pair: Pair, path: str = "/mnt/file") -> tuple[dict[str, int], float]:
    """A file that is not cached is read in order, and evicted: by how much the figures grew, and the seconds of it."""
    pair.evict()
    before, start = pair.borrowed(), time.monotonic()
    stress(pair.borrower, f"sequential {path}")
    seconds = time.monotonic() - start
    pair.evict()
    after = pair.borrowed()
    return {name: after[name] - before[name] for name in after}, seconds


@pytest.mark.long
def test_large_reads_alone_are_stopped(kernel: str) -> None:
    """A wire that is slower than the disk for long reads in order, and faster than its seeks: each goes its own way."""
    with (pair := Pair(kernel, relay=True)) as (borrower, _):
        stress(borrower, f"fill /mnt/other mib={STREAM_MIB}")
        borrower.drop_caches()
        pair.b.load(f"put_buffers={BUFFERS}")
        pair.connect(size=64 * MIB, more={**VERY_PATIENT, "breaker": "Automatic"})
        pair.read_ahead(1024)
        stress(borrower, f"fill /mnt/file mib={STREAM_MIB}")
        borrower.throttle(SLOWER_IOPS)
        _stream(pair)
        relay_of(pair).rate = NARROW

        def opened() -> int:
            _stream(pair)
            return pair.borrowed()["breaker_open_large"]

        wait_until("large reads are stopped", opened, timeout=180)
        assert pair.b.stats()["disk_us_large"] > 1000

        there = _there(pair)
        growth, seconds = _stream(pair)
        probed = LARGEST_WINDOW * (seconds / PROBES_APART + 2)
        assert growth["get_hits"] <= probed
        assert growth["get_skipped"] >= there - probed
        growth, _ = _stream(pair, "/mnt/other")  # what would not be read back from there does not go there
        assert growth["drop_sequential"] > 0
        assert growth["puts_sent"] <= LARGEST_WINDOW

        def small_reads_hit() -> bool:  # once the disk has shown what it takes when it has them all
            pair.evict()
            before = pair.borrowed()["get_hits"]
            stress(borrower, "random /mnt/file reads=60 threads=2")
            now = pair.borrowed()
            stopped = [now[f"breaker_open{of}"] for of in ("", "_small", "_large")]
            return now["get_hits"] - before > 30 and stopped == [0, 0, 1]

        wait_until("small reads come from there, and no others", small_reads_hit, timeout=120)

        relay_of(pair).rate = 0

        def large_reads_hit() -> bool:
            return _stream(pair)[0]["get_hits"] > STREAM_MIB * 128 and not pair.borrowed()["breaker_open_large"]

        wait_until("they go there again", large_reads_hit, timeout=180)
        pair.assert_clean()


def test_a_lender_that_is_gone_takes_no_buffers(kernel: str) -> None:
    """Nobody is connected: the buffers are the guest's until the lender is back."""
    with (pair := Pair(kernel)) as (borrower, _):
        pair.b.load(f"put_buffers={BUFFERS}")
        pair.connect(size=64 * MIB)
        wait_until("the buffers are there", lambda: _buffers(pair) == BUFFERS)
        full = borrower.meminfo("MemAvailable")
        pair.l.rmdir(f"borrowers/{pair.name}")
        wait_until("they are given back", lambda: _buffers(pair) == ONE_BATCH)
        assert borrower.meminfo("MemAvailable") > full + (BUFFERS - ONE_BATCH) * 4096 // 2
        pair.l.lend(pair.name, quota=64 * MIB)
        wait_until("there are buffers again", lambda: _buffers(pair) == BUFFERS)
        stress(borrower, "fill /mnt/file mib=16")
        evict_until(pair, lambda: pair.borrowed()["puts"] > 16 * 256 * 0.95)
        pair.assert_clean()


def test_a_lender_that_is_back_is_asked_at_once(kernel: str) -> None:
    """It was left alone because nobody answered. Whoever reads when it is back finds its pages there."""
    with (pair := Pair(kernel, relay=True)) as (borrower, _):
        wire = relay_of(pair)
        pair.b.load(f"put_buffers={BUFFERS}")
        pair.connect(size=64 * MIB, more={**PATIENT, **MODES[BY_SHORT]})
        lender = f"lenders/{pair.name}"
        stress(borrower, f"fill /mnt/file mib={STREAM_MIB}")
        evict_until(pair, lambda: pair.borrowed()["catalog_pages"] > STREAM_MIB * 256 * 0.9)
        held = pair.borrowed()["catalog_pages"]
        for lost in (1, 2):
            pair.b.set(f"{lender}/breaker_short", SOON)
            pinged = _pings(pair)
            wait_until("there are pings", lambda: _pings(pair) >= pinged + PINGS)  # noqa: B023
            wire.cut = True
            pair.b.wait_state(lender, "Connecting", timeout=60)
            assert pair.borrowed()["breaker_opened"] >= lost, pair.borrowed()
            resumed = pair.borrowed()["resumes"]
            wire.cut = False
            wait_until("it goes on", lambda: pair.borrowed()["resumes"] > resumed, timeout=60, every=0.05)  # noqa: B023
            pair.b.set(f"{lender}/breaker_short", NEVER)  # a busy test machine is no slow lender
            before = pair.borrowed()
            borrower.drop_caches(1)
            stress(borrower, "sequential /mnt/file passes=1")
            after = pair.borrowed()
            assert after["get_skipped"] - before["get_skipped"] < held * 0.1, "asked at once"
            assert after["get_hits"] - before["get_hits"] > held * 0.9
        pair.assert_clean()


def _pings(pair: Pair) -> int:
    """How many were answered."""
    return sum(count for _, count in pair.b.latency(f"lenders/{pair.name}", "ping"))


@pytest.mark.long
def test_without_the_breaker(kernel: str) -> None:
    """The same with the mechanism taken out: slow gets go on."""
    with (pair := Pair(kernel, host=True, broken="BREAKER")):
        delay(connect(pair), LATE_SECONDS)
        wait_until("pings are slow", lambda: figures(pair)[BY_SHORT]["ping_us_short"] > 900_000)
        assert total(read(pair, 20), "gets_sent") > 5
