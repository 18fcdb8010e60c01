"""utmem's evaluation (sections 4.1 and 4.2): Redis with more values than its guest has memory for, and with few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bed.guest import PAGE
from bench import data, plots, redis, report, tools
from bench.devices import swap_on
from bench.experiments import store
from bench.experiments.application import speedups
from bench.experiments.base import Experiment, Rows
from bench.experiments.comparison import BORROWER_MIB, NO_POOL
from bench.experiments.store import LEAST_AWAY, OURS, TIDE, TRANSPARENT
from bench.machine import booted, there
from bench.sides import Ideal
from bench.summary import Cell, Estimate, cells, estimate, ratio
from bench.trial import Result, Trial, alternating

KERNEL = "6.1"
FRONT_ENDS = ("write-through", "behind")  # of the block device: the server knows nothing of them
SIDES = (NO_POOL, *FRONT_ENDS, *OURS, Ideal.name)
# For values of so many bytes: data, in percent of what the guest has free. Figure 5 has all sizes at 100 %, and more
# data for one of them. What a guest remembers of a value of 64 B takes as much of its memory as a plain server does.
DEFAULT: Mapping[int, tuple[int, ...]] = {4096: (75, 100, 150), 1024: (100,), 65536: (100,)}
MOST_DATA, MOST_VALUE = 300, 2 << 20
UNDER_PRESSURE = 100
DISK_MIB = 512
INSTRUCTIONS = {"part": "instructions"}
COUNTED = (NO_POOL, *OURS)
LEAST_SPEED, MOST_LATENCY, MOST_INSTRUCTIONS = 2, 1, 1.2

Figure = TypeVar("Figure")


class Values(Experiment):
    """By turns on each side, values of a size in one pair of guests; `wanted` is which data of which values."""

    name = "values"
    title = "Values of programs"
    loads = ("appmem", "block")

    def __init__(self, wanted: Mapping[int, Sequence[int]] = DEFAULT) -> None:
        self.wanted = wanted

    def sources(self) -> list[Path]:
        return redis.sources()

    def trials(self, repetitions: int) -> list[Trial]:
        pressure = [
            (side, _setting(size, percents))
            for size, percents in self.wanted.items()
            for side in SIDES
            if side != TRANSPARENT or size >= LEAST_AWAY
        ]
        counted = [(side, {**INSTRUCTIONS, "value": size}) for size in self._counted for side in COUNTED]
        return alternating([*pressure, *counted], self.name, repetitions)

    @property
    def _counted(self) -> list[int]:
        """Values of a page and more; what is smaller is no page of its own."""
        return [size for size in self.wanted if size >= PAGE]

    def measure(self, trial: Trial) -> list[Result]:
        counted = "part" in trial.setting
        side, size = store.make(trial.side), trial.setting["value"]
        with booted(
            side.size(BORROWER_MIB), data.empty(DISK_MIB), tools.disk(), kernel=KERNEL,
            modules=there(side.modules, KERNEL), counted=counted, fast_disk=counted,
        ) as machine:  # fmt: skip
            swap_on(machine, side.device(machine))
            if counted:
                found = [Result({}, store.instructions(machine, side, size))]
            else:
                found = [
                    Result({"data": percent}, store.pressure(machine, side, size, percent))
                    for percent in trial.setting["data"]
                ]
            machine.pair.assert_clean()
        return found

    def draw(self, rows: Rows, target: Path) -> None:
        plots.workloads({_named(*one): _by_side(speedups(_of(rows, *one))) for one in self._cells}, target)

    @property
    def _cells(self) -> list[tuple[int, int]]:
        return [(size, percent) for size, percents in self.wanted.items() for percent in percents]

    def table(self, rows: Rows) -> str:
        lines = []
        for one in self._cells:
            chosen = _of(rows, *one)
            times = _by_side(speedups(chosen))
            for side, figures in _by_side(cells(chosen)).items():
                speed = [report.interval(estimate(figures["per_s"])), report.times(times[side])]
                rest = [report.number(estimate(figures[name]).median) for name in COLUMNS]
                lines.append([_named(*one), side, *speed, *rest])
        tables = [report.table([*HEAD, *COLUMNS.values()], lines)]
        return "\n\n".join(
            [*tables, self._instructions_table(rows), self._parts_table(rows)] if self._counted else tables
        )

    def _instructions_table(self, rows: Rows) -> str:
        lines = []
        for size in self._counted:
            for side in COUNTED:
                figures = _counted(rows, size, side)
                spent_each = [report.interval(estimate(figures[name])) for name in INSTRUCTION_COLUMNS]
                lines.append([_size(size), side, *spent_each, report.times(_beyond(rows, size, side))])
        return report.table(
            ["values", "side", *INSTRUCTION_COLUMNS.values(), "beyond round trips, beside no pool"], lines
        )

    def _parts_table(self, rows: Rows) -> str:
        """Figure 6 of utmem: what a call is made of."""
        lines = []
        for size in self._counted:
            figures = _counted(rows, size, TIDE)
            look, near, trip, put, get = (
                estimate(figures[name]).median for name in ("look", "near", "trip", "put", "get")
            )
            copying = near - look
            parts = {
                "get": (look, copying, trip - copying, get - look - trip, get),
                "put": (look, copying, 0, put - near, put),
            }
            for what, spent in parts.items():
                lender = estimate(figures[f"{what}_lender"]).median
                lines.append(
                    [_size(size), what, *(report.number(one) if one else "" for one in spent), report.number(lender)]
                )
        return report.table(["values", "call", *PARTS], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = []
        for size, percent in self._cells:
            if percent >= UNDER_PRESSURE:
                found += _under_pressure(rows, size, percent)
        for size in self._counted:
            for side in OURS:
                beyond = _beyond(rows, size, side)
                what = f"{_size(size)}, no pressure: {side} takes at most {MOST_INSTRUCTIONS} times the instructions"
                found.append((what, report.times(beyond), beyond.median <= MOST_INSTRUCTIONS))
        missing = max(max(figures.get("missing", [0])) for figures in cells(rows).values())
        found.append(("no value is missing", report.number(missing), missing == 0))
        return found


HEAD = ("values, data", "side", "a second", "beside no pool")
COLUMNS = {
    "p50_ms": "p50, ms", "p99_ms": "p99, ms", "disk_reads": "each: reads from disk", "disk_writes": "writes",
    "gets": "gets", "puts": "puts", "missing": "missing",
}  # fmt: skip
INSTRUCTION_COLUMNS = {
    "borrower": "instructions of a request: borrower", "lender": "lender", "trip": "of a bare round trip: borrower",
    "trips": "round trips of a request",
}  # fmt: skip
PARTS = ("borrower: call and look-up", "copying", "network", "session and pages", "all", "lender: all")


def _setting(size: int, percents: Sequence[int]) -> dict[str, object]:
    return {"value": size, "data": list(percents)}


def _size(size: int) -> str:
    return f"{size // 1024} KiB" if size % 1024 == 0 else f"{size} B"


def _named(size: int, percent: int) -> str:
    return f"{_size(size)}, {percent} %"


def _of(rows: Rows, size: int, percent: int) -> Rows:
    """The results of these values and data alone."""
    chosen = [row for row in rows if row["setting"]["value"] == size and "data" in row["setting"]]
    return [{**row, "results": [one for one in row["results"] if one["varied"]["data"] == percent]} for row in chosen]


def _by_side(found: Mapping[Cell, Figure]) -> dict[str, Figure]:
    return {cell.side: one for cell, one in found.items()}


def _under_pressure(rows: Rows, size: int, percent: int) -> list[tuple[str, str, bool]]:
    """Beside no pool: speed, and the slow gets; the front ends of block devices are slower."""
    sides = _by_side(cells(_of(rows, size, percent)))
    found = []
    for side in [one for one in OURS if one in sides]:
        name = f"{_named(size, percent)}: {side}"
        speed, late = (ratio(sides[side][what], sides[NO_POOL][what]) for what in ("per_s", "p99_ms"))
        what = f"{name} at least {LEAST_SPEED} times as fast as {NO_POOL}"
        found.append((what, report.times(speed), speed.median >= LEAST_SPEED))
        found.append((f"{name} has no longer p99 than {NO_POOL}", report.times(late), late.median <= MOST_LATENCY))
        for other in FRONT_ENDS:
            beside = ratio(sides[side]["per_s"], sides[other]["per_s"])
            found.append((f"{name} ahead of {other}", report.times(beside), beside.median > 1))
    return found


def _counted(rows: Rows, size: int, side: str) -> dict[str, list[float]]:
    return cells(rows)[Cell.of(side, {**INSTRUCTIONS, "value": size}, {})]


def _beyond(rows: Rows, size: int, side: str) -> Estimate:
    """The borrower's instructions for a request, less those of its round trips, beside no pool's."""
    ours, plain = _counted(rows, size, side), _counted(rows, size, NO_POOL)
    trips = [trip * often for trip, often in zip(ours["trip"], ours["trips"], strict=True)]
    return ratio([all_of - trip for all_of, trip in zip(ours["borrower"], trips, strict=True)], plain["borrower"])
