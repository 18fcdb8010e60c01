"""Which guests of a pool lend, which borrow, and which are left in peace. Pure; the time is an argument.

Each figure has two thresholds: one for taking a role up, and an easier one for keeping it. A role that was changed is
kept for the pool's cool-down, but for a lender that needs its memory itself: that one is relieved at once. Lenders on a
node under memory pressure are relieved, too, a few borrowers at a time (`disruption`). While a guest migrates, its
figures are those of a copy that is made, and it keeps its role unless it needs its memory itself.

A guest of an Auto pool has a role from its first pairing on; one that could lend, or would like to borrow, and has
nobody to do it with may become something else at any time. So most of what there is to know is in the pairings. The
changes of the last cool-down are in the status of the pool besides, so that a restart of the operator forgets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tidepool_api import GuestRole, Ref, Role, RoleChoice
from tidepool_api.curve import curve_of
from tidepool_api.pool import MOST_ROLES
from tidepool_api.units import MIB

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from tidepool_api import GuestStatus, MemoryGuest, MemoryPool
    from tidepool_operator.planning.inventory import Inventory


class Bounds(NamedTuple):
    """From when on a role is taken up, and down to when it is kept."""

    take: float
    keep: float


REFAULTS = Bounds(50, 10)  # a second, of a borrower
GAIN = Bounds(50, 10)  # reads from disk that a pool would spare a borrower, a second
STALLED = Bounds(10, 2)  # percent of the time that some task of a borrower waits for memory
SPARE = Bounds(128 * MIB, 0)  # what a lender has beyond reserve and margin
IO_WAIT = 5  # percent; with less nothing is gained by sparing a guest its refaults


class Why(StrEnum):
    """The reasons for a role."""

    REFAULTS = "Refaults"
    CURVE = "CurvePromisesHits"
    STALLED = "WaitsForMemory"
    SPARE = "HasMemoryToSpare"
    NEITHER = "NeitherShortNorRich"
    RELIEVED = "UnderMemoryPressure"
    NODE_PRESSED = "NodeUnderMemoryPressure"


class Turn(NamedTuple):
    """A guest whose role changes now."""

    guest: Ref
    before: Role
    role: GuestRole


@dataclass
class Roles:
    """Who does what."""

    lenders: set[Ref] = field(default_factory=set)
    borrowers: set[Ref] = field(default_factory=set)
    relieved: set[Ref] = field(default_factory=set)  # lenders whose pairings go because they need their memory
    receding: set[Ref] = field(default_factory=set)  # lenders whose pairings go in turn because their nodes need it
    resting: set[Ref] = field(default_factory=set)  # lenders that take nobody new
    entries: dict[Ref, GuestRole] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    held: list[datetime] = field(default_factory=list)  # when roles began that are kept for the cool-down alone

    @property
    def ending(self) -> set[Ref]:
        """The lenders that are to lend nothing for now."""
        return self.relieved | self.receding

    @property
    def on_pressed_nodes(self) -> list[Ref]:
        """The guests that lend nothing for now for the sake of their nodes, by name."""
        return sorted(self.receding | {name for name, one in self.entries.items() if one.reason == Why.NODE_PRESSED})

    def end(self, lender: Ref, why: str) -> None:
        """Has a lender lend nothing for now."""
        (self.receding if why == Why.NODE_PRESSED else self.relieved).add(lender)

    def turn(self, guest: Ref, before: Role, after: Role, why: Why, at: datetime) -> None:
        """Changes a role."""
        self.entries[guest] = GuestRole(guest=guest, role=after, since=at, reason=why)
        self.turns.append(Turn(guest, before, self.entries[guest]))


def assign(
    pool: MemoryPool, inventory: Inventory, granted: Mapping[Ref, MemoryGuest], taken: Collection[Ref], at: datetime
) -> Roles:
    """The roles of the guests that a pool matches, without those in `taken`; those `granted` lend."""
    if pool.spec.role is RoleChoice.AUTO and pool.spec.selector is not None:
        roles = _choose(pool, inventory, sorted(inventory.matching(pool.spec.selector) - set(taken)), at)
        roles.lenders |= granted.keys()
        _spare_nodes(inventory, granted, roles)
        return roles
    lenders, borrowers = pool.spec.lenders.selector, pool.spec.borrowers.selector
    roles = Roles(
        (inventory.matching(lenders) if lenders else set()) | granted.keys(),
        inventory.matching(borrowers) if borrowers else set(),
    )
    _relieve(pool, inventory, granted, roles, at)
    return roles


def matched(pool: MemoryPool, inventory: Inventory) -> set[Ref]:
    """All guests that a pool's selectors match, whatever they do."""
    spec = pool.spec
    selectors = (spec.selector, spec.lenders.selector, spec.borrowers.selector)
    return {name for one in selectors if one is not None for name in inventory.matching(one)}


