"""The planner, case by case: what a user would expect, and what is said when it cannot be had."""

from __future__ import annotations

from datetime import timedelta

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

from tidepool_api import MemoryGuest, MemoryPairing, PoolStatus, Ref
from tidepool_operator.planning import planner
from tidepool_operator.planning.inventory import Inventory, Node

LENDS, BORROWS = LENDER, BORROWER


def test_one_lender_for_one_borrower() -> None:
    made = plan(pool(), [guest("l", LENDS), guest("b", BORROWS)], [])
    assert mib(made) == {("b", "l"): 512}
    assert (made.lenders, made.borrowers, made.problems) == (("l",), ("b",), ())


def test_what_the_lender_uses_itself_is_not_lent() -> None:
    """2 GiB, of which it uses 1.2 GiB: after the reserve there are not 512 MiB left."""
    made = plan(pool(), [guest("l", LENDS, available=700), guest("b", BORROWS)], [])
    assert mib(made) == {}
    assert reasons(made) == ["InsufficientCapacity"]
    assert "each should get 512Mi" in made.problems[0].message
    assert "about 384Mi in one" in made.problems[0].message


def test_a_busy_lender_keeps_its_pairing() -> None:
    """Its module gives the pages back by itself; the pairing is there when the lender has memory again."""
    made = plan(pool(), [guest("l", LENDS, available=100), guest("b", BORROWS)], [pairing("b", "l", 512 * MIB)])
    assert mib(made) == {("b", "l"): 512}
    assert made.problems == ()


def test_several_lenders_only_if_no_single_one_has_it() -> None:
    small = [guest(f"l{number}", LENDS, available=256 + 200) for number in range(3)]
    made = plan(pool(), [*small, guest("b", BORROWS)], [])
    assert mib(made) == {("b", "l0"): 200, ("b", "l1"): 200, ("b", "l2"): 112}
    made = plan(pool(), [*small, guest("large", LENDS), guest("b", BORROWS)], [])
    assert mib(made) == {("b", "large"): 512}


def test_no_sliver_is_left_over() -> None:
    """What remains for the last lender is at least what a pairing needs."""
    lenders = [guest("l0", LENDS, available=256 + 510), guest("l1", LENDS, available=256 + 300)]
    made = plan(pool(), [*lenders, guest("b", BORROWS)], [])
    assert mib(made) == {("b", "l0"): 496, ("b", "l1"): 16}


def test_at_most_eight_lenders() -> None:
    lenders = [guest(f"l{number}", LENDS, available=256 + 60) for number in range(20)]
    assert reasons(plan(pool(), [*lenders, guest("b", BORROWS)], [])) == ["InsufficientCapacity"]
    assert len(plan(pool(size=480), [*lenders, guest("b", BORROWS)], []).assignments) == 8


def test_the_same_node_first_then_the_freest() -> None:
    lenders = [
        guest("far-free", LENDS, node="n2"),
        guest("near", LENDS, node="n1", available=1000),
        guest("near-free", LENDS, node="n1"),
    ]
    assert mib(plan(pool(), [*lenders, guest("b", BORROWS, node="n1")], [])) == {("b", "near-free"): 512}
    assert mib(plan(pool(), [*lenders, guest("b", BORROWS, node="n3")], [])) == {("b", "far-free"): 512}


def test_a_growing_size_stays_with_its_lender() -> None:
    guests = [guest("l", LENDS), guest("other", LENDS), guest("b", BORROWS)]
    assert mib(plan(pool(size=1024), guests, [pairing("b", "l", 512 * MIB)])) == {("b", "l"): 1024}


def test_a_shrinking_size_and_cap_cut_the_pairing_down() -> None:
    guests = [guest("l", LENDS), guest("b", BORROWS)]
    assert mib(plan(pool(size=256), guests, [pairing("b", "l", 512 * MIB)])) == {("b", "l"): 256}
    made = plan(pool(size=512, max_lend=300), guests, [pairing("b", "l", 512 * MIB)])
    assert mib(made) == {("b", "l"): 300}
    assert reasons(made) == ["InsufficientCapacity"]


def test_a_guest_selected_twice_is_left_out_and_named() -> None:
    both = guest("both", LENDS | BORROWS)
    made = plan(pool(), [both, guest("l", LENDS), guest("b", BORROWS)], [])
    assert mib(made) == {("b", "l"): 512}
    assert reasons(made) == ["RoleConflict"]
    assert made.problems[0].guests == ("both",)
    assert "both" in made.problems[0].message
    assert "both" not in made.claims


def test_a_guest_of_an_older_pool_is_left_out_and_named() -> None:
    guests = [guest("l", LENDS), guest("b", BORROWS), guest("taken", LENDS)]
    made = plan(pool(), guests, [], claimed={"taken": "older"})
    assert made.lenders == ("l",)
    assert reasons(made) == ["GuestClaimed"]
    assert "older" in made.problems[0].message


