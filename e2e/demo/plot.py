"""The demo's figures as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator

WITHOUT, WITH, SECRET, RAW, INK = "#9aa5b1", "#0b7285", "#5fb3bf", "#d9a441", "#243b53"
WIDTH = 0.26
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
    series = (
        ("baseline", "disk only", WITHOUT), ("pooled", "with the pool", WITH), ("encrypted", "encrypted", SECRET),
    )  # fmt: skip
    for index, (name, label, colour) in enumerate(series):
        values = [figures[f"{name}_iops_qd{depth}"] for depth in (1, 16)]
        _bars(axes, index, label, colour, values, [f"{value:,.0f}" for value in values])
    _logarithmic(axes, [figures[f"{name}_iops_qd{depth}"] for name, *_ in series for depth in (1, 16)])
    axes.set_xticks([0, 1], ["queue depth 1", "queue depth 16"])
    axes.set_ylabel("random 4 KiB reads per second (log)")
    axes.set_title("Reads per second", loc="left")
    axes.legend(frameon=False, loc="upper left")


def _latencies(axes: Any, figures: dict[str, Any]) -> None:
    series = (
        ("get_{}_us", "page from the lender", WITH), ("encrypted_get_{}_us", "encrypted", SECRET),
        ("raw_rtt_{}_us", "plain TCP round trip", RAW),
    )  # fmt: skip
    for index, (form, label, colour) in enumerate(series):
        values = [figures[form.format(quantile)] / 1000 for quantile in ("p50", "p99")]
        _bars(axes, index, label, colour, values, [f"{value:.2g}" if value < 1 else f"{value:.1f}" for value in values])
    _logarithmic(axes, [figures[form.format(quantile)] / 1000 for form, *_ in series for quantile in ("p50", "p99")])
    axes.set_xticks([0, 1], ["median", "99th percentile"])
    axes.set_ylabel("milliseconds for 4 KiB (log)")
    axes.set_title("One page at a time", loc="left")
    axes.legend(frameon=False, loc="upper left")


def _bars(axes: Any, index: int, label: str, colour: str, values: list[float], texts: list[str]) -> None:
    """One of three series, beside the others."""
    places = [place + (WIDTH + 0.02) * (index - 1) for place in range(len(values))]
    axes.bar_label(axes.bar(places, values, WIDTH, color=colour, label=label), texts, padding=3, fontsize=9)


def _logarithmic(axes: Any, values: list[float]) -> None:
    """A logarithmic axis in plain numbers, with room for the legend above the highest bar."""
    axes.set_yscale("log")
    axes.set_ylim(min(values) / 3, max(values) * 6)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(LogLocator(base=10, subs=()))
