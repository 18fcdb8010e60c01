"""Guests of other namespaces that a pool may borrow from, because a MemoryGrant there says so.

Such a guest is known by `namespace/name`. It is lent only while no pool of its own namespace selects it, and of pools
elsewhere that may have it, the oldest has it. Who may have whom follows from labels, grants and pools, which change
seldom: it is kept until one of them does, and whose figures alone have changed concerns the one pool that has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidepool_api import GuestKey, PoolKey
from tidepool_operator.cluster.state import LENT_ELSEWHERE
from tidepool_operator.planning.inventory import Inventory
from tidepool_operator.planning.roles import matched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_api import MemoryGrant, MemoryGuest, MemoryPairing, MemoryPool, Ref
    from tidepool_operator.cluster.state import State


class Granted(NamedTuple):
    """What a pool finds in other namespaces."""

    guests: dict[Ref, MemoryGuest]
    claimed: dict[Ref, str]  # those that another pool has, with that pool
    ended: dict[Ref, MemoryGuest]  # those whose machines have ended


@dataclass(frozen=True)
class _Offers:
    """What the guests of one namespace are for pools of others; each by its name, for they are all of that one."""

    granted: Mapping[PoolKey, frozenset[str]] = field(default_factory=dict)  # the guests that each may have
    owners: Mapping[str, PoolKey] = field(default_factory=dict)  # which pool has a guest, be it one at home
    held: tuple[MemoryPool, ...] = ()  # pools that stay as they are: each has the guests of its pairings
    namespace: str = ""
    ended: tuple[MemoryGuest, ...] = ()  # all that have


class Grants:
    """Who may borrow from whom across namespaces."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[str, tuple[tuple[int, ...], _Offers]] = {}  # by namespace, with the changes they rest on
        self._in_use: dict[str, tuple[_Offers, tuple[int, ...], dict[str, PoolKey]]] = {}  # likewise, by held pools
        self._readers: tuple[int, dict[str, set[str]]] = (-1, {})

    def keep(self, namespaces: Collection[str]) -> None:
        """Drops what is remembered of other namespaces: pools name such as were never there, too."""
        self._known = {name: one for name, one in self._known.items() if name in namespaces}
        self._in_use = {name: one for name, one in self._in_use.items() if name in namespaces}

    def granted(self, pool: MemoryPool) -> Granted:
        """The guests that are granted to a pool and that its lenders' selector matches."""
        guests: dict[Ref, MemoryGuest] = {}
        claimed: dict[Ref, str] = {}
        ended: dict[Ref, MemoryGuest] = {}
        key = pool.key
        for namespace in set(pool.spec.lenders.namespaces) - {pool.namespace}:
            offers = self._offers(namespace)
            owners = {**offers.owners, **self._held(offers)}
            others = {*owners.values()} - {key}
            theirs = {owner: str(owner) for owner in others if self._is_before(owner, pool, namespace)}
            for name in offers.granted.get(key, ()):
                one, owner = self._state.guests.get(namespace, name), owners.get(name)
                if one is not None and not (one.is_excluded or one.has_ended):
                    ref = GuestKey(namespace, name).seen_from(pool.namespace)
                    guests[ref] = one
                    if owner in theirs:
                        claimed[ref] = theirs[owner]
            ended |= {one.key.seen_from(pool.namespace): one for one in offers.ended if self._is_asked_for(one, pool)}
        return Granted(guests, claimed, ended)

    def _is_asked_for(self, guest: MemoryGuest, pool: MemoryPool) -> bool:
        """Whether a pool asks for a guest of another namespace, and a grant there gives it."""
        selector, labels = pool.spec.lenders.selector, guest.metadata.labels
        grants = self._state.grants.in_namespace(guest.namespace)
        is_given = any(one.allows(pool.namespace, pool.name, labels) for one in grants)
        return is_given and selector is not None and selector.matches(labels)

    def readers(self, namespace: str) -> set[str]:
        """The other namespaces whose pools may borrow from its guests."""
        changes, known = self._readers
        if changes != self._state.pools.changes():
            known = {}
            for home in self._state.pools.namespaces():
                for one in self._state.pools.in_namespace(home):
                    for lender in self._state.lending(one):
                        known.setdefault(lender, set()).add(home)
            self._readers = self._state.pools.changes(), known
        return known.get(namespace, set())

    def concerned(self, guest: GuestKey) -> set[str]:
        """The namespaces that plan with a guest: its own, and that of the pool which has it."""
        has_readers = bool(self.readers(guest.namespace) - {guest.namespace})
        owner = self._owner(guest) if has_readers else None
        return {guest.namespace, owner.namespace} if owner else {guest.namespace}

    def lending(self, pairings: Iterable[MemoryPairing]) -> frozenset[Ref]:
        """The lenders of other namespaces, and nodes, that may go on with what they lend, whatever pools ask for now.

        Not those that are gone, that Tidepool is kept out of, or that another pool has. Whose grant is gone is not
        looked at: such pairings are revoked before anything is planned.
        """
        return frozenset(one.lender_ref for one in pairings if self._may_go_on(one))

    def _may_go_on(self, one: MemoryPairing) -> bool:
        guest = self._state.guests.get(*one.lender)
        if guest is None or (guest.namespace == one.namespace and not guest.is_node):
            return False
        is_there = not (guest.terminating or guest.is_excluded or guest.has_ended)
        return is_there and self._owner(one.lender) in (None, PoolKey(one.namespace, one.spec.pool))

    def _owner(self, guest: GuestKey) -> PoolKey | None:
        """The pool that has a guest."""
        offers = self._offers(guest.namespace)
        return self._held(offers).get(guest.name) or offers.owners.get(guest.name)

    def ungranted(self, pool: MemoryPool) -> list[str]:
        """The namespaces whose guests a pool asks for, and where no grant is for it."""

        def is_granted(namespace: str) -> bool:
            return any(one.is_for(pool.namespace, pool.name) for one in self._state.grants.in_namespace(namespace))

        nodes = self._state.lending(pool) - {*pool.spec.lenders.namespaces}
        asked = [one for one in (*pool.spec.lenders.namespaces, *nodes) if one != pool.namespace]
        return [one for one in asked if not is_granted(one)]

    def _held(self, offers: _Offers) -> dict[str, PoolKey]:
        """The guests of a namespace that pools use which are held, each with its pool."""
        if not offers.held:
            return {}
        changes = tuple(self._state.pairings.changes(one.namespace) for one in offers.held)
        known = self._in_use.get(offers.namespace)
        if known is None or known[0] is not offers or known[1] != changes:
            known = self._in_use[offers.namespace] = offers, changes, self._used(offers)
        return known[2]

    def _used(self, offers: _Offers) -> dict[str, PoolKey]:
        found: dict[str, PoolKey] = {}
        for pool in reversed(offers.held):
            for one in self._state.pairings.in_group(pool.namespace, pool.name):
                here = [end.name for end in one.ends if end.namespace == offers.namespace and not one.terminating]
                found |= dict.fromkeys(here, pool.key)
        return found

    def _is_before(self, owner: PoolKey, pool: MemoryPool, namespace: str) -> bool:
        """Whether the pool that has a guest of a namespace keeps another from it: at home there, held, or older."""
        other = self._state.pools.get(*owner)
        return other is None or owner.namespace == namespace or other.is_held or age(other) < age(pool)

    def _offers(self, namespace: str) -> _Offers:
        state = self._state
        changes = (state.pools.changes(), state.guests.changes(namespace), state.grants.changes(namespace))
        known = self._known.get(namespace)
        if known is None or known[0] != changes:
            known = self._known[namespace] = changes, self._looked_up(namespace)
        return known[1]

    def _looked_up(self, namespace: str) -> _Offers:
        inventory = Inventory(self._state.guests.in_namespace(namespace))
        owners: dict[str, PoolKey] = {}
        granted: dict[PoolKey, frozenset[str]] = {}
        at_home, asking = self._state.pools.in_namespace(namespace), sorted(self._asking(namespace), key=age)
        for one in at_home:
            if not one.is_held:
                owners |= dict.fromkeys(matched(one, inventory), one.key)
        grants = self._state.grants.in_namespace(namespace)
        for one in asking if grants else ():
            key = one.key
            granted[key] = _granted(one, grants, inventory)
            for name in granted[key] if not one.is_held else ():
                owners.setdefault(name, key)
        held = tuple(one for one in (*at_home, *asking) if one.is_held)
        return _Offers(granted, owners, held, namespace, tuple(inventory.ended.values()))

    def _asking(self, namespace: str) -> Iterable[MemoryPool]:
        """The pools of other namespaces that name this one."""
        for home in self.readers(namespace) - {namespace}:
            for one in self._state.pools.in_namespace(home):
                if namespace in one.spec.lenders.namespaces and not one.terminating:
                    yield one


