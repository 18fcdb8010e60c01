"""What each borrower of a pool should have: the size that the pool gives, or its share of what there is. Pure."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from tidepool_api.curve import curve_of
from tidepool_operator.planning.quotas import home
from tidepool_operator.planning.shares import Claim, share, steady

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPool, Ref
    from tidepool_operator.planning.inventory import Inventory
    from tidepool_operator.planning.placement import Ledger
    from tidepool_operator.planning.quotas import Bound, Limits
    from tidepool_operator.planning.selection import Selection


def is_sized(pool: MemoryPool) -> bool:
    """Whether the sizes of a pool are planned."""
    return pool.spec.borrowers.size is None


def size(pool: MemoryPool, inventory: Inventory, selection: Selection, ledger: Ledger) -> None:
    """Enters the size of each borrower; those that can take part only later have their part of the whole already."""
    if not is_sized(pool):
        ledger.wanted = dict.fromkeys(selection.borrowers, pool.spec.most_bytes)
        return
    lent, present = _present(pool, inventory, selection)
    claims: dict[str, list[Claim]] = defaultdict(list)
    for name, one in selection.borrowers.items():
        claims[ledger.area(name)].append(claim(pool, name, one, ledger.ranks.get(name, 0)))
    near = (name for name in selection.lenders if ledger.area(name) in claims)
    given = {name: _capacity(ledger, name, lent.get(name, 0)) for name in near}
    reached = _keep_within(ledger.allowance.limits, given)
    capacity: dict[str, int] = defaultdict(int)
    for name, amount in given.items():
        capacity[ledger.area(name)] += amount
    ledger.due = {name: size for area, some in claims.items() for name, size in share(capacity[area], some).items()}
    ledger.wanted = steady(ledger.due, present, chain.from_iterable(claims.values()))
    for asked in chain.from_iterable(claims.values()):
        if ledger.due[asked.borrower] < asked.most:
            ledger.allowance.lack(asked.borrower, reached)


def _keep_within(limits: Limits, given: dict[Ref, int]) -> list[Bound]:
    """Where lenders could give more than quotas allow, each gives its part; returns the bounds that are reached."""
    parts = [(bound, [name for name in given if home(name) == namespace]) for namespace, bound in limits.lent.items()]
    parts += [(limits.borrowed, list(given))] if limits.borrowed else []
    reached = []
    for bound, lenders in parts:
        total = sum(given[name] for name in lenders)
        if total > bound.room:
            given |= {name: given[name] * bound.room // total for name in lenders}
            reached.append(bound)
    return reached


def _present(pool: MemoryPool, inventory: Inventory, selection: Selection) -> tuple[dict[Ref, int], dict[Ref, int]]:
    """What lenders lend and borrowers have now, in pairings that may stay."""
    lent: dict[Ref, int] = defaultdict(int)
    borrowed: dict[Ref, int] = defaultdict(int)
    for one in inventory.of_pool(pool.name):
        lender, borrower = one.lender_ref, one.borrower_ref
        stays = lender in selection.lenders and lender not in selection.roles.ending
        stays = stays and not selection.is_off_network(one) and not one.terminating
        if stays and borrower in selection.borrowers:
            lent[lender] += one.spec.size_bytes
            borrowed[borrower] += one.spec.size_bytes
    return lent, borrowed


def _capacity(ledger: Ledger, lender: Ref, lent: int) -> int:
    """What a lender can give in all: what is free beside its own use, and what it lends already."""
    return max(0, ledger.free(lender), min(lent, ledger.bound[lender]))


def claim(pool: MemoryPool, name: Ref, guest: MemoryGuest, rank: int) -> Claim:
    """What a borrower asks for."""
    weights = (one.weight for one in pool.spec.borrowers.weights if one.selector.matches(guest.metadata.labels))
    least = pool.spec.least_bytes
    return Claim(name, least, max(least, pool.spec.most_bytes), next(weights, 1), curve_of(guest.status), rank)
