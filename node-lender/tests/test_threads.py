"""The threads that serve connections: they come and go with these, and cost little."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import MIB, Allowed, Config, Daemon
from test_handshake import hangs_up
from test_lending import borrowing, page_of

from bed.hostile import PlainBorrower
from bed.protocol import DATA, FRAME, GET, GET_ITEM, GET_MAX, NUMBER, PAGE, Borrower, KeyPair, Lane
from bed.tidepool import wait_until

BORROWERS, LANES = 64, 3  # beside GET and PUT channel
THREADS = LANES + 3  # of a session: one for each connection, and one for notices
EACH = 48 << 10  # bytes of a connection, its buffers and its thread included
ASKED = 16  # of 2 MiB, which is more than a connection ever holds
A_SECOND, A_WHILE = 1.0, 0.3
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _threads(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir()))


def _private(daemon: Daemon) -> int:
    """Bytes of memory that is nobody else's."""
    (kib,) = re.findall(r"^RssAnon:\s*(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text(), re.M)
    return int(kib) << 10


def _first_page() -> int:
    """Bytes that a borrower's first page takes: itself and notes for 512, or a huge page."""
    return 2 * MIB if "[always]" in HUGE_PAGES.read_text() else PAGE + 512 * 64


@contextlib.contextmanager
def _session(daemon: Daemon, own: KeyPair) -> Iterator[tuple[Borrower, list[Lane]]]:
    """All the connections that a borrower may have, each in use."""
    with contextlib.ExitStack() as stack:
        borrower = stack.enter_context(contextlib.closing(Borrower(daemon.address, own, daemon.lender, MIB)))
        lanes = [stack.enter_context(contextlib.closing(borrower.lane())) for _ in range(LANES)]
        assert borrower.store(1, 1, 1, page_of(1))
        for lane in (borrower, *lanes):
            assert lane.load(1, 1, 1) == page_of(1)
        yield borrower, lanes


def test_no_thread_outlives_its_connection(daemon: Daemon) -> None:
    """Whoever ends it: the borrower, a frame that is none on any connection, the administrator, a takeover."""
    own, before = daemon.lend(), _threads(daemon)

    def all_gone() -> None:
        wait_until("no thread is left", lambda: _threads(daemon) == before)

    with _session(daemon, own):
        assert _threads(daemon) == before + THREADS
    all_gone()
    for place in range(THREADS - 1):
        with _session(daemon, own) as (borrower, lanes):
            connection = (borrower.get, borrower.put, *(lane.get for lane in lanes))[place]
            connection.sock.sendall(FRAME.pack(0, GET, 0, 0, 1))
            all_gone()
    with _session(daemon, own) as (former, _), _session(daemon, own):
        assert hangs_up(former.get.sock)
        wait_until("the former threads have ended", lambda: _threads(daemon) == before + THREADS)
        daemon.config.borrowers.clear()
        daemon.reload()
        all_gone()


def test_64_borrowers_have_five_connections_each() -> None:
    """All that may be connected are, and in use: a thread and some memory for each connection, until they end."""
    keys = {f"borrower-{number}": KeyPair() for number in range(BORROWERS)}
    allowed = {name: Allowed(own.identity, MIB) for name, own in keys.items()}
    with Daemon(Config(borrowers=allowed)) as daemon:
        before, private = _threads(daemon), _private(daemon)
        with contextlib.ExitStack() as stack:
            for own in keys.values():
                stack.enter_context(_session(daemon, own))
            assert _threads(daemon) == before + BORROWERS * THREADS
            cost = _private(daemon) - private
            print(f"\n{cost >> 10} KiB for {BORROWERS} sessions")
            assert cost < BORROWERS * (_first_page() + (LANES + 2) * EACH)
        wait_until("no thread is left", lambda: _threads(daemon) == before)
        assert {one["connections"] for one in daemon.state()["borrowers"]} == {0}


def test_threads_keep_no_memory_of_large_replies(daemon: Daemon) -> None:
    """Two MiB are asked for on each of four lanes, again and again: afterwards nothing is left of that."""
    with borrowing(daemon) as borrower, contextlib.ExitStack() as stack:
        borrower.put_all(GET_MAX)
        before = _private(daemon)
        lanes = [borrower, *(stack.enter_context(contextlib.closing(borrower.lane())) for _ in range(LANES))]
        items = NUMBER.pack(borrower.FILE) + b"".join(GET_ITEM.pack(index, index + 1) for index in range(GET_MAX))
        for _ in range(3):
            for lane in lanes:
                lane.get.send(GET, GET_MAX, 9, items)
            for lane in lanes:
                while lane.get.receive().kind != DATA:
                    pass
        wait_until("it is given back", lambda: _private(daemon) - before < len(lanes) * EACH)


def _limited(threads: int) -> tuple[str, ...]:
    """What goes before a daemon that becomes somebody who may have so many threads, and has no other process."""
    return ("/bin/sh", "-c", f'exec prlimit --nproc={threads} "$@" --user games', "sh")


@pytest.mark.parametrize("spare", [0, 1])
def test_who_gets_no_thread_is_refused_and_nothing_else_happens(daemon: Daemon, spare: int) -> None:
    """There is one for neither of the two that a takeover needs, or for one: the session that there is goes on.

    When it has ended its borrower comes in again, and finds its page.
    """
    with Daemon(before=_limited(_threads(daemon) + 3 + spare)) as limited:
        own = limited.lend()
        with contextlib.closing(Borrower(limited.address, own, limited.lender, MIB)) as borrower:
            assert borrower.store(1, 1, 1, page_of(1))
            threads = _threads(limited)
            with pytest.raises((OSError, EOFError)):
                Borrower(limited.address, own, limited.lender, MIB)
            wait_until("it is counted", lambda: limited.state()["rejected"] == 1)
            assert "there is no thread to serve it" in limited.log.read_text()
            assert borrower.load(1, 1, 1) == page_of(1)
            wait_until("that one's has ended", lambda: _threads(limited) == threads)
            assert limited.lent()["connections"] == 2
            with contextlib.closing(borrower.lane()) as lane:
                assert hangs_up(lane.get.sock) if spare == 0 else lane.load(1, 1, 1) == page_of(1)
        wait_until("it lingers", lambda: limited.lent()["state"] == "Lingering")
        again = Borrower(limited.address, own, limited.lender, MIB, resume=borrower.session, version=1)
        with contextlib.closing(again) as borrower:
            assert borrower.load(1, 1, 1) == page_of(1)


def _stands_still(daemon: Daemon) -> bool:
    """Whether it has answered somebody, and does so no more."""
    before = daemon.lent()["gets"]
    time.sleep(A_WHILE)
    return 0 < before == daemon.lent()["gets"]


def test_others_are_served_while_one_connection_is_stuck(daemon: Daemon) -> None:
    """Replies fill the connection, notices wait behind them, and nobody reads: a lane of the same borrower is served.

    In the end the session is hung up on, with all of its threads.
    """
    before = _threads(daemon)
    with borrowing(daemon) as borrower:
        borrower.put_all(4096)
        with contextlib.closing(borrower.lane()) as lane:
            borrower.deafen()
            for _ in range(ASKED):
                borrower.ask(range(GET_MAX))
            wait_until("it is stuck", lambda: _stands_still(daemon))
            assert daemon.lent()["gets"] < ASKED
            daemon.config.borrowers[daemon.NAME].quota = 8 * MIB
            daemon.reload()
            wait_until("pages have gone", lambda: daemon.lent()["untold"] > 1000)
            begin = time.monotonic()
            assert lane.load(PlainBorrower.FILE, 4095, 4096) == bytes(PAGE)
            assert daemon.lent()["untold"] > 1000
            assert time.monotonic() - begin < A_SECOND
            wait_until("it is hung up on", lambda: daemon.lent()["state"] == "Lingering")
    wait_until("no thread is left", lambda: _threads(daemon) == before)
