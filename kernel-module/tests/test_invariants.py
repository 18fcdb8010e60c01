"""What the design promises of the ways of a page, one by one; INVARIANTS.md says where the other promises are held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bed.guest import HOST_ADDRESS, Guest
from bed.hostile import YesLender
from bed.pair import NAME, PATIENT, UNHURRIED, Pair
from bed.protocol import MOST, PUT, Connection, Frame, Lender
from bed.tidepool import MIB, wait_until
from bed.workload import stress

BUFFERS = 16_384
TRACING = "/sys/kernel/tracing"
ALLOCATIONS = ("kmalloc", "kmem_cache_alloc", "mm_page_alloc")
ACKNOWLEDGED_S = 120  # far more than the module waits for the lender's word
TOGETHER = 8  # pages in a batch or a window, in the mean; their most is 64 and 32


class Taker(Lender):
    """Takes every page, and does not say so. No reply of its takes long, so it is not waited for long."""

    def __init__(self) -> None:
        super().__init__(limits=replace(MOST, get=16))
        self._closed = threading.Event()

    def _keep(self, frame: Frame) -> int:
        self._closed.wait()
        return super()._keep(frame)

    @contextmanager
    def lending(self) -> Iterator[None]:
        yield
        self._closed.set()
        self.close()


class Hoarder(YesLender):
    """Takes every page, goes on to take, and does not say so."""

    def _heard(self, frame: Frame, get: Connection) -> None:
        if frame.kind != PUT:
            super()._heard(frame, get)


@contextmanager
def borrowing(pair: Pair, name: str, lender: YesLender | Taker, size: int) -> Iterator[None]:
    """The guest borrows from a lender on its host, too."""
    with lender.lending():
        more = {"port": lender.port, **PATIENT}
        pair.b.borrow(name, address=HOST_ADDRESS, size=size, identity=lender.identity, more=more)
        pair.b.wait_state(f"lenders/{name}", "Connected")
        try:
            yield
        finally:
            pair.b.rmdir(f"lenders/{name}")


@pytest.fixture(scope="module")
def guests(kernel: str) -> Iterator[Pair]:
    """One pair for all of them, with buffers for all that is evicted at once."""
    with (pair := Pair(kernel, host=True)):
        pair.b.load(f"put_buffers={BUFFERS}")
        yield pair


@pytest.fixture
def pair(guests: Pair) -> Iterator[Pair]:
    """The two, connected anew for each test; nothing is known of any file."""
    with guests.pairing():
        guests.connect(size=64 * MIB, more=UNHURRIED)
        yield guests


def test_pages_travel_together(pair: Pair) -> None:
    """Evictions are aggregated into batches, and a read-ahead window is one request."""
    stress(pair.borrower, "fill /mnt/file mib=16")
    pair.evict()
    stress(pair.borrower, "sequential /mnt/file")
    figures = pair.borrowed()
    assert figures["puts_sent"] >= TOGETHER * figures["put_requests"] > 0
    assert figures["get_hits"] >= TOGETHER * figures["gets_sent"] > 0


def test_a_page_on_its_way_out_comes_from_its_buffer(pair: Pair) -> None:
    """A lender that acknowledges nothing: what was just evicted is read back all the same."""
    pair.b.set(f"lenders/{NAME}/enabled", 0)
    with borrowing(pair, "taker", Taker(), 64 * MIB):
        stress(pair.borrower, "fill /mnt/file mib=1")
        pair.borrower.drop_caches(1)
        before = pair.borrower.disk_reads()
        stress(pair.borrower, "random /mnt/file reads=1000")
        assert pair.b.stats("lenders/taker")["get_hits_buffer"] >= 200
        assert pair.borrower.disk_reads() - before < 56


def test_a_lender_that_keeps_its_word_on_pages_is_left(pair: Pair) -> None:
    """Its buffers are everybody's: who answers pings and acknowledges nothing does not have them for ever."""
    pair.b.set(f"lenders/{NAME}/enabled", 0)
    with borrowing(pair, "taker", Taker(), 64 * MIB):
        stress(pair.borrower, "fill /mnt/file mib=1")
        pair.borrower.drop_caches(1)
        wait_until("it is left", lambda: pair.b.stats("lenders/taker")["disconnects"] > 0, timeout=ACKNOWLEDGED_S)


def test_who_has_half_of_the_buffers_gets_no_more_while_others_have_room(pair: Pair) -> None:
    """A larger lender that acknowledges nothing has pages waiting for it; the rest goes to the other."""
    wait_until("the buffers are there", lambda: pair.b.stats()["buffers_total"] == BUFFERS)
    with borrowing(pair, "hoarder", Hoarder(grant=1024 * MIB), 1024 * MIB):
        stress(pair.borrower, "fill /mnt/file mib=64")
        pair.borrower.drop_caches(1)
        wait_until("the other one has its pages", lambda: pair.borrowed()["puts"] > BUFFERS / 4)