def test_nobody_to_lend_or_borrow() -> None:
    nobody = plan(pool(), [], [])
    assert reasons(nobody) == ["NoLenders", "NoBorrowers"]
    assert "start a virtual machine on a node where the Tidepool agent runs" in nobody.problems[0].message
    strangers = plan(pool(), [guest("x", {"app": "db"})], [])
    assert "matches spec.lenders.selector (lends=yes); label a virtual machine so" in strangers.problems[0].message


def test_a_lender_that_was_there_lately_is_named() -> None:
    """Issue 28, fault 9: who is told to label a virtual machine looks at the labels and finds them right."""
    known = Inventory([guest("b", BORROWS)], gone={"l": LENDS, "other": {"app": "db"}})
    (problem,) = planner.plan(pool(), known, at=LONG_AGO).problems
    assert problem.message.endswith(
        "guest l did, until the virtual machine failed, was stopped or was deleted: start it again"
    )


def killed(name: str, labels: dict[str, str]) -> MemoryGuest:
    """A guest whose virtual machine was killed, as its agent says."""
    return guest(name, labels, ready=False, reason="Ended", message=f"VMI {name} is Failed")


def test_a_lender_that_was_killed_is_said_to_have_failed() -> None:
    """Issue 28, fault 9: in its provider's word, for the agent says it on the MemoryGuest, which is still there."""
    made = plan(pool(), [killed("lender", LENDS), killed("x", {"app": "db"}), guest("b", BORROWS)], [])
    assert reasons(made) == ["NoLenders", "GuestNotReady"]
    assert made.problems[0].message.endswith("(lends=yes); VMI lender is Failed: start it again")
    assert made.problems[1].message == "not ready: lender (VMI lender is Failed)"
    assert not made.problems[1].leaves_out(made.unserved)


def test_it_is_said_also_beside_other_lenders_and_its_pairing_goes_to_one_of_them() -> None:
    present = [pairing("b", "lender", 512 * MIB)]
    enough = plan(pool(), [killed("lender", LENDS), guest("other", LENDS), guest("b", BORROWS)], present)
    assert mib(enough) == {("b", "other"): 512}
    assert [one.message for one in enough.problems] == ["not ready: lender (VMI lender is Failed)"]
    short = plan(pool(), [killed("lender", LENDS), guest("other", LENDS, total=300), guest("b", BORROWS)], present)
    (said,) = (one.message for one in short.problems if one.reason == "InsufficientCapacity")
    assert "; VMI lender is Failed; " in said


def test_a_borrower_that_has_ended_and_one_of_an_automatic_pool() -> None:
    made = plan(pool(), [guest("l", LENDS), killed("b", BORROWS)], [])
    assert "VMI b is Failed: start it again" in made.problems[0].message
    assert reasons(made) == ["NoBorrowers", "GuestNotReady"]
    (nobody, _) = plan(auto_pool(), [killed("lender", TEAM)], []).problems
    assert nobody.message.endswith("VMI lender is Failed: start it again")
    short = guest("b", TEAM, available=300, refaults=200, io_wait=30)
    inventory = Inventory([killed("z", TEAM), short], [])
    (nobody, _) = planner.plan(auto_pool(), inventory, at=LONG_AGO, ended={Ref("far/a"): killed("a", TEAM)}).problems
    assert "; VMI a is Failed (namespace ns); VMI z is Failed" in nobody.message, "not in the order of their names"


def test_a_lender_under_pressure_is_named_and_until_when() -> None:
    """Issue 28, fault 9: another size would not help, and nobody is told to lower it; where it might, it is said."""
    guests = [guest("l", LENDS, stalled=40), guest("b", BORROWS)]
    made = plan(pool(), guests, [pairing("b", "l", 512 * MIB)])
    assert (made.assignments, made.waiting) == ((), ("b",))
    remembering = pool().model_copy(update={"status": PoolStatus(roles=made.roles)})
    (problem,) = plan(remembering, guests, []).problems
    assert "none of them takes more now" in problem.message
    assert "guest l is under memory pressure itself and does not lend until 2026-01-01 00:10:00 UTC" in problem.message
    assert problem.message.endswith("wait for that, or label more guests as lenders")
    (later,) = plan(remembering, guests, [], at=LONG_AGO + timedelta(hours=1)).problems
    assert "does not lend until that ends; wait" in later.message
    (resting,) = plan(pool(), [guest("l", LENDS, stalled=10), guest("b", BORROWS)], []).problems
    assert "guest l under memory pressure: nobody new is given any of it until that ends" in resting.message
    small = guest("k", LENDS, available=300)
    (both,) = plan(remembering, [*guests, small], []).problems
    assert "does not lend until" in both.message
    assert "lower spec.borrowers.size" in both.message