def settle(roles: Roles, paired: Collection[Ref]) -> None:
    """Takes back the beginnings to lend or to borrow that have come to nothing; `paired` are those with a pairing."""
    idle = {turn.guest for turn in roles.turns if turn.before is Role.NONE and turn.guest not in paired}
    roles.turns = [turn for turn in roles.turns if turn.guest not in idle]
    for name in idle:
        del roles.entries[name]


def remembered(pool: MemoryPool, roles: Roles, paired: Collection[Ref], at: datetime) -> tuple[GuestRole, ...]:
    """The roles that cool down; if they are too many, those that no pairing shows, and the latest."""
    kept = [one for name, one in roles.entries.items() if is_cooling(pool, one.since, at) or name in roles.ending]
    kept.sort(key=lambda one: (one.guest in paired, -one.since.timestamp(), one.guest))
    return tuple(sorted(kept[:MOST_ROLES], key=lambda one: one.guest))


def _remembered(
    pool: MemoryPool, inventory: Inventory, known: Mapping[Ref, MemoryGuest], at: datetime
) -> dict[Ref, GuestRole]:
    """What the status of a pool remembers, by guest; nothing in it begins only later, whoever has written it.

    Who gives back in turn, and has come to need what it still lends itself, is a lender once more, to be relieved.
    """
    each = (one if one.since <= at else one.model_copy(update={"since": at}) for one in pool.status.roles or ())
    lending = _lending(pool, inventory)
    pressed = {name for name in lending if name in known and is_pressed(known[name].status)}
    return {Ref(one.guest): one for one in each if one.reason != Why.NODE_PRESSED or one.guest not in pressed}


def _lending(pool: MemoryPool, inventory: Inventory) -> set[Ref]:
    """The guests that lend in pairings of a pool."""
    return {name for name, role in inventory.roles_in(pool.name) if role is Role.LENDER}


def until_due(pool: MemoryPool, begun: Iterable[datetime], at: datetime) -> float | None:
    """The seconds until the next cool-down is over, of roles begun then; None when none runs."""
    left = [pool.spec.cool_down_seconds - (at - since).total_seconds() for since in begun]
    return min((seconds for seconds in left if seconds > 0), default=None)


def is_cooling(pool: MemoryPool, since: datetime | None, at: datetime) -> bool:
    """Whether a role that began then is too new to be changed."""
    return since is not None and (at - since).total_seconds() < pool.spec.cool_down_seconds


# --- lenders that were selected ---------------------------------------------------------------------------------------


def _relieve(
    pool: MemoryPool, inventory: Inventory, granted: Mapping[Ref, MemoryGuest], roles: Roles, at: datetime
) -> None:
    """Finds the lenders that need their memory themselves, or whose nodes do, and those of which that was so lately."""
    known = {**inventory.guests, **granted} if granted else inventory.guests
    before = {name: one for name, one in _remembered(pool, inventory, known, at).items() if one.role is Role.NONE}
    lending = _lending(pool, inventory)
    for name in sorted(name for name in roles.lenders if not known[name].is_node):
        guest, entry = known[name], before.get(name)
        why, is_calm_now = _needed_back(guest, inventory), is_calm(guest.status)
        if entry is not None and (is_cooling(pool, entry.since, at) or why is not None or not is_calm_now):
            roles.entries[name] = entry
            roles.end(name, entry.reason)
        elif why is not None and name in lending:
            roles.turn(name, Role.LENDER, Role.NONE, why, at)
            roles.end(name, why)
        elif why is Why.NODE_PRESSED:
            roles.end(name, why)
        elif not is_calm_now:
            roles.resting.add(name)
    roles.resting |= roles.ending
    _spare_nodes(inventory, granted, roles)


def _spare_nodes(inventory: Inventory, granted: Mapping[Ref, MemoryGuest], roles: Roles) -> None:
    """Has nodes under memory pressure lend nothing more; what they lend their kernels take back by themselves."""
    roles.resting |= {name for name, one in granted.items() if one.is_node and inventory.is_on_pressed_node(one)}


