"""Which agents are alive: each renews a Lease of its node, and one that no longer does is taken for dead.

Ages are measured by this machine's clock from when a renewal was first seen, so that clocks need not agree. When the
leases themselves could not be read for a while, nobody is declared dead for it: all get the full time again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidepool_api import names
from tidepool_api.kube.resources import parse_time


@dataclass
class _Seen:
    renewed: str
    since: float


class Heartbeats:
    """What is known of the agents' leases."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, stale_after: float = names.LEASE_STALE_SECONDS):
        self._clock = clock
        self._stale_after = stale_after
        self._seen: dict[str, _Seen] = {}
        self._missed: dict[str, float] = {}  # nodes without a lease, and since when one was looked for
        self._is_blind = False

    def update(self, leases: Iterable[Mapping[str, Any]]) -> None:
        """Takes in a listing of the leases."""
        now = self._clock()
        renewed = {node: time for lease in leases for node, time in [_renewal(lease)] if node}
        self._seen = {node: self._next(node, time, now) for node, time in renewed.items()}
        self._missed = {node: since for node, since in self._missed.items() if node not in self._seen}
        self._is_blind = False

    @property
    def nodes(self) -> Collection[str]:
        """The nodes that have an agent, be it dead."""
        return self._seen.keys()

    @property
    def is_blind(self) -> bool:
        """Whether the leases could not be read when they were last asked for, so that nobody is known to be dead."""
        return self._is_blind

    def failed(self) -> None:
        """The leases could not be listed."""
        self._is_blind = True
        self._missed.clear()

    def is_silent(self, node: str) -> bool:
        """Whether the agent of that node is dead, as far as one can tell; one without a lease may be just starting."""
        if self._is_blind:
            return False
        seen = self._seen.get(node)
        since = seen.since if seen else self._missed.setdefault(node, self._clock())
        return self._clock() - since > self._stale_after

    def silent(self, nodes: Iterable[str]) -> frozenset[str]:
        """Those of the nodes whose agent is dead."""
        return frozenset(node for node in nodes if self.is_silent(node))

    def _next(self, node: str, renewed: str, now: float) -> _Seen:
        known = self._seen.get(node)
        if self._is_blind:
            return _Seen(renewed, now)
        if known is None:
            return _Seen(renewed, now - _age(renewed))
        return known if known.renewed == renewed else _Seen(renewed, now)


def _renewal(lease: Mapping[str, Any]) -> tuple[str, str]:
    """Node and time of the last renewal, as it is written; no node for a lease that is not an agent's."""
    name, renewed = lease["metadata"]["name"], (lease.get("spec") or {}).get("renewTime")
    if not name.startswith(names.LEASE_PREFIX) or not renewed:
        return "", ""
    return name.removeprefix(names.LEASE_PREFIX), renewed


def _age(renewed: str) -> float:
    """The age by the clock on the wall, all there is to go by for a lease seen for the first time.

    A time that is none, for each agent writes what it likes into its own, counts as now.
    """
    at = parse_time(renewed)
    return max(0.0, (datetime.now(UTC) - at).total_seconds()) if at else 0.0
