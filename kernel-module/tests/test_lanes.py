"""Lanes: several connections of a session on which pages are asked for, one for each processor; one is enough."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from test_resume import LENDER, assert_all_there, hits, lend_all, resumed

from bed.between import Between
from bed.guest import HOST_ADDRESS
from bed.pair import IN_TIME_US, NAME, PATIENT, Pair
from bed.protocol import (
    FORGET,
    GET,
    MAX_LANES,
    NUMBER,
    PAGE,
    PING,
    PUT,
    PUT_ITEM,
    RESIZE,
    TAG,
    Borrower,
    KeyPair,
    Lane,
    Lender,
    Limits,
    point_of,
)
from bed.tidepool import MIB, wait_until
from bed.workload import finish_stress, start_stress, stress

BORROWER = f"borrowers/{NAME}"
FILE_MIB = 8
FILE_PAGES = FILE_MIB * 256
PROCESSORS = 2
OTHER_PROCESSOR = "/sys/devices/system/cpu/cpu1/online"
READERS = "random /mnt/file reads=1500 threads=4"
OVER = (EOFError, ConnectionError)
LONGEST_US = 60_000_000  # a deadline
HUNG_UP_SECONDS = 12  # less than a lender's patience with lanes on which nothing is said


@pytest.fixture(scope="module")
def guests(kernel: str) -> Iterator[Pair]:
    with (pair := Pair(kernel, borrower_mem="160M", host=True, processors=PROCESSORS)):
        pair.l.load()
        pair.b.load()
        stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
        yield pair


# Between guests


@pytest.fixture
def between(guests: Pair) -> Iterator[Between]:
    """The two are connected, somebody between them counts, and the lender has the file's pages."""
    with contextlib.closing(Between(guests.lender_port)) as between, guests.pairing():
        guests.l.lend(NAME, quota=128 * MIB)
        guests.b.borrow(NAME, address=HOST_ADDRESS, size=128 * MIB, more={"port": between.port, **PATIENT})
        guests.b.wait_state(LENDER, "Connected")
        has_lanes(guests, PROCESSORS)
        lend_all(guests, "/mnt/file", FILE_PAGES)
        yield between


def has_lanes(pair: Pair, lanes: int) -> None:
    """So many, and the lender knows of them."""
    wait_until(f"it has {lanes} lanes", lambda: pair.borrowed()["lanes"] == lanes)
    wait_until("the lender knows", lambda: pair.lent()["connections"] == lanes + 1)


def test_gets_flow_over_all(guests: Pair, between: Between) -> None:
    """A lane for each processor; requests go on both, and each page that comes is the right one."""
    assert len(between.passed) == PROCESSORS + 1
    lanes = [passed for passed in between.passed if not passed[PUT]]
    before = [passed[GET] for passed in lanes]
    served = guests.borrowed()["get_hits"]

    def flow() -> bool:
        guests.evict()
        stress(guests.borrower, READERS)
        return guests.borrowed()["get_hits"] > served + FILE_PAGES // 2

    wait_until("pages flow", flow)
    asked = [passed[GET] - earlier for passed, earlier in zip(lanes, before, strict=True)]
    assert min(asked) > max(asked) // 10, asked
    assert guests.borrowed()["get_corrupt"] == 0
    assert all(passed[PING] for passed in lanes)


def test_one_reader_is_read_ahead_on_all(guests: Pair, between: Between) -> None:
    """While one window is on its way, the next one is asked for on another lane."""
    guests.read_ahead(256)
    guests.evict()
    lanes = [passed for passed in between.passed if not passed[PUT]]
    before = [passed[GET] for passed in lanes]
    assert hits(guests, "/mnt/file") > FILE_PAGES * 0.9
    assert all(passed[GET] > earlier for passed, earlier in zip(lanes, before, strict=True))


def test_no_more_than_processors(guests: Pair, between: Between) -> None:
    """When one is taken offline, the next connection has a lane less, and all pages are there."""
    guests.borrower.write(OTHER_PROCESSOR, "0\n")
    try:
        between.cut(0)
        resumed(guests)
        has_lanes(guests, PROCESSORS - 1)
        assert_all_there(guests)
    finally:
        guests.borrower.write(OTHER_PROCESSOR, "1\n")


