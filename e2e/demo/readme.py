"""`python -m demo.readme`: takes the figures of the last demo over into README.md and docs/, with its plot."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any

from tidepool_lab import paths

BEGIN, END = "<!-- figures: python -m demo.readme -->", "<!-- end of figures -->"
DEPTHS = (1, 16)


def headline(figures: dict[str, Any]) -> str:
    """What README.md says: reads without a pool, and with one as it is by default."""
    rows = [
        f"| {depth} | {figures[f'baseline_iops_qd{depth}']:,.0f} | **{figures[f'encrypted_iops_qd{depth}']:,.0f}** |"
        for depth in DEPTHS
    ]
    where = (
        "Random 4 KiB reads a second of a file that does not fit the guest's memory "
        "([how they are measured](docs/testing.md#demo)):"
    )
    return "\n\n".join([where, "\n".join(["| queue depth | disk only | with a pool |", "|---|---|---|", *rows])])


def section(figures: dict[str, Any]) -> str:
    """All figures, for docs/testing.md."""
    return "\n\n".join([_setting(figures), _reads(figures), _pages(figures)])


def _setting(figures: dict[str, Any]) -> str:
    sizes = {name: figures[f"{name}_bytes"] >> 20 for name in ("file", "borrower_memory", "lender_memory")}
    return (
        f"The borrower reads 4 KiB at a time from random places of a file of {sizes['file']} MiB. It has "
        f"{sizes['borrower_memory']} MiB, its disk does 166 IO/s, and its lender has {sizes['lender_memory']} MiB. "
        f"Kernel {figures['kernel']}; {figures['machine']}."
    )


def _reads(figures: dict[str, Any]) -> str:
    sides = ("baseline", "pooled", "encrypted")
    rows = [f"| depth {depth} | {' | '.join(_phase(figures, side, depth) for side in sides)} |" for depth in DEPTHS]
    return "\n".join(["| | disk only | with the pool | with the pool, encrypted |", "|---|---|---|---|", *rows])


def _pages(figures: dict[str, Any]) -> str:
    forms = {
        "a page": "get_{}_us",
        "a page, encrypted (a pool's default)": "encrypted_get_{}_us",
        "plain TCP between the same guests": "raw_rtt_{}_us",
    }
    rows = [
        f"| {name} | {_ms(figures[form.format('p50')])} | {_ms(figures[form.format('p99')])} |"
        for name, form in forms.items()
    ]
    answered = (
        f"The lender answered {figures['remote_hit_ratio']:.1%} of the reads that the guest's own memory could not."
    )
    table = "\n".join(["| 4 KiB from the lender | p50 | p99 |", "|---|---|---|", *rows])
    return f"{answered}\n\n{table}\n\n![Reads per second, and latencies](demo.png)"


PARTS: dict[str, Callable[[dict[str, Any]], str]] = {"README.md": headline, "docs/testing.md": section}


def _phase(figures: dict[str, Any], name: str, depth: int) -> str:
    iops, reads = figures[f"{name}_iops_qd{depth}"], figures[f"{name}_disk_reads_qd{depth}"]
    median, slowest = figures[f"{name}_p50_us_qd{depth}"], figures[f"{name}_p99_us_qd{depth}"]
    return f"**{iops:,.0f} IO/s**, p50 {_ms(median)}, p99 {_ms(slowest)}, {reads:,} disk reads"


def _ms(us: float) -> str:
    return f"{us / 1000:.2g} ms" if us < 10_000 else f"{us / 1000:.0f} ms"


def replaced(text: str, part: str) -> str:
    """The page with this part where its figures are."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    fresh, count = pattern.subn(lambda _: f"{BEGIN}\n{part}\n{END}", text)
    if count != 1:
        raise ValueError(f"a page needs {BEGIN} and {END} once each")
    return fresh


def main() -> int:
    """Rewrites both pages and copies the plot."""
    figures = json.loads((paths.BUILD / "demo.json").read_text())
    for name, part in PARTS.items():
        page = paths.ROOT / name
        page.write_text(replaced(page.read_text(), part(figures)))
    shutil.copy(paths.BUILD / "demo.png", paths.ROOT / "docs/demo.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
