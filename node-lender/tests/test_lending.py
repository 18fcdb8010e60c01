"""What the daemon keeps for others, what it does when they misbehave, and what the kernel takes from it."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import COST, MIB, Config, Daemon
from test_handshake import hangs_up

from bed.hostile import OVER, PlainBorrower, hear
from bed.liar import LyingBorrower
from bed.protocol import (
    DATA,
    EVICTED,
    EVICTED_BEFORE,
    EXCLUSIVE,
    FRAME,
    GET,
    GET_ITEM,
    GRANT,
    GRANTED,
    MOST,
    NUMBER,
    PAGE,
    PUT,
    PUT_ACK,
    PUT_ITEM,
    RESIZE,
    TAG,
    Borrower,
    Limits,
)
from bed.tidepool import wait_until

A_MINUTE = 60.0
ALL = 1 << 60  # behind the last page, or the latest version
SLACK = 9 * MIB  # of buffers, for each borrower
LIES = 20_000
CONTROL_SECONDS = 5.0  # who waited for the reply to be taken would wait for half a minute
HOLD = 2


@contextlib.contextmanager
def borrowing(daemon: Daemon, quota: int = 64 * MIB, limits: Limits = MOST) -> Iterator[PlainBorrower]:
    own = daemon.lend(quota)
    with contextlib.closing(PlainBorrower(daemon.address, own, daemon.lender, limits)) as borrower:
        yield borrower


def page_of(version: int) -> bytes:
    return version.to_bytes(8, "little") * (PAGE // 8)


def test_a_page_comes_back(daemon: Daemon) -> None:
    """What was put is got, in that version and no other; also a page of zeros, and one that ends in them."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        assert borrower.granted == 8 * MIB
        pages = [bytes(range(256)) * (PAGE // 256), bytes(PAGE), b"\1" + bytes(PAGE - 1), b"\xff" * PAGE]
        for version, page in enumerate(pages, 1):
            assert borrower.store(7, version, version, page, bytes([version]) * TAG)
        for version, page in enumerate(pages, 1):
            assert borrower.load(7, version, version) == page
            assert borrower.load(7, version, version + 1) is None
        assert daemon.lent()["state"] == "Connected"
        assert daemon.lent()["lent_pages"] == len(pages)


def test_an_exclusive_get_takes_the_page_along(daemon: Daemon) -> None:
    with borrowing(daemon) as borrower:
        borrower.put_all(4)
        items = NUMBER.pack(borrower.FILE) + GET_ITEM.pack(2, 3)
        borrower.get.send(GET, 1, 9, items, flags=EXCLUSIVE)
        assert borrower.get.receive().kind == DATA
        borrower.ask_all(4)
        assert borrower.hits == 3
        assert daemon.lent()["lent_pages"] == 3


def test_a_grant_is_the_least_of_what_is_wanted_and_may_be_had(daemon: Daemon) -> None:
    own = daemon.lend(quota=4 * MIB + 123)
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        assert (borrower.granted, borrower.linger_ms) == (4 * MIB, 60_000)
        borrower.get.send(RESIZE, metadata=NUMBER.pack(MIB))
        assert GRANTED.unpack(borrower.get.receive().metadata) == (MIB, 60_000)
        borrower.get.send(RESIZE, metadata=NUMBER.pack(1 << 50))
        assert GRANTED.unpack(borrower.get.receive().metadata) == (4 * MIB, 60_000)
        daemon.config.max_lend = 2 * MIB
        daemon.config.hold = True
        daemon.reload()
        frame = borrower.get.receive()
        assert (frame.kind, frame.flags, GRANTED.unpack(frame.metadata)) == (GRANT, HOLD, (2 * MIB, 60_000))


def _put_batch(borrower: Borrower, versions: list[tuple[int, int]]) -> int:
    """Puts pages of these indexes and versions at once; the bits of those that are kept."""
    items = b"".join(PUT_ITEM.pack(1, index, version, bytes(TAG)) for index, version in versions)
    borrower.put.send(PUT, len(versions), 9, items, bytes(len(versions) * PAGE))
    while (frame := borrower.get.receive()).kind != PUT_ACK:
        assert frame.kind in (EVICTED, GRANT)
    (bits,) = NUMBER.unpack(frame.metadata)
    return int(bits)


def test_what_is_acknowledged_is_here(daemon: Daemon) -> None:
    """More pages at once than there is room for, and one of them twice: a bit is set for the last that came."""
    own = daemon.lend(quota=4 * PAGE)
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 4 * PAGE)) as borrower:
        assert _put_batch(borrower, [(index, index) for index in range(1, 65)]) == 0b111 << 61
        assert _put_batch(borrower, [(1, 70), (2, 71), (1, 72)]) == 0b110
        assert borrower.load(1, 1, 72) is not None