def test_a_grant_beyond_what_was_asked_for_draws_no_pages(pair: Pair) -> None:
    """A lender's word on its room counts as far as room was wanted: others get pages, too."""
    with borrowing(pair, "greedy", YesLender(grant=1 << 62), 8 * MIB):
        stress(pair.borrower, "fill /mnt/file mib=8")
        pair.evict()
        assert pair.borrowed()["puts_sent"] > 1000


def _stacks(guest: Guest) -> list[str]:
    """The call chain of each allocation since tracing was switched on, as one text."""
    chains: list[str] = []
    for line in guest.read(f"{TRACING}/trace").splitlines():
        if "<stack trace>" in line:
            chains.append("")
        elif line.startswith(" => ") and chains:
            chains[-1] += line
    return chains


def test_the_put_path_allocates_nothing(pair: Pair) -> None:
    """While thousands of pages are put nothing is allocated at eviction; what the sender allocates is seen."""
    stress(pair.borrower, "fill /mnt/file mib=8")
    switches = " ".join(f"events/kmem/{name}/enable" for name in ALLOCATIONS)
    pair.borrower.sh(f"cd {TRACING} && echo 16384 > buffer_size_kb && echo 1 > options/stacktrace")
    pair.borrower.sh(f"cd {TRACING} && for s in {switches}; do echo 1 > $s; done")
    pair.evict()
    pair.borrower.sh(f"cd {TRACING} && for s in {switches}; do echo 0 > $s; done; echo 0 > options/stacktrace")
    chains = _stacks(pair.borrower)
    pair.borrower.write(f"{TRACING}/trace", "")
    assert pair.borrowed()["puts"] > 500
    assert any("tide_sender" in chain for chain in chains), "the tracer sees nothing of the module"
    assert [chain for chain in chains if "tide_on_delete" in chain or "tide_put_folio" in chain] == []


def test_a_full_lender_recycles_and_says_so(pair: Pair) -> None:
    """It keeps to its quota, drops the oldest pages for new ones, and the borrower asks for none of these."""
    pair.l.set(f"borrowers/{NAME}/quota_bytes", 8 * MIB)
    wait_until("the grant shrinks", lambda: pair.borrowed()["granted_bytes"] == 8 * MIB)
    stress(pair.borrower, "fill /mnt/file mib=32")
    pair.evict()
    assert pair.lent()["recycled"] > 1000
    assert pair.lent()["lent_pages"] * 4096 <= 8 * MIB
    wait_until("every notice arrives", lambda: pair.borrowed()["evicted_notices"] == pair.lent()["notices_sent"])
    borrowed = pair.borrowed()
    assert borrowed["evicted_notices"] > 1000
    stress(pair.borrower, "sequential /mnt/file")
    assert pair.borrowed()["get_misses"] < borrowed["evicted_notices"] // 10


def test_a_page_that_comes_back_is_as_young_as_any(pair: Pair) -> None:
    """Exclusive: a file that fits is read again and again, and the lender drops none of its pages for another."""
    pair.b.set(f"lenders/{NAME}/strategy", "Exclusive")
    pair.l.set(f"borrowers/{NAME}/quota_bytes", 20 * MIB)
    wait_until("the grant shrinks", lambda: pair.borrowed()["granted_bytes"] == 20 * MIB)
    stress(pair.borrower, "fill /mnt/file mib=16")
    for _ in range(4):
        pair.evict()
        assert pair.lent()["lent_pages"] >= 15 * 256
        stress(pair.borrower, "sequential /mnt/file")
    assert pair.lent()["recycled"] == 0
    assert pair.borrowed()["get_hits"] >= 4 * 15 * 256


def test_lent_pages_are_nobodys(pair: Pair) -> None:
    """A memory cgroup of the lender's own programs is charged for none of them, whoever runs while they arrive."""
    pair.lender.sh("mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control")
    group = "/sys/fs/cgroup/own"
    pair.lender.sh(f"mkdir {group} && echo 24M > {group}/memory.max")
    busy = pair.lender.start(f"echo $$ > {group}/cgroup.procs; exec stress anon 8 hold=3600")
    try:
        stress(pair.borrower, "fill /mnt/file mib=48")
        pair.evict()
        assert pair.lent()["lent_pages"] * 4096 > 32 * MIB
        assert busy.running
        assert int(pair.lender.read(f"{group}/memory.current")) < 16 * MIB
        assert "oom_kill 0" in pair.lender.read(f"{group}/memory.events")
    finally:
        busy.kill()
        busy.result()
