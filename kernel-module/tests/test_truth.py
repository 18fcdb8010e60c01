"""Hits and misses are what was read (invariant 21): each page once, and a hit is a page that the disk was spared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from bed.device import MODULES, PATH, Device
from bed.guest import HOST_ADDRESS, PAGE, Disk
from bed.hostile import SlowLender
from bed.pair import NAME, UNHURRIED, Pair
from bed.protocol import PUT_ITEM, TAG, Frame, Lender
from bed.tidepool import MIB, wait_until
from bed.workload import stress

LENDER = f"lenders/{NAME}"
FILE_MIB = 4
PAGES = FILE_MIB * 256
EACH = 100  # of so many pages one is spoilt or lost: some folios have such a page, and others have none
READ_AHEAD_KIB = 128
DEADLINE_US = 2_000_000  # later than half of an answer, which comes at once, and before a silent lender counts as dead
# Why a page that a lender was believed to have was read from disk.
FAILED = (
    "get_misses",
    "get_late",
    "get_errors",
    "get_corrupt",
    "get_incomplete",
    "get_unasked",
    "get_skipped",
    "get_skipped_sequential",
)
Growth = dict[str, int]


class Half(Lender):
    """Keeps pages of even number. While it is not `prompt` it does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = threading.Event()
        self.prompt.set()

    def _keep(self, frame: Frame) -> int:
        self.prompt.wait()
        kept = super()._keep(frame)
        for place, (file, index, _, _) in enumerate(PUT_ITEM.iter_unpack(frame.metadata)):
            if index % 2:
                del self.pages[file, index]
                kept &= ~(1 << place)
        return kept


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A borrower whose file system has large folios, and buffers for all that is evicted at once."""
    with (pair := Pair(kernel, disk="xfs", host=True)):
        pair.read_ahead(READ_AHEAD_KIB)
        pair.b.load("put_buffers=8192")
        yield pair
        pair.assert_clean()


@contextmanager
def connected(pair: Pair, lender: Lender | SlowLender, deadline_us: int = UNHURRIED["deadline_us"]) -> Iterator[None]:
    """The lender is."""
    with lender.lending() if isinstance(lender, SlowLender) else closing(lender):
        more = {"port": lender.port, "encryption": "AES-GCM", "deadline_us": deadline_us}
        pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=lender.identity, more=more)
        try:
            pair.b.wait_state(LENDER, "Connected")
            yield
        finally:
            pair.b.rmdir(LENDER)


@contextmanager
def lending(pair: Pair, lender: Lender | SlowLender, deadline_us: int = UNHURRIED["deadline_us"]) -> Iterator[None]:
    """The lender is connected, and has been given what it takes of the file."""
    with connected(pair, lender, deadline_us):
        stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
        pair.evict()
        yield


def _figures(pair: Pair) -> Growth:
    return {
        **pair.borrowed(),
        "misses": pair.b.stats()["misses"],
        "disk_pages": pair.borrower.disk_read_bytes() // PAGE,
    }


def _growth(pair: Pair, what: Callable[[], object]) -> Growth:
    """What all figures have grown by when something was done, and nothing is on its way any more."""
    before = _figures(pair)
    what()
    return {name: value - before[name] for name, value in _figures(pair).items()}


def _read(pair: Pair) -> Growth:
    """The figures' growth by a reading of the file, of which nothing is cached."""
    return _growth(pair, lambda: stress(pair.borrower, "sequential /mnt/file"))


def _lose_some(lender: Lender) -> None:
    """The lender has them no more, and does not say so."""
    lender.pages = {page: kept for page, kept in lender.pages.items() if page[1] % EACH}


def _failed(growth: Growth) -> int:
    return sum(growth.get(name, 0) for name in FAILED)


def assert_true(growth: Growth, pages: int = PAGES) -> None:
    """Each page is a hit or a miss, and the disk was read for the misses."""
    told = {name: value for name, value in growth.items() if value}
    assert growth["get_hits"] + growth["misses"] == pages, told
    assert growth["disk_pages"] == growth["misses"], told


def assert_all_believed(growth: Growth, pages: int = PAGES) -> None:
    """Likewise, of pages all of which the lender was believed to have: each miss has its reason, and one."""
    assert_true(growth, pages)
    assert _failed(growth) == growth["misses"], {name: value for name, value in growth.items() if value}


def test_all_come(pair: Pair) -> None:
    """All that was evicted is there: all hits."""
    with lending(pair, Lender()):
        growth = _read(pair)
        assert_all_believed(growth)
        assert growth["get_hits"] == PAGES


def test_some_are_lost(pair: Pair) -> None:
    """Of a folio that lacks a page the others come, and are no hits: it is read from disk."""
    lender = Lender()
    with lending(pair, lender):
        _lose_some(lender)
        growth = _read(pair)
        assert_all_believed(growth)
        assert growth["get_misses"] == len(range(0, PAGES, EACH))
        assert growth["get_incomplete"] > 0
        assert growth["get_hits"] > 0


def test_some_are_spoilt(pair: Pair) -> None:
    """So it is when one is not what was put."""
    lender = Lender()
    with lending(pair, lender):
        for page, (version, _, data) in lender.pages.items():
            if page[1] % EACH == 0:
                lender.pages[page] = version, bytes(TAG), data
        growth = _read(pair)
        assert_all_believed(growth)
        assert growth["get_corrupt"] == len(range(0, PAGES, EACH))
        assert growth["get_incomplete"] > 0
        assert growth["get_hits"] > 0


def test_spoilt_and_late(pair: Pair) -> None:
    """An answer half spoilt and half late: no page is both. Then the lender is asked for nothing."""
    with lending(pair, SlowLender("pages"), DEADLINE_US):
        growth = _read(pair)
        assert_all_believed(growth)
        assert growth["get_corrupt"] > 0
        assert growth["get_late"] > 0
        assert growth["get_unasked"] > 0