@pytest.mark.parametrize("number", range(PROCESSORS + 1))
def test_cut_lane(guests: Pair, between: Between, number: int) -> None:
    """Whichever connection ends, all do, and the session goes on with all of them and every page."""
    between.cut(number)
    resumed(guests)
    has_lanes(guests, PROCESSORS)
    assert_all_there(guests)


# A borrower and the model of a lender


def borrow(pair: Pair, lender: Lender) -> None:
    more = {"port": lender.port, **PATIENT}
    pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=lender.identity, more=more)
    pair.b.wait_state(LENDER, "Connected")


def assert_serves(pair: Pair) -> None:
    """Pages go out and come back."""
    lend_all(pair, "/mnt/file", FILE_PAGES)
    stress(pair.borrower, READERS)


@contextlib.contextmanager
def lending(pair: Pair) -> Iterator[Lender]:
    with contextlib.closing(Lender()) as lender:
        yield lender
        pair.b.rmdir(LENDER)
        pair.assert_clean()


def test_lender_allows_one(guests: Pair) -> None:
    """Then there is one, on which all is asked."""
    with lending(guests) as lender:
        lender.limits = Limits(lanes=1)
        borrow(guests, lender)
        assert_serves(guests)
        assert guests.borrowed()["lanes"] == 1
        assert set(lender.asked) == {0}


def test_lender_has_no_room(guests: Pair) -> None:
    """It hangs up on a lane that it has allowed: that is done without, and nothing else ends."""
    with lending(guests) as lender:
        lender.room = 1
        borrow(guests, lender)
        wait_until("it is given up", lambda: "without lane 1" in guests.borrower.log())
        assert_serves(guests)
        assert guests.borrowed()["lanes"] == 1
        assert guests.borrowed()["disconnects"] == 0
        assert set(lender.asked) == {0}


def test_silent_lane(guests: Pair) -> None:
    """A lane on which nothing comes any more is noticed though others live; what was asked on it comes from disk."""
    with lending(guests) as lender:
        borrow(guests, lender)
        wait_until("it has both", lambda: guests.borrowed()["lanes"] == PROCESSORS)
        assert_serves(guests)
        assert set(lender.asked) == set(range(PROCESSORS))
        lender.mute = True
        wait_until("it is noticed", lambda: guests.borrowed()["disconnects"] > 0)
        lender.mute = False
        resumed(guests)
        wait_until("it has both again", lambda: guests.borrowed()["lanes"] == PROCESSORS)
        assert_all_there(guests)


def test_asked_on_a_lane_that_ends(guests: Pair) -> None:
    """Its readers go on at once, long before the deadline, and the session ends though the lender clings to it."""
    with lending(guests) as lender:
        borrow(guests, lender)
        guests.b.set(f"{LENDER}/deadline_us", LONGEST_US)
        wait_until("it has both", lambda: guests.borrowed()["lanes"] == PROCESSORS)
        assert_serves(guests)
        guests.evict()
        lender.clings = lender.withholds = True
        asked = lender.asked[1]
        readers = start_stress(guests.borrower, "random /mnt/file reads=60 threads=4")
        wait_until("a reader waits", lambda: lender.asked[1] > asked)
        before = guests.borrowed()["get_errors"]
        lender.withholds = False  # from who asks when the session goes on
        begin = time.monotonic()
        lender.cut(1)
        finish_stress(readers)
        assert time.monotonic() - begin < IN_TIME_US / 1e6
        assert guests.borrowed()["get_errors"] > before
        lender.clings = False
        resumed(guests)


# A lender and the model of a borrower


@pytest.fixture
def known(guests: Pair) -> Iterator[KeyPair]:
    """Somebody to whom the lender lends."""
    own = KeyPair()
    guests.l.lend(NAME, quota=16 * MIB, identity=own.identity)
    yield own
    guests.l.remove_peers()
    guests.assert_clean()


def session(pair: Pair, own: KeyPair) -> contextlib.closing[Borrower]:
    address = ("127.0.0.1", pair.lender_port)
    return contextlib.closing(Borrower(address, own, point_of(pair.l.identity), 16 * MIB))


