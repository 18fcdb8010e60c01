"""The cluster for a page that asks again and again: read once every few seconds, however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tidepool_kubectl.cluster import Cluster, Unusable
from tidepool_kubectl.elapsed import Moment
from tidepool_kubectl.figures import Figures, hits_per_second
from tidepool_kubectl.ui.view import Reading

EVERY_SECONDS = 3.0
LONGEST_SECONDS = 60.0  # that a rate is counted over: minutes in which nobody looked say nothing of now


class Reader:
    """Safe to use from several threads."""

    def __init__(
        self, cluster: Cluster, every: float = EVERY_SECONDS, clock: Callable[[], Moment] = Moment.now
    ) -> None:
        """Reads no more often than `every` so many seconds."""
        self._cluster, self._every, self._clock = cluster, every, clock
        self._lock = threading.Lock()
        self._reading: Reading | Unusable = Unusable("not read yet")
        self._until = float("-inf")
        self._figures, self._begun = Figures(), clock()

    def now(self) -> Reading:
        """The last reading, or a new one where that is old; raises `Unusable`."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._reading = self._read_or_why()
                self._until = time.monotonic() + self._every
            if isinstance(self._reading, Unusable):
                raise Unusable(str(self._reading))
            return self._reading

    def _read_or_why(self) -> Reading | Unusable:
        """A failure is as good for a while: those who wait would only fail one after the other."""
        try:
            return self._read()
        except Unusable as error:
            return error

    def _read(self) -> Reading:
        lendings, begun = self._cluster.lendings(), self._clock()
        figures, ended = self._cluster.figures(), self._clock()
        spared = hits_per_second(self._figures, figures, self._counted(begun, ended))
        self._figures, self._begun = figures, begun
        return Reading(datetime.now(UTC).isoformat(timespec="seconds"), lendings, spared)

    def _counted(self, begun: Moment, ended: Moment) -> float:
        """Seconds between the counters of the last reading and these; 0 where that is no time to count in.

        Reading takes a while, in which the machine may be suspended, too.
        """
        is_awake = self._begun.until(ended) > 0
        seconds = self._begun.until(begun)
        return seconds if is_awake and seconds <= LONGEST_SECONDS else 0.0
