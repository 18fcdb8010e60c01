"""Guests that are live-migrated there and back, in the lab: what the borrower's reads find meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

from bench import plots, report
from bench.experiments.base import Experiment, Rows
from bench.summary import Estimate, estimates
from bench.trial import Figures, Result, Trial, alternating
from demo import lab, workload
from demo.migrations import Reads, Seen, has_followed
from tidepool_lab import guests, migration, nodes

BORROWER, LENDER, HELD, UNHELD = "the borrower", "the lender", "the lender, takes nothing", "the lender, takes pages"
ROLES = {BORROWER: "borrower", LENDER: "lender", HELD: "lender", UNHELD: "lender"}
# An Exclusive pool gets a page again whenever the borrower evicts it; of a NonInclusive one's pages few change.
STRATEGY = {BORROWER: "NonInclusive", LENDER: "NonInclusive", HELD: "Exclusive", UNHELD: "Exclusive"}
GUESTS = ("borrower=288Mi,disk=1Gi:ext4", "lender=1Gi")
FILE_MIB = 240
PATH = "/mnt/file"
STRESS = "/root/stress"
RANDOM, IN_ORDER = f"{STRESS} random {PATH} seconds=5 threads=2", f"{STRESS} sequential {PATH}"
READING = {BORROWER: RANDOM, LENDER: RANDOM, HELD: IN_ORDER, UNHELD: IN_ORDER}  # in order most pages are evicted
BEFORE, AFTER = 10, 30  # seconds that are looked at, before and after the guest's arrival
PATIENCE = 120
NO_LONGER, KEPT = 15.0, 0.9
MIB = 1 << 20


class Migration(Experiment):
    """Ten times there and back, say, of each role; a lender also with a pool whose pages change, held and not."""

    name = "migration"
    title = "A live migration, and what the borrower's reads find meanwhile"

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([(side, {}) for side in ROLES], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        _set_up(STRATEGY[trial.side])
        return [result for _ in ("there", "back") for result in _migrated(trial.side)]

    def end(self) -> None:
        lab.call("down")

    def draw(self, rows: Rows, target: Path) -> None:
        series: dict[str, list[tuple[float, Estimate]]] = {side: [] for side in ROLES}
        for cell, figures in estimates(rows).items():
            if "hit_ratio" in figures:
                series[cell.side].append((cell.parameters["second"], figures["hit_ratio"]))
        plots.migration({side: sorted(points, key=lambda one: one[0]) for side, points in series.items()}, target)

    def table(self, rows: Rows) -> str:
        found = _whole(rows)
        lines = [[what, *(_shown(found[side][name]) for side in ROLES)] for what, name in LINES.items()]
        return report.table(["", *ROLES], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = _whole(rows)
        goals = []
        for side in (BORROWER, LENDER):
            gap, kept = found[side]["without_s"], found[side]["kept"]
            what = f"{side}: at most {NO_LONGER:.0f} s without a page"
            goals.append((what, report.interval(gap), gap.median <= NO_LONGER))
            goals.append((f"{side}: {KEPT:.0%} of the pages are kept", report.spread(kept), kept.median >= KEPT))
        held, not_held = (found[side]["mib"] for side in (HELD, UNHELD))
        what = f"{report.interval(held)} MiB, not {report.interval(not_held)}"
        return [*goals, ("a lender that takes nothing is copied with less", what, held.median < not_held.median)]


LINES = {
    "copied, MiB": "mib",
    "in s": "copied_s",
    "rounds": "rounds",
    "paused, ms": "paused_ms",
    "without a page from the lender, s": "without_s",
    "of the lender's pages, still there": "kept",
    "hit ratio, the 10 s before": "before",
    "the 15 s after": "just_after",
    "the next 15 s": "after",
}


def _set_up(strategy: str) -> None:
    """A lab of two nodes, and a pool whose lender has what it can of a file; what is there already stays."""
    if not lab.is_up():
        specs = [argument for spec in GUESTS for argument in ("--guest", spec)]
        lab.call("up", "--nodes", "2", *specs, show=True, patience=3600)
        lab.call("cp", workload.build_stress(), f"borrower:{STRESS}")
        lab.guest("borrower", f"mount /dev/vdb /mnt && {STRESS} fill {PATH} mib={FILE_MIB}")
    pool = lab.get("memorypool", "pool")
    if pool is None or pool["spec"]["strategy"] != strategy:
        lab.kubectl("apply", "-f", "-", stdin=POOL.format(strategy=strategy))
        lab.kubectl("wait", "--for=condition=Ready", "memorypool/pool", "--timeout=120s")
        lab.guest("borrower", f"{STRESS} sequential {PATH} passes={1 if pool else 2}")


POOL = """
apiVersion: tidepool.dev/v1alpha1
kind: MemoryPool
metadata: {{name: pool, namespace: default}}
spec:
  lenders: {{selector: {{matchLabels: {{vm.kubevirt.io/name: lender}}}}, maxLend: 600Mi, reserve: 192Mi}}
  borrowers: {{selector: {{matchLabels: {{vm.kubevirt.io/name: borrower}}}}, size: 512Mi}}
  strategy: {strategy}
  encryption: None
  latency: {{mode: "Off"}}
"""


def _migrated(side: str) -> list[Result]:
    """One migration: the hit ratio by the second, and the figures of it as a whole."""
    role = ROLES[side]
    here = guests.launcher_of(role)
    node = next(one for one in nodes.possible() if here and one != here.node)
    reads = Reads("borrower", READING[side])
    copied = migration.migrate(role, node, announced=side != UNHELD)
    _wait(role, node.name)
    time.sleep(max(0.0, copied.arrived + AFTER + 1 - time.time()))
    seen = reads.end()
    seen.assert_right()
    return [*_by_second(seen, copied.arrived), Result({}, {**_of(copied), **_around(seen, copied.arrived)})]


def _wait(role: str, node: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not has_followed(role, role, node):
        assert time.monotonic() < deadline, f"the pairing has not followed its {role} to {node}"
        time.sleep(1)


def _by_second(seen: Seen, arrived: float) -> list[Result]:
    """What there was at each second: a look at the borrower takes more than one."""
    looks = [(at - arrived, ratio) for at, ratio in seen.ratios()]
    found = {second: next((ratio for at, ratio in looks if at >= second), None) for second in range(-BEFORE, AFTER + 1)}
    return [Result({"second": at}, {"hit_ratio": ratio}) for at, ratio in found.items() if ratio is not None]


def _of(copied: migration.Copied) -> Figures:
    return {
        "copied_s": copied.seconds,
        "mib": copied.transferred / MIB,
        "rounds": copied.rounds,
        "paused_ms": copied.paused_ms,
    }


def _around(seen: Seen, arrived: float) -> Figures:
    pages = [one.pages for one in seen.moments]
    ratios = {name: seen.ratio(arrived + begin, arrived + end) for name, begin, end in SPANS}
    return {"without_s": seen.longest_without(), "kept": pages[-1] / max(1, pages[0]), **ratios}


SPANS = (("before", -BEFORE, 0.0), ("just_after", 0.0, AFTER / 2), ("after", AFTER / 2, AFTER))


def _whole(rows: Rows) -> dict[str, dict[str, Estimate]]:
    """The figures of a migration as a whole, by side."""
    return {cell.side: figures for cell, figures in estimates(rows).items() if "mib" in figures}


def _shown(one: Estimate) -> str:
    return report.spread(one) if one.high <= 1 else report.interval(one)
