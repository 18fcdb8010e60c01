"""Which lenders a guest loses again and again, by what its module counts. No I/O; the caller brings the clock.

At a single look such a connection is there: it is made anew at once, and lost when the next page is sent.
"""

from __future__ import annotations

from collections import deque

from tidepool_agent.guestfs import Observation, Side
from tidepool_agent.plan import Key

WINDOW_SECONDS = 120.0
MANY = 3


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
