"""Commands into a guest: frames over the virtio port on which `guestd` listens (see guest/guestd.c for the format)."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0x44495054
RUN, KILL = 1, 2
HELLO = 0
REQUEST, RESPONSE = struct.Struct("<5I"), struct.Struct("<3I")


class ChannelClosed(Exception):
    """The guest has gone: its QEMU closed the channel."""


@dataclass(frozen=True)
class Result:
    """How a command ended in the guest; `code` is negative for a signal, as in `subprocess`."""

    code: int
    output: str


class Channel:
    """A connection to one guest's command server; any number of commands can be under way."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._socket = _connect(path, time.monotonic() + timeout)
        self._lock = threading.Lock()
        self._ids = itertools.count((os.getpid() << 12) & 0x7FFFFFFF | 1)
        self._pending: dict[int, Future[Result]] = {}
        self._closed = False
        self.hello: Future[Result] = Future()
        threading.Thread(target=self._receive, daemon=True).start()

    def run(self, command: str, data: bytes = b"") -> tuple[int, Future[Result]]:
        """Start a command; its id (for `kill`) and its result to come."""
        number, future = next(self._ids), Future[Result]()
        with self._lock:
            if self._closed:
                raise ChannelClosed
            self._pending[number] = future
            self._send(number, RUN, command.encode(), data)
        return number, future

    def kill(self, number: int) -> None:
        """Kill the process group of a command that is under way; its result then arrives as usual."""
        with self._lock:
            self._send(number, KILL, b"", b"")

    def close(self) -> None:
        self._socket.close()

    def _send(self, number: int, kind: int, command: bytes, data: bytes) -> None:
        try:
            self._socket.sendall(REQUEST.pack(MAGIC, number, kind, len(command), len(data)) + command + data)
        except OSError as error:
            raise ChannelClosed from error

    def _receive(self) -> None:
        try:
            while True:
                number, status, length = self._next_response()
                output = self._exactly(length).decode(errors="replace")
                future = self.hello if number == HELLO else self._pending.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(Result(os.waitstatus_to_exitcode(status), output))
        except (OSError, EOFError):
            self._fail_pending()

    def _next_response(self) -> tuple[int, int, int]:
        """The next head; bytes left over from an earlier client are skipped."""
        seen = b""
        while seen[-4:] != MAGIC.to_bytes(4, "little"):
            seen = seen[-3:] + self._exactly(1)
        number, status, length = RESPONSE.unpack(self._exactly(RESPONSE.size))
        return number, status, length

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            chunk = self._socket.recv(min(length - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def _fail_pending(self) -> None:
        with self._lock:
            self._closed = True
            futures = [self.hello, *self._pending.values()]
            self._pending.clear()
        for future in futures:
            if not future.done():
                future.set_exception(ChannelClosed())


def _connect(path: Path, deadline: float) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
