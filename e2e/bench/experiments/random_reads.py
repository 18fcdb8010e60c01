"""Random 4 KiB reads of a file that does not fit the borrower: the paper's section 4.2, figures 4 and 5a."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from bed.tidepool import MIB, quantile
from bench import data, plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, booted
from bench.sides import BLOCK_CACHES, Pool, Side, make
from bench.summary import Cell, Estimate, cells, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating
from bench.warm import warm_up
from demo import fio

BORROWER_MIB, FILE_MIB = 192, 256
PATH = "/mnt/file"
SIZES = (64, 128, 192, 320)  # of the pool; the last is beyond the file
WHOLE = SIZES[-1]
DEPTHS = (1, 4, 16, 32)
SECONDS = 8
PAPER_GET_US = 150  # the paper's network (section 4.1)
PAPER_TIMES = 38  # as fast as without a pool, the file within both memories (table 2: 6,310 reads a second for 166)
NEAR_IDEAL, DEEP = 0.8, (16, 32)


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
        return f"{report.table(head, lines)}\n\n{on_the_papers_network(rows)}"

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
            if depth in DEEP:
                part = ratio(ours, speed[Cell.of("ideal", whole, varied)])
                what = f"at least {NEAR_IDEAL} of the ideal's speed at depth {depth}"
                found.append((what, report.spread(part), part.median >= NEAR_IDEAL))
        here, there = _speedups(rows)[Cell.of("NonInclusive", whole, {"depth": 1})]
        what = f"{PAPER_TIMES} times as fast as no pool, as in the paper (table 2)"
        for one, times in ((what, here), (f"{what}, with gets of {PAPER_GET_US} µs", there)):
            found.append((one, report.times(times), times.median >= PAPER_TIMES))
        return found


def _order(found: Iterable[Cell]) -> list[tuple[str, int]]:
    """Sides and sizes as they were measured, each once."""
    return list(dict.fromkeys((cell.side, cell.parameters["pool_mib"]) for cell in found))


def on_the_papers_network(rows: Rows) -> str:
    """What would remain of a read at depth 1 if a get took as long as the paper's, and nothing else changed."""
    gets = {cell: figures["get_p50_us"] for cell, figures in estimates(rows).items()}
    lines = [
        [cell.side, f"{cell.parameters['pool_mib']} MiB", report.number(gets[cell].median), *map(report.times, times)]
        for cell, times in _speedups(rows).items()
    ]
    head = ["side", "pool", "a get, p50, µs", "speed beside no pool, depth 1", f"with gets of {PAPER_GET_US} µs"]
    return report.table(head, lines)


def _speedups(rows: Rows) -> dict[Cell, tuple[Estimate, Estimate]]:
    """Of each pool, how many times as fast as no pool at depth 1: as measured, and with the paper's gets."""
    found = {cell: figures for cell, figures in cells(rows).items() if cell.parameters["depth"] == 1}
    base = next(figures["iops"] for cell, figures in found.items() if cell.side == "no pool")
    return {
        cell: (ratio(figures["iops"], base), ratio(_with_the_papers_gets(figures), base))
        for cell, figures in found.items()
        if any(figures["get_p50_us"])
    }


def _with_the_papers_gets(figures: Mapping[str, list[float]]) -> list[float]:
    """Reads a second, each get taking PAPER_GET_US instead of what it took."""
    times = zip(figures["iops"], figures["get_p50_us"], figures["gets_per_read"], strict=True)
    return [1e6 / (1e6 / iops - max(0.0, get - PAPER_GET_US) * gets) for iops, get, gets in times]


def _get_latency(machine: Machine, side: Side) -> dict[float, int]:
    """How many gets took how long until now, by the upper ends of the histogram's buckets in microseconds."""
    return dict(machine.pair.b.latency(f"lenders/{machine.pair.name}")) if isinstance(side, Pool) else {}


def _reads(machine: Machine, side: Side, depth: int) -> Figures:
    machine.tool(machine.borrower, fio.command(PATH, depth, 1))
    before, gets = side.counters(machine), _get_latency(machine, side)
    reads = fio.parse(machine.tool(machine.borrower, fio.command(PATH, depth, SECONDS)))
    count = {name: value - before.get(name, 0) for name, value in side.counters(machine).items()}
    latency = [(limit, many - gets.get(limit, 0)) for limit, many in _get_latency(machine, side).items()]
    total = reads.iops * SECONDS
    hits = count.get("get_hits", 0)
    return {
        "iops": reads.iops,
        "p50_us": reads.p50_us,
        "p99_us": reads.p99_us,
        "disk_reads_per_read": count["disk_reads"] / total,
        "get_p50_us": quantile(latency, 0.5) if latency else 0.0,
        "hit_ratio": hits / max(1, hits + count["disk_reads"]),
        "gets_per_read": hits / total,
        "puts_per_read": count.get("puts_sent", 0) / total,
    }
