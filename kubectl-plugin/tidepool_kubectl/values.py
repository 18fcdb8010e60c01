"""The part of `kubectl tidepool top` about programs: one row for each guest whose programs have memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from tidepool_api import GuestKey, MemoryGuest
from tidepool_kubectl.figures import Figures, Programs
from tidepool_kubectl.snapshot import Snapshot
from tidepool_kubectl.top import rate_shown, ratio_shown, size, widened

COLUMNS = ("NAMESPACE", "GUEST", "VALUES", "USED", "LIMIT", "HIT RATIO", "GETS/S", "PUTS/S")


@dataclass(frozen=True)
class Row:
    """What is worth knowing of programs of a guest; None is not known."""

    guest: GuestKey
    values: float
    used_bytes: float
    limit_bytes: float
    hit_ratio: float | None = None
    gets: float | None = None
    """A second."""
    puts: float | None = None


def rows(now: Snapshot, before: Figures, seconds: float) -> list[Row]:
    """Those whose programs keep most first; the ratio is that of the interval, or else since the device was made."""
    found = [_row(one, now.figures, before, seconds) for one in now.guests if one.status.applications]
    return sorted(found, key=lambda row: (-row.used_bytes, row.guest))


def _row(guest: MemoryGuest, now: Figures, before: Figures, seconds: float) -> Row:
    figures = now.programs.get(guest.key)
    if figures is None:
        return _reported(guest)
    earlier = before.programs.get(guest.key)
    lately = _between(earlier, figures) if earlier else figures
    ratio = _ratio(figures) if _ratio(lately) is None else _ratio(lately)
    head = (guest.key, figures.values, figures.used_bytes, figures.limit_bytes, ratio)
    if earlier is None or seconds <= 0:
        return Row(*head)
    return Row(*head, (lately.hits + lately.misses) / seconds, lately.puts / seconds)


def _reported(guest: MemoryGuest) -> Row:
    """What its MemoryGuest says, where the figures of its agent cannot be read."""
    one = guest.status.applications
    said = Programs(one.size_bytes, one.used_bytes, one.values, one.hits, one.misses, one.puts) if one else Programs()
    return Row(guest.key, said.values, said.used_bytes, said.limit_bytes, _ratio(said))


def _between(before: Programs, after: Programs) -> Programs:
    """What was counted between two readings; all of the second where the counters began anew."""
    if after.hits < before.hits or after.misses < before.misses or after.puts < before.puts:
        return after
    counts = (after.hits - before.hits, after.misses - before.misses, after.puts - before.puts)
    return Programs(after.limit_bytes, after.used_bytes, after.values, *counts)


def _ratio(one: Programs) -> float | None:
    """Gets that brought the value among all; None without any."""
    return one.hits / (one.hits + one.misses) if one.hits + one.misses else None


def table(each: list[Row]) -> Table:
    """As it is shown, and as wide as it needs to be."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if number > 1 else "left", no_wrap=True)
    for row in each:
        sizes = (f"{row.values:,.0f}", size(row.used_bytes), size(row.limit_bytes))
        shown.add_row(*row.guest, *sizes, ratio_shown(row.hit_ratio), rate_shown(row.gets), rate_shown(row.puts))
    return widened(shown)