def test_guests_that_are_not_ready_are_named_with_their_reasons() -> None:
    guests = [
        guest("l", LENDS),
        guest("deaf", LENDS, ready=False),
        guest("b", BORROWS),
        guest("c", BORROWS, ready=False),
    ]
    made = plan(pool(), guests, [])
    assert mib(made) == {("b", "l"): 512}
    assert reasons(made) == ["GuestNotReady"]
    assert "c (NotConnected: install qemu-guest-agent); deaf (NotConnected" in made.problems[0].message


def test_a_silent_agent_gets_nothing_new_and_loses_nothing() -> None:
    guests = [guest("l", LENDS, node="dead"), guest("b", BORROWS)]
    assert reasons(plan(pool(), guests, [], silent={"dead"})) == ["GuestNotReady", "InsufficientCapacity"]
    made = plan(pool(), guests, [pairing("b", "l", 512 * MIB)], silent={"dead"})
    assert mib(made) == {("b", "l"): 512}


def test_a_guest_without_report_keeps_its_pairing() -> None:
    """It reboots: memory and addresses are unknown for a while."""
    rebooting = guest("l", LENDS, ready=False)
    rebooting = rebooting.model_copy(
        update={"status": rebooting.status.model_copy(update={"memory": None, "addresses": ()})}
    )
    made = plan(pool(), [rebooting, guest("b", BORROWS)], [pairing("b", "l", 512 * MIB)])
    assert mib(made) == {("b", "l"): 512}


def test_a_lender_that_is_gone_is_replaced() -> None:
    made = plan(pool(), [guest("new", LENDS), guest("b", BORROWS)], [pairing("b", "gone", 512 * MIB)])
    assert mib(made) == {("b", "new"): 512}


@pytest.mark.parametrize(
    ("available", "spread", "borrowers", "maximum"),
    [((600, 600, 400), 3, 2, 256), ((2048, 400, 400), 2, 4, 512), ((1500, 600, 400), 2, 4, 256)],
)
def test_sizes_that_are_spread_come_to_rest(
    available: tuple[int, ...], spread: int, borrowers: int, maximum: int
) -> None:
    """What one lender may give goes by a borrower's share, not by what it has got so far of that."""
    one = pool(between=(64, maximum), spread=spread, max_unavailable="100%")
    guests = [guest(f"l{at}", LENDER, available=free) for at, free in enumerate(available)]
    guests += [guest(f"b{at}", BORROWER) for at in range(borrowers)]
    pairings: list[MemoryPairing] = []
    for _ in range(4):
        pairings = carried_out(plan(one, guests, pairings))
    assert carried_out(plan(one, guests, pairings)) == pairings


def test_a_lender_that_is_excluded_gives_back() -> None:
    """Whoever keeps Tidepool out of a guest wants it out, and not only nothing new."""
    one = pool()
    guests = [guest("b", BORROWER), guest("l", LENDER)]
    present = carried_out(plan(one, guests, []))
    assert mib(plan(one, guests, present)) == {("b", "l"): 512}
    guests[1] = guest("l", LENDER, ready=False, reason="Excluded")
    (problem,) = plan(pool(), guests, ()).problems
    assert "guest l would, and Tidepool is kept out" in problem.message
    assert mib(plan(one, guests, present)) == {}


def test_a_guest_that_migrates_keeps_what_it_has_and_gets_and_gives_nothing_new() -> None:
    """Issue 28, live migration: a lender's copy comes to an end, and who waits for it is no shortage."""
    moving, elsewhere = guest("l", LENDS, migrating=True), guest("c", BORROWS)
    had = [pairing("b", "l", 256 * MIB)]
    made = plan(pool(size=512), [moving, guest("b", BORROWS), elsewhere], had)
    assert mib(made) == {("b", "l"): 256}
    assert (made.expecting, reasons(made)) == (("b", "c"), ["GuestMigrates"])
    assert made.problems[0].message.startswith("live migration of guest l: until that ends")
    assert mib(plan(pool(size=256), [moving, guest("b", BORROWS)], had)) == {("b", "l"): 256}
    assert reasons(plan(pool(size=256), [moving, guest("b", BORROWS)], had)) == []
    arrived = [guest("l", LENDS), guest("b", BORROWS), elsewhere]
    assert mib(plan(pool(size=512), arrived, had)) == {("b", "l"): 512, ("c", "l"): 512}


def test_a_borrower_that_migrates_waits_for_its_memory_and_others_are_served() -> None:
    guests = [guest("l", LENDS), guest("b", BORROWS, migrating=True), guest("c", BORROWS)]
    made = plan(pool(size=512), guests, [])
    assert (mib(made), made.expecting, reasons(made)) == ({("c", "l"): 512}, ("b",), ["GuestMigrates"])
    short = plan(pool(size=512), [*guests[1:], guest("l", LENDS, total=512)], [])
    assert (short.expecting, reasons(short)) == (("b",), ["GuestMigrates", "InsufficientCapacity"])


