"""Who comes, and what they are told: the daemon against the model of the protocol in kernel-module/tests/bed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
from daemon import MIB, PATIENCE, Allowed, Daemon

from bed.hostile import NO_LIMITS, ask_pages, forget_ranges, put_pages
from bed.protocol import (
    BAD_LIMITS,
    CLEAR,
    DISABLED,
    GET_CHANNEL,
    HEAD,
    LANE_CHANNEL,
    MAGIC,
    MESSAGE_1,
    MESSAGE_2,
    MESSAGE_2_BYTES,
    MESSAGE_3,
    PAGE,
    PUT_CHANNEL,
    REJECT_IDENTITY,
    REJECT_VERSION,
    REKEY_FRAMES,
    TAG,
    UNKNOWN,
    VERSION,
    Borrower,
    Cipher,
    Hello,
    KeyPair,
    Limits,
    Noise,
    Refused,
    connect,
    dial,
    exactly,
    message_1,
    message_3,
    point_of,
    read_answer,
    somebody,
)
from bed.tidepool import wait_until

OLD_HELLO = HEAD.pack(MAGIC, 2, 0, 0) + bytes(104)  # of protocol 2
BURST = 512  # frames at once


def hangs_up(sock: socket.socket) -> bool:
    """Whether it does so without a word."""
    sock.settimeout(PATIENCE)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def refusal(daemon: Daemon, own: KeyPair, lender: bytes | None = None) -> Refused:
    """What somebody is told who wants to borrow."""
    with pytest.raises(Refused) as refused:
        connect(daemon.address, own, lender or daemon.lender, Hello(1, MIB, GET_CHANNEL))
    return refused.value


def rejection(daemon: Daemon, message: bytes) -> Refused:
    """What somebody is told in the clear who sends that."""
    with contextlib.closing(dial(daemon.address)) as sock:
        sock.sendall(message)
        with pytest.raises(Refused) as refused:
            read_answer(sock, Noise(KeyPair(), daemon.lender))
    return refused.value


def test_lender_says_why_not(daemon: Daemon) -> None:
    """Not known, switched off, another's identity, another version: each is told so, and is counted."""
    known, before = daemon.lend(), daemon.state()["rejected"]
    off = KeyPair()
    daemon.config.borrowers["off"] = Allowed(off.identity, enabled=False)
    daemon.reload()
    assert (why := refusal(daemon, KeyPair())).sealed
    assert why.code == UNKNOWN
    assert (why := refusal(daemon, off)).sealed
    assert why.code == DISABLED
    why = refusal(daemon, known, point_of(somebody()))
    assert (why.code, why.sealed) == (REJECT_IDENTITY, False)
    for hello in (OLD_HELLO, HEAD.pack(MAGIC, VERSION + 1, MESSAGE_1, 0)):
        why = rejection(daemon, hello)
        assert (why.code, why.versions) == (REJECT_VERSION, (VERSION, VERSION))
    wait_until("they are counted", lambda: daemon.state()["rejected"] == before + 5)
    assert daemon.lent()["state"] == "Listening"


def test_what_is_no_handshake_is_dropped(daemon: Daemon) -> None:
    """Garbage, a message of the wrong type, half a message, points of low order, an unknown channel, no session."""
    known = daemon.lend()
    _, message = message_1(known, daemon.lender, Hello(1, MIB, GET_CHANNEL))
    _, channel = message_1(known, daemon.lender, Hello(1, MIB, channel=3))
    _, numberless = message_1(known, daemon.lender, Hello(0, MIB, GET_CHANNEL))
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        HEAD.pack(MAGIC, VERSION, MESSAGE_2, 0) + message[HEAD.size :],
        channel,
        numberless,
    ]
    for what in garbage:
        with contextlib.closing(dial(daemon.address)) as sock:
            sock.sendall(what)
            assert hangs_up(sock), what
    for point in (bytes(32), b"\1" + bytes(31)):
        assert rejection(daemon, message[: HEAD.size] + point + message[HEAD.size + 32 :]).code == REJECT_IDENTITY
    with contextlib.closing(dial(daemon.address)) as sock:
        sock.sendall(message[:-1])
        sock.shutdown(socket.SHUT_WR)
        assert hangs_up(sock)
    assert daemon.lent()["state"] == "Listening"


def test_limits_that_are_none_are_refused(daemon: Daemon) -> None:
    """Nothing at once, or more than the protocol has: the borrower is told so, and has no session."""
    known = daemon.lend()
    for limits in NO_LIMITS:
        with pytest.raises(Refused) as refused:
            connect(daemon.address, known, daemon.lender, Hello(1, MIB, GET_CHANNEL, limits=limits))
        assert (refused.value.code, refused.value.sealed) == (BAD_LIMITS, True), limits
    assert daemon.lent()["state"] == "Listening"


@pytest.mark.parametrize(("send", "most"), [(ask_pages, 5), (put_pages, 3)])
def test_a_borrower_is_held_to_its_limits(daemon: Daemon, send: Callable[[Borrower, int], None], most: int) -> None:
    """Five pages a GET, and three a PUT: so many are served, and one more ends the session."""
    known, limits = daemon.lend(), Limits(get=5, put=3)
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, 8 * MIB, limits=limits)) as borrower:
        assert borrower.get.limits == borrower.put.limits == limits
        send(borrower, most)
        assert borrower.get.receive().count == most
        send(borrower, most + 1)
        assert hangs_up(borrower.get.sock)
        wait_until("it is counted", lambda: daemon.lent()["bad_frames"] == 1)


