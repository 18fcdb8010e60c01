"""Peers that pass the handshake and then send what they like.

Most of it is well-formed and means nothing, or names pages that were put; once in a while something is no frame at all.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import select
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass

from bed.protocol import (
    DATA,
    DATA_ITEM,
    EVICTED,
    EVICTED_BEFORE,
    EXCLUSIVE,
    FORGET,
    FORGET_ITEM,
    FRAME,
    GET,
    GET_CHANNEL,
    GET_ITEM,
    GET_MAX,
    GRANT,
    GRANTED,
    NOTICE_MAX,
    NUMBER,
    PAGE,
    PAGE_ID,
    PING,
    PONG,
    PUT,
    PUT_ACK,
    PUT_CHANNEL,
    PUT_ITEM,
    PUT_MAX,
    RESIZE,
    TAG,
    Connection,
    Hello,
    KeyPair,
    Malformed,
    Refused,
    accept,
    connect,
)

GRANT_BYTES = 64 << 20
KNOWN_PAGES = 1024  # whose names are remembered, for lies that are nearly true
BROKEN_ONE_IN = 1000  # frames: it ends a session, and the next one takes its time
LINES_MAX = 16  # pages of data in one lie
SILENCE_SECONDS = 2.0
PAUSE_SECONDS = 0.0003  # between what nobody asked for, so that there is something to lie about
RETRY_SECONDS = 0.02
LONGEST = 10  # times as many messages as were asked for
OVER = (OSError, EOFError, Malformed, Refused)
PageId = tuple[int, int, int]


@dataclass
class Report:
    """How much was said, in how many sessions."""

    messages: int = 0
    sessions: int = 0


class Liar:
    """What both kinds share: what to say next."""

    def __init__(self, seed: int) -> None:
        self.report = Report()
        self.random = random.Random(seed)
        self._lock = threading.Lock()

    def one_in(self, n: int) -> bool:
        return not self.random.randrange(n)

    def number(self) -> int:
        """A small one, mostly."""
        return self.random.getrandbits(64) if self.one_in(10) else self.random.randrange(32)

    def numbers(self, size: int) -> bytes:
        return b"".join(NUMBER.pack(self.number()) for _ in range(size // NUMBER.size))

    def some(self, most: int) -> int:
        """How many of something a frame names; sometimes too many."""
        if self.one_in(BROKEN_ONE_IN):
            return self.random.choice([0, most + 1])
        return most if self.one_in(50) else 1 + self.random.randrange(min(most, LINES_MAX))

    def say(self, to: Connection, kind: int, count: int, number: int, metadata: bytes = b"", pages: int = 0) -> None:
        """One frame, with that many pages that nobody ever put."""
        flags = EXCLUSIVE if self.one_in(4) else 0
        with self._lock:
            self.report.messages += 1
            if self.one_in(BROKEN_ONE_IN):
                length = len(metadata) + TAG + pages * PAGE
                to.send_raw(self._spoilt(length, kind, flags, count, number), metadata, bytes(pages * PAGE))
            else:
                to.send(kind, count, number, metadata, bytes(pages * PAGE), flags)

    def _spoilt(self, length: int, kind: int, flags: int, count: int, number: int) -> bytes:
        """A header that is none."""
        anything = self.random.getrandbits
        heads = [
            (anything(32), kind, flags, count, number),
            ((length + self.random.randrange(65) - 32) % (1 << 32), kind, flags, count, number),
            (length, kind, flags, anything(16), number),
            (length, anything(8), flags, count, number),
            (anything(32), anything(8), anything(8), anything(16), anything(64)),
        ]
        return FRAME.pack(*self.random.choice(heads))


class LyingBorrower(Liar):
    """Borrows, and lies."""

    def run(self, address: tuple[str, int], own: KeyPair, lender: bytes, messages: int) -> Report:
        while self._goes_on(messages):
            try:
                get, put = self._begin(address, own, lender)
            except OVER:
                time.sleep(RETRY_SECONDS)
                continue
            self.report.sessions += 1
            with contextlib.suppress(*OVER):
                while self._goes_on(messages):
                    self._lie(get, put)
                    _drain(get.sock)
            get.close()
            put.close()
        return self.report

    def _goes_on(self, messages: int) -> bool:
        """Until so many were sent, and until a lender that is slower than this has hung up once."""
        sent = self.report.messages
        return sent < messages or (self.report.sessions < 2 and sent < LONGEST * messages)

    def _begin(self, address: tuple[str, int], own: KeyPair, lender: bytes) -> tuple[Connection, Connection]:
        session = secrets.randbits(64)
        get = connect(address, own, lender, Hello(session, GRANT_BYTES, GET_CHANNEL))
        try:
            get.receive()  # the grant
            put = connect(address, own, lender, Hello(session, GRANT_BYTES, PUT_CHANNEL))
        except OVER:
            get.close()
            raise
        for each in (get, put):
            each.sock.settimeout(SILENCE_SECONDS)
        return get, put

    def _lie(self, get: Connection, put: Connection) -> None:
        kind = self.random.choice([GET, GET, GET, PUT, PUT, FORGET, RESIZE, PING])
        anything = self.random.getrandbits(64)
        if kind == GET:
            n = self.some(GET_MAX)
            self.say(get, GET, n, anything, self.numbers(NUMBER.size + n * GET_ITEM.size))
        elif kind == PUT:
            n = self.some(PUT_MAX)
            self.say(put, PUT, n, anything, self.numbers(n * PUT_ITEM.size), n)
        elif kind == FORGET:
            n = self.some(NOTICE_MAX)
            self.say(get, FORGET, n, 0, self.numbers(n * FORGET_ITEM.size))
        else:
            size = NUMBER.pack(GRANT_BYTES if self.one_in(2) else self.number())
            self.say(get, kind, 0, anything, size if kind == RESIZE else b"")


class LyingLender(Liar):
    """Lends to whoever comes, on this machine's loopback address, and lies."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.own = KeyPair()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._known: deque[PageId] = deque(maxlen=KNOWN_PAGES)
        self._ping = 0
        self._over = True

    def start(self, messages: int) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(messages,), daemon=True)
        thread.start()
        return thread

    def _run(self, messages: int) -> None:
        while self.report.messages < messages:
            try:
                get, put = accept(self._listener, self.own, GRANT_BYTES)
            except OVER:
                continue
            self.report.sessions += 1
            self._session(get, put, messages)
        self._listener.close()

    def _session(self, get: Connection, put: Connection, messages: int) -> None:
        """Lies until the borrower has had enough, or so many messages were sent."""
        self._over = False
        self._known.clear()
        ears = [threading.Thread(target=self._hear, args=(each, get), daemon=True) for each in (get, put)]
        for ear in ears:
            ear.start()
        with contextlib.suppress(*OVER):
            while not self._over and self.report.messages < messages:
                self._lie(get)
                time.sleep(PAUSE_SECONDS)
        self._over = True
        get.close()
        put.close()
        for ear in ears:
            ear.join()

    def _hear(self, connection: Connection, get: Connection) -> None:
        with contextlib.suppress(*OVER):
            while not self._over:
                frame = connection.receive()
                if frame.kind == PING:
                    self._ping = frame.number
                elif frame.kind == GET and not self.one_in(20):  # else it is never answered
                    self._answer(get, frame.count, frame.number, frame.metadata[NUMBER.size :])
                elif frame.kind == PUT:
                    items = PUT_ITEM.iter_unpack(frame.metadata)
                    self._known.extend((file, index, version) for file, index, version, _ in items)
                    kept = self.random.getrandbits(64) if self.one_in(4) else (1 << 64) - 1
                    self.say(get, PUT_ACK, frame.count, frame.number, NUMBER.pack(kept))
        self._over = True

    def _answer(self, get: Connection, count: int, number: int, asked: bytes) -> None:
        """With the versions asked for, or others, or none, and with pages that nobody ever put."""
        honest, hits = not self.one_in(4), 0
        versions = [version for _, version in GET_ITEM.iter_unpack(asked)]
        if self.one_in(50):
            count = self.some(GET_MAX)
        items = []
        for place in range(count):
            version = 0
            if hits < LINES_MAX and not self.one_in(3):
                version = versions[place] if honest and place < len(versions) else self.number()
            hits += bool(version)
            items.append(DATA_ITEM.pack(version, bytes(TAG)))
        self.say(get, DATA, count, self.number() if self.one_in(50) else number, b"".join(items), hits)

    def _lie(self, get: Connection) -> None:
        """What nobody asked for."""
        lie = self.random.randrange(40)
        if lie == 0:
            if self.one_in(BROKEN_ONE_IN // 40):  # the borrower hangs up on this one
                self.say(get, PUT_ACK, self.some(PUT_MAX), self.number(), self.numbers(NUMBER.size))
        elif lie < 5:
            n = 1 + self.random.randrange(4)
            items = DATA_ITEM.pack(1, bytes(TAG)) * n
            self.say(get, DATA, n, self.random.getrandbits(64), items, n)
        elif lie < 7:
            grant = GRANT_BYTES if self.one_in(2) else self.random.getrandbits(64)
            self.say(get, GRANT, 0, 0, GRANTED.pack(grant, self.number()))
        elif lie < 13:
            self.say(get, PONG, 0, self._ping)
        elif lie == 13 and self.one_in(50):  # most of its pages are gone then, and nobody asks for them
            self.say(get, EVICTED_BEFORE, 0, 0, NUMBER.pack(self._some_page()[2]))
        else:
            n = self.some(NOTICE_MAX)
            self.say(get, EVICTED, n, 0, b"".join(PAGE_ID.pack(*self._some_page()) for _ in range(n)))

    def _some_page(self) -> PageId:
        if self._known and not self.one_in(20):
            return self.random.choice(list(self._known)[-64:])
        return self.number(), self.number(), self.number()


def _drain(sock: socket.socket) -> None:
    """Take what has come and do not look at it; EOFError when the peer has hung up."""
    while select.select([sock], [], [], 0)[0]:
        if not sock.recv(1 << 16):
            raise EOFError
