"""Guests from which the agents of their nodes gather memory by their balloons.

An agent reads no pools. So each such guest's MemoryGuest is marked with what stays available in it, and its agent does
the rest, looking at what the guest says of itself. A guest that lends or borrows is no donor, whatever a pool asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidepool_api import names
from tidepool_operator.cluster.state import LENT_ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidepool_api import MemoryGuest
    from tidepool_operator.cluster.nodelenders import NodeLenders
    from tidepool_operator.cluster.state import State
    from tidepool_operator.planning.build import Body

BALLOON = names.BALLOON_ANNOTATION


class Mark(NamedTuple):
    """What a guest is to be marked with."""

    guest: MemoryGuest
    reserve: str | None
    """What stays available in it; None where nothing is gathered from it any more."""
    pool: str
    """The pool that says so; empty if none is left to."""

    @property
    def patch(self) -> Body:
        """The change of its MemoryGuest."""
        return {"metadata": {"annotations": {BALLOON: self.reserve}}}


class Donors:
    """Which guests give memory to their nodes."""

    def __init__(self, state: State, nodes: NodeLenders) -> None:
        self._state, self._nodes = state, nodes

    def news(self, namespace: str, claimed: Collection[str], *, steady: bool) -> list[Mark]:
        """The marks of a namespace's guests that are to change; `claimed` are those that lend or borrow.

        `steady`: what some pool asks for is not known, so that nobody loses a mark for want of such a pool.
        """
        busy = {*claimed, *self._paired(namespace)}
        wanted = {one.guest.name: one for one in self._wanted(namespace, busy)}
        pools = self._state.pools.in_namespace(namespace)
        asking = next((one.name for one in pools if one.spec.balloon), "")
        gone = (
            Mark(one, None, asking)
            for one in self._state.guests.in_namespace(namespace)
            if BALLOON in one.metadata.annotations and one.name not in wanted and (one.name in busy or not steady)
        )
        fresh = (one for one in wanted.values() if one.guest.metadata.annotations.get(BALLOON) != one.reserve)
        return [*fresh, *gone]

    def _wanted(self, namespace: str, busy: Collection[str]) -> Iterator[Mark]:
        """A mark for each donor; where several pools ask for one, the largest reserve comes last and holds.

        A pool that is held takes no others.
        """
        pools = self._state.pools.in_namespace(namespace)
        asked = [(one, one.spec.balloon) for one in pools if one.spec.balloon and not one.terminating]
        guests = [one for one in self._state.guests.in_namespace(namespace) if _may_give(one, busy)] if asked else []
        for pool, balloon in sorted(asked, key=lambda one: one[1].reserve_bytes):
            nodes = {one.name for one in self._nodes.of(pool).values()}
            for one in guests:
                is_new = BALLOON not in one.metadata.annotations
                is_asked = one.spec.node_name in nodes and balloon.selector.matches(one.metadata.labels)
                if is_asked and not (pool.is_held and is_new):
                    yield Mark(one, balloon.reserve, pool.name)

    def _paired(self, namespace: str) -> Iterator[str]:
        """The guests of a namespace that have a part in a pairing, be it on its way out."""
        elsewhere = self._state.pairings.in_group(LENT_ELSEWHERE, namespace)
        for one in (*self._state.pairings.in_namespace(namespace), *elsewhere):
            if not one.is_taken_down:
                yield from (end.name for end in one.ends if end.namespace == namespace)


def _may_give(guest: MemoryGuest, busy: Collection[str]) -> bool:
    is_there = not (guest.is_node or guest.terminating or guest.has_ended or guest.is_excluded)
    return is_there and guest.name not in busy
