"""What has to be done to the pairings of a pool so that they are as planned, to be carried out or only told. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api.live import live_part
from tidepool_operator.planning import build

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Ref
    from tidepool_operator.planning.placement import Assignment
    from tidepool_operator.planning.planner import Plan

TOLD_AT_MOST = 20  # of the changes in a message


@dataclass(frozen=True)
class Create:
    """A pairing that is to be made."""

    assignment: Assignment
    spec: build.Body

    def __str__(self) -> str:
        return f"{self.assignment.lender} would lend {self.spec['size']} to {self.assignment.borrower}"


@dataclass(frozen=True)
class Update:
    """A pairing that stays, and what is to be different about its spec, which may be nothing."""

    pairing: MemoryPairing
    patch: build.Body

    def __str__(self) -> str:
        name = described(self.pairing)
        others = sorted(self.patch.keys() - {"size"})
        parts = [f"{self.pairing.spec.size} would become {self.patch['size']}"] if "size" in self.patch else []
        return f"{name}: {', '.join(parts + [f'{one} would change' for one in others])}"


@dataclass(frozen=True)
class Delete:
    """A pairing that is to go."""

    pairing: MemoryPairing

    def __str__(self) -> str:
        return f"{described(self.pairing)} would be deleted"


Change = Create | Update | Delete


def between(
    pool: MemoryPool, wanted: Plan, pairings: Sequence[MemoryPairing], guests: Mapping[Ref, MemoryGuest]
) -> list[Change]:
    """What leads from the pairings of a pool to what is planned: deletions first, then one entry per assignment."""
    present = {_ends(one): one for one in reversed(pairings) if not one.terminating}
    assigned = {(one.borrower, one.lender): one for one in wanted.assignments}
    kept = {one.metadata.uid for key, one in present.items() if key in assigned}
    deferred = frozenset(wanted.deferred)
    found: list[Change] = [Delete(one) for one in pairings if not one.terminating and one.metadata.uid not in kept]
    for key, one in assigned.items():
        port = wanted.ports.get(one.lender, pool.spec.port)
        spec = build.pairing_spec(pool, one, guests[one.lender], guests[one.borrower], port)
        pairing = present.get(key)
        found.append(Create(one, spec) if pairing is None else _update(pairing, spec, deferred))
    return found


def _update(pairing: MemoryPairing, spec: build.Body, deferred: Collection[Ref]) -> Update:
    """Brings a pairing to its spec; of a borrower that is not to be disturbed yet, only what is live."""
    patch = build.difference(pairing.spec.to_dict(), spec)
    return Update(pairing, live_part(patch, pairing.spec) if pairing.borrower_ref in deferred else patch)


def following(pairings: Iterable[MemoryPairing], guests: Mapping[Ref, MemoryGuest]) -> list[Update]:
    """What leads pairings to where their guests are now: that is no decision, so a pool that is held follows, too."""
    found = []
    for one in pairings:
        lender, borrower = guests.get(one.lender_ref), guests.get(one.borrower_ref)
        if lender and borrower and not one.terminating:
            place = build.whereabouts(lender, borrower, one.spec.lender.network)
            found.append(Update(one, build.difference(one.spec.to_dict(), place)))
    return found


def told(changes: Iterable[Change]) -> str:
    """The changes for people to read; empty when there is none."""
    each = [str(one) for one in changes if not isinstance(one, Update) or one.patch]
    more = f"; and {len(each) - TOLD_AT_MOST} more" if len(each) > TOLD_AT_MOST else ""
    return "; ".join(each[:TOLD_AT_MOST]) + more


def _ends(pairing: MemoryPairing) -> tuple[Ref, Ref]:
    return pairing.borrower_ref, pairing.lender_ref


def described(pairing: MemoryPairing) -> str:
    """A pairing for people to recognise."""
    return f"pairing {pairing.name} ({pairing.lender_ref} lends to {pairing.borrower_ref})"
