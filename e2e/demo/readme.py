"""`python -m demo.readme`: takes the figures of the last demo over into README.md, and its plot into docs/."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Any

from tidepool_lab import paths

README = paths.ROOT / "README.md"
BEGIN, END = "<!-- figures: python -m demo.readme -->", "<!-- end of figures -->"


def section(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    sizes = {name: figures[f"{name}_bytes"] >> 20 for name in ("file", "borrower_memory", "lender_memory")}
    where = (
        f"Random 4 KiB reads of a file of {sizes['file']} MiB in a guest of {sizes['borrower_memory']} MiB whose disk "
        f"does 166 IO/s, without and with a lender of {sizes['lender_memory']} MiB (kernel {figures['kernel']}; "
        f"{figures['machine']}; `make demo` repeats it):"
    )
    rows = [
        f"| depth {depth} | {_phase(figures, 'baseline', depth)} | {_phase(figures, 'pooled', depth)} "
        f"| {_phase(figures, 'encrypted', depth)} |"
        for depth in (1, 16)
    ]
    table = ["| | disk only | with the pool | with the pool, encrypted |", "|---|---|---|---|", *rows]
    gets = (
        f"Of the reads that the guest's own memory could not answer, the lender answered "
        f"{figures['remote_hit_ratio']:.1%}. One page from the lender takes {_ms(figures['get_p50_us'])} in the median "
        f"and {_ms(figures['get_p99_us'])} at the 99th percentile; 4 KiB over plain TCP between the same guests take "
        f"{_ms(figures['raw_rtt_p50_us'])} and {_ms(figures['raw_rtt_p99_us'])}. Encrypted, which is a pool's default, "
        f"a page takes {_ms(figures['encrypted_get_p50_us'])} and {_ms(figures['encrypted_get_p99_us'])}."
    )
    return "\n\n".join([where, "\n".join(table), gets, "![Reads per second, and latencies](docs/demo.png)"])


def _phase(figures: dict[str, Any], name: str, depth: int) -> str:
    iops, reads = figures[f"{name}_iops_qd{depth}"], figures[f"{name}_disk_reads_qd{depth}"]
    median, slowest = figures[f"{name}_p50_us_qd{depth}"], figures[f"{name}_p99_us_qd{depth}"]
    return f"**{iops:,.0f} IO/s**, p50 {_ms(median)}, p99 {_ms(slowest)}, {reads:,} disk reads"


def _ms(us: float) -> str:
    return f"{us / 1000:.2g} ms" if us < 10_000 else f"{us / 1000:.0f} ms"


def replaced(text: str, figures: dict[str, Any]) -> str:
    """The README with these figures."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    fresh, count = pattern.subn(lambda _: f"{BEGIN}\n{section(figures)}\n{END}", text)
    if count != 1:
        raise ValueError(f"README.md needs {BEGIN} and {END} once each")
    return fresh


def main() -> int:
    """Rewrites README.md and copies the plot."""
    figures = json.loads((paths.BUILD / "demo.json").read_text())
    README.write_text(replaced(README.read_text(), figures))
    shutil.copy(paths.BUILD / "demo.png", paths.ROOT / "docs/demo.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
