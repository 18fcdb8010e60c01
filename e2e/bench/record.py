"""What has been measured: a line for each trial, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.trial import Result, Trial, flattened


class Record:
    """The raw results of one experiment. `identity` says what was measured; results of another module do not mix.

    `machine` tells one boot of the host from another: all sides of a repetition are measured in the same one.
    """

    def __init__(self, folder: Path, experiment: str, identity: str, machine: str) -> None:
        self.path = folder / f"{experiment}.jsonl"
        self._identity, self._machine = identity, machine
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows: list[dict[str, Any]] = [row for row in map(json.loads, lines) if row["module"] == identity]

    @property
    def repetitions(self) -> int:
        """How many there are, the last perhaps not of all sides."""
        return max((row["repetition"] for row in self.rows), default=0)

    def has(self, trial: Trial) -> bool:
        """Was it measured already?"""
        return trial.key in {_trial(row).key for row in self.rows}

    def add(self, trial: Trial, results: list[Result], seconds: float) -> None:
        """Keeps a trial's results."""
        marks = {"module": self._identity, "machine": self._machine}
        self.rows.append({**flattened(trial, results, seconds), **marks})
        self._write()

    def complete(self, trials: Callable[[int], list[Trial]]) -> list[dict[str, Any]]:
        """The results of those repetitions that have all their trials; `trials` lists those of so many repetitions.

        They come in that order, in whichever they were measured.
        """
        wanted = trials(self.repetitions)
        missing = {trial.repetition for trial in wanted if not self.has(trial)}
        place = {trial.key: number for number, trial in enumerate(wanted) if trial.repetition not in missing}
        return sorted((row for row in self.rows if _trial(row).key in place), key=lambda row: place[_trial(row).key])

    def drop_unfinished(self, trials: Callable[[int], list[Trial]]) -> None:
        """Forgets what another boot of the host began and did not finish."""
        whole = self.complete(trials)
        self.rows = [row for row in self.rows if row in whole or row["machine"] == self._machine]

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        fresh.rename(self.path)

    def typical_seconds(self, trial: Trial) -> float | None:
        """How long such a trial took, or any of this experiment."""
        alike = [row["seconds"] for row in self.rows if _trial(row).side == trial.side]
        known = alike or [row["seconds"] for row in self.rows]
        return sum(known) / len(known) if known else None


def _trial(row: dict[str, Any]) -> Trial:
    return Trial(row["experiment"], row["side"], row["repetition"], row["setting"])
