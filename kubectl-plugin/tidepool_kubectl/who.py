"""`kubectl tidepool who`: who holds memory for whom, both ways and across namespaces. Pure, up to the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tidepool_api import ConditionType, GuestKey, MemoryGuest, MemoryPairing, PairingPhase, Status, find
from tidepool_kubectl.snapshot import Lendings
from tidepool_kubectl.top import WIDEST, called, size

COLUMNS = ("LENDER", "NODE", "BORROWER", "NODE", "POOL", "STATE", "SIZE", "LENT", "USED")
WORDS = 6  # columns of text; those after them are figures


@dataclass(frozen=True)
class Row:
    """One lender and one borrower; None is not known."""

    lender: GuestKey
    lender_node: str
    borrower: GuestKey
    borrower_node: str
    pool: str
    state: str
    size_bytes: int
    lent_bytes: int | None
    """What the lender holds, as its agent says."""
    used_bytes: int | None
    """What the borrower has there, as its own agent says."""
    is_node: bool = False
    """Whether the lender is a node, and no virtual machine."""


def rows(pairings: Iterable[MemoryPairing], guest: GuestKey | None = None) -> list[Row]:
    """Who lends to whom, most memory first; of one guest, what it lends and what it borrows."""
    found = [_row(one) for one in pairings]
    chosen = [one for one in found if guest in (None, one.lender, one.borrower)]
    return sorted(chosen, key=lambda one: (-(one.lent_bytes or 0), one.lender, one.borrower))


def _row(one: MemoryPairing) -> Row:
    spec, status = one.spec, one.status
    lender, borrower = one.ends
    return Row(
        lender=lender,
        lender_node=spec.lender.node_name,
        borrower=borrower,
        borrower_node=spec.borrower.node_name,
        pool=spec.pool,
        state=status.phase or PairingPhase.PENDING,
        size_bytes=spec.size_bytes,
        lent_bytes=status.lender.lent_bytes if status.lender else None,
        used_bytes=status.borrower.used_bytes if status.borrower else None,
        is_node=one.lends_node,
    )


def summary(guest: GuestKey, found: Iterable[Row]) -> str:
    """What one guest lends and borrows, in a sentence."""
    each = list(found)
    lends = [row for row in each if row.lender == guest]
    borrows = [row for row in each if row.borrower == guest]
    gives = f"lends {size(sum(row.lent_bytes or 0 for row in lends))} to {_count(len(lends))}"
    takes = f"borrows {size(sum(row.used_bytes or 0 for row in borrows))} from {_count(len(borrows))}"
    return f"{guest} {gives if lends else 'lends nothing'}, {takes if borrows else 'borrows nothing'}"


def _count(number: int) -> str:
    return f"{number} guest{'' if number == 1 else 's'}"


def remarks(now: Lendings, guest: GuestKey | None = None) -> Iterator[str]:
    """What the rows do not show: memory without a pairing, of balloons, and what is lent where one may not look."""
    for one in now.guests:
        if guest in (None, one.key):
            yield from (f"{one.key}: {words}" for words in (stray(one), _gathered(one)) if words)
    for grant in now.grants:
        for use in grant.status.uses:
            if use.namespace in now.hidden:
                lent = f"{size(use.lent_bytes)} of {size(use.size_bytes)} in {use.pairings} pairings"
                yield f"{grant.namespace} lends {lent} to pool {use.namespace}/{use.pool}, by grant {grant.name}"
    if now.hidden:
        yield f"not shown: pairings of {', '.join(now.hidden)}, which you may not list"


def stray(guest: MemoryGuest) -> str:
    """What a guest lends without a pairing, in words; empty if nothing."""
    paired = find(guest.status.conditions, ConditionType.LENDING_PAIRED)
    return paired.message if paired and paired.status is Status.FALSE else ""


def _gathered(guest: MemoryGuest) -> str:
    held = guest.status.balloon.gathered_bytes if guest.status.balloon else 0
    return f"its balloon holds {size(held)} for node {guest.spec.node_name}" if held else ""


def table(each: Iterable[Row]) -> Table:
    """As it is shown, and as wide as it needs to be."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if number < WORDS else "right", no_wrap=True)
    for row in each:
        lender = called(str(row.lender), is_node=row.is_node)
        ends = (lender, row.lender_node, str(row.borrower), row.borrower_node)
        figures = (size(one) for one in (row.size_bytes, row.lent_bytes, row.used_bytes))
        shown.add_row(*ends, row.pool, row.state, *figures)
    anywhere = Console(width=WIDEST)
    shown.width = Measurement.get(anywhere, anywhere.options, shown).maximum
    return shown
