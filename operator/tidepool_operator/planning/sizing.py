"""What each borrower of a pool should have: the size that the pool gives, or its share of what there is. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidepool_api.curve import curve_of
from tidepool_api.units import MIB
from tidepool_operator.planning.placement import LEAST
from tidepool_operator.planning.quotas import home
from tidepool_operator.planning.shares import Claim, Stock, level_of, share, steady

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from tidepool_api import MemoryGuest, MemoryPool, Ref
    from tidepool_operator.planning.inventory import Inventory
    from tidepool_operator.planning.placement import Ledger
    from tidepool_operator.planning.quotas import Bound
    from tidepool_operator.planning.selection import Selection


def is_sized(pool: MemoryPool) -> bool:
    """Whether the sizes of a pool are planned."""
    return pool.spec.borrowers.size is None


def size(pool: MemoryPool, inventory: Inventory, selection: Selection, ledger: Ledger, absent: Container[Ref]) -> None:
    """Enters the size of each borrower; those that are `absent` have their part of what is left of the whole."""
    if not is_sized(pool):
        ledger.wanted = dict.fromkeys(selection.borrowers, pool.spec.most_bytes)
        return
    present = _present(pool, inventory, selection, ledger)
    claims: dict[str, list[Claim]] = defaultdict(list)
    for name, one in selection.borrowers.items():
        asked = claim(pool, name, one, rank=ledger.ranks.get(name, 0), waits=name in absent)
        claims[ledger.area(name)].append(asked)
    near = (name for name in selection.lenders if ledger.area(name) in claims)
    stocks = {name: Stock(name, ledger.free(name), present.get(name, {})) for name in near}
    reached = _keep_within(ledger, stocks)
    by_area: dict[str, list[Stock]] = defaultdict(list)
    for name, stock in stocks.items():
        by_area[ledger.area(name)].append(stock)
    borrowed: Counter[Ref] = Counter()
    for sizes in present.values():
        borrowed.update(sizes)
    taken = Counter(one.lender_ref for one in inventory.of_pool(pool.name))
    for area, asking in claims.items():
        some = _seated(ledger, by_area[area], asking, taken)
        due = share(by_area[area], some)
        nothing = dict.fromkeys((one.borrower for one in asking), 0)
        ledger.due |= nothing | due.sizes
        ledger.closed |= due.closed
        ledger.wanted |= nothing | steady(due, borrowed, some)
        for asked in some:
            if ledger.due[asked.borrower] < asked.most:
                ledger.allowance.lack(asked.borrower, reached)


def _seated(ledger: Ledger, stocks: Sequence[Stock], claims: list[Claim], taken: Mapping[Ref, int]) -> list[Claim]:
    """The claims of one area without the newcomers for whom no lender has a place; `taken` are pairings by lender.

    A node has as many places as its node lender takes borrowers, and who has one keeps it. A guest has as many as
    minimums fit there, for those who come first. What those without a place would have is shared out to the others.
    """
    nodes = [one for one in stocks if one.lender in ledger.seats]
    if not nodes:
        return claims
    guests = [one for one in stocks if one.lender not in ledger.seats]
    with_nodes, with_guests = ({name for one in some for name in one.lent} for some in (nodes, guests))
    only_guests, served = with_guests - with_nodes, with_guests | with_nodes
    fit = sum(one.most for one in guests) // max(LEAST, claims[0].least) - len(only_guests)
    places = max(0, fit) + sum(max(0, ledger.seats[one.lender] - taken[one.lender]) for one in nodes if one.anew)
    yielding = sorted(one.turn[:2] for one in claims if one.borrower in only_guests)
    newcomers = [one for one in claims if one.borrower not in served]
    turned_away = set()
    for number, one in enumerate(sorted(newcomers, key=lambda one: (one.waits, *one.turn))):
        if number >= places + len(yielding) - bisect_right(yielding, one.turn[:2]):
            turned_away.add(one.borrower)
    return [one for one in claims if one.borrower not in turned_away] if turned_away else claims


def _keep_within(ledger: Ledger, stocks: dict[Ref, Stock]) -> list[Bound]:
    """Where lenders could give more than quotas allow, each gives its part; returns the bounds that are reached."""
    limits = ledger.allowance.limits
    parts = [(bound, [name for name in stocks if home(name) == namespace]) for namespace, bound in limits.lent.items()]
    parts += [(limits.borrowed, list(stocks))] if limits.borrowed else []
    reached = []
    for bound, lenders in parts:
        if sum(stocks[name].most for name in lenders) > bound.room:
            _cut_down(ledger, stocks, lenders, bound.room)
            reached.append(bound)
    return reached


def _cut_down(ledger: Ledger, stocks: dict[Ref, Stock], lenders: Sequence[Ref], room: int) -> None:
    """Leaves each lender its part of the room, by what it may lend at all.

    What overdrawn ones have lent stays as long as all that is lent fits: else they would give up a part of the same
    part in each pass, and nobody would have it. What one gives up for a part, others have for its area, as far as they
    are left more than their parts.
    """
    fits = sum(stocks[name].lends for name in lenders) <= room
    stay = {name for name in lenders if fits and stocks[name].overdrawn}
    rest = room - sum(stocks[name].lends for name in stay)
    level = level_of(rest, [(0, stocks[one].most, max(1, ledger.bound[one])) for one in lenders if one not in stay])
    beyond: Counter[str] = Counter()
    for name in lenders:
        if name in stay:
            continue
        part = int(level * max(1, ledger.bound[name])) // MIB * MIB
        beyond[ledger.area(name)] += max(0, stocks[name].anew - part)
        stocks[name] = stocks[name].within(part)
    for name in lenders:
        extra = min(beyond[ledger.area(name)], stocks[name].overdrawn)
        beyond[ledger.area(name)] -= extra
        stocks[name] = Stock(name, stocks[name].anew + extra, stocks[name].lent)


def _present(pool: MemoryPool, inventory: Inventory, selection: Selection, ledger: Ledger) -> dict[Ref, dict[Ref, int]]:
    """What each lender lends to whom now, in pairings that may stay, and as far as both ends may have so much."""
    found: dict[Ref, dict[Ref, int]] = defaultdict(dict)
    left = ledger.bound | dict.fromkeys(selection.borrowers, pool.spec.most_bytes)
    for one in sorted(inventory.of_pool(pool.name), key=ledger.order):
        lender, borrower = one.lender_ref, one.borrower_ref
        stays = lender in selection.lenders and lender not in selection.roles.ending
        stays = stays and not selection.is_off_network(one) and not one.terminating
        if stays and borrower in selection.borrowers and ledger.area(lender) == ledger.area(borrower):
            found[lender][borrower] = size = max(0, min(one.spec.size_bytes, left[lender], left[borrower]))
            left[lender] -= size
            left[borrower] -= size
    return found


def claim(pool: MemoryPool, name: Ref, guest: MemoryGuest, *, rank: int, waits: bool) -> Claim:
    """What a borrower asks for."""
    weights = (one.weight for one in pool.spec.borrowers.weights if one.selector.matches(guest.metadata.labels))
    least = pool.spec.least_bytes
    most = max(least, pool.spec.most_bytes)
    return Claim(name, least, most, next(weights, 1), curve_of(guest.status), rank, waits)
