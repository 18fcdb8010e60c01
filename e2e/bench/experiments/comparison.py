"""What the experiments with devices have in common: some workloads, one after the other, on all sides by turns."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
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
from bench.trial import Figures, Result, Trial, alternating

BORROWER_MIB, POOL_MIB = 192, 384
FREE_MIB = 98  # that the borrower has when no workload runs
NO_POOL = "no pool"
WORKLOAD = "workload"  # which of them a result is of
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
    unheld: ClassVar[tuple[str, ...]] = ()  # rivals that Tidepool need not be ahead of at it

    def start(self, place: Place) -> None:  # noqa: B027
        """What comes before it is measured."""

    @abstractmethod
    def run(self, place: Place) -> Run:
        """Does it. Here or in `finish` it fails if what it found is not what it has to be."""

    def finish(self, place: Place) -> None:  # noqa: B027
        """What comes afterwards and is not measured; the disk is fast. The next workload finds nothing of it."""


@dataclass(frozen=True)
class Aim:
    """How many times as fast as without a pool a workload is where somebody has measured it."""

    workload: str
    times: float
    source: str

    def __str__(self) -> str:
        return f"{self.workload}: {self.times} times as fast as no pool, as in {self.source}"


class Comparison(Experiment):
    """All workloads on each side, in one pair of guests as long as that gets through them."""

    loads = ("block",)
    kernel: ClassVar[str] = "6.1"
    processors: ClassVar[int] = 2  # the borrower's
    strategy: ClassVar[str]
    workloads: ClassVar[tuple[Workload, ...]]
    sides: ClassVar[tuple[str, ...]]  # in the order in which they are measured and shown
    rivals: ClassVar[tuple[str, ...]]  # those of them that Tidepool has to be ahead of, as it has of no pool
    aims: ClassVar[tuple[Aim, ...]]

    @property
    def ours(self) -> list[str]:
        """Tidepool's."""
        return [side for side in self.sides if side in TARGETS]

    @abstractmethod
    def disk(self) -> Path:
        """The image of the data disk."""

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([(side, {}) for side in self.sides], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        found: list[Result] = []
        while left := self.workloads[len(found) :]:
            found += self._until_stuck(trial.side, left)
        return found

    def _until_stuck(self, name: str, workloads: Sequence[Workload]) -> list[Result]:
        """These workloads in a fresh pair of guests, up to the first in which a rival's guest stands still."""
        side, found = devices.make(name, POOL_MIB, self.strategy), []
        kernel = side.kernel or self.kernel
        with booted(
            side.size(BORROWER_MIB), self.disk(), tools.disk(), kernel=kernel,
            modules=there(side.modules, kernel), processors=self.processors, module=not side.kernel,
        ) as machine:  # fmt: skip
            if part := side.lacks(machine):
                why = f"its kernel, {machine.pair.kernel.release}, has no `{part}`"
                return [_without(one, why) for one in workloads]
            place = Place(machine, self.prepare(machine, side))
            for workload in workloads:
                try:
                    found.append(Result({WORKLOAD: workload.name}, _figures(place, side, workload)))
                except GuestError as error:
                    why = str(error).splitlines()[0]
                    if name not in self.rivals or not STUCK.search(why):
                        raise
                    return [*found, _without(workload, why)]
            if name not in self.rivals:  # what theirs says when memory is short is not ours to mend
                machine.pair.assert_clean()
        return found

    def prepare(self, machine: Machine, side: Side) -> str:
        """Sets the side up; what the workload works on."""
        return side.device(machine)

    def draw(self, rows: Rows, target: Path) -> None:
        bars = {one.name: _speedups(rows, one.name) for one in self._measured(rows)}
        plots.workloads(bars, target)

    def table(self, rows: Rows) -> str:
        lines = []
        for workload in self._measured(rows):
            times = _speedups(rows, workload.name)
            for side, figures in _by_side(rows, workload.name).items():
                speed = [report.interval(estimate(figures["per_s"])), report.times(times[side])]
                rates = [report.number(estimate(figures[rate]).median) for rate in RATES]
                lines.append([f"{workload.name}, {workload.operation}", side, *speed, *rates])
        return "\n\n".join([report.table([*HEAD, *RATES.values()], lines), *_not_measured(rows), *self._to_come(rows)])

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = []
        for workload in self._measured(rows):
            name = workload.name
            speeds = {side: figures["per_s"] for side, figures in _by_side(rows, name).items()}
            aims = [(str(aim), NO_POOL, aim.times) for aim in self.aims if aim.workload == name]
            others = [other for other in (NO_POOL, *self.rivals) if other in speeds and other not in workload.unheld]
            ahead = [(f"{name}: ahead of {other}", other, AHEAD) for other in others]
            for what, other, least in aims + ahead:
                side, times = _best(self.ours, speeds, other)
                found.append((what, f"{side}: {report.times(times)}", times.median >= least))
        return found

    def _measured(self, rows: Rows) -> list[Workload]:
        """Those that were there when this was measured."""
        return [one for one in self.workloads if _by_side(rows, one.name)]

    def _to_come(self, rows: Rows) -> list[str]:
        """What the next run is the first to measure."""
        names = [one.name for one in self.workloads if one not in self._measured(rows)]
        return [f"Not measured yet: {', '.join(names)}."] if names else []


RATES = {"disk_reads": "each: reads from disk", "disk_writes": "writes", "gets": "gets", "puts": "puts"}
HEAD = ("workload", "side", "a second", "beside no pool")


def _by_side(rows: Rows, workload: str) -> dict[str, dict[str, list[float]]]:
    """Every figure's repetitions of a workload, by the side; those that were not measured are not there."""
    return {cell.side: figures for cell, figures in cells(_of(rows, workload)).items()}


def _speedups(rows: Rows, workload: str) -> dict[str, Estimate]:
    return {cell.side: times for cell, times in speedups(_of(rows, workload)).items()}


def _of(rows: Rows, workload: str) -> Rows:
    """The results of that workload alone."""
    return [{**row, "results": [one for one in row["results"] if one["varied"][WORKLOAD] == workload]} for row in rows]


def _best(ours: Sequence[str], speeds: dict[str, list[float]], other: str) -> tuple[str, Estimate]:
    """The fastest of Tidepool's sides, and how many times as fast as the other it is."""
    beside = {side: ratio(speeds[side], speeds[other]) for side in ours}
    side = max(beside, key=lambda one: beside[one].median)
    return side, beside[side]


def _figures(place: Place, side: Side, workload: Workload) -> Figures:
    """One workload from its start to its end."""
    workload.start(place)
    figures = measured(place.machine, side, lambda: workload.run(place))
    with place.machine.fast_disk():
        workload.finish(place)
    return figures


def _without(workload: Workload, why: str) -> Result:
    """Of a side that has no figures: its kernel lacks something, or a rival's guest did not get through."""
    return Result({WORKLOAD: workload.name, "not_measured": why}, {})


def _not_measured(rows: Rows) -> list[str]:
    """For each side that has no figures of some workloads: of which, and why."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        for one in row["results"]:
            if why := one["varied"].get("not_measured"):
                found[row["side"], why][one["varied"][WORKLOAD]] += 1
    said = {key: ", ".join(f"{name}: {times} times" for name, times in names.items()) for key, names in found.items()}
    return [f"Not measured: {side} ({names}): {why}." for (side, why), names in said.items()]
