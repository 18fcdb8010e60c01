"""Takes the figures of the last `make stress`, and of `xfstests`, over into docs/testing.md.

python3 kernel-module/tests/figures.py
Of what was not measured since, the page keeps what it has.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import long

from bed.image import TESTS, TOP
from bed.page import with_parts

PAGE = TOP / "docs/testing.md"
GIB = 1 << 30
KERNELS = {"debug": "6.1 with KASAN and lockdep"}


def stressed(runs: list[dict[str, Any]]) -> str:
    """The table of build/stress.json."""
    head = ["| kernel | file system | operations | verified | faults | errors |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {KERNELS.get(run['kernel'], run['kernel'])}{_watched(run)} | {run['filesystem']} | {run['operations']:,} "
        f"| {run['bytes_verified'] / GIB:.1f} GiB | {run['faults_injected']} | {run['errors']} |"
        for run in sorted(runs, key=_order)
    ]
    return "\n".join([*head, *rows])


def _order(run: dict[str, Any]) -> tuple[bool, list[int], str]:
    """By version, and the watched kernel at the end."""
    return *_kernel_order(run["kernel"]), run["filesystem"]


def _kernel_order(kernel: str) -> tuple[bool, list[int]]:
    return kernel in KERNELS, _version(kernel)


def _version(kernel: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", kernel)]


def _watched(run: dict[str, Any]) -> str:
    """What to know of a run beside its figures: these are the bad cases, and lockdep's verdict."""
    notes = [] if run["dmesg_clean"] else ["complaints in its log"]
    if run["debug_locks"] is not None:
        notes.append(f"`debug_locks` {run['debug_locks']}")
    return f" ({', '.join(notes)})" if notes else ""


def cost(figures: dict[str, Any]) -> str:
    """What build/cost.json says."""
    head = ["| kernel | loaded, without a peer | with ghost mode |", "|---|---|---|"]
    rows = [
        f"| {kernel} | {run['cost']['loaded']:+.2%} | {run['cost']['ghost']:+.2%} |"
        for kernel, run in sorted(figures["kernels"].items(), key=lambda item: _version(item[0]))
    ]
    lines = f"The module has {figures['lines']['all']:,} lines. It changes the processor time by:"
    return "\n".join([lines, "", *head, *rows])


def lender_work(figures: dict[str, Any]) -> str:
    """What build/lender-work.json says."""
    names = {"unlent": "not lent", "lent": "lent", "balloon": "in a balloon"}
    rows = [
        f"| {name} | {statistics.median(each['seconds'] for each in figures['sides'][side]):.2f} s "
        f"| {statistics.median(each['stalls'] for each in figures['sides'][side]):.0f} |"
        for side, name in names.items()
    ]
    where = (
        f"A program takes {figures['wanted_mib']} MiB of a lender's {figures['lender_mib']}, on {figures['kernel']}:"
    )
    head = [f"| {figures['lent_mib']} MiB of it are | time | stalls |", "|---|---|---|"]
    return "\n".join([where, "", *head, *rows])


def tested(outcomes: list[long.Outcome]) -> str:
    """How many of the tests passed on which kernel: of the module and the tests as they are, no earlier ones."""
    now = [one for one in outcomes if one.sources == long.sources(TESTS / one.tests)]
    kernels = sorted({one.kernel for one in now}, key=_kernel_order)
    files = len(list(TESTS.glob("test_*.py")))
    there = f"There are {files} files of tests; `kernel-module/tests/long.py` runs them all, on each kernel."
    head = [
        "| kernel | files that ran | with those that take minutes | tests passed | failed |",
        "|---|---|---|---|---|",
    ]
    shown = [*head, *(_tested_on(kernel, now) for kernel in kernels)]
    return "\n".join([there, "", *(shown if kernels else ["None ran since they or the module changed last."])])


def _tested_on(kernel: str, outcomes: list[long.Outcome]) -> str:
    of = [one for one in outcomes if one.kernel == kernel]
    passed, failed = sum(one.passed for one in of), sum(one.failed for one in of)
    whole = sum(not one.quick for one in of)
    return f"| {KERNELS.get(kernel, kernel)} | {len(of)} | {whole} | {passed} | {failed} |"


def xfstests(runs: list[dict[str, Any]]) -> str:
    """The table of build/xfstests.json, and which tests it counts."""
    places = sorted({(run["kernel"], run["filesystem"]) for run in runs}, key=lambda place: _kernel_order(place[0]))
    columns = ("kernel", "file system", *VERDICTS, "failed without the pool, too", "pages put", "pages from the pool")
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*head, *(_xfstests_on(kernel, system, runs) for kernel, system in places), "", *_named(runs)])


def _xfstests_on(kernel: str, system: str, runs: list[dict[str, Any]]) -> str:
    here = [run for run in runs if (run["kernel"], run["filesystem"]) == (kernel, system)]
    pool = [run for run in here if run["pool"]]
    without = {run["test"] for run in here if not run["pool"] and run["verdict"] == "failed"}
    counts = [sum(run["verdict"] == verdict for run in pool) for verdict in VERDICTS]
    known = sum(run["verdict"] == "failed" and run["test"] in without for run in pool)
    pages = [f"{sum(run[figure] for run in pool):,}" for figure in ("puts", "hits")]
    return f"| {' | '.join(map(str, (KERNELS.get(kernel, kernel), system, *counts, known, *pages)))} |"


def _named(runs: list[dict[str, Any]]) -> list[str]:
    """One entry for what became of tests: those of which it did somewhere."""
    names: dict[str, set[str]] = {}
    for run in runs:
        if run["pool"]:
            idle = ", no page came from the pool" if run["verdict"] == "passed" and not run["hits"] else ""
            names.setdefault(run["verdict"] + idle, set()).add(run["test"].removeprefix("generic/"))
    return [f"- {what}: {', '.join(sorted(tests))}." for what, tests in sorted(names.items())]


VERDICTS = ("passed", "failed", "too slow", "not run")
BUILD = TOP / "build"
PARTS: dict[str, tuple[Path, Callable[[Any], str]]] = {
    "stress": (BUILD / "stress.json", stressed),
    "cost": (BUILD / "cost.json", cost),
    "lender-work": (BUILD / "lender-work.json", lender_work),
    "xfstests": (BUILD / "xfstests.json", xfstests),
}


def measured() -> dict[str, str]:
    """What there is to show, by the name of its place on the page."""
    parts = {name: show(json.loads(file.read_text())) for name, (file, show) in PARTS.items() if file.exists()}
    return {**parts, "tests": tested(long.known(long.PUBLISHED))}


def main() -> int:
    """Rewrites the page."""
    PAGE.write_text(with_parts(PAGE.read_text(), measured()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
