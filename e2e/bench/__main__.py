"""`python -m bench [EXPERIMENT...]`: runs experiments, or goes on with them; see `bench`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import report
from bench.experiments import EXPERIMENTS
from bench.experiments.base import Experiment
from bench.experiments.values import MOST_DATA, MOST_VALUE, Values
from bench.record import Record
from bench.trial import REPETITIONS, Trial
from tidepool_lab import paths
from tidepool_lab.progress import say

RAW = paths.BUILD / "bench"
FIRST_GUESS_SECONDS = 60.0


def main() -> None:
    """Measures what is missing, then writes what there is."""
    options = _options()
    chosen = [_wanted(name, options) for name in options.experiment or _only() or EXPERIMENTS]
    folder = report.PUBLISHED if options.page else RAW
    records = {one.name: Record(folder, one.name, one.identity(), _machine()) for one in chosen}
    if not options.report:
        for one in chosen:
            records[one.name].drop_unfinished(one.trials)
        missing = [
            (one, trial)
            for one in chosen
            for trial in one.trials(options.repetitions)
            if not records[one.name].has(trial)
        ]
        try:
            _measure(missing, records)
        finally:
            for one in {one for one, _ in missing}:
                one.end()
    _write(chosen, records, page=options.page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("experiment", nargs="*", choices=[*EXPERIMENTS, []], help="which; all without")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"of each trial, default {REPETITIONS}")
    parser.add_argument("--report", action="store_true", help="measure nothing, write what was measured")
    parser.add_argument("--page", action="store_true", help="go on with docs/evaluation.md's results, and write it")
    percents = f"of `{Values.name}`: data in percent of the guest's free memory, such as 75,90,110"
    parser.add_argument("--data", type=_numbers(MOST_DATA), help=percents)
    sizes = f"of `{Values.name}`: bytes of a value, such as 256,1048576; each with all of --data"
    parser.add_argument("--value", type=_numbers(MOST_VALUE), help=sizes)
    options = parser.parse_args()
    if (options.data is None) != (options.value is None):
        parser.error("--data and --value go together: give both, or neither for what docs/evaluation.md shows")
    if options.data and options.experiment and Values.name not in options.experiment:
        parser.error(f"--data and --value are of `{Values.name}`, and not of {', '.join(options.experiment)}")
    if options.page and options.data:
        parser.error("--page shows the data and values that docs/evaluation.md names: leave out --data and --value")
    return options


def _numbers(most: int) -> Callable[[str], tuple[int, ...]]:
    """Reads numbers from 1 to `most`, with commas between."""

    def read(text: str) -> tuple[int, ...]:
        found = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
        if wrong := [word for word, number in zip(text.split(","), found, strict=True) if not 1 <= number <= most]:
            raise argparse.ArgumentTypeError(f"'{wrong[0]}' must be a number from 1 to {most}")
        return tuple(found)

    return read


def _wanted(name: str, options: argparse.Namespace) -> Experiment:
    """The experiment of that name, with the data and values that are asked for."""
    if name == Values.name and options.data:
        return Values(dict.fromkeys(options.value, options.data))
    return EXPERIMENTS[name]


def _only() -> list[str]:
    """ONLY of `make bench ONLY=random,sequential`."""
    names = [name for name in os.environ.get("ONLY", "").replace(",", " ").split() if name]
    if strange := [name for name in names if name not in EXPERIMENTS]:
        sys.exit(f"bench: ONLY={' '.join(strange)}: there are {', '.join(EXPERIMENTS)}")
    return names


def _machine() -> str:
    """This boot of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _measure(missing: list[tuple[Experiment, Trial]], records: dict[str, Record]) -> None:
    for number, (experiment, trial) in enumerate(missing):
        left = sum(records[one.name].typical_seconds(each) or FIRST_GUESS_SECONDS for one, each in missing[number:])
        say(f"{number + 1} of {len(missing)}, about {left / 60:.0f} min left: {trial}")
        begin = time.monotonic()
        results = experiment.measure(trial)
        records[experiment.name].add(trial, results, time.monotonic() - begin)


def _write(chosen: list[Experiment], records: dict[str, Record], *, page: bool) -> None:
    rows = {one: records[one.name].complete(one.trials) for one in chosen}
    for one in [one for one in chosen if not rows[one]]:
        say(f"{one.name}: no repetition is complete")
    measured = [one for one in chosen if rows[one]]
    report.write_json([report.as_json(one, rows[one]) for one in measured])
    for one in measured:
        one.draw(rows[one], records[one.name].path.with_suffix(".png"))
        print(f"\n{one.title}\n\n{report.text(one, rows[one])}")
    if page:
        report.write_page({one.name: report.text(one, rows[one]) for one in measured})


if __name__ == "__main__":
    main()
