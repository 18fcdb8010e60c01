"""Nobody's memory is promised twice, and what a node needs comes back to it (issue 28, point 2: Overcommit)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from world import (
    BORROWER,
    LENDER,
    LONG_AGO,
    MIB,
    TEAM,
    auto_pool,
    carried_out,
    guest,
    mib,
    pairing,
    plan,
    pool,
    reasons,
)

from tidepool_api import ConditionType, MemoryPairing, PoolPhase, PoolStatus, Status, find
from tidepool_operator.cluster.state import Nodes
from tidepool_operator.planning import build
from tidepool_operator.planning.inventory import Node
from tidepool_operator.planning.placement import Assignment
from tidepool_operator.status.report import pool_status

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPool
    from tidepool_operator.planning.planner import Plan

HALF = {"total": 2048, "overcommitted": 1024}  # 768 MiB of it may be lent: its pod requests 1 GiB, and it keeps 256 MiB
B = guest("b", BORROWER)
PRESSED = {"n1": Node(pressed=True), "n2": Node()}
WELL = {"n1": Node(), "n2": Node()}


def after(made: Plan, of: MemoryPool) -> MemoryPool:
    """The pool that remembers what a plan has given out for roles."""
    return of.model_copy(update={"status": PoolStatus(roles=made.roles)})


# --- overcommit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "size", "lent"),
    [("Exclude", 768, 768), ("Exclude", 769, 0), ("Lend", 1024, 1024)],
)
def test_a_lender_lends_as_if_it_had_what_its_pod_requests(choice: str, size: int, lent: int) -> None:
    made = plan(pool(size=size, overcommitted=choice), [guest("l", LENDER, **HALF), B], [])
    assert sum(mib(made).values()) == lent


def test_so_does_one_that_an_auto_pool_chooses() -> None:
    """With 1400 MiB available and 1024 promised to nobody it has next to nothing to spare."""
    short = guest("b", TEAM, available=300, refaults=200, io_wait=30)
    for choice, lenders in (("Exclude", ()), ("Lend", ("l",))):
        guests = [guest("l", TEAM, available=1400, **HALF), short]
        assert plan(auto_pool(overcommitted=choice), guests, []).lenders == lenders


def test_its_module_is_told_to_keep_the_rest() -> None:
    """So that no page is taken between two plans, either."""
    for choice, reserve in (("Exclude", "1280Mi"), ("Lend", "256Mi")):
        one = Assignment("b", "l", 512 * MIB)
        spec = build.pairing_spec(pool(overcommitted=choice), one, guest("l", LENDER, **HALF), B, 7470)
        assert spec["reserve"] == reserve


@pytest.mark.parametrize(("available", "kept"), [(1800, 512), (1536, 512), (1400, 376), (1030, 0)])
def test_what_is_lent_gives_way_when_its_own_use_grows(available: int, kept: int) -> None:
    """Its kernel would do so only where its memory ends, and its request ends before; nobody waits for a turn."""
    guests = [guest("l", LENDER, available=available, **HALF), B]
    made = plan(pool(max_unavailable=1), guests, [pairing("b", "l", 512 * MIB, connected=True)])
    assert sum(mib(made).values()) == kept


def test_an_opt_in_that_is_taken_back_takes_the_memory_back() -> None:
    guests = [guest("l", LENDER, **HALF), B]
    lent = carried_out(plan(pool(size=1024, overcommitted="Lend"), guests, []), connected=True)
    assert mib(plan(pool(size=1024), guests, lent)) == {("b", "l"): 768}


def test_what_bounds_the_lending_is_said_and_is_no_trouble_while_nobody_lacks_anything() -> None:
    guests = [guest("l", LENDER, **HALF), guest("k", LENDER), B]
    made = plan(pool(), guests, [])
    (problem,) = made.problems
    assert problem.message == (
        "1Gi of guest l not lent, for no pod requests it; spec.lenders.overcommitted: Lend would lend it, too"
    )
    status = pool_status(pool(), made, [])
    backed = find(status.conditions, ConditionType.LENDERS_BACKED)
    assert backed is not None
    assert (backed.status, backed.reason) == (Status.FALSE, "Overcommitted")
    assert status.phase is not PoolPhase.DEGRADED
    assert plan(pool(overcommitted="Lend"), guests, []).problems == ()


def test_a_shortage_names_it() -> None:
    made = plan(pool(size=1024), [guest("l", LENDER, **HALF), B], [])
    assert reasons(made) == ["Overcommitted", "InsufficientCapacity"]
    assert "1Gi of guest l not lent, for no pod requests it" in made.problems[1].message


# --- a node under memory pressure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "pressed"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_node_says_so_itself(status: str, *, pressed: bool) -> None:
    nodes = Nodes()
    conditions = [{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": status}]
    assert nodes.put({"metadata": {"name": "n1"}, "status": {"conditions": conditions}})
    assert nodes.known == {"n1": Node(pressed=pressed)}
    assert nodes.put({"metadata": {"name": "n1"}}) == pressed, "only what matters is news"


def test_its_guests_lend_nothing_new_and_borrow_as_before() -> None:
    made = plan(pool(), [guest("l", LENDER), B], [], nodes=PRESSED)
    assert made.assignments == ()
    assert reasons(made) == ["NodeUnderMemoryPressure", "InsufficientCapacity"]
    assert "nothing new is lent by guest l, and what is goes step by step" in made.problems[0].message
    assert "n1 under memory pressure" in made.problems[0].message
    assert "guest l on nodes that are under memory pressure" in made.problems[1].message
    assert made.problems[1].message.endswith("wait for that, or label more guests as lenders")
    assert mib(plan(pool(), [guest("l", LENDER, node="n2"), B], [], nodes=PRESSED)) == {("b", "l"): 512}


def world(lends: dict[str, str], borrows: dict[str, str]) -> tuple[list[MemoryGuest], list[MemoryPairing]]:
    """A guest on n1 with its four borrowers, and one on n2 that could lend as much."""
    short = [guest(f"b{at}", borrows, node="n2", available=300, refaults=200, io_wait=30) for at in range(4)]
    guests = [guest("l", lends, **RICH), guest("other", lends, node="n2", **RICH), *short]
    return guests, [pairing(one.name, "l", 512 * MIB, connected=True) for one in short]


RICH = {"total": 8192, "available": 6000}
SELECTED = (pool(max_lend=4096), LENDER, BORROWER)
AUTO = (auto_pool(max_lend=4096), TEAM, TEAM)


@pytest.mark.parametrize(("of", "lends", "borrows"), [SELECTED, AUTO], ids=["Selected", "Auto"])
def test_what_its_guests_lend_goes_in_steps(of: MemoryPool, lends: dict[str, str], borrows: dict[str, str]) -> None:
    """One borrower of four at a time (maxUnavailable) changes over to a lender elsewhere, until the last has."""
    guests, pairings = world(lends, borrows)
    for left in (3, 2, 1, 0):
        made = plan(of, guests, pairings, nodes=PRESSED)
        lenders = [one.lender for one in made.assignments]
        assert (lenders.count("l"), lenders.count("other")) == (left, 4 - left)
        assert len(made.deferred) == left
        ends = [turn.guest for turn in made.turns if turn.role.reason == "NodeUnderMemoryPressure"]
        assert ends == (["l"] if left == 3 else []), "said once"
        assert "NodeUnderMemoryPressure" in reasons(made)
        of, pairings = after(made, of), carried_out(made, connected=True)


@pytest.mark.parametrize(("phase", "left"), [("Paused", 0), ("Failed", 0), ("Connecting", 3)])
def test_a_borrower_that_does_not_work_holds_no_node_under_pressure(phase: str, left: int) -> None:
    """One of four is stuck elsewhere: the node has its memory back. Only what takes a moment comes first."""
    guests, pairings = world(LENDER, BORROWER)
    elsewhere = pairing("b0", "other", 512 * MIB).to_dict()
    stuck = MemoryPairing.parse(elsewhere | {"status": {"phase": phase}})
    of = pool(max_lend=4096)
    for _ in range(4):
        made = plan(of, guests, [stuck, *(one for one in pairings if one.borrower_ref != "b0")], nodes=PRESSED)
        of, pairings = after(made, of), carried_out(made, connected=True)
    assert [one.lender for one in made.assignments].count("l") == left


def test_whose_turn_comes_late_is_not_told_again() -> None:
    """A lender that still has pairings when the cool-down is over goes on giving them back, without another Event."""
    guests, pairings = world(LENDER, BORROWER)
    slow = pool(max_lend=4096, max_unavailable=1)
    first = plan(slow, guests, pairings, nodes=PRESSED)
    later = LONG_AGO + timedelta(minutes=11)
    second = plan(after(first, slow), guests, carried_out(first, connected=True), nodes=PRESSED, at=later)
    assert (second.turns, second.roles) == ((), first.roles)


def test_planned_sizes_do_not_count_with_what_goes_back() -> None:
    """Of 1536 MiB that the other lender has each of four gets 384, also the one that is served first."""
    guests, pairings = world(LENDER, BORROWER)
    sized = pool(between=(64, 1024), max_lend=1536, max_unavailable=4)
    made = plan(sized, guests, pairings, nodes=PRESSED)
    assert mib(made) == {(f"b{at}", "other"): 384 for at in range(4)}


@pytest.mark.parametrize(("of", "lends", "borrows"), [SELECTED, AUTO], ids=["Selected", "Auto"])
def test_its_guests_lend_again_after_the_cool_down(
    of: MemoryPool, lends: dict[str, str], borrows: dict[str, str]
) -> None:
    """Or what is given back would be lent at once, and the node under pressure again."""
    (lender, _, *short), pairings = world(lends, borrows)
    of = after(plan(of, [lender, *short], pairings, nodes=PRESSED), of)
    soon = plan(of, [lender, *short], [], nodes=WELL, at=LONG_AGO + timedelta(minutes=9))
    assert (soon.assignments, soon.again) == ((), 60)
    still = plan(of, [lender, *short], [], nodes=PRESSED, at=LONG_AGO + timedelta(minutes=11))
    assert still.assignments == ()
    late = plan(of, [lender, *short], [], nodes=WELL, at=LONG_AGO + timedelta(minutes=11))
    assert [one.lender for one in late.assignments] == ["l"] * 4


@pytest.mark.parametrize(("of", "lends", "borrows"), [SELECTED, AUTO], ids=["Selected", "Auto"])
def test_one_that_needs_its_memory_itself_waits_for_no_turn(
    of: MemoryPool, lends: dict[str, str], borrows: dict[str, str]
) -> None:
    """Also when its node was under pressure before it was."""
    (_, other, *short), pairings = world(lends, borrows)
    needy = guest("l", lends, **RICH, stalled=50)
    made = plan(of, [needy, other, *short], pairings, nodes=PRESSED)
    assert {one.lender for one in made.assignments} == {"other"}
    before = plan(of, [guest("l", lends, **RICH), other, *short], pairings, nodes=PRESSED)
    later = plan(after(before, of), [needy, other, *short], carried_out(before, connected=True), nodes=PRESSED)
    assert {one.lender for one in later.assignments} == {"other"}