def test_under_hold_nothing_is_kept(daemon: Daemon) -> None:
    """A borrower that puts all the same: its pages are refused, what it has is there, and afterwards it goes on."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, MIB)) as borrower:
        assert _put_batch(borrower, [(1, 1)]) == 1
        for hold, kept in ((True, 0), (False, 1)):
            daemon.config.hold = hold
            daemon.reload()
            assert _put_batch(borrower, [(2, 2 + kept)]) == kept
        assert borrower.load(1, 1, 1) is not None


def test_forget_of_a_range_spares_what_was_put_later(daemon: Daemon) -> None:
    """Of a hundred pages those below a version go, the others stay."""
    with borrowing(daemon) as borrower:
        borrower.put_all(100)
        borrower.forget((0, ALL, 61))
        borrower.ask_all(100)
        assert (borrower.stored, borrower.hits) == (100, 40)


def test_forget_goes_on_behind_a_range_of_which_all_stays(daemon: Daemon) -> None:
    """Looking for nothing costs little, and what the same frame says of other pages is heard."""
    with borrowing(daemon) as borrower:
        borrower.put_all(1500)
        borrower.forget((0, ALL, 1), (1400, ALL, ALL))
        borrower.ask_all(1500)
        assert borrower.hits == 1400


def test_pages_that_go_one_after_the_other_are_named(daemon: Daemon) -> None:
    """A full pool, into which 3000 more are put: the borrower, who may be told of five at once, is told of each."""
    pages = 4000
    with borrowing(daemon, 4 * MIB, Limits(notices=5)) as borrower:
        borrower.put_all(pages)
        left = daemon.lent()["lent_pages"]
        assert left == 4 * MIB // COST
        hear(borrower, lambda: len(borrower.evicted) >= pages - left)
        assert borrower.evicted == set(range(1, pages - left + 1))
        assert borrower.evicted_before == 0
        assert borrower.get.largest[EVICTED] == 5
        assert EVICTED_BEFORE not in borrower.get.largest


def test_every_page_that_goes_is_told(daemon: Daemon) -> None:
    """The quota shrinks by 11,000 pages while the borrower does not listen: later it learns of every one, and no other.

    Of most of them by one number; of the last thousand one by one, so that it need not look for the border.
    """
    pages = 12_000
    with borrowing(daemon) as borrower:
        borrower.put_all(pages)
        borrower.deafen()
        daemon.config.borrowers[daemon.NAME].quota = 2 * MIB
        daemon.reload()
        wait_until("it has shrunk", lambda: daemon.lent()["lent_pages"] == 2 * MIB // COST)
        gone = pages - daemon.lent()["lent_pages"]
        hear(borrower, lambda: len(borrower.told(pages)) >= gone)
        assert borrower.stored == pages
        assert borrower.told(pages) == set(range(1, gone + 1))
        assert borrower.evicted_before == gone + 1
        assert borrower.evicted >= set(range(gone - 1024 + 1, gone + 1))
        assert len(borrower.evicted) < gone / 2  # of the first, as many are named as find room on the way


def test_what_the_kernel_takes_is_told(daemon: Daemon) -> None:
    """The kernel reclaims what it may: the borrower is told of every page that went, and of none that did not."""
    pages = 20_000
    with borrowing(daemon, 128 * MIB) as borrower:
        borrower.put_all(pages)
        borrower.ask_all(pages)
        assert borrower.hits == borrower.stored == pages
        daemon.page_out()
        wait_until("it is noticed", lambda: daemon.lent()["reclaimed"] > pages / 2)
        hear(borrower, lambda: len(borrower.told(pages)) >= pages - daemon.lent()["lent_pages"])
        borrower.hits = 0
        borrower.ask_all(pages)
        assert borrower.hits == pages - len(borrower.told(pages)) == daemon.lent()["lent_pages"]


def test_a_page_is_whole_or_a_miss_while_the_kernel_takes(daemon: Daemon) -> None:
    """Pages are put and got while the kernel reclaims again and again: each that comes is the one that was put."""
    own, end = daemon.lend(), threading.Event()

    def press() -> None:
        while not end.wait(0.01):
            daemon.page_out()

    thread = threading.Thread(target=press)
    thread.start()
    hits = misses = 0
    try:
        with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 64 * MIB)) as borrower:
            until, version = time.monotonic() + 4, 0
            while time.monotonic() < until:
                version += 1
                assert borrower.store(1, version % 50, version, page_of(version))
                for back in (0, 1, 20):
                    asked = version - back
                    page = borrower.load(1, asked % 50, asked) if asked > 0 else None
                    hits, misses = hits + (page is not None), misses + (page is None)
                    assert page is None or page == page_of(asked)
    finally:
        end.set()
        thread.join()
    print(f"\n{hits} hits, {misses} misses, {version} puts")
    assert hits > 100
    assert misses > 10


def test_control_does_not_wait_for_a_borrower_that_does_not_listen(daemon: Daemon) -> None:
    """A reply fills the connection, and the borrower takes it in sips: sizes, figures and removal are done at once."""
    with borrowing(daemon) as borrower:
        borrower.put_all(4096)
        borrower.deafen()
        thread = threading.Thread(target=_sip, args=(borrower,))
        thread.start()
        wait_until("it asks", lambda: daemon.lent()["gets"] >= 1)
        begin = time.monotonic()
        daemon.config.max_lend = 48 * MIB
        daemon.reload()
        daemon.lent()
        daemon.config.borrowers.clear()
        daemon.reload()
        assert daemon.state()["borrowers"] == []
        assert time.monotonic() - begin < CONTROL_SECONDS
        wait_until("it is hung up on", lambda: not thread.is_alive())


def _sip(borrower: PlainBorrower) -> None:
    with contextlib.suppress(*OVER):
        borrower.sip(A_MINUTE)


@pytest.mark.parametrize("where", [0, 4, 6, 9, 16, -1])
def test_an_altered_frame_ends_the_session(daemon: Daemon, where: int) -> None:
    """One bit of length, type, count, number, metadata or tag: it is counted, and nothing else ends."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        items = NUMBER.pack(7) + GET_ITEM.pack(1, 1)
        head = FRAME.pack(len(items) + TAG, GET, 0, 1, 5)
        frame = bytearray(head + borrower.get.seal(head, items))
        frame[where] ^= 1
        borrower.get.sock.sendall(frame)
        assert hangs_up(borrower.get.sock)
        assert hangs_up(borrower.put.sock)
        wait_until("it is counted", lambda: daemon.lent()["bad_frames"] == 1)
    wait_until("it lingers", lambda: daemon.lent()["state"] == "Lingering")