def test_a_cordoned_node_keeps_what_it_has_and_gets_nothing_new() -> None:
    """Its guests are about to leave: nothing is moved before they do, and nothing new is begun there."""
    nodes = {"n1": Node(cordoned=True), "n2": Node(), "n3": Node()}
    guests = [guest("l", LENDS), guest("b", BORROWS), guest("new", BORROWS, node="n2")]
    made = plan(pool(), guests, [pairing("b", "l", 512 * MIB)], nodes=nodes)
    assert mib(made) == {("b", "l"): 512}
    assert reasons(made) == ["NodeCordoned", "InsufficientCapacity"]
    settled = plan(pool(), guests[:2], [pairing("b", "l", 512 * MIB)], nodes=nodes)
    assert (mib(settled), settled.problems) == ({("b", "l"): 512}, ())
    assert mib(plan(pool(), [*guests, guest("z", LENDS, node="n3")], [], nodes=nodes)) == {("new", "z"): 512}


def test_who_is_no_virtual_machine_of_the_cluster_takes_no_part() -> None:
    """A MemoryGuest on a node that is none, or without the instance that it says it is; it keeps what it has.

    Nor has one whose instance is of a version that does not exist, for which nothing deletes it.
    """
    nodes = {"n1": Node()}
    lender = guest("l", LENDS).to_dict()
    (owner,) = lender["metadata"]["ownerReferences"]
    made_up = [
        MemoryGuest.parse(lender | {"metadata": lender["metadata"] | {"ownerReferences": [owner | wrong]}})
        for wrong in ({"name": "other"}, {"uid": "other"}, {"kind": "Pod"}, {"apiVersion": "kubevirt.io/v0"})
    ]
    unknown = [(guest("l", LENDS, node="n9"), "NodeUnknown"), *((one, "InstanceUnknown") for one in made_up)]
    for lender, why in unknown:
        made = plan(pool(), [lender, guest("b", BORROWS)], [], nodes=nodes)
        assert mib(made) == {}
        assert f"not ready: {lender.name} ({why}: " in made.problems[0].message
        kept = plan(pool(), [lender, guest("b", BORROWS)], [pairing("b", lender.name, 512 * MIB)], nodes=nodes)
        assert mib(kept) == {("b", lender.name): 512}


def test_a_renamed_guest_is_another_one() -> None:
    """Same labels, another name: the old pairing goes, the borrower is served by what is there now."""
    made = plan(pool(), [guest("renamed", LENDS), guest("b", BORROWS)], [pairing("b", "l", 512 * MIB, connected=True)])
    assert mib(made) == {("b", "renamed"): 512}


def test_guests_that_exchange_their_labels_do_not_do_both() -> None:
    """Lender and borrower swapped: first the old pairing goes, then the new one is made."""
    swapped = [guest("b", LENDS), guest("l", BORROWS)]
    made = plan(pool(), swapped, [pairing("b", "l", 512 * MIB, connected=True)])
    assert (mib(made), made.waiting, made.problems) == ({}, ("l",), ())
    assert mib(plan(pool(), swapped, [])) == {("l", "b"): 512}


def test_memory_that_is_being_freed_is_waited_for() -> None:
    """A full lender's former borrower is on its way out: the new one waits and is no problem."""
    guests = [guest("l", LENDS), guest("new", BORROWS)]
    leaving = pairing("old", "l", 1024 * MIB, terminating=True)
    made = plan(pool(), guests, [leaving])
    assert (mib(made), made.waiting, made.problems) == ({}, ("new",), ())
    assert mib(plan(pool(), guests, [])) == {("new", "l"): 512}


def test_a_pairing_deleted_by_hand_is_made_again_once_it_is_gone() -> None:
    guests = [guest("l", LENDS), guest("b", BORROWS)]
    made = plan(pool(), guests, [pairing("b", "l", 512 * MIB, terminating=True)])
    assert (mib(made), made.waiting) == ({}, ("b",))


def test_pairings_of_another_pool_take_room() -> None:
    foreign = pairing("x", "l", 768 * MIB, of="other")
    made = plan(pool(), [guest("l", LENDS), guest("b", BORROWS)], [foreign])
    assert mib(made) == {}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_borrowers_spread_over_lenders(count: int) -> None:
    guests = [guest(f"l{number}", LENDS) for number in range(count)]
    guests += [guest(f"b{number}", BORROWS) for number in range(count)]
    made = plan(pool(max_lend=2048, size=400), guests, [])
    assert len({one.lender for one in made.assignments}) == count
    assert plan(pool(max_lend=2048, size=400), guests, carried_out(made)) == made
