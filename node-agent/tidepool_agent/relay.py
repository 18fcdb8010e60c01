"""The way to a guest's libvirt daemon, which a tenant may have replaced by a program of his own.

libvirt's client makes room for any message up to 32 MiB that a daemon announces, and waits for the rest for ever. So
its connections go through here, where messages are counted but not kept. None is larger than an answer may be, all that
have begun are small together, and a daemon that does not answer in time is hung up on, by which the call ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator

from tidepool_agent import answers

# libvirt's own answer may take 40 s: 30 until nobody else changes the domain, and 10 for the guest agent.
ANSWER_SECONDS = 45.0
MOST_BYTES = answers.MOST_BYTES + 4096  # of a message: an answer, and what is around it
MOST_BEGUN = 8 * MOST_BYTES  # of all messages that have begun and are not complete; the oldest makes room
# What no call has asked for: keepalive, every 5 s from either side.
MOST_UNASKED, UNASKED_A_SECOND = 10, 1

_HEADER = struct.Struct(">7I")  # bytes with these, program, version, procedure, kind, serial, status
_CALL, _REPLY = 0, 1
_M_MMAP_THRESHOLD, _LARGE = -3, 128 << 10
_loop = asyncio.new_event_loop()
_begun: dict[_Link, int] = {}  # the sizes of messages that are not complete, oldest first


class Way:
    """Where a connection to a daemon begins, and what the daemon did that none does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.refused = ""


def start() -> None:
    """Starts its thread, once per process: who waits for libvirt is not to wait for the rest of the agent as well.

    And has what large messages took given back: glibc would keep some of it for each thread that had one.
    """
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE)
    threading.Thread(target=_loop.run_forever, name="libvirt relay", daemon=True).start()


@contextlib.contextmanager
def way_to(path: str) -> Iterator[Way]:
    """A socket that leads to the daemon's, for one connection that is begun meanwhile."""
    with tempfile.TemporaryDirectory(prefix="libvirt-") as folder:
        way = Way(f"{folder}/socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind(way.path)
        listener.listen(1)
        led = asyncio.run_coroutine_threadsafe(_lead(listener, way, path), _loop)
        try:
            yield way
        finally:
            led.cancel()


async def _lead(listener: socket.socket, way: Way, path: str) -> None:
    with listener:
        near, _ = await _loop.sock_accept(listener)
    link = _Link(way)
    with contextlib.ExitStack() as unless_led:
        unless_led.callback(near.close)
        unless_led.callback(link.cut)
        await _loop.create_unix_connection(lambda: link.daemon, sock=_connected(path))
        await _loop.connect_accepted_socket(lambda: link.client, near)
        unless_led.pop_all()


def _connected(path: str) -> socket.socket:
    """Does not wait: a daemon that lets connections queue up does not answer either."""
    far = socket.socket(socket.AF_UNIX)
    far.setblocking(False)
    try:
        far.connect(path)
    except OSError:
        far.close()
        raise
    return far


class _Side(asyncio.Protocol):
    """One end of a connection; what it says goes on to the other, and no message does before its header is whole."""

    other: _Side
    transport: asyncio.Transport | None = None

    def __init__(self, link: _Link, heard: Callable[[int, int], None]) -> None:
        """`heard` is given size and kind of each message that begins, and raises ValueError for one that may not."""
        self._link, self._heard = link, heard
        self._rest, self._next = b"", 0  # of a header; bytes until the next one begins

    @property
    def is_within(self) -> bool:
        """Whether a message has begun and is not complete."""
        return bool(self._next or self._rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._link.over(self)

    def data_received(self, data: bytes) -> None:
        try:
            whole = self._checked(self._rest + data)
        except ValueError as error:
            self._link.refuse(str(error))
        else:
            self.other.write(whole)
            self._link.settle()

    def write(self, data: bytes) -> None:
        """Says something to whoever is there; a client that is not there yet has asked nothing."""
        if self.transport:
            self.transport.write(data)

    def _checked(self, data: bytes) -> bytes:
        while len(data) - self._next >= _HEADER.size:
            size, _, _, _, kind, _, _ = _HEADER.unpack_from(data, self._next)
            if not _HEADER.size <= size <= MOST_BYTES:
                raise ValueError(f"a message of {size} bytes, of at most {MOST_BYTES}")
            self._heard(size, kind)
            self._next += size
        end = min(self._next, len(data))
        self._rest, self._next = data[end:], self._next - end
        return data[:end]

    def pause_writing(self) -> None:
        """Whoever is told more than he reads is not told more."""
        if self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport:
            self.other.transport.resume_reading()


class _Link:
    """One connection of libvirt's client with a daemon."""

    def __init__(self, way: Way) -> None:
        self._way, self._since = way, _loop.time()
        self._open = self._unasked = self._size = 0
        self._due: asyncio.TimerHandle | None = None
        self.client, self.daemon = _Side(self, self._asked), _Side(self, self._answered)
        self.client.other, self.daemon.other = self.daemon, self.client

    def _asked(self, _size: int, kind: int) -> None:
        self._open += kind == _CALL

    def _answered(self, size: int, kind: int) -> None:
        _begun.pop(self, None)
        self._size = size
        if kind == _REPLY and self._open:
            self._open -= 1
            return
        self._unasked += 1
        if self._unasked > MOST_UNASKED + UNASKED_A_SECOND * (_loop.time() - self._since):
            raise ValueError("answers that nobody has asked for")

    def settle(self) -> None:
        """Gives the daemon its time to answer and to end what it has begun, and all of them together their room."""
        if self.daemon.is_within:
            _begun.setdefault(self, self._size)
        else:
            _begun.pop(self, None)
        if not (self._open or self.daemon.is_within):
            self._relax()
        elif not self._due:
            self._due = _loop.call_later(ANSWER_SECONDS, self.cut)
        while sum(_begun.values()) > MOST_BEGUN:
            next(iter(_begun)).cut()

    def refuse(self, why: str) -> None:
        """Hangs up on a daemon that does what none does."""
        self._way.refused = why
        self.cut()

    def cut(self) -> None:
        """Hangs up on both."""
        self._forget()
        for side in (self.client, self.daemon):
            if side.transport:
                side.transport.abort()

    def over(self, side: _Side) -> None:
        """One has hung up; what the daemon has said before the client still hears."""
        self._forget()
        if side is self.daemon and self.client.transport:
            self.client.transport.close()
        elif side is self.client and self.daemon.transport:
            self.daemon.transport.abort()

    def _forget(self) -> None:
        _begun.pop(self, None)
        self._relax()

    def _relax(self) -> None:
        if self._due:
            self._due.cancel()
            self._due = None