def test_pages_before_the_grant_are_not_taken(daemon: Daemon) -> None:
    """A PUT whose header says one thing and whose count another ends the session before a page is read."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        borrower.put.sock.sendall(FRAME.pack(0xFFFFFFFF, PUT, 0, 64, 1))
        assert hangs_up(borrower.put.sock)
        assert hangs_up(borrower.get.sock)


@pytest.mark.long
def test_a_silent_or_trickling_borrower_is_given_up(daemon: Daemon) -> None:
    """Fifteen seconds without a word, or a frame that takes longer than its size: the connections end, pages stay."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        begin = time.monotonic()
        assert hangs_up(borrower.get.sock)
        assert 14 < time.monotonic() - begin < 25
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in FRAME.pack(8 + 16 + TAG, GET, 0, 1, 5) + bytes(40):
                borrower.get.sock.sendall(bytes([byte]))
                time.sleep(0.4)
        assert hangs_up(borrower.get.sock)
        assert time.monotonic() - begin < 30


@pytest.mark.parametrize("channel", ["get", "put"])
def test_a_header_that_has_begun_must_end(daemon: Daemon, channel: str) -> None:
    """One byte of it and then nothing: the session ends after five seconds, on whichever channel."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        begin = time.monotonic()
        (borrower.get if channel == "get" else borrower.put).sock.sendall(b"\1")
        assert hangs_up(borrower.get.sock)
        assert 4 < time.monotonic() - begin < 10


def test_lanes_serve_side_by_side(daemon: Daemon) -> None:
    """Three more lanes, and no fourth; each answers; one that ends unused is no loss, a used one ends the session."""
    own = daemon.lend()
    with contextlib.ExitStack() as open_ones:
        borrower = open_ones.enter_context(contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)))
        assert borrower.store(1, 1, 1, page_of(1))
        lanes = [open_ones.enter_context(contextlib.closing(borrower.lane())) for _ in range(3)]
        for lane in lanes:
            assert lane.load(1, 1, 1) == page_of(1)
        assert daemon.lent()["connections"] == 5
        with contextlib.closing(borrower.lane()) as fourth:
            assert hangs_up(fourth.get.sock)
        borrower.ping()
        lanes[0].close()
        assert hangs_up(borrower.get.sock)
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        lane = borrower.lane()
        lane.ping()
        lane.close()
        wait_until("it is gone", lambda: daemon.lent()["connections"] == 2)
        borrower.ping()


def test_quotas_hold_side_by_side(daemon: Daemon) -> None:
    """Two borrowers fill what they may have; together they have no more than is lent, and neither sees the other's."""
    daemon.config.max_lend = 6 * MIB
    one, other = daemon.lend(4 * MIB, "one"), daemon.lend(4 * MIB, "other")
    with (
        contextlib.closing(PlainBorrower(daemon.address, one, daemon.lender)) as first,
        contextlib.closing(PlainBorrower(daemon.address, other, daemon.lender)) as second,
    ):
        first.put_all(2000)
        second.ask_all(2000)
        assert second.hits == 0
        second.put_all(2000)
        assert daemon.lent("one")["lent_pages"] == 4 * MIB // COST
        assert daemon.lent("one")["lent_pages"] + daemon.lent("other")["lent_pages"] == 6 * MIB // COST
        assert daemon.state()["lent_bytes"] <= 6 * MIB
        daemon.config.max_lend = 3 * MIB
        daemon.reload()
        wait_until("they have shrunk", lambda: daemon.state()["lent_bytes"] <= 3 * MIB)


