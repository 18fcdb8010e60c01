"""The figures as a picture: each against the number of guests, on a logarithmic scale, with its goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PANELS = (
    ("plan_seconds", "planning all pools, s"),
    ("rss_mib", "operator's memory, MiB"),
    ("writes_per_second_moving", "writes a second while all figures move"),
    ("seconds_to_converge_after_1pct_churn", "served again after 1% churn, s"),
)


def draw(figures: Sequence[dict[str, Any]], goals: Mapping[str, float], path: Path) -> None:
    """Writes the picture; dashed lines are the goals."""
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    guests = [one["guests"] for one in figures]
    for panel, (key, title) in zip(axes.flat, PANELS, strict=True):
        panel.plot(guests, [one[key] for one in figures], marker="o")
        panel.set_xscale("log")
        panel.set_xlabel("guests")
        panel.set_title(title)
        panel.grid(visible=True, alpha=0.3)
        panel.axhline(goals[key], linestyle="--", color="grey")
        panel.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
