"""What became of a pass over a namespace: the writes that the API server refused, by pool.

One refusal touches one object. The others are written all the same, the pool's status among them, which says what was
refused. A refused write is tried again by itself, ever more slowly; one that says something else is tried at once.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tidepool_api.kube import Refused
from tidepool_operator.cluster.queue import pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Refusal:
    """A write that was refused."""

    uid: str  # of the object; that of the pool for a pairing that is to be made
    what: str
    why: str  # in the API server's words
    wish: object  # what was to be written
    tries: int
    due: float  # when it is tried again

    def __str__(self) -> str:
        return f"could not {self.what}: {self.why}"


class Outcome:
    """What was refused in one pass."""

    def __init__(
        self, namespace: str, before: Outcome | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`before` is what became of the last pass."""
        self._namespace, self._clock = namespace, clock
        self._before = {(one.uid, one.what): one for one in before.refusals} if before else {}
        self._refused: dict[str, list[Refusal]] = defaultdict(list)
        self._by_object: dict[str, list[Refusal]] = defaultdict(list)
        self.failures = 0
        """The refusals of this pass, without those of earlier ones that were not tried again."""

    @property
    def refusals(self) -> Iterable[Refusal]:
        """All of them."""
        return (one for found in self._refused.values() for one in found)

    @property
    def pools(self) -> dict[str, int]:
        """How many there are of each pool that has some; a guest's are no pool's."""
        return {pool: len(found) for pool, found in self._refused.items() if pool}

    @property
    def again(self) -> float | None:
        """After how many seconds the next one is tried again."""
        return min((max(0.0, one.due - self._clock()) for one in self.refusals), default=None)

    def of_pool(self, pool: str) -> list[str]:
        """What was refused of a pool, its pairings included, in words."""
        return sorted(map(str, self._refused.get(pool, ())))

    def of_object(self, uid: str) -> list[str]:
        """What was refused of one object, in words."""
        return sorted(map(str, self._by_object.get(uid, ())))

    async def attempt(
        self, pool: str, uid: str, what: str, wish: object, write: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Writes; None if the API server refuses, or did lately. That it cannot be asked at all is raised."""
        before = self._before.get((uid, what))
        if before is not None and before.wish != wish:
            before = None
        if before is not None and before.due > self._clock():
            self._note(pool, before)
            return None
        try:
            return await write()
        except Refused as refusal:
            if not refusal.is_about_object:
                raise
            tries = before.tries + 1 if before else 1
            wait = pause(tries)
            found = Refusal(uid, what, refusal.why, wish, tries, self._clock() + wait)
            log.warning("%s: %s; tried again in %.0f s", self._namespace, found, wait)
            self._note(pool, found)
            self.failures += 1
            return None

    def _note(self, pool: str, found: Refusal) -> None:
        self._refused[pool].append(found)
        self._by_object[found.uid].append(found)
