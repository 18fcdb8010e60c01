"""Who gets how much from whom: what exists is kept, what is missing is placed. Pure.

Capacity has two bounds. What exists may fill `min(maxLend, MemTotal - reserve)`: a lender that is busy for a while gets
its pages back from its module at once, and tearing pairings down for it would lose more. What is new must fit into
`min(maxLend, MemAvailable - reserve - margin)`, that is, what the lender's own use leaves, and leave its working set
alone.

What a lender's host has promised to nobody counts to the reserve, unless the pool lends that. Its kernel does not know
of it and takes nothing back for it. So there what exists has to fit beside the lender's own use, too.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidepool_api import Apart, Near, Placement, Role, parse_quantity
from tidepool_api.defaults import MOST_BORROWERS, MOST_LENDERS
from tidepool_api.fields import LEAST_MEMORY, MOST_BYTES
from tidepool_api.units import MIB
from tidepool_operator.planning.quotas import Allowance, Limits, home
from tidepool_operator.planning.ranking import Ranking
from tidepool_operator.planning.roles import own_spare, spare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Ref
    from tidepool_operator.planning.disruption import Disruption
    from tidepool_operator.planning.inventory import Inventory, Place
    from tidepool_operator.planning.selection import Selection

LEAST = parse_quantity(LEAST_MEMORY)
_SITES = {Apart.NODE: Near.SAME_NODE, Apart.ZONE: Near.SAME_ZONE}


def _sums() -> dict[Ref, int]:
    return defaultdict(int)


@dataclass(frozen=True, order=True)
class Assignment:
    """So much memory of the lender for the borrower."""

    borrower: Ref
    lender: Ref
    size: int


@dataclass
class Ledger:
    """Who has what, while a plan is being made; all sizes in bytes."""

    wanted: dict[Ref, int]  # borrower -> what it should have
    spread: int  # over how many lenders at least
    bound: dict[Ref, int]  # lender -> what its pairings may fill in all
    spare: dict[Ref, int]  # lender that takes more -> what is left for pairings beside its own use
    places: dict[Ref, Place]  # of lenders and borrowers
    placement: Placement = field(default_factory=Placement)
    ranks: dict[Ref, int] = field(default_factory=dict)  # borrower -> its priority, where it is not 0
    allowance: Allowance = field(default_factory=lambda: Allowance(Limits()))  # of quotas
    due: dict[Ref, int] = field(default_factory=dict)  # borrower -> its share, to which what is wanted is near enough
    closed: set[Ref] = field(default_factory=set)  # lenders whose memory stays with those that have it, see `shares`
    sizes: dict[Ref, dict[Ref, int]] = field(default_factory=lambda: defaultdict(dict))  # borrower -> lender -> size
    lent: dict[Ref, int] = field(default_factory=_sums)  # lender -> sum of these
    leaving: dict[Ref, int] = field(default_factory=_sums)  # lender -> what it gets back soon
    blocked: dict[Ref, set[Ref]] = field(
        default_factory=lambda: defaultdict(set)
    )  # borrower -> pairing has to go first
    surplus: set[Ref] = field(default_factory=set)  # borrowers that have to give something up later
    seats: dict[Ref, int] = field(default_factory=dict)  # node that lends -> how many borrowers more it takes

    def add(self, borrower: Ref, lender: Ref, size: int) -> None:
        """Assigns so much more."""
        if lender not in self.sizes[borrower]:
            self.sit(lender)
        self.sizes[borrower][lender] = self.sizes[borrower].get(lender, 0) + size
        self.lent[lender] += size
        self.allowance.take(lender, size)

    def sit(self, lender: Ref) -> None:
        """One more borrower has a pairing with it, or still has one."""
        if lender in self.seats:
            self.seats[lender] -= 1

    def is_full(self, lender: Ref) -> bool:
        """Whether it takes no further borrower."""
        return self.seats.get(lender, 1) <= 0

    def missing(self, borrower: Ref) -> int:
        """What a borrower lacks."""
        return self.wanted.get(borrower, 0) - sum(self.sizes[borrower].values())

    def area(self, guest: Ref) -> str:
        """Where the lenders are that are near enough to a guest, itself included."""
        return self.places[guest].area(self.placement.require)

    def site(self, lender: Ref) -> str:
        """What no other lender of its borrower may share with it: a node, a zone, or nothing but itself."""
        place = self.places.get(lender)
        return lender if place is None or self.placement.apart is None else place.area(_SITES[self.placement.apart])

    def sites(self, borrower: Ref) -> set[str]:
        """Those of a borrower's lenders."""
        return {self.site(lender) for lender in self.sizes[borrower]}

    def first(self, borrowers: Iterable[Ref]) -> list[Ref]:
        """Borrowers, those of higher priority first and else as they come."""
        return sorted(borrowers, key=lambda name: -self.ranks.get(name, 0))

    def order(self, one: MemoryPairing) -> tuple[int, bool, int]:
        """Which pairing is kept before another: by priority, and last that of which others can have most."""
        lender = one.lender_ref
        return -self.ranks.get(one.borrower_ref, 0), lender not in self.closed, self.spare.get(lender, 0)

    def most(self, borrower: Ref) -> int:
        """What a borrower may have of one lender: by its share, or each step towards that would ask for another."""
        size = max(self.wanted[borrower], self.due.get(borrower, 0))
        return max(LEAST, -(-size // self.spread // MIB) * MIB)

    def free(self, lender: Ref) -> int:
        """What a lender has for more, in whole MiB; nothing if it takes no more."""
        spare = self.spare.get(lender, 0)
        return max(0, spare - self.lent[lender] - self.leaving[lender]) // MIB * MIB

    def reach(self) -> int:
        """What a borrower that lacks all could still have, wherever that is."""
        return sum(heapq.nlargest(MOST_LENDERS, (self.free(lender) for lender in self.spare)))

    def assignments(self) -> tuple[Assignment, ...]:
        """All of it, in order."""
        found = (Assignment(name, one, size) for name, by in self.sizes.items() for one, size in by.items())
        return tuple(sorted(found))


class Promise(NamedTuple):
    """What other pools have of a lender that several share, or are about to have, in bytes."""

    all: int = 0
    older: int = 0  # the part of it that comes before what this pool has
    borrowers: int = 0  # how many have it


def open_ledger(
    pool: MemoryPool, inventory: Inventory, selection: Selection, limits: Limits, promised: Mapping[Ref, Promise]
) -> Ledger:
    """An empty ledger for the selected guests, within the limits of quotas and beside what others were promised."""
    lenders = selection.lenders
    bound = {name: _bound(one, pool, promised.get(name, Promise()).older) for name, one in lenders.items()}
    left = {
        name: _anew(lenders[name], pool, promised.get(name, Promise()).all)
        for name in selection.offering
        if not inventory.has_role(name, Role.BORROWER)
    }
    places = {name: inventory.place(one) for by in (selection.lenders, selection.borrowers) for name, one in by.items()}
    ranks = {name: rank for name, one in selection.borrowers.items() if (rank := priority(pool, one))}
    allowance = Allowance(limits)
    ledger = Ledger({}, pool.spec.lenders.spread, bound, left, places, pool.spec.placement, ranks, allowance)
    for name in (name for name, one in lenders.items() if one.is_node):
        ledger.seats[name] = MOST_BORROWERS - promised.get(name, Promise()).borrowers
    for lender in lenders.keys() - promised.keys():
        ledger.leaving[lender] += inventory.lent_to_others(lender, pool)
    return ledger


def priority(pool: MemoryPool, guest: MemoryGuest) -> int:
    """Who comes first: what the pool says of a borrower."""
    labels = guest.metadata.labels
    return next((one.priority for one in pool.spec.borrowers.priorities if one.selector.matches(labels)), 0)


def _anew(lender: MemoryGuest, pool: MemoryPool, others: int) -> int:
    """What a lender may lend anew in all, beside its own use and what other pools have of it."""
    return min(_bound(lender, pool, others), spare(pool, lender.status) - pool.spec.margin_bytes - others)


def _bound(lender: MemoryGuest, pool: MemoryPool, others: int) -> int:
    """What a lender may lend to this pool, beside what other pools have of it: of a guest, none has any."""
    cap, status = pool.spec.max_lend_of(lender.status), lender.status
    if status.memory is None:
        return cap
    left_out = pool.spec.left_out(status)
    promised = own_spare(status) - left_out if left_out else cap
    most = status.memory.total_bytes - pool.spec.reserve_of(status)
    if status.node is not None:
        most = min(most, status.node.max_lend_bytes) - others
    return min(cap, promised, most)


# --- what exists ------------------------------------------------------------------------------------------------------


def keep(ledger: Ledger, inventory: Inventory, pool: str, selection: Selection, disruption: Disruption) -> None:
    """Enters every existing pairing that is still right, cut down where it no longer fits and may be cut down now.

    A borrower that has too much gives up first what others can have. What a lender has lent beyond what it may is cut
    for all at once: who kept it for longer would keep what others have by right. What is cut for another reason counts
    as that, too, and when so much is cut all else waits to be permitted.
    """
    leaving: list[MemoryPairing] = []
    over = _beyond_bound(ledger, inventory, pool)
    for one in sorted(inventory.of_pool(pool), key=ledger.order):
        borrower, lender = one.borrower_ref, one.lender_ref
        size = _kept(ledger, selection, one)
        cut = 0 if one.terminating else one.spec.size_bytes - size
        is_cut = cut > 0 and over[lender] <= 0
        over[lender] -= cut
        if (is_cut or disruption.renews(one)) and not disruption.permit(one) and is_cut:
            size = _room(ledger, one)
            ledger.surplus.add(borrower)
        if size >= LEAST:
            ledger.add(borrower, lender, size)
        else:
            ledger.leaving[lender] += one.spec.size_bytes
            ledger.sit(lender)
            ledger.blocked[borrower].add(lender)
            leaving.append(one)
    for one in leaving:
        ledger.allowance.leave(one.lender_ref, one.spec.size_bytes)


def _beyond_bound(ledger: Ledger, inventory: Inventory, pool: str) -> Counter[Ref]:
    """How many bytes lenders lend more than they may at all: `maxLend` or the reserve is another now."""
    lent: Counter[Ref] = Counter()
    for one in inventory.of_pool(pool):
        lent[one.lender_ref] += 0 if one.terminating else one.spec.size_bytes
    return Counter({name: size - ledger.bound.get(name, size) for name, size in lent.items()})


def _kept(ledger: Ledger, selection: Selection, one: MemoryPairing) -> int:
    """How much of an existing pairing is still wanted and possible; 0 for one that is on its way out."""
    borrower, lender = one.borrower_ref, one.lender_ref
    if one.terminating or lender in selection.roles.ending:
        return 0
    if borrower not in selection.borrowers or lender not in selection.lenders or selection.is_off_network(one):
        return 0
    if ledger.area(borrower) != ledger.area(lender) or ledger.site(lender) in ledger.sites(borrower):
        return 0
    size = min(_room(ledger, one), ledger.missing(borrower))
    if lender not in ledger.closed:
        size = min(size, ledger.most(borrower))
    return ledger.allowance.cut(lender, borrower, size)


def _room(ledger: Ledger, one: MemoryPairing) -> int:
    """What a pairing has, as far as its lender may lend so much."""
    lender, size = one.lender_ref, one.spec.size_bytes
    return min(size, ledger.bound[lender] - ledger.lent[lender]) if lender in ledger.bound else size


# --- what is missing --------------------------------------------------------------------------------------------------


class Offer(NamedTuple):
    """What one lender could give a borrower.

    The best sorts first: no further pairing, then the short way, then much to spare; the name, so that order of arrival
    never matters.
    """

    is_new: bool
    distance: int
    minus_free: int
    lender: Ref
    most: int  # that may be taken
    site: str  # see Ledger.site


class Placing:
    """Where borrowers are served, one after the other."""

    def __init__(self, ledger: Ledger, *, in_part: bool) -> None:
        """`in_part`: whether a borrower takes what it can get when that is not all."""
        self._ledger = ledger
        self._in_part = in_part
        groups = {lender: ledger.places[lender].groups for lender in ledger.spare}
        sites = {lender: ledger.site(lender) for lender in ledger.spare}
        self._ranking = Ranking({lender: self._for_others(lender) for lender in ledger.spare}, groups, sites)
        self._limited = self._by_quota()
        self._largest = max(ledger.wanted.values(), default=0)
        limited = [lender for some in self._limited.values() for lender in some]
        homes = {lender: (_home_area(home(lender), ledger.area(lender)),) for lender in limited}
        self._without_quota = Ranking({lender: ledger.free(lender) for lender in limited}, homes)

    def serve(self, borrower: Ref) -> None:
        """Places what a borrower lacks."""
        missing = self._ledger.missing(borrower)
        if missing <= 0:
            return
        allowed = self._allowed(borrower, missing)
        if allowed <= 0:
            return
        taken = _whole(allowed, self._offers(borrower, 1)) or self._parts(borrower, allowed)
        for lender, size in taken:
            self._ledger.add(borrower, lender, size)
            self._rank(lender)
        if (left := allowed - sum(size for _, size in taken)) > 0:
            self._lack(borrower, left)

    def _by_quota(self) -> dict[str, list[Ref]]:
        """The lenders of each namespace whose lending a quota bounds, by the namespace in their names."""
        bounded = self._ledger.allowance.limits.lent
        found: dict[str, list[Ref]] = {namespace: [] for namespace in bounded}
        for lender in self._ledger.spare:
            if home(lender) in bounded:
                found[home(lender)].append(lender)
        return found

    def _free(self, lender: Ref) -> int:
        """What a lender has for more that quotas allow."""
        return min(self._ledger.free(lender), self._ledger.allowance.left(lender))

    def _for_others(self, lender: Ref) -> int:
        """What of it borrowers can have that have nothing of it yet."""
        return 0 if self._ledger.is_full(lender) else self._free(lender)

    def _rank(self, lender: Ref) -> None:
        """Enters what a lender has now, and those under its quota once that leaves less than some borrower wants."""
        self._ranking.set(lender, self._for_others(lender))
        bound = self._ledger.allowance.limits.lent.get(home(lender))
        if bound is None:
            return
        self._without_quota.set(lender, self._ledger.free(lender))
        if self._ledger.allowance.of(bound) < self._largest:
            for one in self._limited[home(lender)]:
                self._ranking.set(one, self._for_others(one))

    def _allowed(self, borrower: Ref, missing: int) -> int:
        """What a borrower may get of what it misses; all or nothing where it does not take a part."""
        allowance = self._ledger.allowance
        bound = allowance.limits.borrowed
        left = allowance.of(bound)
        if bound is None or left >= missing:
            return missing
        allowance.miss(borrower, bound, missing)
        return left if self._in_part else 0

    def _lack(self, borrower: Ref, missing: int) -> None:
        """Notes the quotas that keep a borrower from lenders which have memory for it."""
        ledger = self._ledger
        for namespace, bound in ledger.allowance.limits.lent.items():
            left = ledger.allowance.of(bound)
            most = self._without_quota.best(_home_area(namespace, ledger.area(borrower)), 1, ())
            if left < missing and any(ledger.free(one) > left for one in most):
                ledger.allowance.miss(borrower, bound, missing)

    def _parts(self, borrower: Ref, missing: int) -> list[tuple[Ref, int]]:
        allowance = self._ledger.allowance
        lent = {namespace: allowance.of(bound) for namespace, bound in allowance.limits.lent.items()}
        taken, left = _split(missing, self._offers(borrower, MOST_LENDERS), self._ledger.sites(borrower), lent)
        return taken if self._in_part or not left else []

    def _offers(self, borrower: Ref, count: int) -> list[Offer]:
        """What the lenders have for this borrower: all that it has now, and so many of the best of each group."""
        ledger = self._ledger
        present, blocked = ledger.sizes[borrower], ledger.blocked[borrower]
        staying = ledger.spare.keys() & present.keys() - blocked
        found = [self._offer(borrower, one) for one in staying if ledger.area(one) == ledger.area(borrower)]
        if len(present) < MOST_LENDERS:
            without = blocked | ledger.sites(borrower)
            groups = ledger.places[borrower].groups_within(ledger.placement.require)
            new = {lender for group in groups for lender in self._ranking.best(group, count, without)}
            found += [one for one in (self._offer(borrower, lender) for lender in new) if one.most >= LEAST]
        return [one for one in found if one.most > 0]

    def _offer(self, borrower: Ref, lender: Ref) -> Offer:
        ledger = self._ledger
        present, free = ledger.sizes[borrower].get(lender), self._free(lender)
        distance = ledger.places[borrower].distance(ledger.places[lender])
        most = min(free, ledger.most(borrower) - (present or 0))
        return Offer(present is None, distance, -free, lender, most, ledger.site(lender))


def _home_area(namespace: str, area: str) -> str:
    return f"{namespace}/{area}"


def _whole(missing: int, offers: list[Offer]) -> list[tuple[Ref, int]]:
    """All from one lender, if one has it."""
    enough = (one for one in offers if one.most >= missing and (missing >= LEAST or not one.is_new))
    best = min(enough, default=None)
    return [(best.lender, missing)] if best else []


def _split(
    missing: int, offers: list[Offer], sites: set[str], lent: dict[str, int]
) -> tuple[list[tuple[Ref, int]], int]:
    """From as few lenders as it takes beside those at `sites`, the largest first; and what is still missing then.

    `lent` is what quotas leave all lenders of a namespace together, where one does.
    """
    taken: list[tuple[Ref, int]] = []
    for one in sorted(offers, key=lambda one: (-one.most, one)):
        namespace = home(one.lender)
        size = _share(missing, min(one.most, lent.get(namespace, one.most)))
        if size < (LEAST if one.is_new else 1) or (one.is_new and (len(sites) == MOST_LENDERS or one.site in sites)):
            continue
        taken.append((one.lender, size))
        lent[namespace] = lent.get(namespace, MOST_BYTES) - size
        missing -= size
        sites.add(one.site)
    return taken, missing


def _share(missing: int, free: int) -> int:
    """What to take of `free`, so that what is left to take elsewhere is nothing or enough for a pairing."""
    if free >= missing:
        return missing
    return free if missing - free >= LEAST else missing - LEAST
