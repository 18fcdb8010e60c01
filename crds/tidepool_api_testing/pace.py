"""How long something takes, on a processor that nobody else slows down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

YARDSTICK = 0.045  # CPU seconds of _yardstick() on a processor of which no one else has a part


def within(bound: float, work: Callable[[], object], tries: int = 3) -> bool:
    """Whether it takes less CPU time than so many seconds, in one of some tries, less what others on the machine add.

    Who has the processor's other thread makes its seconds worth less. CPU time does not show that; a yardstick does.
    """
    return any(_once(work) < bound for _ in range(tries))


def _once(work: Callable[[], object]) -> float:
    slow, taken = _timed(_yardstick), _timed(work)
    return taken * min(1.0, 2 * YARDSTICK / (slow + _timed(_yardstick)))


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class _Thing:
    def __init__(self, at: int) -> None:
        self.name = f"thing-{at * 7919 % 10_007}"
        self.size = at

    @property
    def key(self) -> tuple[int, str]:
        return self.size % 10, self.name


def _yardstick() -> int:
    """Objects, calls, sorting and dictionaries, as planning has them."""
    things = sorted((_Thing(at) for at in range(20_000)), key=lambda one: one.key)
    known = {one.name: one for one in things}
    return sum(known[one.name].size for one in things)
