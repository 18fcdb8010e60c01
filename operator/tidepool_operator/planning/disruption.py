"""Disturbing borrowers in steps: who is next to lose what it has, and who keeps it for now. Pure.

What the module changes while it is in use (`tidepool_api.live`) disturbs nobody, and is not asked for here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidepool_api import PairingPhase
from tidepool_api.fields import part_of
from tidepool_api.live import renews, renews_lender

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidepool_api import MemoryPairing, MemoryPool, Ref
    from tidepool_operator.planning.inventory import Inventory
    from tidepool_operator.planning.selection import Selection


class Disruption:
    """Who may lose something in this plan.

    A borrower counts as unavailable while something of it is set up or taken down, and not while it is paused. While it
    is not connected it takes its changes as they come; while only its agents have not followed yet it still has
    something to lose. One whose pairing has failed holds up what may wait, and not what a node under pressure needs.
    """

    def __init__(self, pool: MemoryPool, inventory: Inventory, selection: Selection) -> None:
        self._pool, self._inventory, self._selection = pool, inventory, selection
        pairings = inventory.of_pool(pool.name)
        having = {one.borrower_ref for one in pairings if not one.terminating}
        present = [one for one in pairings if one.borrower_ref in inventory.guests]
        unsettled = [one for one in present if not is_settled(one) and one.status.phase is not PairingPhase.PAUSED]
        unavailable = {one.borrower_ref for one in unsettled}
        coming = {one.borrower_ref for one in unsettled if one.status.phase is not PairingPhase.FAILED}
        self._loose = {one.borrower_ref for one in present if not is_connected(one)}
        self._most = part_of(pool.spec.max_unavailable, len(having))
        self._left = self._most - len(unavailable)
        self._failed = len(unavailable - coming)
        self._asked: set[Ref] = set()
        self._permitted: set[Ref] = set()
        self.ports = self._ports(pairings)

    @property
    def deferred(self) -> frozenset[Ref]:
        """The borrowers that keep what they have until others are settled."""
        return frozenset(self._asked - self._permitted)

    def renews(self, one: MemoryPairing) -> bool:
        """Whether a pairing is to be set up anew, which empties it, for its size alone does not say so."""
        return renews(self._pool.spec, one.spec)

    def permit(self, one: MemoryPairing) -> bool:
        """Whether a pairing may be cut down, set up anew or deleted now; if not, its borrower is noted."""
        spare = self._failed if one.lender_ref in self._selection.roles.receding else 0
        return self._is_due(one) or self._admit({one.borrower_ref}, spare)

    def _admit(self, borrowers: set[Ref], spare: int = 0) -> bool:
        """Whether these may all lose something now; more than may ever do so at a time go alone."""
        self._asked |= borrowers
        fresh = borrowers - self._loose - self._permitted
        left = self._left + spare
        fits = len(fresh) <= left or (left > 0 and len(fresh) > self._most)
        if fresh and not fits:
            return False
        self._left -= len(fresh)
        self._permitted |= borrowers
        return True

    def _ports(self, pairings: Iterable[MemoryPairing]) -> dict[Ref, int]:
        """The lenders that keep their port for now: a lender has one port, so all its borrowers change over at once."""
        ports = {one.lender_ref: one.spec.lender.port for one in pairings if renews_lender(self._pool.spec, one.spec)}
        borrowers: dict[Ref, set[Ref]] = defaultdict(set)
        for one in pairings if ports else ():
            if not self._is_due(one):
                borrowers[one.lender_ref].add(one.borrower_ref)
        return {lender: port for lender, port in sorted(ports.items()) if not self._admit(borrowers[lender])}

    def _is_due(self, one: MemoryPairing) -> bool:
        """Whether the change cannot wait: a guest is gone, or does something else."""
        roles, lender, borrower = self._selection.roles, one.lender_ref, one.borrower_ref
        if one.terminating or lender in roles.relieved or not (self._is_there(lender) and self._is_there(borrower)):
            return True
        elsewhere = self._selection.taken
        return not elsewhere.isdisjoint((lender, borrower)) or lender in roles.borrowers or borrower in roles.lenders

    def _is_there(self, guest: Ref) -> bool:
        inventory = self._inventory
        return guest in inventory.guests or guest in inventory.lending or guest in self._selection.lenders


def is_connected(one: MemoryPairing) -> bool:
    """Whether the borrower works with a pairing that is to stay."""
    return not one.terminating and one.status.phase is not None and one.status.phase.has_pages


def is_settled(one: MemoryPairing) -> bool:
    """Whether it does so as the pairing is meant to be now: both agents have followed."""
    ends = (one.status.lender, one.status.borrower)
    return is_connected(one) and all(
        end is None or end.observed_generation in (None, one.metadata.generation) for end in ends
    )
