"""What the user sees while something long runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

START = time.monotonic()


class LabError(Exception):
    """Something that the user can act on; printed without a traceback."""


def say(text: str) -> None:
    """One line of progress, with the seconds since the command began."""
    print(f"[{time.monotonic() - START:6.1f}s] {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announces a long step, and says how long it took."""
    say(f"{text} …")
    begin = time.monotonic()
    yield
    say(f"{text}: done in {time.monotonic() - begin:.0f} s")