def assert_hangs_up(lane: Lane) -> None:
    """It is no lane, or none any more."""
    with contextlib.closing(lane):
        wait_until("the lender hangs up", lambda: not lives(lane), timeout=HUNG_UP_SECONDS)


def lives(lane: Lane) -> bool:
    try:
        lane.ping()
    except OVER:
        return False
    return True


def test_as_many_as_allowed(guests: Pair, known: KeyPair) -> None:
    """Each serves all pages; one more is refused, and the others go on; when one ends, all do."""
    with session(guests, known) as borrower:
        assert borrower.get.limits.lanes == MAX_LANES
        assert borrower.store(1, 1, 1, bytes(PAGE))
        lanes = [borrower.lane() for _ in range(MAX_LANES - 1)]
        for lane in (*lanes, borrower):
            assert lane.load(1, 1, 1) == bytes(PAGE)
        assert_hangs_up(borrower.lane())
        for lane in (*lanes, borrower):
            assert lane.load(1, 1, 1) == bytes(PAGE)
        wait_until("that one is gone", lambda: guests.lent()["connections"] == MAX_LANES + 1)
        lanes[1].close()
        for lane in (lanes[0], lanes[2], borrower):
            assert_hangs_up(lane)
    wait_until("all have ended", lambda: guests.lent()["connections"] == 0)


def test_lane_that_is_given_up(guests: Pair, known: KeyPair) -> None:
    """One that ends before anything was asked on it was none: the session goes on without."""
    with session(guests, known) as borrower:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        lane = borrower.lane()
        lane.ping()
        assert guests.lent()["connections"] == 3
        lane.close()
        wait_until("it is gone", lambda: guests.lent()["connections"] == 2)
        assert borrower.load(1, 1, 1) == bytes(PAGE)
        assert borrower.lane().load(1, 1, 1) == bytes(PAGE)


def test_other_number(guests: Pair, known: KeyPair) -> None:
    """A lane is one of the session whose number was offered with the GET channel that is there, or none."""
    with session(guests, known) as former:
        former.ping()
    with session(guests, known) as borrower:
        for number in (borrower.offered ^ 1, former.offered):
            assert_hangs_up(borrower.lane(number))
        borrower.lane().ping()


def test_somebody_elses(guests: Pair, known: KeyPair) -> None:
    """Another borrower that knows a session's number cannot get at its pages."""
    other = KeyPair()
    guests.l.lend("other", quota=16 * MIB, identity=other.identity)
    with session(guests, known) as borrower, session(guests, other) as thief:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        assert_hangs_up(thief.lane(borrower.offered))
        assert thief.lane().load(1, 1, 1) is None
        assert borrower.lane().load(1, 1, 1) == bytes(PAGE)


def test_before_there_is_a_session(guests: Pair, known: KeyPair) -> None:
    """Without a GET channel there is no lane, whatever was there once."""
    with session(guests, known) as former:
        former.ping()
    wait_until("it is over", lambda: guests.lent()["connections"] == 0)
    assert_hangs_up(former.lane())
    assert guests.l.get(f"{BORROWER}/state") == "Listening"


@pytest.mark.parametrize(
    ("kind", "count", "metadata", "pages"),
    [
        (FORGET, 0, b"", b""),
        (RESIZE, 0, NUMBER.pack(8 * MIB), b""),
        (PUT, 1, PUT_ITEM.pack(1, 1, 2, bytes(TAG)), bytes(PAGE)),
    ],
)
def test_only_gets(guests: Pair, known: KeyPair, kind: int, count: int, metadata: bytes, pages: bytes) -> None:
    """What belongs on another channel ends the session as malformed."""
    with session(guests, known) as borrower:
        lane = borrower.lane()
        lane.ping()
        lane.get.send(kind, count, 7, metadata, pages)
        assert_hangs_up(lane)
        assert_hangs_up(borrower)
    wait_until("it is counted", lambda: guests.lent()["bad_frames"] == 1)


@pytest.mark.long
def test_silent_borrower(guests: Pair, known: KeyPair) -> None:
    """A lane on which a borrower says nothing ends its session, however lively it is on others."""
    with session(guests, known) as borrower:
        borrower.lane().ping()
        wait_until("it is ended", lambda: not lives(borrower), every=1)
