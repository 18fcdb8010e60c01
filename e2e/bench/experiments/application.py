"""What the experiments with applications have in common: the paper's sections 4.4 and 4.6, figures 5c to 5f and 6."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bed.tidepool import MIB
from bench import plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, booted
from bench.sides import Side, make
from bench.summary import Cell, Estimate, cells, estimate, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating
from bench.warm import fill

BORROWER_MIB, POOL_MIB = 192, 320
NO_WORSE = 0.98
NO_POOL = ("no pool", {"pool_mib": 0, "filter": 0})
POOLS = [
    (side, {"pool_mib": POOL_MIB, "filter": chosen}) for chosen in (0, 1) for side in ("NonInclusive", "Exclusive")
]
OTHERS = [
    (side, {"pool_mib": POOL_MIB, "filter": 0})
    for side in ("NonInclusive encrypted", "Exclusive encrypted", "dm-cache", "ideal")
]


@dataclass(frozen=True)
class Run:
    """What an application did, and in which time."""

    operations: float
    seconds: float
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Aim:
    """How many times as fast as without a pool the paper is, and where it says so; with or without the filter."""

    times: float
    source: str
    filter: int = 0

    def __str__(self) -> str:
        which = "the better of the two" + (", with the filter," if self.filter else "")
        return f"{which} is {self.times} times as fast as no pool, as in the paper ({self.source})"


class Application(Experiment):
    """A program whose data do not fit the borrower: run until the side is full, then once more and measured."""

    data_mib: ClassVar[int]  # about
    operation: ClassVar[str]
    shown: ClassVar[tuple[str, str]] = ("per_s", "a second")  # the figure of the table, and its unit
    more_shown: ClassVar[dict[str, str]] = {}  # further columns: figure, heading
    aims: ClassVar[tuple[Aim, ...]] = ()
    ahead_of_dm_cache: ClassVar[bool] = True
    warm_ups: ClassVar[int] = 3  # at most

    @abstractmethod
    def disk(self) -> Path:
        """The image of the data disk."""

    def start(self, machine: Machine) -> None:
        """What is done once, before everything else."""
        del machine

    def prepare(self, machine: Machine) -> None:
        """What comes just before the measured run and is not part of it; the disk is fast."""
        del machine

    @abstractmethod
    def run(self, machine: Machine) -> Run:
        """Runs it. Here or in `finish` it fails if what it found is not what it has to be."""

    def finish(self, machine: Machine) -> None:
        """What comes after the measured run and is not part of it; the disk is fast again."""
        del machine

    def warm_up(self, machine: Machine) -> None:
        """Fills the caches: a run whose speed nobody looks at."""
        self.prepare(machine)
        self.run(machine)
        self.finish(machine)

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([NO_POOL, *POOLS, *OTHERS], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        more = {"sequential_filter": 1} if trial.setting["filter"] else {}
        side = make(trial.side, trial.setting["pool_mib"], **more)
        with booted(side.size(BORROWER_MIB), self.disk(), tools.disk(), modules=side.modules) as machine:
            side.set_up(machine)
            self.start(machine)
            missed = fill(machine, lambda: self.warm_up(machine), self.data_mib * MIB, self.warm_ups)
            with machine.fast_disk():
                self.prepare(machine)
            figures = measured(machine, side, lambda: self.run(machine))
            with machine.fast_disk():
                self.finish(machine)
            machine.pair.assert_clean()
        return [Result({}, {**figures, "missed": missed})]

    def draw(self, rows: Rows, target: Path) -> None:
        found = estimates(rows)
        bars = [(cell.label, cell.side, one) for cell, one in speedups(rows).items()]
        names = {f"{way} per {self.operation}": f"disk_{way}" for way in ("reads", "writes")}
        plots.speedups(bars, {what: [found[cell][name] for cell in found] for what, name in names.items()}, target)

    def table(self, rows: Rows) -> str:
        times = speedups(rows)
        name, unit = self.shown
        lines = []
        for cell, figures in estimates(rows).items():
            rates = [report.number(figures[each].median) for each in ("disk_reads", "disk_writes", "gets", "puts")]
            more = [report.interval(figures[other]) for other in self.more_shown]
            lines.append([cell.label, report.interval(figures[name]), *more, report.times(times[cell]), *rates])
        each = f"per {self.operation}: reads from disk"
        return report.table(
            ["side", unit, *self.more_shown.values(), "speed beside no pool", each, "writes", "gets", "puts"], lines
        )

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        speeds = {cell: figures["per_s"] for cell, figures in cells(rows).items()}
        times = speedups(rows)

        def pools(filter_: int) -> dict[str, Estimate]:
            return {side: times[Cell.of(side, setting, {})] for side, setting in POOLS if setting["filter"] == filter_}

        found = [
            (f"{side} is not slower than no pool by more than 2 %", report.times(one), one.median >= NO_WORSE)
            for side, one in pools(0).items()
        ]
        for aim in self.aims:
            best = max(pools(aim.filter).values(), key=lambda one: one.median)
            found.append((str(aim), report.times(best), best.median >= aim.times))
        if self.ahead_of_dm_cache:
            ours, theirs = (speeds[Cell.of(side, POOLS[0][1], {})] for side in ("NonInclusive", "dm-cache"))
            beside = ratio(ours, theirs)
            found.append(("NonInclusive is ahead of dm-cache", report.times(beside), beside.median > 1))
        return found


def measured(machine: Machine, side: Side, run: Callable[[], Run]) -> Figures:
    """A run's speed, and what each of its operations took of disk and pool."""
    before = side.counters(machine)
    done = run()
    count = {name: value - before.get(name, 0) for name, value in side.counters(machine).items()}
    names = {"disk_reads": "disk_reads", "disk_writes": "disk_writes", "gets": "get_hits", "puts": "puts_sent"}
    per = {name: count.get(counter, 0) / done.operations for name, counter in names.items()}
    speed = done.operations / done.seconds
    return {"seconds": done.seconds, "operations": done.operations, "per_s": speed, **per, **done.figures}


def speedups(rows: Rows) -> dict[Cell, Estimate]:
    """Times as fast as no pool, repetition by repetition; no pool itself beside its own median."""
    speeds = {cell: figures["per_s"] for cell, figures in cells(rows).items()}
    base = next(values for cell, values in speeds.items() if cell.side == "no pool")
    middle = estimate(base).median
    return {
        cell: estimate(value / middle for value in base) if cell.side == "no pool" else ratio(values, base)
        for cell, values in speeds.items()
    }
