"""Ghost mode: the hit ratio that it expects of a pool, beside that of such a pool, on the same reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bed.guest import PAGE
from bed.tidepool import MIB
from bench import data, plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, booted
from bench.sides import make_pool
from bench.summary import Estimate, estimates
from bench.trial import Figures, Result, Trial, alternating

BORROWER_MIB, FILE_MIB = 192, 256
PATH = "/mnt/file"
PARTS = (0.5, 1.0)  # the pool's size, of the borrower's memory
SIDES = ("NonInclusive", "Exclusive")
SECONDS = 15  # of those that name no runtime of their own
LOOP_MIB = 112  # more than the borrower caches
MOST_SAMPLES = 4096  # TIDE_CURVE_FADE: then the curve halves its counts, and no longer weighs all reads alike
PATIENCE_US = 3_000_000
BUFFERS = 4096
TOLERANCE = 0.05
KIB = 1024
FIO = (
    "fio --readonly --filename={path} --ioengine=psync --invalidate=0 --norandommap --randrepeat=0 --thread"
    " --time_based --runtime={seconds} --minimal {jobs} > /dev/null"
)
RANDOM = "--rw=randread --bs=4k --fadvise_hint=random"
IN_ORDER = "--rw=read --bs=64k --fadvise_hint=sequential"
WORKLOADS = {
    "uniform": f"--name=uniform {RANDOM} --numjobs=4",
    "zipf": f"--name=zipf {RANDOM} --random_distribution=zipf:0.9 --numjobs=4",
    # no faster than evicted pages can be sent on, and not more reads than the curve weighs alike
    "loop": f"--name=loop {IN_ORDER} --size={LOOP_MIB}m --rate=10m --runtime=29",
    "mix": (
        f"--name=loop {IN_ORDER} --size=64m --rate=4m"
        f" --name=zipf {RANDOM} --random_distribution=zipf:0.9 --offset=64m --size=192m --numjobs=3"
    ),
}


class Ghost(Experiment):
    """Several workloads in one boot, each with a pool and a curve that begin empty."""

    name = "ghost"
    title = "What ghost mode expects, and what a pool brings"

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([(side, {"pool_part": part}) for part in PARTS for side in SIDES], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        pool = make_pool(trial.side, int(BORROWER_MIB * max(PARTS)), deadline_us=PATIENCE_US)
        with booted(pool.size(BORROWER_MIB), data.one_file(FILE_MIB), tools.disk(), fast_disk=True) as machine:
            machine.mount()
            machine.borrower.sh(f"insmod /lib/tidepool.ko put_buffers={BUFFERS}")
            part = trial.setting["pool_part"]
            found = [Result({"workload": name}, _workload(machine, trial.side, part, name)) for name in WORKLOADS]
            machine.pair.assert_clean()
        return found

    def draw(self, rows: Rows, target: Path) -> None:
        plots.ghost(estimates(rows), target)

    def table(self, rows: Rows) -> str:
        head = ["workload", "strategy", "pool, of the memory", "expected", "measured", "pages read", "of those sampled"]
        lines = []
        for cell, figures in estimates(rows).items():
            ratios = [report.spread(figures[name]) for name in ("expected", "measured")]
            counts = [report.number(figures[name].median) for name in ("references", "samples")]
            lines.append([cell.parameters["workload"], cell.side, f"{cell.parameters['pool_part']}", *ratios, *counts])
        return report.table(head, sorted(lines, key=lambda line: list(WORKLOADS).index(line[0])))

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        errors = {cell: figures["error"] for cell, figures in estimates(rows).items()}
        found = []
        for name in WORKLOADS:
            one = max((each for cell, each in errors.items() if cell.parameters["workload"] == name), key=_median)
            found.append((f"{name}: within {TOLERANCE} of the pool's", report.spread(one), one.median <= TOLERANCE))
        return found


def _median(one: Estimate) -> float:
    return one.median


def _workload(machine: Machine, strategy: str, part: float, name: str) -> Figures:
    """Pool and curve begin empty and see the same reads.

    A reference is a page that comes into the page cache, from the pool or from a disk. (The module's `misses` are only
    those of files that have lost a page before.)
    """
    machine.borrower.drop_caches(1)
    size = int(machine.borrower.meminfo("MemTotal") * part) // MIB
    make_pool(strategy, size, deadline_us=PATIENCE_US).connect(machine)
    machine.pair.b.set("ghost", "Off")
    machine.pair.b.set("ghost", strategy)
    before = machine.borrower.vmstat("pgpgin")
    machine.tool(machine.borrower, FIO.format(path=PATH, seconds=SECONDS, jobs=WORKLOADS[name]))
    expected, samples = _curve(machine, size * MIB)
    assert samples < MOST_SAMPLES, f"{name}: {samples} reads sampled, of which the curve does not weigh all alike"
    pool, lent = machine.pair.borrowed(), machine.pair.lent()
    from_disk = (machine.borrower.vmstat("pgpgin") - before) * KIB // PAGE
    machine.pair.b.set("ghost", "Off")
    machine.pair.disconnect()
    references = pool["get_hits"] + from_disk
    measured = pool["get_hits"] / max(1, references)
    return {
        "expected": expected,
        "measured": measured,
        "error": abs(expected - measured),
        "references": references,
        "samples": samples,
        "pool_mib": size,
        "not_put": sum(pool[each] for each in ("drop_nobuffer", "drop_refused", "drop_nomem")),
        "late": pool["get_late"],
        **{each: pool[each] for each in ("puts", "get_misses", "drop_stale", "evicted_notices")},
        **{each: lent[each] for each in ("recycled", "reclaimed")},
    }


def _curve(machine: Machine, size: int) -> tuple[float, int]:
    """The hit ratio that is expected of a pool of that size, and how many sampled reads that rests on."""
    points = sorted(machine.pair.b.ghost_ratios().items())
    sizes, ratios = zip((0, 0.0), *points, strict=True)
    return float(np.interp(size, sizes, ratios)), machine.pair.b.ghost_figures()["sampled_references"]
