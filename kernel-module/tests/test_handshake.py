"""Who a guest is talking to: the handshake on real kernels, against a model of it and against those who break it."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from bed.guest import HOST_ADDRESS, GuestError
from bed.hostile import NO_LIMITS, ask_pages, forget_ranges, put_pages
from bed.pair import NAME, Pair
from bed.protocol import (
    BAD_LIMITS,
    CLEAR,
    DATA,
    DATA_ITEM,
    DISABLED,
    EVICTED,
    GET_CHANNEL,
    HEAD,
    MAGIC,
    MESSAGE_1,
    MESSAGE_2,
    MESSAGE_2_BYTES,
    MESSAGE_3,
    PAGE,
    PAGE_ID,
    REJECT_FULL,
    REJECT_IDENTITY,
    REJECT_VERSION,
    TAG,
    UNKNOWN,
    VERSION,
    WELCOME,
    Borrower,
    Cipher,
    Frame,
    Hello,
    KeyPair,
    Lender,
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
    reject,
    somebody,
)
from bed.tidepool import MIB, PATIENCE, Tidepool, wait_until

# What another implementation computes: cacophony's vector, which the kernel's self-test has, too.
SECRETS = {
    "initiator": "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    "initiator's fresh": "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    "responder": "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    "responder's fresh": "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
}
PROLOGUE = b"John Galt"
HASH = "669c8640d9e42a3cda2f232f78597ceefb01daa6e3df81181ccce6fc6b5026bf"
MESSAGES = [
    (
        b"Ludwig von Mises",
        (
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444e417bc55c7a8166c993356c1be41ef67818a292426f30"
            "1556c7f26b21d25ddb097153891a9a956cff47b83e63ad8d701c1342c209cff1ca5ecd43402762ac249e3bd3a4c0a145fe07cb5dae28ea"
            "13a3"
        ),
    ),
    (
        b"Murray Rothbard",
        (
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843af2ccf9972e22afc67aeafcd25162f7f98c363b7762e3e"
            "4cb7d272e39f27a5"
        ),
    ),
    (b"F. A. Hayek", "66acfc92e3197de166809e6d4d5d003dcc819a84bc3522ca53c9d9"),
    (b"Carl Menger", "71f89aa6533a6de70b0826864dd75f60806ee40170c16290189eb3"),
]
OLD_HELLO = HEAD.pack(MAGIC, 2, 0, 0) + bytes(104)  # of protocol 2


def test_model_computes_what_others_do() -> None:
    """Both sides' messages, hash and session keys are those of the published vector."""
    keys = {name: KeyPair(bytes.fromhex(secret)) for name, secret in SECRETS.items()}
    one = Noise(keys["initiator"], keys["responder"].point, PROLOGUE, keys["initiator's fresh"])
    other = Noise(keys["responder"], None, PROLOGUE, keys["responder's fresh"])
    first = one.write_1(MESSAGES[0][0])
    assert other.read_1(first) == MESSAGES[0][0]
    second = other.write_2(MESSAGES[1][0])
    assert one.read_2(second) == MESSAGES[1][0]
    assert other.peer == keys["initiator"].point
    sealed = [cipher.seal(text) for cipher, (text, _) in zip(one.split(), MESSAGES[2:], strict=True)]
    assert [each.hex() for each in (first, second, *sealed)] == [wire for _, wire in MESSAGES]
    assert one.hash.hex() == other.hash.hex() == HASH


def test_kernel_computes_what_others_do(bare_pair: Pair) -> None:
    """The module's own test with the same vector passes on this kernel, and that of its other parts."""
    bare_pair.b.load("selftest=1")
    assert "tidepool: self-test: handshake passed" in bare_pair.borrower.log()
    assert "tidepool: self-test: all parts passed" in bare_pair.borrower.log()
    bare_pair.assert_clean()


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "part"),
    [("NOISE", "message 1"), ("SPLIT", "windows"), ("JOIN", "ranges"), ("GROWTH", "objects of the catalog")],
)
def test_kernel_that_computes_something_else(kernel: str, what: str, part: str) -> None:
    """A module whose keys, windows or table of files are made in another way is not loaded, and names what failed."""
    with (pair := Pair(kernel, disk=None, broken=what)) as (borrower, _):
        assert borrower.run(pair.b.insmod("selftest=1")).code != 0
        assert f"tidepool: self-test: {part}: failed" in borrower.log()
        assert "not loaded: self-test" in borrower.log()


