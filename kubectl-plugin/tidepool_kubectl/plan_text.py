"""How `kubectl tidepool plan` shows a plan: a table, what it comes to, and how far it is to be trusted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tidepool_api import format_quantity
from tidepool_api.defaults import MOST_BORROWERS
from tidepool_api.units import GIB
from tidepool_kubectl.plan import Lenders, Plan, Row
from tidepool_kubectl.top import WIDEST, size

COLUMNS = ("GUEST", "READS/S", "IO WAIT", "SIZE", "USED", "SPARED/S", "/GiB")
LAST = "INSTEAD"
Figure = float | None


def title(made: Plan) -> str:
    """Which pool, and how many take part."""
    borrow = sum(row.size_bytes is not None for row in made.rows)
    idle = len(made.rows) - borrow
    return f"pool {made.pool}: {_guests(borrow)} borrow{'s' if borrow == 1 else ''}, {idle} could"


def _guests(number: int) -> str:
    return f"{number} guest{'' if number == 1 else 's'}"


def table(made: Plan) -> Table:
    """A row for each guest, and one for all; as wide as it needs to be."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    headings = (heading for one in made.sizes for heading in (f"AT {format_quantity(one)}", "/GiB"))
    for number, column in enumerate((*COLUMNS, *headings, LAST)):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in made.rows:
        shown.add_row(*_cells(row, made.sizes))
    shown.add_row(*_total(made), style="bold")
    anywhere = Console(width=WIDEST)
    shown.width = Measurement.get(anywhere, anywhere.options, shown).maximum
    return shown


def _cells(row: Row, sizes: Sequence[int]) -> Iterator[str]:
    yield row.name
    yield reads(row.reads)
    yield "-" if row.io_wait is None else f"{row.io_wait}%"
    yield size(row.size_bytes)
    yield size(row.used_bytes)
    yield _spared(row.spared, row.is_measured)
    yield reads(per_gib(row.spared, row.used_bytes))
    for at, one in zip(sizes, row.forecast, strict=True):
        yield from (reads(one), reads(per_gib(one, at)))
    yield size(row.instead_bytes)


def _total(made: Plan) -> Iterator[str]:
    """The sums of what is known."""
    rows = made.rows
    borrowing = [row for row in rows if row.spared is not None]
    spared = _sum(row.spared for row in borrowing)
    yield from ("all", reads(_sum(row.reads for row in rows)), "")
    yield size(_sum(row.size_bytes for row in rows))
    yield size(_sum(row.used_bytes for row in rows))
    yield _spared(spared, all(row.is_measured for row in borrowing))
    yield reads(per_gib(spared, _sum(row.used_bytes for row in borrowing)))
    for number, at in enumerate(made.sizes):
        known = [row.forecast[number] for row in rows if row.forecast[number] is not None]
        yield from (reads(_sum(known)), reads(per_gib(_sum(known), at * len(known))))
    yield size(_sum(row.instead_bytes for row in rows))


def _spared(count: Figure, is_measured: bool) -> str:
    return reads(count) if is_measured or count is None else f"~{reads(count)}"


def _sum(figures: Iterable[Figure]) -> Figure:
    known = [one for one in figures if one is not None]
    return sum(known) if known else None


def per_gib(count: Figure, memory: Figure) -> Figure:
    """So many for each GiB; None where either is not known, or there is no memory."""
    return None if count is None or not memory else count * GIB / memory


def reads(count: Figure) -> str:
    """Reads a second; of few, a tenth matters."""
    if count is None:
        return "-"
    return f"{count:.1f}" if 0 < count < 10 else f"{count:,.0f}"


def summary(made: Plan) -> Iterator[str]:
    """What the pool comes to: memory that there is, that other sizes would take, and that is not needed."""
    if made.from_class:
        yield made.from_class
    yield _lenders(made.lenders)
    if left_out := made.lenders.left_out_bytes:
        yield f"not lent, for no pod requests it: {size(left_out)} of theirs (spec.lenders.overcommitted: Exclude)"
    if forbidden := made.lenders.forbidden_bytes:
        yield f"not to spare, for a MemoryQuota forbids it: {size(forbidden)} of theirs"
    if made.rows:
        yield from (_demand(made, one) for one in made.sizes)
    instead = _sum(row.instead_bytes for row in made.rows)
    if instead is not None:
        yield f"without the pool: {size(instead)} more memory for those that borrow, for as few reads from disk"


def _lenders(lenders: Lenders) -> str:
    takes = f"take{'s' if lenders.reluctant == 1 else ''} nobody new at present"
    reluctant = f"; {lenders.reluctant} of them {takes}" if lenders.reluctant else ""
    promised, free = size(lenders.promised_bytes), size(lenders.free_bytes)
    return f"lenders: {_guests(lenders.guests)}, {promised} promised to this pool, {free} to spare beyond{reluctant}"


def _demand(made: Plan, each: int) -> str:
    guests = _guests(len(made.rows))
    return f"at {format_quantity(each)} each: {size(each * len(made.rows))} for {guests}, {_supply(made, each)}"


def _supply(made: Plan, each: int) -> str:
    """Whether lenders have so much for each guest, and take each."""
    lenders = made.lenders
    lacking = each * len(made.rows) - lenders.promised_bytes - lenders.free_bytes
    if lacking > 0:
        return f"{size(lacking)} more than lenders have"
    newcomers = sum(row.size_bytes is None for row in made.rows)
    if away := lenders.turned_away(newcomers, each):
        return f"but not for {_guests(away)} of them: a node lends to {MOST_BORROWERS} borrowers at most"
    return "which lenders have"


def remarks(made: Plan) -> Iterator[str]:
    """What the figures do not rest on, or leave out."""
    for row in made.rows:
        if row.doubt:
            yield f"{row.name}: {row.doubt}"
    unknown = sum(None in row.forecast for row in made.rows)
    if unknown:
        yield f"not in the sums: {unknown} of {_guests(len(made.rows))}, whose gain is not known"
    if any(row.spared is not None and not row.is_measured for row in made.rows):
        yield "~ is not counted, but what the curve says of the memory in use"
    if made.placement:
        yield f"left out of account: {made.placement}; a borrower may not have all that lenders have to spare"
    if made.hidden:
        yield f"not among the lenders: those of {', '.join(made.hidden)}, which you may not list"
