"""What the experiments with devices have in common: some workloads, each on all sides by turns."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bed.guest import GuestError
from bench import devices, plots, report, tools
from bench.devices import TARGETS
from bench.experiments.application import Run, measured, speedups
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, booted, there
from bench.sides import Side
from bench.summary import Estimate, cells, estimate, ratio
from bench.trial import Result, Trial, alternating

BORROWER_MIB, POOL_MIB = 192, 384
NO_POOL = "no pool"
STUCK = re.compile(r" (took over [\d.]+ s|ended with -9)$")  # it stands still, or the kernel has killed it for memory
AHEAD = math.nextafter(1, 2)  # times as fast: the least that is more than as fast


@dataclass(frozen=True)
class Place:
    """Where a workload runs: in the borrower, with what its side has made of the data disk."""

    machine: Machine
    device: str

    def tool(self, command: str) -> str:
        """Runs a shell command among the borrower's programs; its output."""
        return self.machine.tool(self.machine.borrower, command)


class Workload(ABC):
    """Something to do, so many operations a second."""

    name: ClassVar[str]
    operation: ClassVar[str]

    @abstractmethod
    def disk(self) -> Path:
        """The image of the data disk."""

    def start(self, place: Place) -> None:  # noqa: B027
        """What comes before it is measured."""

    @abstractmethod
    def run(self, place: Place) -> Run:
        """Does it. Here or in `finish` it fails if what it found is not what it has to be."""

    def finish(self, place: Place) -> None:  # noqa: B027
        """What comes afterwards and is not measured; the disk is fast."""


@dataclass(frozen=True)
class Aim:
    """How many times as fast as without a pool a workload is where somebody has measured it."""

    workload: str
    times: float
    source: str

    def __str__(self) -> str:
        return f"{self.workload}: {self.times} times as fast as no pool, as in {self.source}"


class Comparison(Experiment):
    """Each workload on each side, in a pair of guests of its own."""

    kernel: ClassVar[str] = "6.1"
    strategy: ClassVar[str]
    workloads: ClassVar[tuple[Workload, ...]]
    sides: ClassVar[tuple[str, ...]]  # beside no pool and Tidepool's
    rivals: ClassVar[tuple[str, ...]]  # those of them that Tidepool has to be ahead of, as it has of no pool
    aims: ClassVar[tuple[Aim, ...]]

    def trials(self, repetitions: int) -> list[Trial]:
        pairs = [
            (side, {"workload": workload.name})
            for workload in self.workloads
            for side in (NO_POOL, *TARGETS, *self.sides)
        ]
        return alternating(pairs, self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        side = devices.make(trial.side, POOL_MIB, self.strategy)
        workload = next(one for one in self.workloads if one.name == trial.setting["workload"])
        with booted(
            side.size(BORROWER_MIB), workload.disk(), tools.disk(), kernel=self.kernel,
            modules=there(side.modules, self.kernel),
        ) as machine:  # fmt: skip
            if part := side.lacks(machine):
                return [_without(f"its kernel, {machine.pair.kernel.release}, has no `{part}`")]
            place = Place(machine, self.prepare(machine, side))
            try:
                workload.start(place)
                figures = measured(machine, side, lambda: workload.run(place))
            except GuestError as error:
                why = str(error).splitlines()[0]
                if trial.side not in self.rivals or not STUCK.search(why):
                    raise
                return [_without(why)]
            with machine.fast_disk():
                workload.finish(place)
            machine.pair.assert_clean()
        return [Result({}, figures)]

    def prepare(self, machine: Machine, side: Side) -> str:
        """Sets the side up; what the workload works on."""
        return side.device(machine)

    def draw(self, rows: Rows, target: Path) -> None:
        bars = {one.name: _speedups(rows, one.name) for one in self.workloads}
        plots.workloads(bars, target)

    def table(self, rows: Rows) -> str:
        lines = []
        for workload in self.workloads:
            times = _speedups(rows, workload.name)
            for side, figures in _by_side(rows, workload.name).items():
                speed = [report.interval(estimate(figures["per_s"])), report.times(times[side])]
                rates = [report.number(estimate(figures[rate]).median) for rate in RATES]
                lines.append([f"{workload.name}, {workload.operation}", side, *speed, *rates])
        return "\n\n".join([report.table([*HEAD, *RATES.values()], lines), *_not_measured(rows)])

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = []
        for name in [one.name for one in self.workloads]:
            speeds = {side: figures["per_s"] for side, figures in _by_side(rows, name).items()}
            aims = [(str(aim), NO_POOL, aim.times) for aim in self.aims if aim.workload == name]
            ahead = [
                (f"{name}: ahead of {other}", other, AHEAD) for other in (NO_POOL, *self.rivals) if other in speeds
            ]
            for what, other, least in aims + ahead:
                side, times = _best(speeds, other)
                found.append((what, f"{side}: {report.times(times)}", times.median >= least))
        return found


RATES = {"disk_reads": "each: reads from disk", "disk_writes": "writes", "gets": "gets", "puts": "puts"}
HEAD = ("workload", "side", "a second", "beside no pool")


def _by_side(rows: Rows, workload: str) -> dict[str, dict[str, list[float]]]:
    """Every figure's repetitions of a workload, by the side; those that were not measured are not there."""
    return {cell.side: figures for cell, figures in cells(_of(rows, workload)).items()}


def _speedups(rows: Rows, workload: str) -> dict[str, Estimate]:
    return {cell.side: times for cell, times in speedups(_of(rows, workload)).items()}


def _of(rows: Rows, workload: str) -> Rows:
    return [row for row in rows if row["setting"]["workload"] == workload]


def _best(speeds: dict[str, list[float]], other: str) -> tuple[str, Estimate]:
    """The fastest of Tidepool's sides, and how many times as fast as the other it is."""
    beside = {side: ratio(speeds[side], speeds[other]) for side in TARGETS}
    side = max(beside, key=lambda one: beside[one].median)
    return side, beside[side]


def _without(why: str) -> Result:
    """Of a side that has no figures: its kernel lacks something, or a rival's guest did not get through."""
    return Result({"not_measured": why}, {})


def _not_measured(rows: Rows) -> list[str]:
    """For each side that has no figures of some workloads: of which, and why."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for one in row["results"]:
            if why := one["varied"].get("not_measured"):
                found[row["side"], why][row["setting"]["workload"]] += 1
    said = {key: ", ".join(f"{name}: {times} times" for name, times in names.items()) for key, names in found.items()}
    return [f"Not measured: {side} ({names}): {why}." for (side, why), names in said.items()]
