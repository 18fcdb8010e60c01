"""The figures as pictures, in the manner of the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from bench.summary import Cell, Estimate

Found = Mapping[Cell, Mapping[str, Estimate]]

COLOURS = {
    "no pool": "#9aa5b1", "NonInclusive": "#0b7285", "Exclusive": "#d9480f", "NonInclusive encrypted": "#5fb3bf",
    "Exclusive encrypted": "#f0a868", "dm-cache": "#7048a8", "bcache": "#b197d6", "ideal": "#243b53",
    "balloon": "#a61e4d", "write-through": "#0b7285", "write-through encrypted": "#5fb3bf",
    "behind": "#d9480f", "behind encrypted": "#f0a868", "nbd": "#7048a8",
    "zram": "#d9a441", "zswap": "#e8cc8f",
    "TIDE.GET": "#2f9e44", "transparent": "#8ce99a",
}  # fmt: skip
ENDS = ("borrower", "lender")
STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


@contextmanager
def picture(target: Path, columns: int, width: float = 5.2, height: float = 4.0) -> Iterator[Any]:
    """Axes side by side, written as PNG at the end."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)
        yield axes[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=120)
        plt.close(figure)


def line(axes: Any, points: Sequence[tuple[float, Estimate]], side: str, **style: Any) -> None:
    """Medians with their intervals."""
    x = [at for at, _ in points]
    y = [one.median for _, one in points]
    spread = [[one.median - one.low for _, one in points], [one.high - one.median for _, one in points]]
    options = {"label": side, "color": COLOURS.get(side), "marker": "o", "capsize": 3, **style}
    axes.errorbar(x, y, yerr=spread, **options)


def random_reads(found: Found, depths: Sequence[int], target: Path) -> None:
    """Speed by pool size (5a), gets and puts (4), and all sides at the largest size by depth."""
    with picture(target, 4) as (speed, gets, puts, all_sides):
        for side in ("NonInclusive", "Exclusive"):
            for axes, name in ((speed, "iops"), (gets, "gets_per_read"), (puts, "puts_per_read")):
                line(axes, _by_size(found, side, name), side)
        for cell, figures in found.items():
            if cell.side == "no pool" and cell.parameters["depth"] == 1:
                line(speed, [(0, figures["iops"])], "no pool")
        largest = max(cell.parameters["pool_mib"] for cell in found)
        for side in dict.fromkeys(cell.side for cell in found):
            points = [
                (cell.parameters["depth"], figures["iops"])
                for cell, figures in found.items()
                if cell.side == side and cell.parameters["pool_mib"] in (0, largest)
            ]
            line(all_sides, sorted(points, key=lambda each: each[0]), side)
        for axes, what in ((speed, "IO/s, depth 1"), (gets, "gets per read"), (puts, "puts per read")):
            axes.set(xlabel="pool, MiB", ylabel=what, ylim=(0, None))
        all_sides.set(xlabel="depth", ylabel=f"IO/s, pool of {largest} MiB", yscale="log")
        all_sides.set_xscale("log", base=2)
        all_sides.set_xticks(depths, map(str, depths))
        speed.legend(fontsize=8)
        all_sides.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _by_size(found: Found, side: str, name: str) -> list[tuple[float, Estimate]]:
    points = [
        (cell.parameters["pool_mib"], figures[name])
        for cell, figures in found.items()
        if cell.side == side and cell.parameters["depth"] == 1
    ]
    return sorted(points, key=lambda each: each[0])


def sequential(found: Found, target: Path) -> None:
    """Bandwidth by pool size (5b), with the filter dashed, and of all sides at the largest size."""
    with picture(target, 2, 6.5) as (by_size, all_sides):
        for side in ("NonInclusive", "Exclusive"):
            for chosen in (0, 1):
                points = [
                    (cell.parameters["pool_mib"], figures["mib_per_s"])
                    for cell, figures in found.items()
                    if cell.side == side and cell.parameters["filter"] == chosen
                ]
                style = {"linestyle": "--", "label": f"{side}, filter"} if chosen else {}
                line(by_size, sorted(points, key=lambda each: each[0]), side, **style)
        base = next(figures["mib_per_s"].median for cell, figures in found.items() if cell.side == "no pool")
        by_size.axhline(base, color=COLOURS["no pool"], label="no pool")
        by_size.set(xlabel="pool, MiB", ylabel="MiB/s", ylim=(0, None))
        by_size.legend(fontsize=8)
        largest = max(cell.parameters["pool_mib"] for cell in found)
        compared = [cell for cell in found if cell.parameters["pool_mib"] in (0, largest)]
        _bars(all_sides, {cell: found[cell]["mib_per_s"] for cell in compared})
        all_sides.axvline(base, color=COLOURS["no pool"], linestyle=":")
        all_sides.set(xlabel=f"MiB/s, pool of {largest} MiB", xscale="log", xlim=(10, None))