def _granted(pool: MemoryPool, grants: Iterable[MemoryGrant], inventory: Inventory) -> frozenset[str]:
    """The guests that a pool asks for and that some grant gives it."""
    given: set[str] = set()
    for one in grants:
        if one.is_for(pool.namespace, pool.name):
            given |= inventory.matching(one.spec.selector) if one.spec.selector else inventory.guests.keys()
    selector = pool.spec.lenders.selector
    return frozenset(given & inventory.matching(selector)) if given and selector else frozenset()


def is_granted(pairing: MemoryPairing, state: State) -> bool:
    """Whether the lender is of the pairing's own namespace, or a MemoryGrant in its namespace lets the pool have it."""
    namespace = pairing.lender.namespace
    guest = state.guests.get(*pairing.lender)
    labels = guest.metadata.labels if guest else None
    grants = state.grants.in_namespace(namespace)
    return namespace == pairing.namespace or any(
        one.allows(pairing.namespace, pairing.spec.pool, labels) for one in grants
    )


def borrowing_from(namespace: str, state: State) -> set[str]:
    """The other namespaces in whose pairings guests of this one lend."""
    return {one.namespace for one in state.pairings.in_group(LENT_ELSEWHERE, namespace)} - {namespace}


def pairings_elsewhere(namespace: str, state: State) -> Iterable[MemoryPairing]:
    """The pairings of other namespaces in which guests take part that this one may know."""
    used = {name for one in state.pools.in_namespace(namespace) for name in state.lending(one)}
    found = [one for other in used for one in state.pairings.in_namespace(other)]
    found += [one for lender in (namespace, *used) for one in state.pairings.in_group(LENT_ELSEWHERE, lender)]
    return {one.key: one for one in found if one.namespace != namespace}.values()


def age(pool: MemoryPool) -> tuple[str, str, str]:
    """The older pool first: it has the guests that both want."""
    created = pool.metadata.creation_timestamp
    return (created.isoformat() if created else "", pool.name, pool.namespace)