def test_a_node_without_memory_to_spare_lends_no_more(daemon: Daemon) -> None:
    """Its reserve is more than is available: what is put is refused, and taken again when the reserve is less."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE
    own = daemon.lend()
    daemon.config.max_lend, daemon.config.reserve = MIB, total - 16 * MIB
    daemon.reload()
    wait_until("it is known", lambda: not daemon.state()["spare"])
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        assert not borrower.store(1, 1, 1, page_of(1))
        daemon.config.reserve = 0
        daemon.reload()
        wait_until("it is known", lambda: daemon.state()["spare"])
        assert borrower.store(1, 1, 2, page_of(2))


def _resident(daemon: Daemon) -> int:
    fields = Path(f"/proc/{daemon.process.pid}/statm").read_text().split()
    return int(fields[1]) * PAGE


def test_memory_of_pages_that_are_gone_is_given_back(daemon: Daemon) -> None:
    """A borrower forgets what it has, but for a page here and there: no row of pages stays for them."""
    pages = 12_000
    with borrowing(daemon) as borrower:
        borrower.put_all(pages)
        full = _resident(daemon)
        assert full > pages * PAGE
        borrower.forget(*((first, first + 98, ALL) for first in range(0, pages + 1, 100)))
        wait_until("they are gone", lambda: daemon.lent()["lent_pages"] <= pages // 99)
        wait_until("so is their memory", lambda: _resident(daemon) < full - pages * PAGE * 0.9)
        borrower.hits = 0
        borrower.ask_all(pages)
        assert borrower.hits == daemon.lent()["lent_pages"] > 100


def test_a_million_objects_cost_no_more_than_the_grant() -> None:
    """Each of one page, and all of them put: what is remembered of those that went is within the grant, too."""
    objects = 1_000_000
    with Daemon() as daemon, borrowing(daemon, 32 * MIB) as borrower:
        before = _resident(daemon)
        borrower.put_files(objects)
        assert borrower.stored == objects
        assert _resident(daemon) - before < 32 * MIB + SLACK
        hear(borrower, lambda: len(borrower.told(objects)) >= objects - daemon.lent()["lent_pages"])


def test_a_borrower_that_lies_harms_nobody(daemon: Daemon) -> None:
    """It is known, and sends a lot that means nothing, or nothing good; what it is granted bounds what it costs."""
    own, other = daemon.lend(name="liar"), daemon.lend(name="other")
    before = _resident(daemon)
    with contextlib.closing(Borrower(daemon.address, other, daemon.lender, MIB)) as borrower:
        assert borrower.store(1, 1, 1, page_of(1))
        report = LyingBorrower(seed=1).run(daemon.address, own, daemon.lender, LIES)
        assert report.messages > 20 * report.sessions > 20, report
        figures = daemon.lent("liar")
        assert min(figures[name] for name in ("gets", "get_misses", "puts", "bad_frames")) > 0, figures
        assert _resident(daemon) - before < 64 * MIB + 2 * SLACK
    session = Borrower(daemon.address, other, daemon.lender, MIB, resume=borrower.session, version=1)
    with contextlib.closing(session) as borrower:
        assert borrower.load(1, 1, 1) == page_of(1)


def test_a_borrower_that_never_listens_is_hung_up_on(daemon: Daemon) -> None:
    """It puts and takes no word of what went for that: nothing piles up here, and others are served meanwhile."""
    other = daemon.lend(name="other")
    with borrowing(daemon, 4 * MIB) as deaf, contextlib.closing(
        Borrower(daemon.address, other, daemon.lender, MIB)
    ) as borrower:  # fmt: skip
        deaf.deafen()
        before = _resident(daemon)
        thread = threading.Thread(target=_put_for_ever, args=(deaf,))
        thread.start()
        version, until = 0, time.monotonic() + A_MINUTE
        while thread.is_alive() and time.monotonic() < until:
            version, begin = version + 1, time.monotonic()
            assert borrower.store(1, 1, version, page_of(version))
            assert time.monotonic() - begin < CONTROL_SECONDS
            assert _resident(daemon) - before < 4 * MIB + 2 * SLACK
            time.sleep(0.05)
        assert not thread.is_alive()
        assert daemon.lent()["puts"] > 4 * MIB // COST
        wait_until("it lingers", lambda: daemon.lent()["state"] == "Lingering")


def _put_for_ever(borrower: PlainBorrower) -> None:
    with contextlib.suppress(*OVER):
        for first in itertools.count(1, 64):
            items = b"".join(PUT_ITEM.pack(1, n, n, bytes(TAG)) for n in range(first, first + 64))
            borrower.put.send(PUT, 64, first, items, bytes(64 * PAGE))


# A session outlives its connections


def test_a_session_goes_on(daemon: Daemon) -> None:
    """The connections end and come again: what was put is there; what was evicted meanwhile is told."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        assert not borrower.resumed
        for version in range(1, 601):
            assert borrower.store(1, version, version, page_of(version))
        session = borrower.session
    wait_until("it lingers", lambda: daemon.lent()["state"] == "Lingering")
    daemon.config.borrowers[daemon.NAME].quota = 400 * COST
    daemon.reload()
    resumed = Borrower(daemon.address, own, daemon.lender, 8 * MIB, resume=session, version=600)
    with contextlib.closing(resumed) as borrower:
        assert borrower.resumed
        frame = borrower.get.receive()
        assert frame.kind == EVICTED
        assert borrower.load(1, 600, 600) == page_of(600)
        assert borrower.load(1, 1, 1) is None
        assert daemon.lent()["resumes"] == 1


