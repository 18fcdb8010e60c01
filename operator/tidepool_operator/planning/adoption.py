"""Guests of agents that are dead, and where a guest is believed to be. Pure.

Only the agent of its node reports a guest, and when the guest has left, lets it go for another agent to take. A dead
agent does not, and where there is no agent nobody does: so the operator lets its guests go. That moves nobody: an agent
takes the guests that are on its node, and one that is back takes those that still are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidepool_api import names, now
from tidepool_api.base import rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidepool_api import MemoryGuest, MemoryPairing, Ref
    from tidepool_operator.planning.build import Body


def abandoned(guests: Iterable[MemoryGuest], silent: Collection[str]) -> list[MemoryGuest]:
    """The guests whose agent is dead and has not let them go; a node is nobody else's to report."""
    left = [one for one in guests if one.spec.node_name in silent and not (one.terminating or one.is_node)]
    return [one for one in left if names.LEAVING_ANNOTATION not in one.metadata.annotations]


def leaving(guest: MemoryGuest) -> Body:
    """A guest as it is, with the mark that lets other agents take it; they apply it without, which removes it."""
    meta = guest.metadata
    return {
        "apiVersion": names.API_VERSION,
        "kind": guest.kind,
        "metadata": {
            "name": guest.name,
            "namespace": guest.namespace,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "labels": meta.labels,
            "ownerReferences": [one.to_dict() for one in meta.owner_references],
            "annotations": {names.LEAVING_ANNOTATION: rfc3339(now())},
        },
        "spec": guest.spec.to_dict(),
    }


def strays(
    pairings: Iterable[MemoryPairing], guests: Mapping[Ref, MemoryGuest], nodes: Collection[str]
) -> dict[Ref, MemoryGuest]:
    """The guests that say to be on a node without an agent, as none can have said: where their pairings have them."""
    found = {}
    for one in pairings:
        for name, end in ((one.lender_ref, one.spec.lender), (one.borrower_ref, one.spec.borrower)):
            guest = guests.get(name)
            if guest is not None and guest.spec.node_name != end.node_name and guest.spec.node_name not in nodes:
                spec = guest.spec.model_copy(update={"node_name": end.node_name})
                found[name] = guest.model_copy(update={"spec": spec})
    return found
