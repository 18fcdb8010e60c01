"""What is planned with, indexed: the guests of a namespace by label, its pairings by pool and by guest. Pure.

Built once for all pools of a namespace, so that a pool costs what its own guests do and not what all of them do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api import Near, Ref, Role
from tidepool_api.labels import Labelled
from tidepool_operator.planning.ranking import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Selector


@dataclass(frozen=True)
class Node:
    """What matters of a node."""

    zone: str = ""
    cordoned: bool = False
    pressed: bool = False  # it has the condition MemoryPressure


@dataclass(frozen=True)
class Place:
    """Where a guest runs."""

    node: str
    zone: str

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of lenders that are near to it, the nearest first."""
        return (f"node {self.node}", *((f"zone {self.zone}",) if self.zone else ()), EVERYWHERE)

    def groups_within(self, near: Near | None) -> tuple[str, ...]:
        """Those of the groups that are near enough; the last of them is all that is."""
        match near:
            case Near.SAME_NODE:
                return self.groups[:1]
            case Near.SAME_ZONE:
                return self.groups[:-1]
            case None:
                return self.groups

    def area(self, near: Near | None) -> str:
        """All that is near enough; a node whose zone is not known is one of its own."""
        return self.groups_within(near)[-1]

    def distance(self, other: Place) -> int:
        """0 on the same node, 1 in the same zone, 2 elsewhere."""
        if self.node == other.node:
            return 0
        return 1 if self.zone and self.zone == other.zone else 2


class Inventory:
    """The guests and pairings of a namespace."""

    def __init__(
        self,
        guests: Iterable[MemoryGuest],
        pairings: Iterable[MemoryPairing] = (),
        *,
        namespace: str = "",
        elsewhere: Iterable[MemoryPairing] = (),
        nodes: Mapping[str, Node] | None = None,
        silent: Collection[str] = (),
        gone: Mapping[Ref, dict[str, str]] | None = None,
        home: str = "",
        node_lenders: int = 0,
        lending: Collection[Ref] = (),
    ) -> None:
        """`nodes` are those of the cluster, where they are known, `silent` those whose agent does not answer.

        `gone` are guests that were there lately, with their labels.
        `elsewhere` are pairings of other namespaces; guests of these go by `namespace/name`. `home` is the namespace of
        the release, in which there are so many `node_lenders`; these are no guests of it. `lending` are the lenders
        that are none either, and may go on with what they lend here (`Grants.lending`).
        """
        self.home, self.node_lenders, self.lending = home, node_lenders, frozenset(lending)
        known = sorted((one for one in guests if not one.is_node), key=lambda one: one.name)
        self.ended = {Ref(one.name): one for one in known if one.has_ended and not one.terminating}
        self.guests = {Ref(one.name): one for one in known if not (one.terminating or one.is_excluded or one.has_ended)}
        self.excluded = {Ref(one.name): one.metadata.labels for one in known if one.is_excluded and not one.terminating}
        self.silent = frozenset(silent)
        self.gone = gone or {}
        self.nodes = nodes or {}
        self._are_nodes_known = nodes is not None
        self.cordoned = {name for name, one in self.nodes.items() if one.cordoned}
        self._labelled = Labelled((name, one.metadata.labels) for name, one in self.guests.items())
        self._of_pool: dict[str, list[MemoryPairing]] = defaultdict(list)
        self._lent_by: dict[Ref, list[MemoryPairing]] = defaultdict(list)
        self._borrowed_by: dict[Ref, list[MemoryPairing]] = defaultdict(list)
        for pairing in sorted(pairings, key=lambda one: one.name):
            self._of_pool[pairing.spec.pool].append(pairing)
            if not pairing.is_taken_down:
                self._lent_by[pairing.lender_ref].append(pairing)
                self._borrowed_by[pairing.borrower_ref].append(pairing)
        for pairing in elsewhere:
            if pairing.is_taken_down:
                continue
            self._lent_by[pairing.lender.seen_from(namespace)].append(pairing)
            self._borrowed_by[pairing.borrower.seen_from(namespace)].append(pairing)

    def matching(self, selector: Selector) -> set[Ref]:
        """The guests that a selector matches."""
        return self._labelled.matching(selector)

    def is_on_a_node(self, guest: MemoryGuest) -> bool:
        """Whether the node that a guest is said to run on is one of the cluster, as far as these are known."""
        return not self._are_nodes_known or guest.spec.node_name in self.nodes

    def is_on_pressed_node(self, guest: MemoryGuest) -> bool:
        """Whether the node that a guest runs on is under memory pressure, as far as is known."""
        node = self.nodes.get(guest.spec.node_name)
        return node is not None and node.pressed

    def place(self, guest: MemoryGuest) -> Place:
        """Where a guest runs."""
        node = guest.spec.node_name
        return Place(node, self.nodes[node].zone if node in self.nodes else "")

    def of_pool(self, pool: str) -> Sequence[MemoryPairing]:
        """The pairings of a pool, by name."""
        return self._of_pool.get(pool, ())

    def lent_to_others(self, guest: Ref, pool: MemoryPool) -> int:
        """What a guest lends in pairings of other pools, in bytes."""
        key = pool.key
        return sum(one.spec.size_bytes for one in self._lent_by.get(guest, ()) if one.pool != key)

    def has_role(self, guest: Ref, role: Role) -> bool:
        """Whether a guest has that role in any pairing, be it on its way out."""
        return guest in (self._lent_by if role is Role.LENDER else self._borrowed_by)

    def roles_in(self, pool: str) -> Iterator[tuple[Ref, Role]]:
        """The guests of a pool's pairings that are not on their way out, with what they do there."""
        for one in self.of_pool(pool):
            if not one.terminating:
                yield one.lender_ref, Role.LENDER
                yield one.borrower_ref, Role.BORROWER

    def begun_in(self, pool: str) -> dict[Ref, datetime]:
        """Since when the guests of a pool's pairings have had their roles there: when the oldest was made."""
        begun: dict[Ref, datetime] = {}
        for one in self.of_pool(pool):
            made = one.metadata.creation_timestamp
            if made is None or one.terminating:
                continue
            for guest in (one.lender_ref, one.borrower_ref):
                begun[guest] = min(made, begun.get(guest, made))
        return begun
