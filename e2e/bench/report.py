"""The results as text: build/bench.json, and the measured parts of docs/evaluation.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from bed.page import with_parts
from bench.experiments.base import Experiment, Rows
from bench.summary import Estimate, estimates
from bench.trial import REPETITIONS
from tidepool_lab import paths

PAGE = paths.ROOT / "docs/evaluation.md"
PUBLISHED = PAGE.with_suffix("")  # its raw results and pictures
TABLE = paths.BUILD / "bench.json"
NOT_YET = "*Not measured yet: `e2e/bench/run --page {}`.*"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def number(value: float) -> str:
    """Three digits that matter."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def interval(one: Estimate) -> str:
    """A median with its interval."""
    return f"{number(one.median)} ({number(one.low)} to {number(one.high)})"


def spread(one: Estimate) -> str:
    """A small number with its interval."""
    return f"{one.median:.3f} ({one.low:.3f} to {one.high:.3f})"


def times(one: Estimate) -> str:
    """A ratio with its interval."""
    return f"{one.median:.2f} times ({one.low:.2f} to {one.high:.2f})"


def as_json(experiment: Experiment, rows: Rows) -> dict[str, Any]:
    """One experiment of build/bench.json."""
    found = [
        {"side": cell.side, **cell.parameters, **{name: one.as_json() for name, one in figures.items()}}
        for cell, figures in estimates(rows).items()
    ]
    goals = [{"goal": what, "measured": measured, "reached": good} for what, measured, good in experiment.goals(rows)]
    return {"experiment": experiment.name, "title": experiment.title, "figures": found, "goals": goals}


def text(experiment: Experiment, rows: Rows) -> str:
    """The measured part of an experiment's section."""
    of = repetitions(len({row["repetition"] for row in rows}))
    module = ", ".join(sorted({row["module"] for row in rows}))
    goals = [[what, measured, "yes" if good else "**no**"] for what, measured, good in experiment.goals(rows)]
    return "\n\n".join([
        experiment.table(rows),
        f"Medians of {of} with 95 % intervals, of module {module}; [all of them](evaluation/{experiment.name}.jsonl).",
        f"![{experiment.title}](evaluation/{experiment.name}.png)",
        table(["goal", "measured", "reached"], goals),
    ])  # fmt: skip


def repetitions(found: int) -> str:
    """How often something was measured, and whether that is as often as it should be."""
    return f"{found} repetitions" if found >= REPETITIONS else f"**{found} of {REPETITIONS} repetitions so far**"


def write_json(found: list[dict[str, Any]]) -> None:
    """build/bench.json: what was measured replaces what was known of the same experiments."""
    known = json.loads(TABLE.read_text()) if TABLE.exists() else []
    new = {one["experiment"] for one in found}
    TABLE.write_text(json.dumps([*(one for one in known if one["experiment"] not in new), *found], indent=1) + "\n")


def write_page(parts: dict[str, str]) -> None:
    """Puts the measured parts into docs/evaluation.md."""
    PAGE.write_text(with_parts(PAGE.read_text(), parts))
