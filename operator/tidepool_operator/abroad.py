"""Guests of other namespaces that a pool may borrow from, because a MemoryGrant there says so. Pure.

Such a guest is known by `namespace/name`. It is lent only while no pool of its own namespace selects it, and of pools
elsewhere that may have it, the oldest has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidepool_operator.inventory import Inventory
from tidepool_operator.roles import matched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool
    from tidepool_operator.state import State


class Abroad(NamedTuple):
    """What a pool finds in other namespaces."""

    guests: dict[str, MemoryGuest]
    claimed: dict[str, str]  # those that another pool has, with that pool


def look_abroad(pool: MemoryPool, state: State) -> Abroad:
    """The guests that are granted to a pool and that its lenders' selector matches."""
    guests: dict[str, MemoryGuest] = {}
    claimed: dict[str, str] = {}
    for namespace in pool.spec.lenders.namespaces:
        if namespace != pool.namespace:
            found = dict(_granted(pool, namespace, state))
            guests |= {f"{namespace}/{name}": one for name, one in found.items()}
            claims = _claims(pool, namespace, found, state)
            claimed |= {f"{namespace}/{name}": owner for name, owner in claims.items()}
    return Abroad(guests, claimed)


def _granted(pool: MemoryPool, namespace: str, state: State) -> Iterator[tuple[str, MemoryGuest]]:
    selector, grants = pool.spec.lenders.selector, state.grants.in_namespace(namespace)
    for one in state.guests.in_namespace(namespace) if selector and grants else ():
        labels = one.metadata.labels
        if selector and selector.matches(labels) and any(g.allows(pool.namespace, pool.name, labels) for g in grants):
            yield one.name, one


def is_granted(pairing: MemoryPairing, state: State) -> bool:
    """Whether the lender is of the pairing's own namespace, or a MemoryGrant in its namespace lets the pool have it."""
    namespace = pairing.lender_namespace
    guest = state.guests.get(namespace, pairing.spec.lender.guest)
    labels = guest.metadata.labels if guest else None
    grants = state.grants.in_namespace(namespace)
    return namespace == pairing.namespace or any(
        one.allows(pairing.namespace, pairing.spec.pool, labels) for one in grants
    )


def _claims(pool: MemoryPool, namespace: str, found: dict[str, MemoryGuest], state: State) -> dict[str, str]:
    """Which of these guests another pool has: one at home, or an older one elsewhere."""
    inventory = Inventory(found.values())
    older = [one for one in _elsewhere(pool, namespace, state) if age(one) < age(pool)]
    claims = {name: f"{one.namespace}/{one.name}" for one in older for name, _ in _granted(one, namespace, state)}
    for one in state.pools.in_namespace(namespace):
        claims |= dict.fromkeys(matched(one, inventory), f"{namespace}/{one.name}")
    return {name: owner for name, owner in claims.items() if name in found}


def _elsewhere(pool: MemoryPool, namespace: str, state: State) -> Iterator[MemoryPool]:
    for other in state.pools.namespaces() - {pool.namespace, namespace}:
        for one in state.pools.in_namespace(other):
            if namespace in one.spec.lenders.namespaces and not one.terminating:
                yield one


def pairings_elsewhere(namespace: str, state: State) -> Iterator[MemoryPairing]:
    """The pairings of other namespaces in which guests take part that this one may know."""
    used = {name for one in state.pools.in_namespace(namespace) for name in one.spec.lenders.namespaces}
    for other in state.pairings.namespaces() - {namespace}:
        for one in state.pairings.in_namespace(other):
            if other in used or one.spec.lender.namespace is not None:
                yield one


def readers(state: State) -> dict[str, set[str]]:
    """For each namespace the others whose pools may borrow from its guests."""
    found: dict[str, set[str]] = {}
    for namespace in state.pools.namespaces():
        for one in state.pools.in_namespace(namespace):
            for lender in one.spec.lenders.namespaces:
                found.setdefault(lender, set()).add(namespace)
    return found


def borrowing_from(namespace: str, state: State) -> set[str]:
    """The other namespaces in whose pairings guests of this one lend."""
    others = state.pairings.namespaces() - {namespace}
    return {one for one in others for each in state.pairings.in_namespace(one) if each.lender_namespace == namespace}


def age(pool: MemoryPool) -> tuple[str, str, str]:
    """The older pool first: it has the guests that both want."""
    created = pool.metadata.creation_timestamp
    return (created.isoformat() if created else "", pool.name, pool.namespace)
