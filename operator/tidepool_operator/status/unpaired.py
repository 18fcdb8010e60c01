"""Says on guests whose agent is dead what they still lend although no pairing names it any more.

A living agent takes down what is left over, and says so until it has. A pairing does not wait for a dead one: then the
memory stays lent, and this is all that still tells of it. What there is to say follows from the agent's last report and
from the pairings that are there now, so that no restart forgets it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidepool_api import Condition, ConditionType, Reason, Role, cadence, condition, find, merge, without
from tidepool_api.fields import readable, total
from tidepool_api.kube import Refused
from tidepool_operator.status.report import named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_api import GuestKey, GuestPeer, MemoryGuest, MemoryPairing
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.heartbeats import Heartbeats
    from tidepool_operator.cluster.state import State
    from tidepool_operator.status.outcome import Outcome


@dataclass(frozen=True)
class Unpaired:
    """What a guest lends without a pairing, as its agent said last."""

    held_bytes: int
    borrowers: tuple[str, ...]
    """Empty where the agent named none."""

    def condition(self, guest: MemoryGuest) -> Condition:
        """For people to read."""
        whose = f" for {named(self.borrowers)}" if self.borrowers else ""
        text = (
            f"it held {readable(self.held_bytes)}{whose} when its agent last looked, and no MemoryPairing names that "
            f"now; the agent on node {guest.spec.node_name} does not answer: when it is back it takes it down"
        )
        return condition(ConditionType.LENDING_PAIRED, False, Reason.AGENT_NOT_RESPONDING, text)


async def tell(cluster: Cluster, state: State, heartbeats: Heartbeats, outcome: Outcome) -> Mapping[GuestKey, int]:
    """Writes on guests what is new about that, one after the other, and returns how many bytes it is of each."""
    found: dict[GuestKey, int] = {}
    nodes = {node for node in heartbeats.nodes if not heartbeats.is_silent(node)}
    paired = lent_to(one for namespace in state.pairings.namespaces() for one in state.pairings.in_namespace(namespace))
    for namespace in state.guests.namespaces():
        for guest in state.guests.in_namespace(namespace):
            node = guest.spec.node_name
            left = None if node in nodes else unpaired(guest, paired.get(guest.key, ()))
            if left and not heartbeats.is_silent(node):  # perhaps just starting: what was said of it before still holds
                if _is_said(guest):
                    found[guest.key] = left.held_bytes
                continue
            if left:
                found[guest.key] = left.held_bytes
            fresh = conditions(guest, left)
            if fresh != guest.status.conditions:
                await asyncio.sleep(1 / cadence.GUEST_WRITES)
                what, write = f"say on guest {guest.key} what it lends", partial(_write, cluster, state, guest, fresh)
                await outcome.attempt(namespace, guest.metadata.uid, what, None, write)
    return found


def lent_to(pairings: Iterable[MemoryPairing]) -> Mapping[GuestKey, Collection[GuestKey]]:
    """The borrowers that pairings name, by their lender."""
    found: dict[GuestKey, set[GuestKey]] = defaultdict(set)
    for one in pairings:
        if not one.is_taken_down:
            found[one.lender].add(one.borrower)
    return found


def unpaired(guest: MemoryGuest, borrowers: Collection[GuestKey]) -> Unpaired | None:
    """What a guest holds for others than these, as far as its last report tells."""
    peers = [one for one in guest.status.peers if one.role is Role.BORROWER and not _is_among(one, borrowers)]
    held = total(one.held_bytes for one in peers)
    if not peers and not borrowers and guest.status.memory:
        held = guest.status.memory.lent_bytes
    return Unpaired(held, tuple(sorted(map(_whose, peers)))) if held else None


def conditions(guest: MemoryGuest, left: Unpaired | None) -> tuple[Condition, ...]:
    """The conditions of a guest with what is to be said of that; what was said in a dead agent's place goes with it."""
    present = guest.status.conditions
    if left:
        return merge(present, left.condition(guest))
    return without(present, ConditionType.LENDING_PAIRED) if _is_said(guest) else present


def _is_said(guest: MemoryGuest) -> bool:
    """Whether something is said on a guest in a dead agent's place."""
    said = find(guest.status.conditions, ConditionType.LENDING_PAIRED)
    return said is not None and said.reason == Reason.AGENT_NOT_RESPONDING


def _is_among(peer: GuestPeer, borrowers: Collection[GuestKey]) -> bool:
    return any(one.namespace == peer.namespace and peer.guest in (None, one.name) for one in borrowers)


def _whose(peer: GuestPeer) -> str:
    return f"{peer.namespace}/{peer.guest}" if peer.guest else f"guests of namespace {peer.namespace}"


async def _write(cluster: Cluster, state: State, guest: MemoryGuest, fresh: tuple[Condition, ...]) -> None:
    """Writes the conditions, unless somebody has reported the guest meanwhile."""
    patch = {
        "metadata": {"resourceVersion": guest.metadata.resource_version},
        "status": {"conditions": [one.to_dict() for one in fresh]},
    }
    try:
        answer = await cluster.patch(state.guests.plural, guest.namespace, guest.name, patch, status=True)
    except Refused as refusal:
        if not (refusal.is_conflict or refusal.is_gone):
            raise
    else:
        state.guests.put(answer)
