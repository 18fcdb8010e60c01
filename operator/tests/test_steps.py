"""Edits that would take memory from many borrowers take it from a few at a time (issue 4, item 5: Safety)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from world import BORROWER, LENDER, MIB, carried_out, guest, mib, pairing, plan, pool, reasons

if TYPE_CHECKING:
    from tidepool_api import MemoryPairing
    from tidepool_operator.planner import Plan

LENDERS = [guest(f"l{at}", LENDER, total=8192) for at in range(2)]
BORROWERS = [guest(f"b{at}", BORROWER) for at in range(8)]
EVERYBODY = [*LENDERS, *BORROWERS]


def running(size: int = 512) -> list[MemoryPairing]:
    """Eight borrowers that all work with what they have."""
    return [pairing(one.name, f"l{at % 2}", size * MIB, connected=True) for at, one in enumerate(BORROWERS)]


def sizes(made: Plan) -> list[int]:
    return [size for _, size in sorted(mib(made).items())]


def test_two_of_eight_at_a_time_become_smaller() -> None:
    less = pool(size=256, max_lend=8192)
    first = plan(less, EVERYBODY, running())
    assert sizes(first) == [256] * 2 + [512] * 6
    assert first.deferred == ("b2", "b3", "b4", "b5", "b6", "b7")
    assert plan(less, EVERYBODY, carried_out(first)).deferred == ()  # nobody is connected: nobody has anything to lose
    second = plan(less, EVERYBODY, carried_out(first, connected=True))
    assert sizes(second) == [256] * 4 + [512] * 4
    slow = [*carried_out(first, connected=True)[2:], pairing("b0", "l0", 256 * MIB), pairing("b1", "l1", 256 * MIB)]
    assert sizes(plan(less, EVERYBODY, slow)) == [256] * 2 + [512] * 6


def test_numbers_and_percentages() -> None:
    for allowed, done in ((1, 1), (3, 3), ("1%", 1), ("50%", 4), ("100%", 8), (100, 8)):
        made = plan(pool(size=256, max_lend=8192, max_unavailable=allowed), EVERYBODY, running())
        assert sizes(made).count(256) == done


def test_relabelled_lenders_are_left_in_steps() -> None:
    """One lender is no longer selected: its borrowers change over by twos, and nobody has less meanwhile."""
    relabelled = [guest("l0", {}, total=8192), *EVERYBODY[1:]]
    made = plan(pool(max_lend=8192), relabelled, running())
    assert [one.borrower for one in made.assignments if one.lender == "l0"] == ["b4", "b6"]
    assert sizes(made) == [512] * 8
    assert "l0" in made.claims
    assert made.problems == ()


def test_the_lender_comes_first() -> None:
    """What it may lend shrinks, it is pressed, or it is gone: that is carried out for all at once."""
    assert sum(sizes(plan(pool(max_lend=1024), EVERYBODY, running()))) == 2048
    pressed = [guest("l0", LENDER, total=8192, stalled=50), *EVERYBODY[1:]]
    for guests in (pressed, EVERYBODY[1:]):
        made = plan(pool(max_lend=8192), guests, running())
        assert mib(made) == {(f"b{at}", "l1"): 512 for at in range(8)}


def test_a_guest_that_turns_does_not_wait() -> None:
    """A borrower that is labelled as a lender now is no borrower any more: nobody does both."""
    turned = [*EVERYBODY[:-1], guest("b7", LENDER)]
    made = plan(pool(size=256, max_lend=8192, max_unavailable=1), turned, running())
    assert "b7" not in {one.borrower for one in made.assignments}


def test_who_waits_for_what_is_not_given_up_yet_is_no_problem() -> None:
    less = pool(size=256, max_lend=2048, max_unavailable=1)
    made = plan(less, [*EVERYBODY, *(guest(f"n{at}", BORROWER) for at in range(8))], running())
    assert made.waiting
    assert reasons(made) == []


@settings(max_examples=150, deadline=None)
@given(
    st.integers(16, 512),
    st.integers(1, 8),
    st.sets(st.integers(0, 7), max_size=8),
    st.sets(st.integers(0, 1), max_size=1),
)
def test_churn_is_bounded(size: int, allowed: int, gone: set[int], relabelled: set[int]) -> None:
    """Whatever is edited: no more borrowers lose something than may, and it comes to an end."""
    guests = [guest(f"l{at}", {} if at in relabelled else LENDER, total=8192) for at in range(2)]
    guests += [guest(f"b{at}", {} if at in gone else BORROWER) for at in range(8)]
    edited, pairings = pool(size=size, max_lend=8192, max_unavailable=allowed), running()
    for _ in range(9):
        before = {(one.spec.borrower.guest, one.spec.lender.guest): one.spec.size_bytes // MIB for one in pairings}
        made = plan(edited, guests, pairings)
        after = mib(made)
        losing = {borrower for (borrower, lender), had in before.items() if after.get((borrower, lender), 0) < had}
        assert len(losing) <= allowed
        pairings = carried_out(made, connected=True)
    assert plan(edited, guests, pairings).deferred == ()
    assert mib(plan(edited, guests, pairings)) == after
