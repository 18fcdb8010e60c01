"""A wire between two guests that can delay, slow down, lose, reorder and cut, as netem would.

Two threads, one a direction, pass Ethernet frames on between the guests' datagram sockets. Set the attributes at any
time; they apply to both directions.
"""

from __future__ import annotations

import heapq
import itertools
import random
import select
import socket
import threading
import time
from pathlib import Path

FRAME_BYTES = 70_000
BUFFER_BYTES = 4 << 20
IDLE_SECONDS = 0.1
QUEUED_FRAMES = 20_000
PATIENCE_SECONDS = 0.5  # for a receiver whose queue is full; then the frame is lost, as on a real wire


class Relay:
    """What it does to frames.

    `delay` in seconds, one way; `rate` in bytes a second, 0: no limit; `loss` and `reorder` as probabilities; `largest`
    is the largest frame in bytes that gets through, and nobody is told of the others; `cut` passes nothing.
    """

    def __init__(self, end_a: Path, end_b: Path, folder: Path) -> None:
        self.near_a, self.near_b = folder / "relay-a", folder / "relay-b"
        self.delay = 0.0
        self.rate = 0.0
        self.loss = 0.0
        self.reorder = 0.0
        self.largest = FRAME_BYTES
        self.cut = False
        self._ended = False
        self._random = random.Random(1)  # the same losses every time
        sockets = [_socket(path) for path in (self.near_a, self.near_b)]
        ways = [(sockets[0], sockets[1], end_b), (sockets[1], sockets[0], end_a)]
        self._threads = [threading.Thread(target=self._pass, args=way, daemon=True) for way in ways]
        self._sockets = sockets
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def _pass(self, source: socket.socket, sender: socket.socket, target: Path) -> None:
        """One direction: what comes in waits for its time, then goes out."""
        waiting: list[tuple[float, int, bytes]] = []
        order = itertools.count()
        free = 0.0  # when the last frame has been put on the wire
        while not self._ended:
            patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else IDLE_SECONDS
            readable, _, _ = select.select([source], [], [], min(patience, IDLE_SECONDS))
            if readable:
                frame = source.recv(FRAME_BYTES)
                if len(waiting) < QUEUED_FRAMES and not self._lost(frame):
                    free = max(free, time.monotonic()) + (len(frame) / self.rate if self.rate else 0.0)
                    heapq.heappush(waiting, (free + self._time(), next(order), frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _send(sender, heapq.heappop(waiting)[2], target)

    def _lost(self, frame: bytes) -> bool:
        return self.cut or len(frame) > self.largest or self._random.random() < self.loss

    def _time(self) -> float:
        """How long this frame travels; one that is to be overtaken travels longer."""
        overtaken = self._random.random() < self.reorder
        return self.delay + (max(self.delay, 0.01) if overtaken else 0.0)


def _socket(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    made.bind(str(path))
    return made


def _send(sender: socket.socket, frame: bytes, target: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            sender.sendto(frame, socket.MSG_DONTWAIT, str(target))
            return
        except BlockingIOError:
            time.sleep(0.0005)
        except OSError:  # nobody there
            return
