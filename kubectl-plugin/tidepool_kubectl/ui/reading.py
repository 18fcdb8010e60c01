"""The cluster for a page that asks again and again: read once every few seconds, however many ask."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

from tidepool_kubectl.cluster import Cluster, Unusable
from tidepool_kubectl.figures import Figures, hits_per_second
from tidepool_kubectl.ui.view import Reading

EVERY_SECONDS = 3.0


class Reader:
    """Safe to use from several threads."""

    def __init__(self, cluster: Cluster, every: float = EVERY_SECONDS) -> None:
        """Reads no more often than `every` so many seconds."""
        self._cluster, self._every = cluster, every
        self._lock = threading.Lock()
        self._reading: Reading | Unusable = Unusable("not read yet")
        self._until = float("-inf")
        self._figures, self._when = Figures(), float("-inf")

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
        lendings, at, figures = self._cluster.lendings(), time.monotonic(), self._cluster.figures()
        spared = hits_per_second(self._figures, figures, at - self._when)
        self._figures, self._when = figures, at
        return Reading(datetime.now(UTC).isoformat(timespec="seconds"), lendings, spared)