def test_lender_is_gone(pair: Pair) -> None:
    """What a lender may still have that cannot be asked now is missed."""
    lender = Lender()
    with lending(pair, lender):
        lender.close()
        wait_until("it is noticed", lambda: pair.borrowed()["disconnects"] == 1)
        growth = _read(pair)
        assert_all_believed(growth)
        assert growth["get_unasked"] == PAGES


@pytest.mark.parametrize("lost", [False, True], ids=["complete", "lacking"])
def test_half_in_buffers(pair: Pair, lost: bool) -> None:
    """Folios half of which are with the lender and half on their way: hits when they are whole, none when one lacks."""
    lender = Half()
    with lending(pair, lender):
        lender.prompt.clear()
        stress(pair.borrower, "sequential /mnt/file")
        pair.borrower.drop_caches(1)
        if lost:
            _lose_some(lender)
        growth = _read(pair)
        lender.prompt.set()
        assert_all_believed(growth)
        if lost:
            assert growth["get_incomplete"] > growth["get_misses"] > 0
        else:
            assert growth["get_hits"] == PAGES
            assert growth["get_hits_buffer"] == PAGES // 2


def test_not_in_the_pool(pair: Pair) -> None:
    """Known files' pages that the pool has not got are misses; of a file that it does not know nothing is counted."""
    stress(pair.borrower, f"fill /mnt/unknown mib={FILE_MIB}")
    pair.borrower.drop_caches(1)
    with lending(pair, Half()):
        growth = _growth(pair, lambda: stress(pair.borrower, "sequential /mnt/unknown"))
        assert growth["misses"] == growth["get_hits"] == 0
        assert growth["disk_pages"] == PAGES
        assert_true(_read(pair))


# A block device


@pytest.fixture(scope="module")
def raw(kernel: str) -> Iterator[Pair]:
    """A borrower with a disk for a device, and buffers for all that is written at once."""
    disk = Disk("64M", None)
    with (pair := Pair(kernel, disk=disk, host=True, modules=MODULES)):
        pair.b.load("put_buffers=4096")
        yield pair
        pair.assert_clean()


@contextmanager
def lending_blocks(pair: Pair, lender: Lender) -> Iterator[Device]:
    """A device over the disk, of which the lender has been given what it takes."""
    with connected(pair, lender), Device(pair) as fast:
        pair.borrower.sh(f"dd if=/dev/urandom of={PATH} bs=64k count={PAGES // 16} oflag=direct")
        pair.settle()
        yield fast


def _read_blocks(pair: Pair, fast: Device, flags: str = "iflag=direct") -> Growth:
    """The growth by a reading of what was written; the device's own figures have its name before them."""
    before = fast.status()
    read = f"blockdev --setra 0 {PATH}; dd if={PATH} of=/dev/null bs=64k count={PAGES // 16} {flags}"
    growth = _growth(pair, lambda: pair.borrower.sh(read))
    return {**growth, **{f"device_{name}": value - before[name] for name, value in fast.status().items()}}


def assert_blocks_true(growth: Growth) -> None:
    """Each block is one of three for the device, and a hit or a miss for the lender and the guest."""
    told = {name: value for name, value in growth.items() if value}
    assert_true(growth)
    assert growth["device_hits"] == growth["get_hits"], told
    assert growth["device_misses"] + growth["device_fallbacks"] == growth["misses"], told
    assert growth["device_fallbacks"] == _failed(growth) - growth["get_unasked"], told


def test_all_blocks_come(raw: Pair) -> None:
    """All that was written is there."""
    with lending_blocks(raw, Lender()) as fast:
        growth = _read_blocks(raw, fast)
        assert_blocks_true(growth)
        assert growth["device_hits"] == PAGES


def test_some_blocks_are_lost(raw: Pair) -> None:
    """A read of which one block does not come is wholly one of the disk: none of its blocks is a hit."""
    lender = Lender()
    with lending_blocks(raw, lender) as fast:
        _lose_some(lender)
        growth = _read_blocks(raw, fast)
        assert_blocks_true(growth)
        assert growth["get_misses"] == len(range(0, PAGES, EACH))
        assert growth["get_incomplete"] == 15 * growth["get_misses"]


def test_lender_of_blocks_is_gone(raw: Pair) -> None:
    """What cannot be asked for is missed."""
    lender = Lender()
    with lending_blocks(raw, lender) as fast:
        lender.close()
        wait_until("it is noticed", lambda: raw.borrowed()["disconnects"] == 1)
        growth = _read_blocks(raw, fast)
        assert_blocks_true(growth)
        assert growth["get_unasked"] == growth["device_misses"] == PAGES


@pytest.mark.parametrize("lost", [False, True], ids=["complete", "lacking"])
def test_half_of_the_blocks_in_buffers(raw: Pair, lost: bool) -> None:
    """Reads half of which are with the lender and half on their way: hits when they are whole, none when one lacks."""
    lender = Half()
    with lending_blocks(raw, lender) as fast:
        lender.prompt.clear()
        first = _read_blocks(raw, fast, flags="")  # through the page cache: a direct read's pages are not put
        assert_blocks_true(first)
        assert first["device_hits"] == first["device_misses"] == PAGES // 2
        if lost:
            _lose_some(lender)
        growth = _read_blocks(raw, fast)
        lender.prompt.set()
        assert_blocks_true(growth)
        if lost:
            assert growth["get_incomplete"] == 15 * growth["get_misses"] > 0
        else:
            assert growth["device_hits"] == PAGES
            assert growth["get_hits_buffer"] == PAGES // 2
