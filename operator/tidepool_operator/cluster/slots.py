"""Slots for the writes of one namespace: taken before a write begins, free again when it is answered.

So that never more hang than there are slots, however many begin at a time. Where a write of some group hung, and none
was answered, the next pass tries one of it until one is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api.kube import Refused
from tidepool_api.turns import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

T = TypeVar("T")

OF_GROUP = 4  # writes at a time, of a group that has not been answered yet
IN_ALL = 24  # of a namespace
ALONE = "/"  # begins the name of a group that the namespace's others do not hold up; no object's name begins so


class Slots:
    """Those of one namespace, for all its passes together."""

    def __init__(self) -> None:
        self._begun: dict[asyncio.Future[Any], str] = {}  # not answered -> group
        self._hanging: set[asyncio.Future[Any]] = set()
        self._hung: set[str] = set()  # groups, in this pass; or they were turned away, for others did
        self._answered: set[str] = set()
        self._probed: set[str] = set()  # groups of which one is tried at a time
        self._changed = asyncio.Event()

    def next_pass(self) -> None:
        """Says that a pass begins."""
        self._probed = (self._probed | self._hung) - self._answered
        self._hung, self._answered = set(), set()

    def is_probed(self, group: str) -> bool:
        """Whether one write of a group is tried at a time, for one hung."""
        return group in self._probed

    async def wait(self, group: str, seconds: float) -> str:
        """Waits for a slot while those who have one may yet be answered; says who is in the way, if there is none.

        A slot that is free has to be taken at once.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._in_the_way(group, self._begun) and not self._in_the_way(group, self._hanging):
                    await self._changed.wait()
        others = self._in_the_way(group, self._begun)
        if others:
            self._hung.add(group)
        return others

    def take(self, group: str, write: Awaitable[T]) -> asyncio.Future[T]:
        """Begins a write."""
        answer = asyncio.ensure_future(write)
        self._begun[answer] = group
        answer.add_done_callback(self._give_back)
        return answer

    def hangs(self, answer: asyncio.Future[Any]) -> None:
        """Says that nobody waits any more for the answer to a write."""
        if answer in self._begun:
            self._hanging.add(answer)
            self._hung.add(self._begun[answer])
            self._wake()

    def end(self) -> None:
        """Cancels what has no answer."""
        for answer in list(self._begun):
            answer.cancel()

    def _in_the_way(self, group: str, writes: Iterable[asyncio.Future[Any]]) -> str:
        """Which of these writes leave no slot to a group, in words; empty if it has one."""
        found = Counter(self._begun[one] for one in writes if not one.done())
        alone = group.startswith(ALONE)
        if found[group] >= self._most(group):
            return f"{found[group]} others {'like it' if alone else f'of pool {group}'}"
        probes = sum(found[one] for one in self._probed)
        if group in self._probed and not alone and probes >= OF_GROUP:
            return f"{probes} others that hung before"
        within = sum(number for one, number in found.items() if not one.startswith(ALONE))
        return f"{within} others of the namespace" if not alone and within >= IN_ALL else ""

    def _most(self, group: str) -> int:
        """How many writes of a group may be on their way: all that go at a time while it is answered and none hangs."""
        if group in self._probed:
            return 1
        hangs = any(self._begun[one] == group for one in self._hanging)
        return AT_ONCE if group in self._answered and not hangs else OF_GROUP

    def _give_back(self, answer: asyncio.Future[Any]) -> None:
        group = self._begun.pop(answer)
        self._hanging.discard(answer)
        if not answer.cancelled() and not _is_timeout(answer.exception()):
            self._answered.add(group)
            self._probed.discard(group)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _is_timeout(error: BaseException | None) -> bool:
    return isinstance(error, Refused) and error.is_timeout
