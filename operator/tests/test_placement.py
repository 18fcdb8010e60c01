"""Where lenders may be, and who comes first when memory is short (issue 28: what an administrator misses, item 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from world import BORROWER, LENDER, MIB, carried_out, guest, mib, pairing, plan, pool, reasons

from tidepool_operator.planning.inventory import Node

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool
    from tidepool_operator.planning.planner import Plan

ZONES = {"n1": Node(zone="a"), "n2": Node(zone="a"), "n3": Node(zone="b"), "n4": Node(), "n5": Node()}


def lender(name: str, node: str, available: int = 2048) -> MemoryGuest:
    return guest(name, LENDER, node=node, available=available)


def borrower(name: str, node: str = "n1", app: str = "") -> MemoryGuest:
    return guest(name, BORROWER | ({"app": app} if app else {}), node=node)


def planned(one: MemoryPool, guests: list[MemoryGuest], pairings: list[MemoryPairing] | None = None) -> Plan:
    return plan(one, guests, pairings or [], nodes=ZONES)


def near(require: str, **more: object) -> MemoryPool:
    return pool(placement={"require": require}, **more)  # type: ignore[arg-type]


# --- near enough ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("require", "node", "lender_of_b"),
    [
        ("SameNode", "n1", "on-n1"),
        ("SameNode", "n2", None),
        ("SameZone", "n2", "on-n1"),
        ("SameZone", "n3", "on-n3"),
        ("SameZone", "n4", "on-n4"),  # without a zone: its own node is all that is known to be near
        ("SameZone", "n5", None),
    ],
)
def test_lenders_are_where_they_are_required(require: str, node: str, lender_of_b: str | None) -> None:
    lenders = [lender(f"on-{name}", name) for name in ("n1", "n3", "n4")]
    made = planned(near(require), [*lenders, borrower("b", node)])
    assert [one.lender for one in made.assignments] == ([lender_of_b] if lender_of_b else [])
    assert reasons(made) == ([] if lender_of_b else ["NobodyWhereRequired"])


def test_who_is_not_served_because_of_it_is_named_with_what_to_do() -> None:
    """Where nobody has memory left anywhere, it is not the placement's fault."""
    made = planned(near("SameNode"), [lender("far", "n2"), borrower("a"), borrower("b")])
    (problem,) = made.problems
    assert problem.guests == ("a", "b")
    assert problem.reason.condition == "PlacementSatisfied"
    assert problem.message == (
        "not enough for guests a, b: spec.placement (require: SameNode) keeps them from lenders that have "
        "about 1Gi in one and 1Gi in all left; label guests as lenders where they are allowed, or ask for less there"
    )
    assert reasons(planned(near("SameNode"), [lender("far", "n2", 700), borrower("a")])) == ["InsufficientCapacity"]


def test_what_is_too_far_away_is_left_in_steps_when_the_pool_is_edited() -> None:
    """Nobody waits for the new pairing to be placed, and nobody loses the old one before its turn."""
    guests = [lender("l1", "n1"), lender("l2", "n2"), borrower("a"), borrower("b")]
    before = [pairing(name, "l2", 512 * MIB, connected=True) for name in "ab"]
    made = planned(near("SameNode", max_unavailable=1), guests, before)
    assert mib(made) == {("a", "l1"): 512, ("b", "l2"): 512}
    assert made.deferred == ("b",)
    larger = planned(
        near("SameNode", size=768, max_lend=4096, max_unavailable=1), [*guests, lender("l3", "n1")], before
    )
    assert mib(larger) == {("a", "l1"): 768, ("b", "l2"): 512, ("b", "l3"): 256}


def test_planned_sizes_share_what_is_near() -> None:
    """The memory of another node is nothing to share out."""
    one = near("SameNode", between=(64, 2048))
    made = planned(
        one, [lender("l1", "n1", 640), lender("l2", "n2"), borrower("a"), borrower("b"), borrower("c", "n2")]
    )
    assert mib(made) == {("a", "l1"): 192, ("b", "l1"): 192, ("c", "l2"): 1024}
    assert made.problems == ()


# --- far enough from each other ---------------------------------------------------------------------------------------


