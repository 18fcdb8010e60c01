"""Reading a file in order, again and again: the paper's section 4.3 and figure 5b."""

from __future__ import annotations

from pathlib import Path

from bed.tidepool import MIB
from bench import data, plots, report, tools
from bench.experiments.application import NO_POOL
from bench.experiments.base import Experiment, Rows
from bench.machine import booted
from bench.sides import BLOCK_CACHES, make
from bench.summary import Cell, Estimate, cells, estimates, ratio
from bench.trial import Result, Trial, alternating
from bench.warm import read_in_order

Chosen = tuple[str, dict[str, int]]  # a side and its setting
BORROWER_MIB, FILE_MIB = 192, 256
PATH = "/mnt/file"
SIZES = (96, 192, 320)  # of the pool; the last is beyond the file
WHOLE = SIZES[-1]
PASSES = 4  # the first fills the pool and is not counted
NO_WORSE = 0.98
SIDES = ("NonInclusive", "Exclusive")
ENCRYPTED = tuple(f"{side} encrypted" for side in SIDES)
POOLS: list[Chosen] = [
    (side, {"pool_mib": size, "filter": chosen})
    for size in SIZES
    for side in (*SIDES, *(ENCRYPTED if size == WHOLE else ()))
    for chosen in (0, 1)
]
OTHERS: list[Chosen] = [(side, {"pool_mib": WHOLE, "filter": 0}) for side in (*BLOCK_CACHES, "ideal")]


class Sequential(Experiment):
    """The same file in order, several times, for pools that it fits and that it does not, and there all sides."""

    name = "sequential"
    title = "Sequential reads, with and without the filter (figure 5b)"

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([NO_POOL, *POOLS, *OTHERS], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        more = {"sequential_filter": trial.setting["filter"]} if trial.setting["pool_mib"] else {}
        side = make(trial.side, trial.setting["pool_mib"], **more)
        with booted(side.size(BORROWER_MIB), data.one_file(FILE_MIB), tools.disk(), modules=side.modules) as machine:
            side.set_up(machine)
            read_in_order(machine, PATH)
            before = side.counters(machine)
            seconds = [read_in_order(machine, PATH) for _ in range(PASSES - 1)]
            count = {name: value - before.get(name, 0) for name, value in side.counters(machine).items()}
            machine.pair.assert_clean()
        pages = FILE_MIB * MIB // 4096 * len(seconds)
        figures = {
            "mib_per_s": FILE_MIB * len(seconds) / sum(seconds),
            "gets_per_page": count.get("get_hits", 0) / pages,
            "puts_per_page": count.get("puts_sent", 0) / pages,
        }
        return [Result({}, figures)]

    def draw(self, rows: Rows, target: Path) -> None:
        plots.sequential(estimates(rows), target)

    def table(self, rows: Rows) -> str:
        speeds = {cell: figures["mib_per_s"] for cell, figures in cells(rows).items()}
        base = next(values for cell, values in speeds.items() if cell.side == "no pool")
        lines = []
        for cell, figures in estimates(rows).items():
            rates = [f"{figures[each].median:.2f}" for each in ("gets_per_page", "puts_per_page")]
            speed = [report.interval(figures["mib_per_s"]), report.times(ratio(speeds[cell], base))]
            lines.append([cell.label, f"{cell.parameters['pool_mib']} MiB", *speed, *rates])
        return report.table(["side", "pool", "MiB/s", "beside no pool", "gets per page", "puts per page"], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        speeds = {cell: figures["mib_per_s"] for cell, figures in cells(rows).items()}

        def beside(one: Chosen, other: Chosen) -> Estimate:
            return ratio(*(speeds[Cell.of(side, setting, {})] for side, setting in (one, other)))

        found = []
        for side, setting in POOLS:
            if setting["filter"]:
                times = beside((side, setting), NO_POOL)
                what = f"{side} with the filter, {setting['pool_mib']} MiB: not slower than no pool by more than 2 %"
                found.append((what, report.times(times), times.median >= NO_WORSE))
        for chosen in (0, 1):
            ours: Chosen = ("NonInclusive", {"pool_mib": WHOLE, "filter": chosen})
            for other in BLOCK_CACHES:
                times = beside(ours, (other, {"pool_mib": WHOLE, "filter": 0}))
                what = f"NonInclusive {'with' if chosen else 'without'} the filter, {WHOLE} MiB: ahead of {other}"
                found.append((what, report.times(times), times.median > 1))
        return found
