"""What leads from the pairings that are there to those that are wanted."""

from __future__ import annotations

from world import BORROWER, LENDER, MIB, guest, pairing

from tidepool_operator.planning import changes


def test_pairings_of_a_held_pool_follow_their_guests() -> None:
    """To another node and address; who is where he was, or cannot be found, costs no write."""
    present = [pairing("b", "l", 512 * MIB), pairing("c", "l", 512 * MIB, terminating=True)]
    guests = {name: guest(name, labels) for name, labels in (("l", LENDER), ("b", BORROWER), ("c", BORROWER))}
    assert [one.patch for one in changes.following(present, guests)] == [{}]
    moved = guests | {"l": guest("l", LENDER, node="n2", address="10.9.9.9")}
    (update,) = changes.following(present, moved)
    assert update.patch == {"lender": {"nodeName": "n2", "address": "10.9.9.9"}}
    (update,) = changes.following(present, guests | {"b": guest("b", {}, node="n3")})
    assert update.patch == {"borrower": {"nodeName": "n3"}}
    assert changes.following(present, {"b": guests["b"]}) == []
