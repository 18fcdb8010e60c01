"""One trial: which side, with which parameters, and for the how-many-eth time. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Figures = dict[str, float]
REPETITIONS = 5  # of each trial; with fewer the interval of a median says little


@dataclass(frozen=True)
class Trial:
    """Something to boot two guests for. `setting` is what the experiment varies, such as the pool's size in MiB."""

    experiment: str
    side: str
    repetition: int
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Tells it from all others."""
        return json.dumps([self.experiment, self.side, self.repetition, dict(sorted(self.setting.items()))])

    def __str__(self) -> str:
        setting = ", ".join(f"{name} {value}" for name, value in self.setting.items())
        return f"{self.experiment}: {self.side}{', ' if setting else ''}{setting}, repetition {self.repetition}"


@dataclass(frozen=True)
class Result:
    """What one measurement of a trial found; `varied` is what varied while the guests were up, such as the depth."""

    varied: Mapping[str, Any]
    figures: Figures


def flattened(trial: Trial, results: list[Result], seconds: float) -> dict[str, Any]:
    """As it is kept: one JSON object."""
    return {
        "experiment": trial.experiment,
        "side": trial.side,
        "repetition": trial.repetition,
        "setting": dict(trial.setting),
        "seconds": round(seconds, 1),
        "results": [{"varied": dict(one.varied), "figures": one.figures} for one in results],
    }


def alternating(cells: Sequence[tuple[str, Mapping[str, Any]]], experiment: str, repetitions: int) -> list[Trial]:
    """Every side and setting once, then all of them again: what the machine does meanwhile meets all of them."""
    return [Trial(experiment, side, number, setting) for number in range(1, repetitions + 1) for side, setting in cells]
