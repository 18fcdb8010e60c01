"""Somebody between borrower and lender who sees their frames' headers and can alter, leave out or repeat a frame."""

from __future__ import annotations

import collections
import contextlib
import socket
import threading
from collections.abc import Callable

from bed.protocol import DATA, FRAME, HEAD, MESSAGE_1_BYTES, MESSAGE_2_BYTES, METADATA, PAGE, PUT, TAG, exactly

Change = Callable[[bytes, bytes], bytes]  # of a header, and of metadata with their tag, to what goes on in their place
HANDSHAKE = {"borrower": (HEAD.size + MESSAGE_1_BYTES, HEAD.size + TAG), "lender": (HEAD.size + MESSAGE_2_BYTES,)}


def flip(place: int) -> Change:
    """One bit of that byte; from the end if it is negative."""

    def change(head: bytes, sealed: bytes) -> bytes:
        both = bytearray(head + sealed)
        both[place] ^= 1
        return bytes(both)

    return change


def leave_out(head: bytes, sealed: bytes) -> bytes:
    """Nothing goes on; for frames without pages."""
    assert head or sealed
    return b""


def repeat(head: bytes, sealed: bytes) -> bytes:
    """It goes on twice; for frames without pages."""
    return 2 * (head + sealed)


class Between:
    """Passes connections on to a port of this machine. The next frame of type `kind` goes on as `change` makes it.

    `passed` has for each connection, in the order in which they came, how many frames of which type went on.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._kind = 0
        self._change: Change = repeat
        self.passed: list[collections.Counter[int]] = []
        self._near: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    def alter(self, kind: int, change: Change) -> None:
        with self._lock:
            self._kind, self._change = kind, change

    @property
    def done(self) -> bool:
        """Whether there was such a frame."""
        return not self._kind

    def cut(self, number: int) -> None:
        """End one connection: the others live."""
        self._near[number].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                passed: collections.Counter[int] = collections.Counter()
                self.passed.append(passed)
                self._near.append(near)
                for ends in ((near, far, "borrower"), (far, near, "lender")):
                    threading.Thread(target=self._pass, args=(*ends, passed), daemon=True).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, sender: str, passed: collections.Counter[int]
    ) -> None:
        """One direction, until either end is gone; then both are."""
        for each in (source, target):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, EOFError):
            for length in HANDSHAKE[sender]:
                target.sendall(exactly(source, length))
            while True:
                passed[self._pass_frame(source, target)] += 1
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _pass_frame(self, source: socket.socket, target: socket.socket) -> int:
        """Its type."""
        head = exactly(source, FRAME.size)
        length, kind, _, count, _ = FRAME.unpack(head)
        fixed, each = METADATA[kind]
        sealed = exactly(source, fixed + count * each + TAG)
        with self._lock:
            change = self._change if kind == self._kind else None
            if change:
                self._kind = 0
        target.sendall(change(head, sealed) if change else head + sealed)
        left = length - len(sealed)
        assert not left or (kind in (DATA, PUT) and left % PAGE == 0)
        while left:
            chunk = source.recv(min(left, 1 << 20))
            if not chunk:
                raise EOFError
            target.sendall(chunk)
            left -= len(chunk)
        return int(kind)
