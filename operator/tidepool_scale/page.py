"""The figures of the last runs as a table, and their place in docs/testing.md: `operator/scale --page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BEGIN, END = "<!-- measured: scale -->", "<!-- end of scale -->"
PAGE = Path(__file__).resolve().parents[2] / "docs/testing.md"
COLUMNS = {
    "plan_seconds": ("planning all pools, processor time", "{:.2g} s"),
    "rss_mib": ("operator's memory", "{} MiB"),
    "writes_per_minute_idle": ("writes a minute, nothing moves", "{}"),
    "writes_per_second_moving": ("writes a second, all figures move", "{:.1f}"),
    "processor_moving": ("operator's processor meanwhile", "{:.0%}"),
    "seconds_to_converge_after_1pct_churn": ("served again after 1% of the guests are replaced", "{:.1f} s"),
    "seconds_to_converge_at_worst": ("at worst", "{:.1f} s"),
    "load": ("processes that ran or waited", "{:.0f}"),
}


def table(figures: Sequence[Mapping[str, Any]], goals: Mapping[str, float]) -> str:
    """The figures below their goals; what misses its goal is bold."""
    head = ["guests", *(title for title, _ in COLUMNS.values())]
    rows = [["goal", *(form.format(goals[name]) if name in goals else "" for name, (_, form) in COLUMNS.items())]]
    rows += [[f"{one['guests']:,}", *(_cell(one, name, goals) for name in COLUMNS)] for one in figures]
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    cores = ", ".join(sorted({str(one["cores"]) for one in figures}))
    return "\n".join([f"Measured on {cores} cores, which were shared with other work:", "", *lines])


def _cell(found: Mapping[str, Any], name: str, goals: Mapping[str, float]) -> str:
    text = COLUMNS[name][1].format(found[name])
    return f"**{text}**" if name in goals and found[name] > goals[name] else text


def replaced(page: str, part: str) -> str:
    """The page with this part between the marks of its figures; raises ValueError where these are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page needs {BEGIN}, and {END} after it")
    return f"{before}{begin}\n{part}\n{end}{after}"


def publish(figures: Path, goals: Mapping[str, float]) -> None:
    """Takes the figures over into the page."""
    PAGE.write_text(replaced(PAGE.read_text(), table(json.loads(figures.read_text()), goals)))
