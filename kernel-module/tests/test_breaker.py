"""The latency breaker: a lender that is slow is left alone, and used again when it is fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bed.guest import Disk
from bed.pair import LENDER_ADDRESS, NAME, Pair
from bed.relay import Relay
from bed.tidepool import MIB, parse_histogram, wait_until
from bed.workload import stress

LENDER = f"lenders/{NAME}"
SLOW_SECONDS = 0.25  # one way
NEVER = "59000000 60000000"


@contextmanager
def connected(kernel: str, more: dict[str, object], flags: str = "", disk: Disk | None = None) -> Iterator[Pair]:
    """A pair whose lender has a whole file, evicted at once."""
    with (pair := Pair(kernel, lender_mem="192M", relay=True, flags=flags, disk=disk or Disk())) as (borrower, _):
        borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
        pair.connect(size=64 * MIB, more={"deadline_us": 3_000_000, **more})
        stress(borrower, "fill /mnt/file mib=24")
        borrower.drop_caches()
        wait_until("the lender has the file", lambda: pair.borrowed()["puts"] > 4096)
        yield pair
        pair.assert_clean()


def relay_of(pair: Pair) -> Relay:
    assert pair.relay
    return pair.relay


def read(pair: Pair, reads: int = 300) -> dict[str, int]:
    """Reads at random from a cold cache: by how much the borrower's figures grew."""
    before = pair.borrowed()
    pair.borrower.drop_caches()
    stress(pair.borrower, f"random /mnt/file reads={reads} threads=2")
    after = pair.borrowed()
    return {name: after[name] - before[name] for name in after}


def wait_breaker(pair: Pair, is_open: bool, timeout: float) -> None:
    wait_until(f"breaker_open is {is_open}", lambda: pair.borrowed()["breaker_open"] == is_open, timeout, every=0.5)


@pytest.mark.parametrize(("short", "long"), [("150000 160000", NEVER), (NEVER, "150000 160000")], ids=["short", "long"])
def test_thresholds(kernel: str, short: str, long: str) -> None:
    """Above the threshold neither gets nor puts, below it both again, and what the lender had is still there."""
    more: dict[str, object] = {"breaker": "Thresholds", "breaker_short": short, "breaker_long": long}
    with connected(kernel, more) as pair:
        assert read(pair)["get_hits"] > 100
        relay_of(pair).delay = SLOW_SECONDS
        wait_breaker(pair, True, timeout=60)
        held = pair.borrowed()["catalog_pages"]
        stopped = read(pair)
        assert stopped["gets_sent"] == stopped["puts_sent"] == 0
        assert stopped["get_skipped"] > 100
        assert stopped["drop_breaker"] > 100
        assert pair.borrowed()["catalog_pages"] == held
        relay_of(pair).delay = 0
        if long != NEVER:  # the moving average has a long memory: the thresholds may change at any time
            pair.b.set(f"{LENDER}/breaker_long", NEVER)
        wait_breaker(pair, False, timeout=40)
        assert read(pair)["get_hits"] > 100
        assert pair.borrowed()["breaker_opened"] == 1


@pytest.mark.long
def test_without_the_breaker(kernel: str) -> None:
    """The same with the mechanism taken out: slow gets go on."""
    more: dict[str, object] = {"breaker": "Thresholds", "breaker_short": "60000 100000", "breaker_long": NEVER}
    with connected(kernel, more, flags="-DTIDEPOOL_BREAK_BREAKER") as pair:
        relay_of(pair).delay = SLOW_SECONDS
        wait_until("pings are slow", lambda: pair.borrowed()["ping_us_short"] > 110_000, timeout=30)
        assert read(pair, reads=20)["gets_sent"] > 5


def test_automatic(kernel: str) -> None:
    """Stopped when gets take longer than the disk, though nobody named a number; probes find out when it is over."""
    with connected(kernel, {"breaker": "Automatic"}, disk=Disk(iops=100)) as pair:
        assert read(pair, reads=100)["get_hits"] > 30
        assert pair.borrowed()["breaker_open"] == 0
        relay_of(pair).delay = SLOW_SECONDS
        wait_until("stopped", lambda: read(pair, reads=20)["get_skipped"] > 0, 40)
        stopped = read(pair, reads=100)
        assert stopped["get_skipped"] > 20
        assert stopped["gets_sent"] <= 6  # the probes
        relay_of(pair).delay = 0
        wait_until("resumed", lambda: read(pair, reads=20)["get_skipped"] == 0, 40)
        disk = parse_histogram(pair.b.get("latency"), "disk")
        assert sum(count for _, count in disk) > 5
        assert pair.b.stats()["disk_us"] > 1000
        assert sum(count for _, count in pair.b.latency(LENDER, "put")) > 5


def test_another_lender_is_used(kernel: str) -> None:
    """One lender's breaker is open: what is evicted goes to the other, and comes back from there."""
    other = "other"
    with (pair := Pair(kernel, lender_mem="256M")) as (borrower, _):
        borrower.sh("insmod /lib/tidepool.ko put_buffers=8192")
        pair.connect(size=128 * MIB, more={"breaker": "Thresholds", "breaker_short": "1 2"})
        pair.l.set("lend_bytes", 192 * MIB)
        pair.l.lend(other, quota=64 * MIB)
        pair.b.borrow(other, address=LENDER_ADDRESS, size=64 * MIB, more={"deadline_us": 3_000_000})
        wait_breaker(pair, True, timeout=20)
        stress(borrower, "fill /mnt/file mib=16")
        borrower.drop_caches()
        wait_until("the other lender has the file", lambda: pair.b.stats(f"lenders/{other}")["puts"] > 2048)
        assert read(pair)["puts_sent"] == 0
        assert pair.borrowed()["drop_breaker"] == 0
        assert pair.b.stats(f"lenders/{other}")["get_hits"] > 100
        pair.b.set(f"{LENDER}/breaker", "Off")
        assert pair.borrowed()["breaker_open"] == 0
        pair.assert_clean()