def _bars(axes: Any, found: Mapping[Cell, Estimate]) -> None:
    """Medians with their intervals, a bar for each side, the first at the top."""
    values, colours = list(found.values()), [COLOURS.get(cell.side) for cell in found]
    axes.barh(range(len(found)), [one.median for one in values], xerr=_spread(values), color=colours, capsize=3)
    axes.set_yticks(range(len(found)), [cell.label for cell in found])
    axes.invert_yaxis()


INSTRUCTIONS = (
    ("get", "get"), ("TCP round trip", "tcp"), ("disk read", "disk"), ("put", "put"), ("page read ahead", "ahead"),
    ("TCP, long answer", "tcp_bulk"), ("disk, read ahead", "disk_ahead"),
)  # fmt: skip


def cost(found: Mapping[str, Mapping[str, Sequence[float]]], target: Path) -> None:
    """Times beside the raw network's, and instructions of both ends."""
    with picture(target, 3) as (latency, bandwidth, spent):
        for number, (side, figures) in enumerate(found.items()):
            for axes, names in (
                (latency, ("get_p50_us", "tcp_p50_us")),
                (bandwidth, ("bulk_mib_per_s", "tcp_mib_per_s")),
            ):
                values = [median(figures.get(name, [0])) for name in names]
                axes.bar([number, number + 0.4], values, 0.36, color=[COLOURS[side], COLOURS["no pool"]])
            ends = [[median(figures.get(f"{name}_{end}", [0])) / 1000 for _, name in INSTRUCTIONS] for end in ENDS]
            at = [place - number * 0.4 for place in range(len(INSTRUCTIONS), 0, -1)]
            spent.barh(at, ends[0], 0.36, color=COLOURS[side], label=f"{side}, borrower")
            spent.barh(at, ends[1], 0.36, ends[0], color=COLOURS[side], alpha=0.4, label="… lender")
        for axes, what in (
            (latency, "get and round trip (grey), p50, µs"),
            (bandwidth, "in order and TCP (grey), MiB/s"),
        ):
            axes.set(ylabel=what)
            axes.set_xticks([number + 0.2 for number in range(len(found))], list(found), fontsize=8)
        spent.set(xlabel="thousand instructions")
        spent.set_yticks([place - 0.2 for place in range(len(INSTRUCTIONS), 0, -1)], [what for what, _ in INSTRUCTIONS])
        spent.legend(fontsize=7)


def speedups(
    bars: Sequence[tuple[str, str, Estimate]], accesses: Mapping[str, Sequence[Estimate]], target: Path
) -> None:
    """Speed beside no pool by side (5c to 5f), and accesses to the disk (6): label, the colour's side, and how much."""
    with picture(target, 2, 6.5, 1.2 + 0.4 * len(bars)) as (speed, disk):
        where = range(len(bars))
        times = [one for _, _, one in bars]
        colours = [COLOURS.get(side) for _, side, _ in bars]
        hatches = ["//" if label != side else "" for label, side, _ in bars]
        style = {"color": colours, "hatch": hatches, "edgecolor": "white", "capsize": 3}
        speed.barh(where, [one.median for one in times], xerr=_spread(times), **style)
        speed.axvline(1, color=COLOURS["no pool"], linestyle=":")
        speed.set(xlabel="times as fast as without a pool")
        height = 0.8 / len(accesses)
        for number, (name, found) in enumerate(accesses.items()):
            at = [place + (number - (len(accesses) - 1) / 2) * height for place in where]
            colour = ("#486581", "#d9a441")[number % 2]
            disk.barh(at, [one.median for one in found], height, label=name, color=colour, xerr=_spread(found))
        disk.legend(fontsize=8, loc="lower right", framealpha=0.9)
        for axes in (speed, disk):
            axes.set_yticks(where, [label for label, _, _ in bars] if axes is speed else [""] * len(bars))
            axes.invert_yaxis()


def workloads(found: Mapping[str, Mapping[str, Estimate]], target: Path) -> None:
    """Speed beside no pool, a panel for each workload, a bar for each side."""
    with picture(target, len(found), 4.5, 1.2 + 0.4 * max(map(len, found.values()))) as panels:
        for axes, (workload, times) in zip(panels, found.items(), strict=True):
            where, estimates = range(len(times)), list(times.values())
            colours = [COLOURS.get(side) for side in times]
            axes.barh(where, [one.median for one in estimates], xerr=_spread(estimates), color=colours, capsize=3)
            axes.axvline(1, color=COLOURS["no pool"], linestyle=":")
            axes.set(title=workload, xlabel="times as fast as without a pool", xscale="log")
            axes.set_yticks(where, list(times))
            axes.invert_yaxis()


def sides(found: Mapping[str, Mapping[str, Estimate]], target: Path) -> None:
    """A panel for each figure, a bar for each side."""
    with picture(target, len(found), 4.2, 1.2 + 0.4 * max(map(len, found.values()))) as panels:
        for axes, (what, values) in zip(panels, found.items(), strict=True):
            where, estimates = range(len(values)), list(values.values())
            axes.barh(where, [one.median for one in estimates], xerr=_spread(estimates), color="#0b7285", capsize=3)
            axes.set(xlabel=what, xlim=(0, None))
            axes.set_yticks(where, list(values) if axes is panels[0] else [""] * len(values))
            axes.invert_yaxis()