# A lender and those who come to it


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """Both guests' modules are loaded; this machine reaches the lender, and both reach this machine."""
    with (pair := Pair(kernel, disk=None, host=True)):
        pair.l.load()
        pair.b.load()
        yield pair
        pair.assert_clean()


@pytest.fixture
def known(pair: Pair) -> Iterator[KeyPair]:
    """Somebody to whom the lender lends."""
    own = KeyPair()
    pair.l.lend(NAME, quota=16 * MIB, identity=own.identity)
    yield own
    pair.l.remove_peers()


def _at(pair: Pair) -> tuple[str, int]:
    return "127.0.0.1", pair.lender_port


def _lender(pair: Pair) -> bytes:
    return point_of(pair.l.identity)


def _refusal(pair: Pair, own: KeyPair, lender: bytes | None = None) -> Refused:
    """What somebody is told who wants to borrow."""
    with pytest.raises(Refused) as refused:
        connect(_at(pair), own, lender or _lender(pair), Hello(1, MIB, GET_CHANNEL))
    return refused.value


def _rejection(pair: Pair, message: bytes) -> Refused:
    """What somebody is told in the clear who sends that."""
    with contextlib.closing(dial(_at(pair))) as sock:
        sock.sendall(message)
        with pytest.raises(Refused) as refused:
            read_answer(sock, Noise(KeyPair(), _lender(pair)))
    return refused.value


