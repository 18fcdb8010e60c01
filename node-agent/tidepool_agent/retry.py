"""Remembers what has failed, so that it is tried again ever more slowly and everything else at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidepool_agent.errors import GuestError

FIRST_SECONDS, LAST_SECONDS = 5.0, 300.0

Subject = tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """How often something has failed in a row, why the last time, and when it may be tried again."""

    times: int
    error: GuestError
    again: float


class Failures:
    """The failures of one guest by subject. The caller brings the clock."""

    def __init__(self) -> None:
        self._failures: dict[Subject, Failure] = {}

    def due(self, subject: Subject, now: float) -> bool:
        """Whether it may be tried: neither it nor what it is a part of, which begins it, has failed a moment ago."""
        parts = (subject[:length] for length in range(1, len(subject) + 1))
        return all(now >= self._failures[part].again for part in parts if part in self._failures)

    def failed(self, subject: Subject, error: GuestError, now: float, when: datetime) -> None:
        """It was tried and failed, at `now` by the agent's clock and `when` by everybody's; the error says it."""
        before = self._failures.get(subject)
        times = before.times + 1 if before else 1
        pause = min(FIRST_SECONDS * 2 ** min(times - 1, 16), LAST_SECONDS)
        again = (when + timedelta(seconds=pause)).strftime("%H:%M:%S")
        error.add_note(f"tried {times} {'time' if times == 1 else 'times'}, again at {again} UTC")
        self._failures[subject] = Failure(times, error, now + pause)

    def succeeded(self, subject: Subject) -> None:
        """It was tried and worked."""
        self._failures.pop(subject, None)

    def keep(self, subjects: Collection[Subject]) -> None:
        """Forgets what nobody wants any more."""
        self._failures = {subject: failure for subject, failure in self._failures.items() if subject in subjects}

    def error(self, *start: str) -> GuestError | None:
        """Why the first subject that begins like this failed, if one did."""
        found = (f.error for subject, f in self._failures.items() if subject[: len(start)] == start)
        return next(found, None)
