"""Medians of repetitions with their 95 % intervals, and ratios of sides that were measured in one run. Pure."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 4000
SEED = 2015


@dataclass(frozen=True)
class Estimate:
    """The median of some repetitions, and where it lies with a probability of 95 % (bootstrap percentiles)."""

    median: float
    low: float
    high: float
    count: int

    def as_json(self) -> dict[str, float]:
        return {"median": self.median, "low": self.low, "high": self.high, "n": self.count}


@dataclass(frozen=True)
class Cell:
    """What belongs together: a side, the experiment's setting, and what was varied while the guests were up."""

    side: str
    setting: str
    varied: str

    @staticmethod
    def of(side: str, setting: Mapping[str, Any], varied: Mapping[str, Any]) -> Cell:
        return Cell(side, json.dumps(dict(sorted(setting.items()))), json.dumps(dict(sorted(varied.items()))))

    @property
    def parameters(self) -> dict[str, Any]:
        """Setting and what was varied, as one mapping."""
        return {**json.loads(self.setting), **json.loads(self.varied)}

    @property
    def label(self) -> str:
        """The side as tables and pictures call it."""
        return f"{self.side}{', filter' if self.parameters.get('filter') else ''}"


def estimate(values: Iterable[float]) -> Estimate:
    """Median and interval; one value is its own interval."""
    sample = np.asarray(list(values), dtype=float)
    drawn = np.random.default_rng(SEED).choice(sample, (RESAMPLES, len(sample)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return Estimate(float(np.median(sample)), float(low), float(high), len(sample))


def cells(rows: Iterable[dict[str, Any]]) -> dict[Cell, dict[str, list[float]]]:
    """Every figure's repetitions, by cell."""
    found: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda each: each["repetition"]):
        for result in row["results"]:
            cell = Cell.of(row["side"], row["setting"], result["varied"])
            for name, value in result["figures"].items():
                found[cell][name].append(value)
    return found


def estimates(rows: Iterable[dict[str, Any]]) -> dict[Cell, dict[str, Estimate]]:
    """Every figure's median, by cell."""
    return {cell: {name: estimate(values) for name, values in figures.items()} for cell, figures in cells(rows).items()}


def ratio(values: list[float], beside: list[float]) -> Estimate:
    """How many times as much, repetition by repetition: what slows the machine down is in both."""
    return estimate(one / other for one, other in zip(values, beside, strict=False) if other)


def middle(values: Iterable[float]) -> float:
    """The median alone."""
    return statistics.median(values)