def pairs(found: Mapping[str, Estimate], target: Path, what: str) -> None:
    """How many times as much one is as the other, a bar for each figure."""
    with picture(target, 1, 8, 1.2 + 0.4 * len(found)) as (axes,):
        where, estimates = range(len(found)), list(found.values())
        axes.barh(where, [one.median for one in estimates], xerr=_spread(estimates), color="#0b7285", capsize=3)
        axes.axvline(1, color=COLOURS["no pool"], linestyle=":")
        axes.set(xlabel=what, xlim=(0, None))
        axes.set_yticks(where, list(found))
        axes.invert_yaxis()


def _spread(found: Sequence[Estimate]) -> list[list[float]]:
    return [[one.median - one.low for one in found], [one.high - one.median for one in found]]


def latency(found: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]], target: Path) -> None:
    """Speed beside no pool by delay, one breaker beside the other (7)."""
    with picture(target, len(found)) as panels:
        for axes, (breaker, workloads) in zip(panels, found.items(), strict=True):
            for (workload, points), colour in zip(workloads.items(), ("#0b7285", "#d9480f", "#7048a8"), strict=False):
                line(axes, points, workload, color=colour)
            axes.axhline(1, color=COLOURS["no pool"], linestyle=":")
            axes.set(title=f"breaker {breaker}", xlabel="added to a round trip, ms", yscale="log")
            axes.sharey(panels[0])
        panels[0].set(ylabel="times as fast as without a pool")
        panels[0].legend(fontsize=8)


GHOST_MARKS = {"uniform": "o", "zipf": "s", "loop": "^", "mix": "D"}


def ghost(found: Found, target: Path) -> None:
    """Measured by expected, one mark a workload; the band is what is aimed at."""
    with picture(target, 1) as (axes,):
        axes.fill_between([0, 1], [-0.05, 0.95], [0.05, 1.05], color="#e4e7eb")
        for cell, figures in found.items():
            one, other = figures["expected"], figures["measured"]
            filled = COLOURS[cell.side] if cell.parameters["pool_part"] == 1 else "none"
            mark = GHOST_MARKS[cell.parameters["workload"]]
            axes.plot(one.median, other.median, mark, color=COLOURS[cell.side], markerfacecolor=filled)
        for what, mark in GHOST_MARKS.items():
            axes.plot([], [], mark, color="#243b53", label=what)
        for side in ("NonInclusive", "Exclusive"):
            axes.plot([], [], "-", color=COLOURS[side], label=side)
        axes.set(xlabel="expected hit ratio", ylabel="measured hit ratio", xlim=(0, 1), ylim=(0, 1))
        axes.legend(fontsize=8)


def balance(found: Found, moments: Sequence[int], target: Path) -> None:
    """The lender's memory over time, lent and ballooned, and the borrower's speed; the program grows, stays, goes."""
    with picture(target, 3) as panels:
        for axes, side, of, what in (
            (panels[0], "NonInclusive", "lent", "lent"), (panels[1], "balloon", "total", "all that it has"),
        ):  # fmt: skip
            for name, label, colour in (
                (of, what, COLOURS[side]),
                ("program", "program", "#243b53"),
                ("free", "free", "#9aa5b1"),
            ):
                line(axes, _by_second(found, side, name), side, marker="", label=label, color=colour)
            axes.set(xlabel="s", ylabel="the lender's memory, MiB", ylim=(0, None))
        for side in ("no pool", "NonInclusive", "balloon"):
            line(panels[2], _by_second(found, side, "mib_per_s"), side, marker="")
        panels[2].set(xlabel="s", ylabel="the borrower reads, MiB/s", ylim=(0, None))
        for axes in panels:
            for at in moments:
                axes.axvline(at, color="#cbd2d9", linewidth=0.8)
            axes.legend(fontsize=8)


def _by_second(found: Found, side: str, name: str) -> list[tuple[float, Estimate]]:
    points = [
        (cell.parameters["second"], figures[name])
        for cell, figures in found.items()
        if cell.side == side and "second" in cell.parameters
    ]
    return sorted(points, key=lambda each: each[0])


def migration(found: Mapping[str, Sequence[tuple[float, Estimate]]], target: Path) -> None:
    """The hit ratio by the second, from the moment on at which the guest is on its new node."""
    with picture(target, 2, 6.5) as panels:
        for axes, sides in zip(panels, (list(found)[:2], list(found)[2:]), strict=True):
            for side, colour in zip(sides, ("#0b7285", "#d9480f"), strict=True):
                x = [second for second, _ in found[side]]
                axes.plot(x, [one.median for _, one in found[side]], color=colour, label=side)
                axes.fill_between(
                    x, [one.low for _, one in found[side]], [one.high for _, one in found[side]],
                    color=colour, alpha=0.2, linewidth=0,
                )  # fmt: skip
            axes.axvline(0, color=COLOURS["no pool"], linestyle=":")
            axes.set(xlabel="seconds since the guest is on its new node", ylim=(0, 1))
            axes.legend(fontsize=8)
        panels[0].set(ylabel="hit ratio")