def test_lenders_of_a_borrower_are_apart() -> None:
    """The best of each node, or of each zone, though two on one node are freer than any other."""
    lenders = [lender("l1a", "n1", 1400), lender("l1b", "n1", 1300), lender("l2", "n2", 1200), lender("l3", "n3", 1100)]
    guests = [*lenders, borrower("b")]
    for apart, expected in ((None, ["l1a", "l1b"]), ("Node", ["l1a", "l2"]), ("Zone", ["l1a", "l3"])):
        placement = {"apart": apart} if apart else {}
        made = planned(pool(spread=2, placement=placement), guests)
        assert [one.lender for one in made.assignments] == expected
        assert planned(pool(spread=2, placement=placement), guests, carried_out(made)).assignments == made.assignments
    freer = [lender("l1", "n1", 1100), lender("l2", "n2", 1400), lender("l3", "n3", 1000), borrower("b")]
    made = planned(pool(spread=2, placement={"apart": "Zone"}), freer)
    assert [one.lender for one in made.assignments] == ["l1", "l3"]
    crowd = [*(lender(f"l{at}", "n3", 1500) for at in range(9)), lender("m", "n4", 1000), borrower("b")]
    made = planned(pool(spread=2, placement={"apart": "Node"}), crowd)
    assert [one.lender for one in made.assignments] == ["l0", "m"]
    made = planned(pool(spread=3, placement={"apart": "Zone"}), guests)
    assert (mib(made), reasons(made)) == ({}, ["NobodyWhereRequired"])


def test_lenders_that_come_together_part_again() -> None:
    """One of the two has moved to the other's node: the pairing goes, and the memory is had elsewhere."""
    guests = [lender("l1", "n1"), lender("l2", "n1"), lender("l3", "n3"), borrower("b")]
    before = [pairing("b", name, 256 * MIB, connected=True) for name in ("l1", "l2")]
    made = planned(pool(spread=2, placement={"apart": "Node"}), guests, before)
    assert mib(made) == {("b", "l1"): 256, ("b", "l3"): 256}


# --- who comes first --------------------------------------------------------------------------------------------------


def test_who_comes_first_is_served_first() -> None:
    guests = [lender("l", "n1"), borrower("a"), borrower("b", app="batch"), borrower("c", app="db"), borrower("d")]
    one = pool(priorities={"db": 10, "batch": -1})
    made = planned(one, guests)
    assert mib(made) == {("a", "l"): 512, ("c", "l"): 512}
    assert made.unserved == ("b", "d")
    assert mib(planned(one, [*guests[:3], guests[4]])) == {("a", "l"): 512, ("d", "l"): 512}


def test_who_comes_first_keeps_what_it_has_when_a_lender_takes_some_back() -> None:
    """And nobody is given up for somebody who comes later."""
    guests = [lender("l", "n1"), borrower("a"), borrower("c", app="db")]
    before = [pairing(name, "l", 512 * MIB, connected=True) for name in "ac"]
    assert mib(planned(pool(max_lend=768, priorities={"db": 10}), guests, before)) == {("a", "l"): 256, ("c", "l"): 512}
    assert mib(planned(pool(max_lend=768), guests, before)) == {("a", "l"): 512, ("c", "l"): 256}
    assert mib(planned(pool(max_lend=512, priorities={"db": 10}), guests, before[:1])) == {("a", "l"): 512}


def test_with_planned_sizes_the_minimum_goes_to_those_that_come_first() -> None:
    """Whoever has it already gives it up."""
    guests = [lender("l", "n1", 400), borrower("a"), borrower("c", app="db")]
    one = pool(between=(128, 2048), priorities={"db": 10}, weights={"": 100})
    assert mib(planned(one, guests)) == {("c", "l"): 144}
    made = planned(one, guests, [pairing("a", "l", 144 * MIB, connected=True)])
    assert mib(made) == {}
    assert "c" in made.waiting


def test_a_lender_that_is_being_left_offers_nothing_more() -> None:
    """Relabelled, and the pool's size is raised in the same edit: whoever is still there grows elsewhere."""
    guests = [guest("l0", {}), lender("l1", "n1", 4096), borrower("a"), borrower("b")]
    before = [pairing(name, "l0", 512 * MIB, connected=True) for name in "ab"]
    made = planned(pool(size=768, max_lend=4096, max_unavailable=1), guests, before)
    assert mib(made)["b", "l0"] == 512
