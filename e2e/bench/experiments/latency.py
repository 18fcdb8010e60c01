"""A network that is slow: the paper's section 4.5 and figure 7."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from bed.tidepool import MIB
from bench import data, plots, report, tools
from bench.experiments.application import Run, measured
from bench.experiments.base import Experiment, Rows
from bench.experiments.postmark import Postmark
from bench.machine import Machine, booted
from bench.sides import Side, make
from bench.summary import Estimate, cells, ratio
from bench.trial import Figures, Result, Trial, alternating
from bench.warm import fill, read_everything, read_in_order
from demo import fio

BORROWER_MIB, POOL_MIB, FILE_MIB = 192, 320, 256
ROOM_MIB = 320  # for Postmark's files
PATH = "/mnt/file"
WARM_UPS = 2
# Until the breaker is open, the put buffers are given back ten seconds later, and the page cache has grown into them.
SETTLE_SECONDS, SECONDS = 30, 8
PASSES = 2
NO_WORSE = 0.95
# On what the lender sends, so that every round trip takes so much longer; never too many packets for the queue.
DELAY = "tc qdisc add dev eth0 root netem delay {}ms limit 100000"
Workloads = dict[str, Callable[[Machine, Side], Figures]]


class Latency(Experiment):
    """Each workload with each delay and each kind of breaker, beside no pool; all workloads in one pair of guests."""

    name = "latency"
    title = "A slow network (figure 7)"
    delays_ms: ClassVar[tuple[float, ...]] = (0, 0.5, 1, 1.5, 2, 5)
    breakers: ClassVar[tuple[str, ...]] = ("Off", "Thresholds", "Automatic")

    def disk(self) -> Path:
        """The image of the data disk."""
        return data.one_file(FILE_MIB, ROOM_MIB)

    def fill(self, machine: Machine) -> None:
        """Fills the caches; no breaker is on yet."""
        fill(machine, lambda: read_everything(machine, [PATH]), FILE_MIB * MIB, WARM_UPS)

    def workloads(self) -> Workloads:
        """What is done, one after the other, by name: it settles and is then measured."""
        return {"random reads": _random, "sequential reads": _sequential, "Postmark": _postmark}

    def trials(self, repetitions: int) -> list[Trial]:
        pools = [
            ("NonInclusive", {"delay_ms": delay, "breaker": breaker})
            for delay in self.delays_ms
            for breaker in self.breakers
        ]
        return alternating([("no pool", {"delay_ms": 0, "breaker": ""}), *pools], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        side = make(trial.side, POOL_MIB)
        with booted(side.size(BORROWER_MIB), self.disk(), tools.disk(), modules=("sch_netem",)) as machine:
            side.set_up(machine)
            if delay := trial.setting["delay_ms"]:
                machine.tool(machine.lender, DELAY.format(delay))
            self.fill(machine)
            if breaker := trial.setting["breaker"]:
                machine.pair.b.set(f"lenders/{machine.pair.name}/breaker", breaker)
            found = [Result({"workload": name}, work(machine, side)) for name, work in self.workloads().items()]
            machine.pair.assert_clean()
        return found

    def draw(self, rows: Rows, target: Path) -> None:
        plots.latency(_speedups(rows), target)

    def table(self, rows: Rows) -> str:
        head = ["breaker", "workload", *(f"{delay} ms" for delay in self.delays_ms)]
        lines = [
            [breaker, workload, *(report.times(one) for _, one in points)]
            for breaker, workloads in _speedups(rows).items()
            for workload, points in workloads.items()
        ]
        return report.table(head, lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = []
        for breaker, workloads in _speedups(rows).items():
            for workload, points in workloads.items():
                delay, worst = min(points, key=lambda point: point[1].median)
                what = f"{breaker}, {workload}: at no delay slower than no pool by more than 5 %"
                if breaker != "Off":
                    found.append((what, f"{report.times(worst)} at {delay} ms", worst.median >= NO_WORSE))
        return found


def _random(machine: Machine, side: Side) -> Figures:
    def run() -> Run:
        reads = fio.parse(machine.tool(machine.borrower, fio.command(PATH, 1, SECONDS)))
        return Run(reads.iops * SECONDS, SECONDS)

    machine.tool(machine.borrower, fio.command(PATH, 1, SETTLE_SECONDS))
    return watched(machine, side, run)


def _sequential(machine: Machine, side: Side) -> Figures:
    def run() -> Run:
        seconds = [read_in_order(machine, PATH) for _ in range(PASSES)]
        return Run(FILE_MIB * PASSES, sum(seconds))

    machine.borrower.drop_caches(1)  # what is left of the random reads would cut the read-ahead to pieces
    read_in_order(machine, PATH)
    return watched(machine, side, run)


def _postmark(machine: Machine, side: Side) -> Figures:
    postmark = Postmark()
    with machine.fast_disk():
        postmark.prepare(machine)
    figures = watched(machine, side, lambda: postmark.run(machine))
    with machine.fast_disk():
        postmark.finish(machine)
    return figures


def watched(machine: Machine, side: Side, run: Callable[[], Run]) -> Figures:
    """A run's speed, and what the breaker saw until its end."""
    return {**measured(machine, side, run), **_breaker(machine)}


def _breaker(machine: Machine) -> Figures:
    """What the breaker saw, where there is one."""
    if not machine.pair.b.loaded:
        return {}
    names = ("breaker_open", "breaker_opened", "ping_us_short", "ping_us_long", "get_us_short")
    stats = machine.pair.borrowed()
    return {**{name: stats[name] for name in names}, "disk_us": machine.pair.b.stats()["disk_us"]}


def _speedups(rows: Rows) -> dict[str, dict[str, list[tuple[float, Estimate]]]]:
    """Times as fast as no pool, by delay, for every breaker and workload."""
    speeds = {cell: figures["per_s"] for cell, figures in cells(rows).items()}
    base = {cell.parameters["workload"]: values for cell, values in speeds.items() if cell.side == "no pool"}
    found: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for cell, values in speeds.items():
        if cell.side != "no pool":
            workload = cell.parameters["workload"]
            points = found.setdefault(cell.parameters["breaker"], {}).setdefault(workload, [])
            points.append((cell.parameters["delay_ms"], ratio(values, base[workload])))
    return found
