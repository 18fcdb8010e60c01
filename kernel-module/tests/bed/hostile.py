"""Peers that pass the handshake and do one thing that is unusual, on purpose, or take their time over it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from bed.protocol import (
    DATA,
    DATA_ITEM,
    EVICTED,
    EVICTED_BEFORE,
    FORGET,
    FORGET_ITEM,
    FRAME,
    GET,
    GET_ITEM,
    GET_MAX,
    MOST,
    NUMBER,
    PAGE,
    PAGE_ID,
    PING,
    PONG,
    PUT,
    PUT_ACK,
    PUT_ITEM,
    PUT_MAX,
    RESIZE,
    TAG,
    Borrower,
    Connection,
    Frame,
    KeyPair,
    Limits,
    Malformed,
    Refused,
    accept,
    exactly,
)
from bed.tidepool import wait_until

OVER = (OSError, EOFError, Malformed, Refused)
ALL = NUMBER.pack((1 << 64) - 1)
MASK = (1 << 64) - 1
NARROW, SEGMENT, ROOM = 4096, 536, 1 << 20  # bytes: a socket that takes so little makes the sender wait early

# Lenders


class YesLender:
    """Keeps every page, it says, and has none. It lends to one borrower after the other, on the loopback address."""

    def __init__(self, grant: int = 64 << 20) -> None:
        self.own = KeyPair()
        self.sessions = 0
        self._grant = grant
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def identity(self) -> str:
        return self.own.identity

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @contextlib.contextmanager
    def lending(self) -> Iterator[None]:
        """It may end by itself before."""
        self._thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join(10)

    def _wants_more(self) -> bool:
        return True

    def _run(self) -> None:
        with self._listener:
            while self._wants_more():
                try:
                    get, put = accept(self._listener, self.own, self._grant)
                except OVER:
                    if self._listener_is_shut():
                        return
                    continue
                self.sessions += 1
                with contextlib.closing(get), contextlib.closing(put):
                    self._session(get, put)

    def _listener_is_shut(self) -> bool:
        return not self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def _session(self, get: Connection, put: Connection) -> None:
        """Until either connection has ended."""
        ear = threading.Thread(target=self._hear, args=(put, get), daemon=True)
        ear.start()
        self._hear(get, get)
        put.close()
        ear.join()

    def _hear(self, connection: Connection, get: Connection) -> None:
        connection.sock.settimeout(None)  # nobody need say anything
        with contextlib.suppress(*OVER):
            while True:
                self._heard(connection.receive(), get)
        get.close()

    def _heard(self, frame: Frame, get: Connection) -> None:
        if frame.kind == PING:
            get.send(PONG, 0, frame.number)
        elif frame.kind == GET:
            self._asked(frame, get)
        elif frame.kind == PUT:
            get.send(PUT_ACK, frame.count, frame.number, ALL)

    def _asked(self, frame: Frame, get: Connection) -> None:
        get.send(DATA, frame.count, frame.number, bytes(frame.count * DATA_ITEM.size))


class Slanderer(YesLender):
    """Says of the pages beside each that it gets, which were put at the same time, that they are gone.

    Another lender may have them.
    """

    BESIDE = 16  # on either side

    def _heard(self, frame: Frame, get: Connection) -> None:
        super()._heard(frame, get)
        if frame.kind == PUT:
            for file, index, version, _ in PUT_ITEM.iter_unpack(frame.metadata):
                self._slander(get, file, index, version)

    def _slander(self, get: Connection, file: int, index: int, version: int) -> None:
        away = [n for n in range(-self.BESIDE, self.BESIDE + 1) if n]
        pages = [PAGE_ID.pack(file, (index + n) & MASK, (version + n) & MASK) for n in away]
        get.send(EVICTED, len(pages), 0, b"".join(pages))


class SlowLender(YesLender):
    """Has every page that it is asked for, and hardly gives it: so many requests, each the last of its session.

    An answer comes whole until the part that `how` names, "items" or "pages", and from there in drips; or, with
    "hang-up", never.
    """

    DRIP_SECONDS = 0.005

    def __init__(self, how: str, requests: int = 1) -> None:
        super().__init__()
        self.how = how
        self.asked = 0
        self.seconds = 0.0  # that it has spent on answers
        self._requests = requests

    def _wants_more(self) -> bool:
        return self.asked < self._requests

    def _asked(self, frame: Frame, get: Connection) -> None:
        self.asked += 1
        start = time.monotonic()
        try:
            if self.how != "hang-up":
                self._drip(frame, get)
        finally:
            self.seconds += time.monotonic() - start
        raise EOFError

    def _drip(self, frame: Frame, get: Connection) -> None:
        versions = [version for _, version in GET_ITEM.iter_unpack(frame.metadata[NUMBER.size :])]
        items = b"".join(DATA_ITEM.pack(version, bytes(TAG)) for version in versions)
        head = FRAME.pack(len(items) + TAG + frame.count * PAGE, DATA, 0, frame.count, frame.number)
        whole = 1 if self.how == "items" else len(items) + TAG + frame.count // 2 * PAGE
        with get.lock:
            answer = get.seal(head, items) + bytes(frame.count * PAGE)
            get.sock.sendall(head + answer[:whole])
            for byte in answer[whole:]:
                time.sleep(self.DRIP_SECONDS)
                get.sock.sendall(bytes([byte]))


class EarlyLender(YesLender):
    """Acknowledges a full batch when only its header is there, once a session; `ended` counts who hung up on that.

    Between a guest and this machine some 200 KiB find room that nobody has read, a full batch is larger. Whatever else
    it is asked it answers, so that nobody takes it for dead.
    """

    HANGS_UP_SECONDS = 30.0

    def __init__(self, sessions: int) -> None:
        super().__init__()
        self.ended = 0
        self._sessions = sessions
        _narrow(self._listener)

    def _wants_more(self) -> bool:
        return self.sessions < self._sessions

    def _session(self, get: Connection, put: Connection) -> None:
        answering = threading.Thread(target=self._hear, args=(get, get), daemon=True)
        answering.start()
        with contextlib.suppress(*OVER):
            while not self._acknowledged_early(get, put):
                pass
            answering.join(self.HANGS_UP_SECONDS)
            self.ended += not answering.is_alive()

    def _acknowledged_early(self, get: Connection, put: Connection) -> bool:
        length, _, _, count, number = FRAME.unpack(exactly(put.sock, FRAME.size))
        early: bool = count == PUT_MAX
        if not early:
            exactly(put.sock, length)
        get.send(PUT_ACK, count, number, ALL)
        return early


def _narrow(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)


# Borrowers


class PlainBorrower(Borrower):
    """Means what it says, and counts what it is told. Of its one file it puts page n in version n + 1."""

    FILE, SIZE = 7, 1 << 30
    SIP, SIP_SECONDS, PING_SECONDS = 4096, 0.1, 0.1
    BATCHES_APART = 8  # pings, so that nobody takes it for dead

    def __init__(self, address: tuple[str, int], own: KeyPair, lender: bytes, limits: Limits = MOST) -> None:
        self.stored = self.hits = 0
        self.evicted: set[int] = set()  # versions that were named,
        self.evicted_before = 0  # and that all are older than of which there is none
        super().__init__(address, own, lender, self.SIZE, limits=limits)

    def told(self, pages: int) -> set[int]:
        """The versions of which it knows that they are gone."""
        return self.evicted | set(range(1, min(self.evicted_before, pages + 1)))

    def put_all(self, pages: int) -> None:
        self._put(pages, lambda number: (self.FILE, number))

    def put_files(self, files: int) -> None:
        """Each of one page."""
        self._put(files, lambda number: (number, 0))

    def _put(self, count: int, name: Callable[[int], tuple[int, int]]) -> None:
        most = self.put.limits.put
        for first in range(0, count, most):
            batch = range(first, min(count, first + most))
            items = b"".join(PUT_ITEM.pack(*name(number), number + 1, bytes(TAG)) for number in batch)
            self.put.send(PUT, len(batch), first, items, bytes(len(batch) * PAGE))
            self._answer(PUT_ACK, first)
            if first // most % self.BATCHES_APART == 0:
                self.ping()

    def forget(self, *ranges: tuple[int, int, int]) -> None:
        """What lies from first to last and is older than a version, of each range; in one frame."""
        self.get.send(FORGET, len(ranges), 0, b"".join(FORGET_ITEM.pack(self.FILE, *one) for one in ranges))

    def resize(self, size: int) -> None:
        """Say that so many bytes would do from now on."""
        self.get.send(RESIZE, 0, 0, NUMBER.pack(size))

    def ask_all(self, pages: int) -> None:
        most = self.get.limits.get
        for first in range(0, pages, most):
            self.ask(range(first, min(pages, first + most)))
            self._answer(DATA, first)

    def sip(self, seconds: float) -> None:
        """Ask for much and take it in sips."""
        until = time.monotonic() + seconds
        for _ in range(8):
            self.ask(range(GET_MAX))
        while time.monotonic() < until and self.get.sock.recv(self.SIP):
            time.sleep(self.SIP_SECONDS)

    def deafen(self) -> None:
        """From now on hardly anything may wait to be read."""
        _narrow(self.get.sock)

    def listen(self, seconds: float) -> None:
        """Hear what there is to be heard, and show that it is there."""
        self.get.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ping()
            time.sleep(self.PING_SECONDS)

    def ask(self, pages: range) -> None:
        items = b"".join(GET_ITEM.pack(index, index + 1) for index in pages)
        self.get.send(GET, len(pages), pages.start, NUMBER.pack(self.FILE) + items)

    def _answer(self, kind: int, number: int) -> Frame:
        while True:
            frame = self.get.receive()
            self._count(frame)
            if (frame.kind, frame.number) == (kind, number):
                return frame

    def _count(self, frame: Frame) -> None:
        if frame.kind == EVICTED:
            self.evicted |= {version for _, _, version in PAGE_ID.iter_unpack(frame.metadata)}
        elif frame.kind == EVICTED_BEFORE:
            self.evicted_before = max(self.evicted_before, *NUMBER.unpack(frame.metadata))
        elif frame.kind == PUT_ACK:
            self.stored += NUMBER.unpack(frame.metadata)[0].bit_count()
        elif frame.kind == DATA:
            self.hits += sum(version > 0 for version, _ in DATA_ITEM.iter_unpack(frame.metadata))


# Limits that no borrower may name.
NO_LIMITS = [Limits(lanes=0), Limits(get=0), Limits(get=513), Limits(put=0), Limits(put=65), Limits(notices=0)]


def ask_pages(borrower: Borrower, pages: int) -> None:
    """One GET for so many pages, whatever was agreed."""
    items = b"".join(GET_ITEM.pack(index, 1) for index in range(pages))
    borrower.get.send(GET, pages, 1, NUMBER.pack(7) + items)


def put_pages(borrower: Borrower, pages: int) -> None:
    """One PUT of so many pages, likewise."""
    items = b"".join(PUT_ITEM.pack(7, index, index + 1, bytes(TAG)) for index in range(pages))
    borrower.put.send(PUT, pages, 1, items, bytes(pages * PAGE))


def forget_ranges(borrower: Borrower, ranges: int) -> None:
    """One FORGET of so many ranges, likewise; nobody answers one."""
    borrower.get.send(FORGET, ranges, 0, b"".join(FORGET_ITEM.pack(7, index, index, MASK) for index in range(ranges)))


def hear(borrower: PlainBorrower, everything: Callable[[], bool]) -> None:
    """Listen until all has been told, and a second longer, for what would be too much."""

    def heard() -> bool:
        borrower.listen(0.2)
        return everything()

    wait_until("all is told", heard)
    borrower.listen(1)
