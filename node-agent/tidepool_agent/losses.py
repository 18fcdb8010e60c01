"""Which lenders a guest loses again and again, by what its module counts. No I/O; the caller brings the clock.

At a single look such a connection is there: it is made anew at once, and lost when the next page is sent. So packets of
several sizes are sent to such a lender, to see whether large ones are dropped on the way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidepool_agent.guestfs import Observation, Side
from tidepool_agent.plan import Key

WINDOW_SECONDS = 120.0
MANY = 3
AGAIN_SECONDS = 300.0  # until a path is tried again


class Losses:
    """The connections of one guest that were lost lately."""

    def __init__(self) -> None:
        self._counted: dict[Key, deque[tuple[float, int]]] = {}

    def add(self, seen: Observation, now: float) -> frozenset[Key]:
        """Takes in a look at the guest; the lenders that it has lost many times since a while ago."""
        lenders = {key: peer for key, peer in seen.peers.items() if key[0] is Side.LENDERS}
        self._counted = {key: self._counted.get(key, deque()) for key in lenders}
        for key, peer in lenders.items():
            self._count(self._counted[key], now, peer.stats.get("disconnects", 0))
        return frozenset(key for key, counts in self._counted.items() if counts[-1][1] - counts[0][1] >= MANY)

    def _count(self, counts: deque[tuple[float, int]], now: float, lost: int) -> None:
        if counts and lost < counts[-1][1]:
            counts.clear()  # the peer was set up anew, and counts from 0
        counts.append((now, lost))
        while now - counts[0][0] > WINDOW_SECONDS:
            counts.popleft()


@dataclass(frozen=True)
class Reach:
    """How large a packet gets to a lender and back, and how large the guest's network card sends them; in bytes."""

    address: str
    passes: int
    most: int


class Paths:
    """What is known of the paths to lenders that are lost again and again; None where it cannot be told."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[float, Reach | None]] = {}

    def due(self, losing: Collection[Key], now: float) -> list[Key]:
        """Those to be tried now. What is known of others than these is forgotten."""
        self._known = {key: known for key, known in self._known.items() if key in losing}
        return [key for key in losing if key not in self._known or now - self._known[key][0] >= AGAIN_SECONDS]

    def note(self, key: Key, reach: Reach | None, now: float) -> None:
        """Takes in what a try has found."""
        self._known[key] = now, reach

    @property
    def known(self) -> Mapping[Key, Reach | None]:
        """By lender."""
        return {key: reach for key, (_, reach) in self._known.items()}
