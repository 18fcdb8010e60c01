"""The demo's figures as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

WITHOUT, WITH, RAW, INK = "#9aa5b1", "#0b7285", "#d9a441", "#243b53"
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 11, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def draw(figures: dict[str, Any], target: Path) -> None:
    """Draws what `Figures.as_json` returns."""
    with plt.rc_context(STYLE):
        picture, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 4.8), width_ratios=(3, 2), layout="constrained", dpi=140
        )
        _reads(left, figures)
        _latencies(right, figures)
        size = (
            f"{figures['file_bytes'] / 2**20:.0f} MiB file, {figures['borrower_memory_bytes'] / 2**20:.0f} MiB borrower"
        )
        picture.suptitle(f"Reading a file that does not fit the guest's memory\n{size}, kernel {figures['kernel']}")
        picture.savefig(target)
        plt.close(picture)


def _reads(axes: Any, figures: dict[str, Any]) -> None:
    for index, (name, label, colour) in enumerate(
        (("baseline", "disk only", WITHOUT), ("pooled", "with the pool", WITH))
    ):
        values = [figures[f"{name}_iops_qd{depth}"] for depth in (1, 16)]
        places = [place + 0.38 * (index - 0.5) for place in range(2)]
        bars = axes.bar(places, values, 0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
    axes.set_yscale("log")
    axes.set_ylim(50, 3.5 * max(figures["pooled_iops_qd16"], figures["pooled_iops_qd1"], figures["baseline_iops_qd16"]))
    axes.set_xticks([0, 1], ["queue depth 1", "queue depth 16"])
    axes.set_ylabel("random 4 KiB reads per second (log)")
    axes.set_title("Reads per second", loc="left")
    axes.legend(frameon=False, loc="upper left")


def _latencies(axes: Any, figures: dict[str, Any]) -> None:
    series = (("get_{}_us", "page from the lender", WITH), ("raw_rtt_{}_us", "plain TCP round trip", RAW))
    for index, (form, label, colour) in enumerate(series):
        values = [figures[form.format(quantile)] / 1000 for quantile in ("p50", "p99")]
        places = [place + 0.38 * (index - 0.5) for place in range(2)]
        bars = axes.bar(places, values, 0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{value:.2g}" if value < 1 else f"{value:.1f}" for value in values], padding=3)
    axes.set_xticks([0, 1], ["median", "99th percentile"])
    axes.set_ylabel("milliseconds for 4 KiB")
    axes.set_title("One page at a time", loc="left")
    axes.margins(y=0.22)
    axes.legend(frameon=False, loc="upper left")