def _hangs_up(sock: socket.socket) -> bool:
    """Whether it does so without a word."""
    sock.settimeout(PATIENCE)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_model_borrows_from_a_guest(pair: Pair, known: KeyPair) -> None:
    """A page that it has put comes back; its identity is all that it needs."""
    with contextlib.closing(Borrower(_at(pair), known, _lender(pair), 8 * MIB)) as borrower:
        assert borrower.granted == 8 * MIB
        page = bytes(range(256)) * (PAGE // 256)
        assert borrower.store(file=7, index=3, version=11, page=page)
        assert borrower.load(file=7, index=3, version=11) == page
        assert borrower.load(file=7, index=3, version=12) is None
        assert pair.l.get(f"borrowers/{NAME}/state") == "Connected"


def test_lender_says_why_not(pair: Pair, known: KeyPair) -> None:
    """Not known, switched off, another's identity, another version: each is told so, counted, and in the log."""
    before, logged = pair.l.stats()["rejected"], len(_refusals_logged(pair))
    refusal = _refusal(pair, KeyPair())
    assert (refusal.code, refusal.sealed) == (UNKNOWN, True)
    off = KeyPair()
    pair.l.mkdir("borrowers/off")
    pair.l.set("borrowers/off/identity", off.identity)
    refusal = _refusal(pair, off)
    assert (refusal.code, refusal.sealed) == (DISABLED, True)
    refusal = _refusal(pair, known, point_of(somebody()))
    assert (refusal.code, refusal.sealed) == (REJECT_IDENTITY, False)
    for hello in (OLD_HELLO, HEAD.pack(MAGIC, VERSION + 1, MESSAGE_1, 0)):
        refusal = _rejection(pair, hello)
        assert (refusal.code, refusal.versions) == (REJECT_VERSION, (VERSION, VERSION))
    wait_until("they are counted", lambda: pair.l.stats()["rejected"] == before + 5)
    assert pair.l.get(f"borrowers/{NAME}/state") == "Listening"
    words = ["UnknownIdentity", "Disabled", "OtherIdentity", "VersionMismatch", "VersionMismatch"]
    wait_until("each is in the log", lambda: _refusals_logged(pair)[logged:] == words)


def _refusals_logged(pair: Pair) -> list[str]:
    """Whom the lender has sent away, and why, as its log has it."""
    return re.findall(r"tidepool: connection from [0-9.]+ refused: (\w+): error -", pair.lender.log())


def test_lender_drops_what_is_no_handshake(pair: Pair, known: KeyPair) -> None:
    """Garbage, a message of the wrong type, half a message, points of low order, an unknown channel."""
    _, message = message_1(known, _lender(pair), Hello(1, MIB, GET_CHANNEL))
    _, channel = message_1(known, _lender(pair), Hello(1, MIB, channel=3))
    garbage = [b"GET / HTTP/1.1\r\n\r\n", HEAD.pack(MAGIC, VERSION, MESSAGE_2, 0) + message[HEAD.size :], channel]
    for what in garbage:
        with contextlib.closing(dial(_at(pair))) as sock:
            sock.sendall(what)
            assert _hangs_up(sock), what
    for point in (bytes(32), b"\1" + bytes(31)):
        assert _rejection(pair, message[: HEAD.size] + point + message[HEAD.size + 32 :]).code == REJECT_IDENTITY
    with contextlib.closing(dial(_at(pair))) as sock:
        sock.sendall(message[:-1])
        sock.shutdown(socket.SHUT_WR)
        assert _hangs_up(sock)
    assert pair.l.get(f"borrowers/{NAME}/state") == "Listening"


def test_lender_refuses_limits_that_are_none(pair: Pair, known: KeyPair) -> None:
    """Nothing at once, or more than the protocol has: the borrower is told so, and has no session."""
    before = pair.l.stats()["rejected"]
    for limits in NO_LIMITS:
        with pytest.raises(Refused) as refused:
            connect(_at(pair), known, _lender(pair), Hello(1, MIB, GET_CHANNEL, limits=limits))
        assert (refused.value.code, refused.value.sealed) == (BAD_LIMITS, True), limits
    wait_until("they are counted", lambda: pair.l.stats()["rejected"] == before + len(NO_LIMITS))
    assert pair.l.get(f"borrowers/{NAME}/state") == "Listening"


@pytest.mark.parametrize(("send", "most"), [(ask_pages, 5), (put_pages, 3)])
def test_lender_holds_a_borrower_to_its_limits(
    pair: Pair, known: KeyPair, send: Callable[[Borrower, int], None], most: int
) -> None:
    """Five pages a GET, and three a PUT: so many are served, and one more ends the session."""
    limits = Limits(get=5, put=3)
    with contextlib.closing(Borrower(_at(pair), known, _lender(pair), 8 * MIB, limits=limits)) as borrower:
        assert borrower.get.limits == borrower.put.limits == limits
        send(borrower, most)
        assert borrower.get.receive().count == most
        before = pair.lent()["bad_frames"]
        send(borrower, most + 1)
        assert _hangs_up(borrower.get.sock)
        wait_until("it is counted", lambda: pair.lent()["bad_frames"] == before + 1)


def test_lender_holds_a_borrower_to_its_notices(pair: Pair, known: KeyPair) -> None:
    """Three ranges a FORGET: so many are taken, and one more ends the session."""
    with contextlib.closing(Borrower(_at(pair), known, _lender(pair), 8 * MIB, limits=Limits(notices=3))) as borrower:
        before = pair.lent()["bad_frames"]
        forget_ranges(borrower, 3)
        borrower.ping()
        forget_ranges(borrower, 4)
        assert _hangs_up(borrower.get.sock)
        wait_until("it is counted", lambda: pair.lent()["bad_frames"] == before + 1)


def test_repeated_message_changes_nothing(pair: Pair, known: KeyPair) -> None:
    """Who repeats a borrower's message 1 is answered, and does not end that borrower's session, nor begin one."""
    hello = Hello(session=99, size=8 * MIB, channel=GET_CHANNEL)
    before = pair.l.stats()["rejected"]
    noise, message = message_1(known, _lender(pair), hello)
    with contextlib.closing(dial(_at(pair))) as sock:
        sock.sendall(message)
        read_answer(sock, noise)  # and it goes away
    with contextlib.closing(Borrower(_at(pair), known, _lender(pair), 8 * MIB)) as borrower:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        third = [
            b"",  # silence
            HEAD.pack(MAGIC, VERSION, MESSAGE_3, 0) + bytes(TAG),
            message_3(noise.split()[0]),  # of the handshake before
            message_3(Cipher(bytes(32))),
        ]
        for answer in third:
            with contextlib.closing(dial(_at(pair))) as sock:
                sock.sendall(message)
                assert HEAD.unpack(exactly(sock, HEAD.size))[2] == MESSAGE_2
                exactly(sock, MESSAGE_2_BYTES)
                sock.sendall(answer)
                assert not answer or _hangs_up(sock)
        assert borrower.load(1, 1, 1) == bytes(PAGE)
        wait_until("they are counted", lambda: pair.l.stats()["rejected"] == before + 1 + len(third))
        assert pair.l.stats(f"borrowers/{NAME}")["connections"] == 2


def test_lender_hangs_up_on_who_a_borrower_was(pair: Pair, known: KeyPair) -> None:
    """Another identity while enabled: the session ends, and the next handshake needs the new one."""
    other = KeyPair()
    with contextlib.closing(Borrower(_at(pair), known, _lender(pair), 8 * MIB)) as borrower:
        pair.l.set(f"borrowers/{NAME}/identity", known.identity)  # the same: nothing happens
        borrower.ping()
        pair.l.set(f"borrowers/{NAME}/identity", other.identity)
        assert _hangs_up(borrower.get.sock)
        assert _hangs_up(borrower.put.sock)
    assert _refusal(pair, known).code == UNKNOWN
    Borrower(_at(pair), other, _lender(pair), 8 * MIB).close()


# A borrower and whom it finds


@contextlib.contextmanager
def _answering(reply: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port where every connection gets this reply, once a message 1 has come."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with contextlib.closing(sock), contextlib.suppress(OSError, EOFError):
                    sock.settimeout(PATIENCE)
                    sock.recv(1 << 12)
                    reply(sock)
                    sock.shutdown(socket.SHUT_WR)
                    sock.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _reason(tidepool: Tidepool, port: int, identity: str, reason: str, state: str = "Rejected") -> None:
    """A lender there is refused for that reason, which the log has, too."""
    tidepool.borrow(NAME, address=HOST_ADDRESS, size=16 * MIB, identity=identity, more={"port": port})
    try:
        wait_until(reason, lambda: tidepool.get(f"lenders/{NAME}/reason") == reason)
        tidepool.wait_state(f"lenders/{NAME}", state)
        tidepool.set(f"lenders/{NAME}/enabled", 0)
        assert tidepool.get(f"lenders/{NAME}/reason") == ""
    except AssertionError as error:
        found = tidepool.get(f"lenders/{NAME}/reason")
        raise GuestError(f"{error}; it is {found!r}\n{tidepool.guest.log()[-1500:]}") from None
    finally:
        tidepool.rmdir(f"lenders/{NAME}")


REPLIES: dict[str, list[Callable[[socket.socket], object]]] = {
    "NotALender": [
        lambda sock: sock.sendall(b"220 mail.example ESMTP\r\n"),
        lambda sock: sock.sendall(b""),
        lambda sock: sock.sendall(HEAD.pack(MAGIC, VERSION, MESSAGE_1, 0) + bytes(200)),
        lambda sock: reject(sock, 77),
        lambda sock: sock.sendall(HEAD.pack(MAGIC, VERSION, 9, 0)),
    ],
    "VersionMismatch": [
        lambda sock: reject(sock, REJECT_VERSION, 4, 6),
        lambda sock: sock.sendall(HEAD.pack(MAGIC, 4, MESSAGE_2, 0) + bytes(64)),
    ],
    "OtherIdentity": [
        lambda sock: sock.sendall(HEAD.pack(MAGIC, VERSION, MESSAGE_2, 0) + bytes(MESSAGE_2_BYTES)),
        lambda sock: sock.sendall(HEAD.pack(MAGIC, VERSION, MESSAGE_2, 0) + KeyPair().point + bytes(32)),
    ],
    "Full": [lambda sock: reject(sock, REJECT_FULL)],
}


def test_borrower_says_why_not(pair: Pair) -> None:
    """No lender, another version, another lender, one that is full or has not heard of it: the reason is there."""
    pair.b.set("ghost", "Exclusive")  # the hooks stay in: they would come and go with each lender, which takes a second
    for reason, replies in REPLIES.items():
        for reply in replies:
            with _answering(reply) as port:
                _reason(pair.b, port, somebody(), reason)
    assert "it speaks versions 4 to 6, not 3" in pair.borrower.log()
    lender = Lender()
    _reason(pair.b, lender.port, somebody(), "OtherIdentity")
    for answer, reason in ((UNKNOWN, "UnknownIdentity"), (DISABLED, "Disabled")):
        lender.answer = answer
        _reason(pair.b, lender.port, lender.identity, reason)
    lender.answer = WELCOME
    for limits in NO_LIMITS:
        lender.limits = limits
        _reason(pair.b, lender.port, lender.identity, "BadLimits")
    assert "limits: it allows 4 lanes, 0 pages a get, 64 a put, 128 notices" in pair.borrower.log()
    assert not lender.largest, "it has a session"
    lender.close()
    _reason(pair.b, lender.port, lender.identity, "Unreachable", "Connecting")
    pair.b.set("ghost", "Off")


@pytest.mark.parametrize(("kind", "item", "most"), [(DATA, DATA_ITEM, 5), (EVICTED, PAGE_ID, 3)])
def test_borrower_holds_a_lender_to_its_limits(pair: Pair, kind: int, item: struct.Struct, most: int) -> None:
    """Five pages a DATA, which nobody has asked for, and three an EVICTED: one more ends the connection."""
    lender, path = Lender(limits=Limits(get=5, notices=3)), f"lenders/{NAME}"
    more = {"port": lender.port}
    pair.b.borrow(NAME, address=HOST_ADDRESS, size=16 * MIB, identity=lender.identity, more=more)
    pair.b.wait_state(path, "Connected")
    lender.say(Frame(kind, most, number=1, metadata=bytes(most * item.size)))
    pair.b.set(f"{path}/size_bytes", 8 * MIB)  # it is granted that after it has heard all of this
    wait_until("it goes on", lambda: pair.b.stats(path)["granted_bytes"] == 8 * MIB)
    assert pair.b.stats(path)["bad_frames"] == 0
    lost = pair.b.stats(path)["disconnects"]
    lender.say(Frame(kind, most + 1, number=1, metadata=bytes((most + 1) * item.size)))
    wait_until("it hangs up", lambda: pair.b.stats(path)["disconnects"] > lost)
    assert pair.b.stats(path)["bad_frames"] == 1
    pair.b.rmdir(path)
    lender.close()


def test_features_of_another_day(pair: Pair, known: KeyPair) -> None:
    """A borrower that would like what no lender knows is told what of that there is."""
    noise, message = message_1(known, _lender(pair), Hello(1, 8 * MIB, GET_CHANNEL, features=CLEAR | 1 << 63))
    with contextlib.closing(dial(_at(pair))) as sock:
        sock.sendall(message)
        features, _ = read_answer(sock, noise)
    assert features == CLEAR


def test_guest_borrows_from_a_model(pair: Pair) -> None:
    """It connects to whom it knows; when it is told that it is another, it hangs up, and finds that one at once."""
    lender, path = Lender(), f"lenders/{NAME}"
    more = {"port": lender.port}
    pair.b.borrow(NAME, address=HOST_ADDRESS, size=16 * MIB, identity=lender.identity, more=more)
    pair.b.wait_state(path, "Connected")
    pair.b.set(f"{path}/identity", lender.identity)  # the same: nothing happens
    pair.b.set(f"{path}/identity", somebody())
    wait_until("it is refused", lambda: pair.b.get(f"{path}/reason") == "OtherIdentity")
    assert pair.b.stats(path)["disconnects"] == 1
    pair.b.set(f"{path}/identity", lender.identity)
    pair.b.wait_state(path, "Connected")
    pair.b.rmdir(path)
    lender.close()
