"""The time between two readings, for rates: nothing where the machine slept in between. Pure, but for the clocks."""

from __future__ import annotations

import time
from typing import NamedTuple, Self

APART_SECONDS = 1.0  # that two clocks of a machine which is awake may drift, or be set, between two readings


class Moment(NamedTuple):
    """By two clocks: that of the machine's running stands still while it is suspended, that of the day goes on."""

    running: float
    day: float

    @classmethod
    def now(cls) -> Self:
        """The present."""
        return cls(time.monotonic(), time.time())

    def until(self, later: Moment) -> float:
        """The seconds to a later moment; 0, of which there is no rate, where the clocks disagree about them.

        Whether counters went on while one of the two stood still nobody knows.
        """
        ran, passed = later.running - self.running, later.day - self.day
        return ran if abs(passed - ran) <= APART_SECONDS else 0.0
