"""The part of `kubectl tidepool top` about programs: a row for each guest whose programs have memory. Pure.

Below it is one for each pool that programs have named, as far as its agent has figures of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from tidepool_api import GuestKey, MemoryGuest
from tidepool_kubectl.figures import Figures, Programs, between_calls, quantile
from tidepool_kubectl.snapshot import Snapshot
from tidepool_kubectl.top import duration, rate_shown, ratio_shown, size, widened

COLUMNS = (
    *("NAMESPACE", "GUEST", "POOL", "VALUES", "USED", "LIMIT", "HIT RATIO", "LOCAL"),
    *("GETS/S", "PUTS/S", "GET P50", "GET P99", "PUT P99"),
)
ALL_POOLS = "(all)"


@dataclass(frozen=True)
class Row:
    """What is worth knowing of programs of a guest, or of a pool of theirs; None is not known."""

    guest: GuestKey
    pool: str | None
    """None of all pools."""
    values: float | None
    used_bytes: float
    limit_bytes: float | None
    hit_ratio: float | None = None
    local_ratio: float | None = None
    """Hits that needed no lender, among all."""
    gets: float | None = None
    """A second."""
    puts: float | None = None
    get: float | None = None
    """The median of a get, in seconds."""
    slow_get: float | None = None
    """The 99th percentile."""
    slow_put: float | None = None


def rows(now: Snapshot, before: Figures, seconds: float) -> list[Row]:
    """Those whose programs keep most first; ratios and times are those of the interval, or else since the beginning."""
    found = [_row(one, now.figures, before, seconds) for one in now.guests if one.status.applications]
    return [
        row
        for whole in sorted(found, key=lambda row: (-row.used_bytes, row.guest))
        for row in (whole, *_pools(whole.guest, now.figures, before, seconds))
    ]


def _row(guest: MemoryGuest, now: Figures, before: Figures, seconds: float) -> Row:
    figures = now.programs.get(guest.key)
    if figures is None:
        return _reported(guest)
    return _measured(guest.key, None, figures, before.programs.get(guest.key), seconds)


def _pools(guest: GuestKey, now: Figures, before: Figures, seconds: float) -> Iterator[Row]:
    """Those of a guest that hold most first."""
    each = [(name, one) for (key, name), one in now.pools.items() if key == guest]
    for name, one in sorted(each, key=lambda each: (-each[1].used_bytes, each[0])):
        yield _measured(guest, name, one, before.pools.get((guest, name)), seconds)


def _measured(guest: GuestKey, pool: str | None, now: Programs, before: Programs | None, seconds: float) -> Row:
    lately = between_calls(before, now)
    is_known = before is not None and seconds > 0
    gets, puts = (one if one and one[-1][1] else total for one, total in ((lately.get, now.get), (lately.put, now.put)))
    return Row(
        guest,
        pool,
        now.values if pool is None else None,
        now.used_bytes,
        now.limit_bytes if pool is None else None,
        now.hit_ratio if lately.hit_ratio is None else lately.hit_ratio,
        now.local_ratio if lately.local_ratio is None else lately.local_ratio,
        (lately.hits + lately.misses) / seconds if is_known else None,
        lately.puts / seconds if is_known else None,
        quantile(gets, 0.5),
        quantile(gets, 0.99),
        quantile(puts, 0.99),
    )


def _reported(guest: MemoryGuest) -> Row:
    """What its MemoryGuest says, where the figures of its agent cannot be read."""
    one = guest.status.applications
    if one is None:
        return Row(guest.key, None, None, 0, None)
    said = Programs(hits=one.hits, misses=one.misses, local_hits=one.local_hits)
    return Row(guest.key, None, one.values, one.used_bytes, one.size_bytes, said.hit_ratio, said.local_ratio)


def table(each: list[Row]) -> Table:
    """As it is shown, and as wide as it needs to be."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if number > 2 else "left", no_wrap=True)
    for row in each:
        count = "-" if row.values is None else f"{row.values:,.0f}"
        sizes = (count, size(row.used_bytes), size(row.limit_bytes))
        shares = (ratio_shown(row.hit_ratio), "-" if row.local_ratio is None else f"{row.local_ratio:.1%}")
        times = (duration(row.get), duration(row.slow_get), duration(row.slow_put))
        name = escape(row.pool or ALL_POOLS)
        shown.add_row(*row.guest, name, *sizes, *shares, rate_shown(row.gets), rate_shown(row.puts), *times)
    return widened(shown)
