"""What became of a pass over a namespace: the writes that the API server refused, by pool.

One refusal touches one object. The others are written all the same, the pool's status among them, which says what was
refused. A refused write is tried again by itself, ever more slowly; one that says something else is tried at once.

A write that hangs, for somebody's webhook does, is no other: the pass goes on without its answer, which a later pass
takes in. Of one pool only a few may be on their way at a time, so that a pass is soon over whatever hangs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api.kube import Refused
from tidepool_operator.cluster.queue import pause
from tidepool_operator.cluster.slots import ALONE, Slots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SECONDS = 4.0  # with a write, after which the pass goes on without its answer
SHORT_PATIENCE_SECONDS = 0.5  # with one that hung the last time
MANY_HANG = 4  # writes of a namespace, beyond which nobody waits long for one more
REVOKED = f"{ALONE}revoked"  # the group of pairings that have to go, for what they borrow is no longer granted
HANGS = "an admission webhook that does not answer, or a busy API server"

Key = tuple[str, str]  # UID of an object, and what is done to it


@dataclass(frozen=True)
class Begun:
    """A write that may have no answer yet."""

    wish: object
    answer: asyncio.Future[Any]


@dataclass(frozen=True)
class Refusal:
    """A write that was refused."""

    uid: str  # of the object; that of the pool for a pairing that is to be made
    what: str
    why: str  # in the API server's words
    wish: object  # what was to be written
    tries: int
    due: float  # when it is tried again
    hung: bool = False

    def __str__(self) -> str:
        return f"could not {self.what}: {self.why}"


class Outcome:
    """What was refused in one pass."""

    def __init__(
        self,
        namespace: str,
        before: Outcome | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`before` is what became of the last pass, `patience` for how many seconds this one waits for an answer."""
        self._namespace, self._clock, self._patience = namespace, clock, patience
        self._before = {(one.uid, one.what): one for one in before.refusals} if before else {}
        self.hanging: dict[Key, Begun] = before.hanging if before else {}
        """The writes that have no answer, or whose answer no pass has taken in; of all passes together."""
        self.slots: Slots = before.slots if before else Slots()
        self.slots.next_pass()
        self._refused: dict[str, list[Refusal]] = defaultdict(list)
        self._by_object: dict[str, list[Refusal]] = defaultdict(list)
        self._attempted: set[Key] = set()
        self.failures = 0
        """The refusals of this pass, without those of earlier ones that were not tried again."""
        self._is_late = False  # whether a write of an earlier pass is done: perhaps something else is to be written now

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
        """After how many seconds the next one is tried again; at once where a write of an earlier pass was done."""
        if self._is_late:
            return 0.0
        return min((max(0.0, one.due - self._clock()) for one in self.refusals), default=None)

    def of_pool(self, pool: str) -> list[str]:
        """What was refused of a pool, its pairings included, in words."""
        return sorted(map(str, self._refused.get(pool, ())))

    def of_object(self, uid: str) -> list[str]:
        """What was refused of one object, in words."""
        return sorted(map(str, self._by_object.get(uid, ())))

    async def attempt(
        self,
        pool: str,
        uid: str,
        what: str,
        wish: object,
        write: Callable[[], Awaitable[T]],
        *,
        anyway: bool = False,
        group: str = "",
    ) -> T | None:
        """Writes; None if the API server refuses, did so lately, or has not answered yet.

        That it cannot be asked at all is raised. `anyway`: also while others of the pool hang. `group`: with what it
        waits for others that hang, if not with all that is written of the pool.
        """
        group = group or (f"{pool}/status" if anyway else pool)
        key, last = (uid, what), self._last(uid, what, wish)
        self._attempted.add(key)
        begun = self._begun_before(key, wish)
        if begun is None:
            if waiting := await self._waiting(last, group):
                self._note(pool, waiting)
                return None
            begun = await self._begin(group, wish, write, is_short=last.hung)
        if not begun.answer.done():
            self.hanging[key] = begun
            self._note(pool, replace(self._later(last, f"no answer yet: {HANGS}"), hung=True))
            return None
        last = replace(last, hung=self.hanging.pop(key, None) is not None)
        return self._taken_in(pool, last, begun.answer)

    def end(self) -> None:
        """Cancels what hangs: whoever writes now is another."""
        self.slots.end()
        self.hanging.clear()

    def forget_answered(self) -> None:
        """Forgets writes that hung, and are no longer wanted; what this pass wanted the next one takes in."""
        for key in [key for key, one in self.hanging.items() if one.answer.done()]:
            if key not in self._attempted:
                del self.hanging[key]

    def _begun_before(self, key: Key, wish: object) -> Begun | None:
        """A write that another pass began; none if it is done, and said something else."""
        begun = self.hanging.get(key)
        if begun is not None and begun.answer.done() and begun.wish != wish:
            del self.hanging[key]
            return None
        return begun

    def _last(self, uid: str, what: str, wish: object) -> Refusal:
        """What became of the same write the last time; if nothing bad did, one that was never tried."""
        before = self._before.get((uid, what))
        return before if before and before.wish == wish else Refusal(uid, what, "", wish, tries=0, due=0.0)

    async def _waiting(self, last: Refusal, group: str) -> Refusal | None:
        """What there is to say of a write that is not tried now; None if it is, for there is a slot for it."""
        if last.due > self._clock():
            return last
        others = await self.slots.wait(group, self._patience)
        return self._later(last, f"not tried while {others} have no answer: {HANGS}") if others else None

    def _later(self, last: Refusal, why: str) -> Refusal:
        """The same with more time; what the API server has said of it is better than `why`."""
        return replace(last, why=last.why if last.tries else why, due=self._clock() + self._patience)

    async def _begin(self, group: str, wish: object, write: Callable[[], Awaitable[T]], *, is_short: bool) -> Begun:
        """Writes, and waits for the answer, but not for long where the last one, or many now, had none."""
        begun = Begun(wish, self.slots.take(group, write()))
        is_short = is_short or len(self.hanging) > MANY_HANG or self.slots.is_probed(group)
        patience = min(SHORT_PATIENCE_SECONDS, self._patience) if is_short else self._patience
        try:
            await asyncio.wait({begun.answer}, timeout=patience)
        except asyncio.CancelledError:
            begun.answer.cancel()
            raise
        self.slots.hangs(begun.answer)
        return begun

    def _taken_in(self, pool: str, last: Refusal, answer: asyncio.Future[T]) -> T | None:
        """What a write gives; None if it was refused."""
        try:
            written = answer.result()
        except Refused as refusal:
            if not refusal.is_about_object:
                raise
            why = f"{refusal.why}: {HANGS}" if refusal.is_timeout else refusal.why
            wait = pause(last.tries + 1)
            found = replace(last, why=why, tries=last.tries + 1, due=self._clock() + wait)
            log.warning("%s: %s; tried again in %.0f s", self._namespace, found, wait)
            self._note(pool, found)
            self.failures += 1
            return None
        self._is_late |= last.hung
        return written

    def _note(self, pool: str, found: Refusal) -> None:
        self._refused[pool].append(found)
        self._by_object[found.uid].append(found)
