"""The chart's Grafana dashboard as a picture of what the lab's Prometheus has: python -m demo.dashboard TARGET MINUTES.

The same panels with the same queries, plotted: there is no Grafana among the packages that the lab is made of.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, PercentFormatter, ScalarFormatter

from demo.plot import INK, STYLE
from tidepool_lab import monitoring, paths

DASHBOARD = paths.ROOT / "charts/tidepool/dashboards/tidepool.json"
COLUMNS = 3
POINTS = 120
MOST_LINES = 10  # that a legend has room for
Panel = dict[str, Any]
Line = tuple[str, list[float], list[float]]


def draw(target: Path, minutes: float) -> None:
    """Draws every panel that has data about the last minutes."""
    panels: list[Panel] = json.loads(DASHBOARD.read_text())["panels"]
    found = [(panel, lines) for panel in panels if (lines := _lines(panel, minutes * 60))]
    rows = -(-len(found) // COLUMNS)
    with plt.rc_context({**STYLE, "font.size": 8}):
        size = (15, 2.6 * rows)
        picture, axes = plt.subplots(rows, COLUMNS, figsize=size, layout="constrained", dpi=90, squeeze=False)
        for place, (panel, lines) in zip(axes.flat, found, strict=False):
            _plot(place, panel, lines, minutes)
        for place in list(axes.flat)[len(found) :]:
            place.axis("off")
        picture.savefig(target)
        plt.close(picture)


def _lines(panel: Panel, seconds: float) -> list[Line]:
    """What a panel's queries find, each series with its legend, minutes ago and values."""
    if panel["type"] != "timeseries":
        return []
    lines: list[Line] = []
    for query in panel["targets"]:
        expression = re.sub(r"\$\w+", ".*", query["expr"])
        for series in monitoring.query_range(expression, seconds, seconds / POINTS):
            times, values = zip(*((float(at), float(value)) for at, value in series["values"]), strict=True)
            lines.append((_legend(query, series["metric"]), list(times), list(values)))
    return lines


def _legend(query: dict[str, Any], labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), query.get("legendFormat", ""))


def _plot(axes: Any, panel: Panel, lines: list[Line], minutes: float) -> None:
    end = time.time()
    for legend, times, values in lines:
        axes.plot([(at - end) / 60 for at in times], values, label=legend, linewidth=1.4)
    axes.set_xlim(-minutes, 0)
    axes.set_title(panel["title"], loc="left", color=INK, fontweight="bold")
    axes.yaxis.set_major_formatter(_unit(panel["fieldConfig"]["defaults"].get("unit", "")))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes", loc="right")
    axes.grid(visible=True, alpha=0.25)
    if len(lines) <= MOST_LINES:
        axes.legend(frameon=False, fontsize=6.5, loc="best")


def _unit(name: str) -> Any:
    """Grafana's names of units."""
    if name == "percentunit":
        return PercentFormatter(1.0)
    if name in ("s", "bytes"):
        return EngFormatter({"s": "s", "bytes": "B"}[name])
    return ScalarFormatter()


if __name__ == "__main__":
    draw(Path(sys.argv[1]), float(sys.argv[2]))