def _needed_back(guest: MemoryGuest, inventory: Inventory) -> Why | None:
    """Why what a guest lends is to go, if it is. One that is leaving its node takes along what it lends."""
    if is_pressed(guest.status):
        return Why.RELIEVED
    return Why.NODE_PRESSED if inventory.is_on_pressed_node(guest) and not guest.status.migrating else None


def is_pressed(status: GuestStatus) -> bool:
    """Whether a guest needs all of its memory now."""
    return status.pressure is not None and status.pressure.is_severe


def is_calm(status: GuestStatus) -> bool:
    """Whether a guest may begin to lend, as far as is known."""
    return status.pressure is None or status.pressure.is_calm


# --- roles by need ----------------------------------------------------------------------------------------------------


def _choose(pool: MemoryPool, inventory: Inventory, names: Iterable[Ref], at: datetime) -> Roles:
    """Gives each guest the role that it needs, or leaves it the one that it has."""
    entries = _remembered(pool, inventory, inventory.guests, at)
    present = dict(inventory.roles_in(pool.name)) | {name: one.role for name, one in entries.items()}
    begun = inventory.begun_in(pool.name) | {name: one.since for name, one in entries.items()}
    roles = Roles()
    for name in names:
        if name in entries:
            roles.entries[name] = entries[name]
        role = _turn(pool, inventory, name, present.get(name, Role.NONE), begun.get(name), roles, at)
        if role is Role.LENDER:
            roles.lenders.add(name)
        elif role is Role.BORROWER:
            roles.borrowers.add(name)
    return roles


def _turn(
    pool: MemoryPool,
    inventory: Inventory,
    name: Ref,
    role: Role,
    since: datetime | None,
    roles: Roles,
    at: datetime,
) -> Role:
    """What a guest is from now on; `since` is when it became what it is, where that is known."""
    guest = inventory.guests[name]
    wish, why = _wish(pool, inventory, guest, role)
    unknown = guest.spec.node_name in inventory.silent or guest.status.memory is None
    urgent = why in (Why.RELIEVED, Why.NODE_PRESSED)
    if unknown or wish is role or (guest.status.migrating and not is_pressed(guest.status)):
        return role
    if since is not None and is_cooling(pool, since, at) and not urgent:
        roles.held.append(since)
        return role
    if urgent:
        roles.end(name, why)
    roles.turn(name, role, wish, why, at)
    return wish


def _wish(pool: MemoryPool, inventory: Inventory, guest: MemoryGuest, role: Role) -> tuple[Role, Why]:
    """What a guest would be, going by its report and its node."""
    status, why_not = guest.status, _needed_back(guest, inventory)
    if role is Role.LENDER and spare(pool, status) < SPARE.keep:
        return Role.NONE, Why.RELIEVED
    if role is Role.LENDER and why_not is not None:
        return Role.NONE, why_not
    if why := _shortage(status, is_borrower=role is Role.BORROWER):
        return Role.BORROWER, why
    may_lend = is_calm(status) and why_not is None
    if may_lend and spare(pool, status) >= (SPARE.keep if role is Role.LENDER else SPARE.take):
        return Role.LENDER, Why.SPARE
    return (role, Why.SPARE) if role is Role.LENDER else (Role.NONE, Why.NEITHER)


def _shortage(status: GuestStatus, *, is_borrower: bool) -> Why | None:
    """Why a guest should borrow, if it should."""

    def reaches(bounds: Bounds, figure: float | None) -> bool:
        return (figure or 0) >= (bounds.keep if is_borrower else bounds.take)

    pressure = status.pressure
    if pressure is not None and reaches(REFAULTS, pressure.refaults_per_second):
        waits = is_borrower or pressure.io_some is None or pressure.io_some >= IO_WAIT
        if waits:
            return Why.REFAULTS
    if reaches(GAIN, gain(status)):
        return Why.CURVE
    if pressure is not None and reaches(STALLED, pressure.memory_some):
        return Why.STALLED
    return None


def gain(status: GuestStatus) -> float:
    """Reads from disk that the largest pool would spare a guest, a second, as far as its curve can be believed."""
    curve = curve_of(status)
    return curve[-1].reads if curve else 0.0


def spare(pool: MemoryPool, status: GuestStatus) -> int:
    """What a guest has beyond its own use and what the pool leaves it, in bytes; lent pages count as not used."""
    return own_spare(status) - pool.spec.reserve_of(status)


def own_spare(status: GuestStatus) -> int:
    """What a guest does not use itself, as far as is known."""
    return status.memory.spare_bytes if status.memory else 0
