"""What has been measured: a line for each trial, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.trial import Result, Trial, flattened


class Record:
    """The raw results of one experiment. `identity` says what was measured; results of another module do not mix."""

    def __init__(self, folder: Path, experiment: str, identity: str) -> None:
        self._path = folder / f"{experiment}.jsonl"
        self._identity = identity
        folder.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
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
        row = {**flattened(trial, results, seconds), "module": self._identity}
        self.rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def typical_seconds(self, trial: Trial) -> float | None:
        """How long such a trial took, or any of this experiment."""
        alike = [row["seconds"] for row in self.rows if _trial(row).side == trial.side]
        known = alike or [row["seconds"] for row in self.rows]
        return sum(known) / len(known) if known else None


def _trial(row: dict[str, Any]) -> Trial:
    return Trial(row["experiment"], row["side"], row["repetition"], row["setting"])