def test_who_lingers_makes_room_for_who_is_there(daemon: Daemon) -> None:
    """One has all that is lent, and is gone for a while: another gets it bit by bit."""
    daemon.config.max_lend = 4 * MIB
    one, other = daemon.lend(name="one"), daemon.lend(name="other")
    with contextlib.closing(PlainBorrower(daemon.address, one, daemon.lender)) as first:
        first.put_all(4 * MIB // COST)
        is_full = daemon.lent("one")["lent_pages"] == 4 * MIB // COST  # the node's kernel may have taken some
    wait_until("it lingers", lambda: daemon.lent("one")["state"] == "Lingering")
    with contextlib.closing(Borrower(daemon.address, other, daemon.lender, 8 * MIB)) as borrower:
        versions = iter(range(1, 1000))
        wait_until("there is room", lambda: borrower.store(1, 1, next(versions), page_of(1)))
        assert not is_full or daemon.lent("one")["lent_pages"] == 0


@pytest.mark.parametrize(("number", "version"), [(1, 5), (0, 4)])
def test_a_borrower_that_went_back_in_time_begins_anew(daemon: Daemon, number: int, version: int) -> None:
    """Another session's number, or a version behind what was put: nothing of the former session is there."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
        assert borrower.store(1, 1, 5, page_of(5))
        session = borrower.session ^ number
    anew = Borrower(daemon.address, own, daemon.lender, 8 * MIB, resume=session, version=version)
    with contextlib.closing(anew) as borrower:
        assert not borrower.resumed
        assert borrower.load(1, 1, 5) is None
        assert daemon.lent()["lent_pages"] == 0


def test_a_session_does_not_linger_for_ever(daemon: Daemon) -> None:
    """Its pages are dropped when its time is over, or its borrower is not enabled any more."""
    own = daemon.lend()
    for end in ("linger", "enabled"):
        daemon.config.linger_seconds, daemon.config.borrowers[daemon.NAME].enabled = 60, True
        daemon.reload()
        with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as borrower:
            assert borrower.store(1, 1, 1, page_of(1))
        wait_until("it lingers", lambda: daemon.lent()["state"] == "Lingering")
        assert daemon.lent()["lent_pages"] == 1
        if end == "linger":
            daemon.config.linger_seconds = 1
        else:
            daemon.config.borrowers[daemon.NAME].enabled = False
        daemon.reload()
        wait_until("its pages are gone", lambda: daemon.lent()["lent_pages"] == 0)


def test_the_latest_connection_takes_over(daemon: Daemon) -> None:
    """A borrower whose connections hang comes again: it is served, and the former connections end."""
    own = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, own, daemon.lender, 8 * MIB)) as former:
        assert former.store(1, 1, 1, page_of(1))
        again = Borrower(daemon.address, own, daemon.lender, 8 * MIB, resume=former.session, version=1)
        with contextlib.closing(again) as borrower:
            assert borrower.resumed
            assert borrower.load(1, 1, 1) == page_of(1)
            assert hangs_up(former.get.sock)
            # A connection is the session's once a thread serves it, soon after its peer's last word of the handshake.
            wait_until("both are the session's", lambda: daemon.lent()["connections"] == 2)


# What it costs the node


def memory_cgroup(limit: int) -> Path:
    """A new one with such a limit, in either version of cgroups."""
    first = Path("/sys/fs/cgroup/memory")
    folder = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"node-lender-{os.getpid()}"
    folder.mkdir()
    (folder / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(limit))
    return folder


def statistics(folder: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, (folder / "memory.stat").read_text().splitlines())}


def test_more_is_put_than_the_cgroup_may_have() -> None:
    """A limit of 64 MiB, into which 156 MiB are put: the kernel drops pages, and kills nobody.

    What is lent counts as file memory, nearly all of it inactive, which kubelet takes for free.
    """
    folder = memory_cgroup(64 * MIB)
    enter = ("/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh")
    try:
        with Daemon(Config(max_lend=256 * MIB), enter) as daemon, borrowing(daemon, 200 * MIB) as borrower:
            assert "LimitBelowMaxLend" in [one["reason"] for one in daemon.state()["conditions"]]
            assert daemon.state()["limit_bytes"] == 64 * MIB
            borrower.put_all(10_000)
            borrower.ping()
            figures = statistics(folder)
            print(f"\nafter 39 MiB: {figures}")
            assert figures["inactive_file"] + figures["active_file"] > 0.9 * 10_000 * PAGE
            borrower.put_all(40_000)
            assert borrower.stored == 50_000
            wait_until("it is noticed", lambda: daemon.lent()["reclaimed"] > 20_000)
            borrower.ask_all(40_000)
            print(f"{borrower.hits} of 40000 pages are left, {daemon.lent()['reclaimed']} were taken")
            assert borrower.hits > 8_000
    finally:
        wait_until("nobody is in it", lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()