def test_a_borrower_is_held_to_its_notices(daemon: Daemon) -> None:
    """Three ranges a FORGET: so many are taken, and one more ends the session."""
    known, limits = daemon.lend(), Limits(notices=3)
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, 8 * MIB, limits=limits)) as borrower:
        before = daemon.lent()["bad_frames"]
        forget_ranges(borrower, 3)
        borrower.ping()
        forget_ranges(borrower, 4)
        assert hangs_up(borrower.get.sock)
        wait_until("it is counted", lambda: daemon.lent()["bad_frames"] == before + 1)


def test_a_repeated_message_changes_nothing(daemon: Daemon) -> None:
    """Who repeats a borrower's message 1 is answered, and does not end that borrower's session, nor begin one."""
    known, before = daemon.lend(), daemon.state()["rejected"]
    noise, message = message_1(known, daemon.lender, Hello(session=99, size=8 * MIB, channel=GET_CHANNEL))
    with contextlib.closing(dial(daemon.address)) as sock:
        sock.sendall(message)
        read_answer(sock, noise)  # and it goes away
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, 8 * MIB)) as borrower:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        third = [
            b"",  # silence
            HEAD.pack(MAGIC, VERSION, MESSAGE_3, 0) + bytes(TAG),
            message_3(noise.split()[0]),  # of the handshake before
            message_3(Cipher(bytes(32))),
        ]
        for answer in third:
            with contextlib.closing(dial(daemon.address)) as sock:
                sock.sendall(message)
                assert HEAD.unpack(exactly(sock, HEAD.size))[2] == MESSAGE_2
                exactly(sock, MESSAGE_2_BYTES)
                sock.sendall(answer)
                assert not answer or hangs_up(sock)
        assert borrower.load(1, 1, 1) == bytes(PAGE)
        wait_until("they are counted", lambda: daemon.state()["rejected"] == before + 1 + len(third))
        assert daemon.lent()["connections"] == 2


def test_another_identity_ends_the_session(daemon: Daemon) -> None:
    """While connected: the connections end at once, and the next handshake needs the new one."""
    known, other = daemon.lend(), KeyPair()
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, 8 * MIB)) as borrower:
        daemon.reload()  # the same: nothing happens
        borrower.ping()
        daemon.config.borrowers[daemon.NAME].identity = other.identity
        daemon.reload()
        assert hangs_up(borrower.get.sock)
        assert hangs_up(borrower.put.sock)
    assert refusal(daemon, known).code == UNKNOWN
    Borrower(daemon.address, other, daemon.lender, 8 * MIB).close()


@pytest.mark.parametrize("features", [0, CLEAR])
def test_keys_are_renewed(daemon: Daemon, features: int) -> None:
    """A session goes on when the keys of both directions have become others, as the model's do."""
    known = daemon.lend()
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, 8 * MIB, features=features)) as borrower:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        for _ in range(REKEY_FRAMES // BURST + 1):
            borrower.pings(BURST)
        assert borrower.load(1, 1, 1) == bytes(PAGE)


@pytest.mark.parametrize("channel", [PUT_CHANNEL, LANE_CHANNEL])
def test_a_channel_without_its_session_is_hung_up_on(daemon: Daemon, channel: int) -> None:
    """There is none, or it has another number: the session that there is goes on."""
    known = daemon.lend()
    with contextlib.closing(connect(daemon.address, known, daemon.lender, Hello(5, MIB, channel))) as alone:
        assert hangs_up(alone.sock)
    with contextlib.closing(Borrower(daemon.address, known, daemon.lender, MIB)) as borrower:
        hello = Hello(borrower.offered ^ 1, MIB, channel)
        with contextlib.closing(connect(daemon.address, known, daemon.lender, hello)) as other:
            assert hangs_up(other.sock)
        borrower.ping()


@pytest.mark.parametrize(("addresses", "most"), [(1, 8), (8, 32)])
def test_trickling_strangers_lock_nobody_out(daemon: Daemon, addresses: int, most: int) -> None:
    """Forty half-open handshakes that send a byte a second: a borrower connects, and they are cut at their time."""
    known = daemon.lend()
    _, message = message_1(KeyPair(), daemon.lender, Hello(1, MIB, GET_CHANNEL))
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(40)]
        for number, sock in enumerate(socks):
            sock.bind((f"127.0.1.{number % addresses}", 0))
            sock.connect(daemon.address)
        end = threading.Event()
        thread = threading.Thread(target=_trickle, args=(socks, message, end))
        thread.start()
        wait_until("strangers are there", lambda: daemon.state()["strangers"] == most)
        begin = time.monotonic()
        with contextlib.closing(Borrower(daemon.address, known, daemon.lender, MIB)) as borrower:
            borrower.ping()
            wait_until("the strangers are gone", lambda: daemon.state()["strangers"] == 0)
            assert time.monotonic() - begin < 20
        end.set()
        thread.join()


def _trickle(socks: list[socket.socket], message: bytes, end: threading.Event) -> None:
    for byte in message:
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(bytes([byte]))
        if end.wait(1):
            return
