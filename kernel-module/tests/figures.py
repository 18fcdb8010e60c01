"""Takes the figures of the last `make stress` over into README.md: python3 kernel-module/tests/figures.py.

Of what was not measured since, README.md keeps what it has.
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

README = TOP / "README.md"
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
    each = [
        f"{run['cost']['loaded']:+.2%} and {run['cost']['ghost']:+.2%} on {kernel}"
        for kernel, run in sorted(figures["kernels"].items(), key=lambda item: _version(item[0]))
    ]
    return (
        f"What its {figures['lines']['all']:,} lines change of the processor time of a workload that is nothing but "
        f"the kernel's page cache, in a guest of 1 GiB, loaded without a peer and with ghost mode: {', '.join(each)}."
    )


def lender_work(figures: dict[str, Any]) -> str:
    """What build/lender-work.json says."""
    sides = figures["sides"]
    median = {side: statistics.median(each["seconds"] for each in rounds) for side, rounds in sides.items()}
    stalls = {side: statistics.median(each["stalls"] for each in rounds) for side, rounds in sides.items()}
    return (
        f"On {figures['kernel']}, a program that takes {figures['wanted_mib']} MiB has them after "
        f"{median['unlent']:.2f} s on a lender that has lent nothing, after {median['lent']:.2f} s on one that has "
        f"lent {figures['lent_mib']} MiB of its {figures['lender_mib']}, and after {median['balloon']:.2f} s where a "
        f"balloon had taken as much; direct reclaim stalled it {stalls['unlent']:.0f}, {stalls['lent']:.0f} and "
        f"{stalls['balloon']:.0f} times."
    )


def tested(outcomes: list[long.Outcome]) -> str:
    """How many of the tests passed on which kernel: of the module and the tests as they are, no earlier ones."""
    now = [one for one in outcomes if one.sources == long.sources(TESTS / one.tests)]
    kernels = sorted({one.kernel for one in now}, key=_kernel_order)
    files = len(list(TESTS.glob("test_*.py")))
    shown = "; ".join(_tested_on(kernel, now) for kernel in kernels) or "none ran since they or the module changed last"
    return f"Of the {files} files of tests, those of minutes too (`kernel-module/tests/long.py`), {shown}."


def _tested_on(kernel: str, outcomes: list[long.Outcome]) -> str:
    of = [one for one in outcomes if one.kernel == kernel]
    passed, failed = sum(one.passed for one in of), sum(one.failed for one in of)
    return f"{len(of)} ran on {KERNELS.get(kernel, kernel)}: {passed} {_tests(passed)} passed, {failed} failed"


def _tests(count: int) -> str:
    return "test" if count == 1 else "tests"


BUILD = TOP / "build"
PARTS: dict[str, tuple[Path, Callable[[Any], str]]] = {
    "stress": (BUILD / "stress.json", stressed),
    "cost": (BUILD / "cost.json", cost),
    "lender-work": (BUILD / "lender-work.json", lender_work),
}


def measured() -> dict[str, str]:
    """What there is to show, by the name of its place in README.md."""
    parts = {name: show(json.loads(file.read_text())) for name, (file, show) in PARTS.items() if file.exists()}
    return {**parts, "tests": tested(long.known(long.PUBLISHED))}


def main() -> int:
    """Rewrites README.md."""
    README.write_text(with_parts(README.read_text(), measured()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
