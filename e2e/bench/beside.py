"""`python -m bench.beside COMMIT [EXPERIMENT]`: one experiment of two trees by turns, this one and that of a commit.

Each tree measures with its own programs, a repetition a turn, so that what the machine does meanwhile meets both. The
other tree lies below build/, and goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.report import interval, table, times
from bench.summary import Cell, cells, estimate, ratio
from tidepool_lab import earlier, paths
from tidepool_lab.progress import say

Row = dict[str, Any]
Figures = Mapping[Cell, Mapping[str, list[float]]]
ROUNDS = 3


def main() -> None:
    """Measures by turns, and prints the figures that both have."""
    parser = argparse.ArgumentParser(prog="beside", description=__doc__)
    parser.add_argument("commit", help="what to measure beside this tree")
    parser.add_argument("experiment", nargs="?", default="cost", help="which experiment, default cost")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how many, default {ROUNDS}")
    options = parser.parse_args()
    trees = paths.ROOT, earlier.unpacked(earlier.named(options.commit), "beside")
    for turn in range(1, options.rounds + 1):
        for tree in trees if turn % 2 else reversed(trees):
            say(f"round {turn} of {options.rounds}: {'this tree' if tree == paths.ROOT else options.commit}")
            measure(tree, options.experiment, turn)
    print(text(*(newest(tree / "build/bench" / f"{options.experiment}.jsonl") for tree in trees)))


def measure(tree: Path, experiment: str, repetitions: int) -> None:
    """What is missing of so many repetitions."""
    command = [str(tree / "e2e/bench/run"), experiment, "--repetitions", str(repetitions)]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=tree, env=inherited)


def newest(record: Path) -> list[Row]:
    """The results of the module that was measured last."""
    rows: list[Row] = [json.loads(line) for line in record.read_text().splitlines()]
    return [row for row in rows if row["module"] == rows[-1]["module"]]


def text(here: Iterable[Row], there: Iterable[Row]) -> str:
    """A table of the figures that both trees have; this one's come first, and are so many times the other's."""
    return table(["side", "figure", "here", "there", "here / there"], lines(cells(here), cells(there)))


def lines(here: Figures, there: Figures) -> Iterator[list[str]]:
    """A line for each figure of each side and setting."""
    for cell in [cell for cell in here if cell in there]:
        for name in [name for name in here[cell] if name in there[cell]]:
            ours, theirs = here[cell][name], there[cell][name]
            side = ", ".join([cell.side, *(str(value) for value in cell.parameters.values())])
            middles = [interval(estimate(values)) for values in (ours, theirs)]
            yield [side, name, *middles, times(ratio(ours, theirs)) if any(theirs) else "-"]


if __name__ == "__main__":
    main()
