"""Random 4 KiB reads of a file that does not fit the borrower: the paper's section 4.2, figures 4 and 5a."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bed.tidepool import MIB
from bench import data, plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, booted
from bench.sides import Side, make
from bench.summary import Cell, cells, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating
from bench.warm import warm_up
from demo import fio

BORROWER_MIB, FILE_MIB = 192, 256
PATH = "/mnt/file"
SIZES = (64, 128, 192, 320)  # of the pool; the last is beyond the file
WHOLE = SIZES[-1]
DEPTHS = (1, 4, 16, 32)
SECONDS = 8
BLOCK_CACHES = ("dm-cache", "bcache")


class RandomReads(Experiment):
    """Pool sizes from none to beyond the file, and at the last all sides, each at several depths."""

    name = "random"
    title = "Random reads (figures 4 and 5a)"

    def trials(self, repetitions: int) -> list[Trial]:
        plain = [(side, {"pool_mib": size}) for size in SIZES for side in ("NonInclusive", "Exclusive")]
        whole = ("NonInclusive encrypted", "Exclusive encrypted", *BLOCK_CACHES, "ideal")
        sides = [("no pool", {"pool_mib": 0}), *plain, *((side, {"pool_mib": WHOLE}) for side in whole)]
        return alternating(sides, self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        side = make(trial.side, trial.setting["pool_mib"])
        size = side.size(BORROWER_MIB)
        with booted(size, data.one_file(FILE_MIB), tools.disk(), modules=side.modules) as machine:
            side.set_up(machine)
            missed = warm_up(machine, PATH, FILE_MIB * MIB)
            found = [Result({"depth": depth}, {**_reads(machine, side, depth), "missed": missed}) for depth in DEPTHS]
            machine.pair.assert_clean()
        return found

    def draw(self, rows: Rows, target: Path) -> None:
        plots.random_reads(estimates(rows), DEPTHS, target)

    def table(self, rows: Rows) -> str:
        found = estimates(rows)
        head = ["side", "pool", *(f"depth {depth}" for depth in DEPTHS), "hit ratio", "gets per read", "puts per read"]
        lines = []
        for side, size in _order(found):
            at = {depth: found[Cell.of(side, {"pool_mib": size}, {"depth": depth})] for depth in DEPTHS}
            speeds = [report.interval(at[depth]["iops"]) for depth in DEPTHS]
            rates = [f"{at[1][name].median:.2f}" for name in ("hit_ratio", "gets_per_read", "puts_per_read")]
            lines.append([side, f"{size} MiB", *speeds, *rates])
        return report.table(head, lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        speed = {cell: figures["iops"] for cell, figures in cells(rows).items()}
        whole = {"pool_mib": WHOLE}
        found = []
        for depth in DEPTHS:
            varied = {"depth": depth}
            ours = speed[Cell.of("NonInclusive", whole, varied)]
            for other in BLOCK_CACHES:
                times = ratio(ours, speed[Cell.of(other, whole, varied)])
                found.append((f"ahead of {other} at depth {depth}", report.times(times), times.median > 1))
        return found


def _order(found: Iterable[Cell]) -> list[tuple[str, int]]:
    """Sides and sizes as they were measured, each once."""
    return list(dict.fromkeys((cell.side, cell.parameters["pool_mib"]) for cell in found))


def _reads(machine: Machine, side: Side, depth: int) -> Figures:
    machine.tool(machine.borrower, fio.command(PATH, depth, 1))
    before = side.counters(machine)
    reads = fio.parse(machine.tool(machine.borrower, fio.command(PATH, depth, SECONDS)))
    count = {name: value - before.get(name, 0) for name, value in side.counters(machine).items()}
    total = reads.iops * SECONDS
    hits = count.get("get_hits", 0)
    return {
        "iops": reads.iops,
        "p50_us": reads.p50_us,
        "p99_us": reads.p99_us,
        "disk_reads_per_read": count["disk_reads"] / total,
        "hit_ratio": hits / max(1, hits + count["disk_reads"]),
        "gets_per_read": hits / total,
        "puts_per_read": count.get("puts_sent", 0) / total,
    }
