"""`kubectl tidepool top`: one row for each pairing. Pure, up to rich's table."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tidepool_api import MemoryPairing, PairingPhase
from tidepool_kubectl.figures import Figures, between, quantile
from tidepool_kubectl.snapshot import Snapshot

GOOD, POOR = 0.8, 0.3
WIDEST = 1000
COLUMNS = (
    "NAMESPACE",
    "POOL",
    "BORROWER",
    "LENDER",
    "STATE",
    "SIZE",
    "USED",
    "HIT RATIO",
    "GET P50",
    "GET P99",
    "SAVED/S",
)


@dataclass(frozen=True)
class Row:
    """What is worth knowing of a pairing; None is not known."""

    pairing: MemoryPairing
    state: str
    used_bytes: float | None = None
    hit_ratio: float | None = None
    median: float | None = None
    slow: float | None = None
    """The 99th percentile of a get, in seconds, as the median is."""
    saved: float | None = None
    """Pages a second that did not have to be read from disk."""


def rows(now: Snapshot, before: Figures, seconds: float) -> list[Row]:
    """The pairings, those that save most first; ratio and times are those of the interval, or else since the start."""
    found = [_row(one, now, before, seconds) for one in now.pairings]
    return sorted(found, key=lambda row: (-(row.saved or 0), row.pairing.namespace, row.pairing.name))


def _row(one: MemoryPairing, now: Snapshot, before: Figures, seconds: float) -> Row:
    key = one.key
    figures = now.figures.pairings.get(key)
    if figures is None:
        return Row(one, _state(one, is_stopped=False))
    earlier = before.pairings.get(key)
    lately = between(earlier, figures)
    ratio = figures.hit_ratio if lately.hit_ratio is None else lately.hit_ratio
    times = lately.get if lately.get and lately.get[-1][1] else figures.get
    saved = lately.hits / seconds if earlier is not None and seconds > 0 else None
    state = _state(one, is_stopped=figures.is_stopped)
    return Row(one, state, figures.used_bytes, ratio, quantile(times, 0.5), quantile(times, 0.99), saved)


def _state(one: MemoryPairing, *, is_stopped: bool) -> str:
    if is_stopped and one.status.phase and one.status.phase.has_pages:
        return "Left alone"  # the breaker's doing
    return one.status.phase or PairingPhase.PENDING


def table(each: list[Row]) -> Table:
    """As it is shown, and as wide as it needs to be: half a name is of no use."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if number > 4 else "left", no_wrap=True)
    for row in each:
        spec = row.pairing.spec
        lender = called(row.pairing.lender_ref, is_node=row.pairing.lends_node)
        names = (row.pairing.namespace, spec.pool, row.pairing.borrower_ref, lender)
        figures = (size(row.used_bytes), ratio_shown(row.hit_ratio), duration(row.median), duration(row.slow))
        shown.add_row(*names, _coloured(row.state), spec.size, *figures, rate_shown(row.saved))
    return widened(shown)


def widened(shown: Table) -> Table:
    """A table as wide as it needs to be."""
    anywhere = Console(width=WIDEST)
    shown.width = Measurement.get(anywhere, anywhere.options, shown).maximum
    return shown


def called(lender: str, *, is_node: bool) -> str:
    """A lender as it is shown: of a node it is said that it is one."""
    return f"{lender} (node)" if is_node else lender


def _coloured(state: str) -> str:
    colour = {"Connected": "green", "Failed": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/]"


def rate_shown(each: float | None) -> str:
    """So many a second."""
    return "-" if each is None else f"{each:,.0f}"


def ratio_shown(ratio: float | None) -> str:
    """A part of a whole, in colour."""
    if ratio is None:
        return "-"
    colour = "green" if ratio >= GOOD else "red" if ratio < POOR else "yellow"
    return f"[{colour}]{ratio:.1%}[/]"


def size(count: float | None) -> str:
    """Bytes, in MiB or GiB."""
    if count is None:
        return "-"
    mib = count / (1 << 20)
    return f"{mib:.0f}Mi" if mib < 1024 else f"{mib / 1024:.1f}Gi"


def duration(seconds: float | None) -> str:
    """Seconds, in µs or ms."""
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.0f}µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f}ms"
