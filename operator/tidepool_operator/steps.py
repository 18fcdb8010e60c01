"""Taking memory from borrowers that work with it in steps: who is next, and who keeps what it has for now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidepool_api import PairingPhase
from tidepool_api.fields import part_of

if TYPE_CHECKING:
    from tidepool_api import MemoryPairing, MemoryPool
    from tidepool_operator.inventory import Inventory
    from tidepool_operator.selection import Selection


class Steps:
    """Who may lose something in this plan.

    A borrower that is not settled, because something of it is being set up or taken down, counts as unavailable
    already, and takes its changes as they come.
    """

    def __init__(self, pool: MemoryPool, inventory: Inventory, selection: Selection) -> None:
        pairings = inventory.of_pool(pool.name)
        having = {one.spec.borrower.guest for one in pairings if not one.terminating}
        self._inventory, self._selection = inventory, selection
        self._open = {one.spec.borrower.guest for one in pairings if not is_settled(one)} & inventory.guests.keys()
        self._left = part_of(pool.spec.max_unavailable, len(having)) - len(self._open)
        self.deferred: set[str] = set()

    def permit(self, one: MemoryPairing) -> bool:
        """Whether a pairing may be cut down or deleted now; if not, its borrower is noted."""
        borrower = one.spec.borrower.guest
        if borrower in self._open or self._is_due(one):
            return True
        if self._left > 0:
            self._left -= 1
            self._open.add(borrower)
            return True
        self.deferred.add(borrower)
        return False

    def _is_due(self, one: MemoryPairing) -> bool:
        """Whether the change cannot wait: a guest is gone, or does something else."""
        roles, known = self._selection.roles, self._inventory.guests.keys() | self._selection.lenders.keys()
        lender, borrower = one.lender_ref, one.spec.borrower.guest
        if one.terminating or lender in roles.relieved or lender not in known or borrower not in known:
            return True
        elsewhere = self._selection.taken
        return lender in roles.borrowers | elsewhere or borrower in roles.lenders | elsewhere


def is_settled(one: MemoryPairing) -> bool:
    """Whether the borrower works with a pairing as it is meant to be now."""
    borrower = one.status.borrower
    if one.terminating or one.status.phase is not PairingPhase.CONNECTED or borrower is None:
        return False
    return borrower.observed_generation in (None, one.metadata.generation)
