"""What is taken from a guest by its balloon, and what is given back: pure decisions, tried with guests of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidepool_agent import balloon
from tidepool_agent.balloon import Figures, Note, NotMoving, SetByAnother, Verdict, Wish, decide, present, remembered
from tidepool_api.units import GIB, MIB

RESERVE = GIB
WISH = Wish(RESERVE)


def figures(at: float = 0, *, full: int = 4 * GIB, free: int = 3 * GIB, **more: float | None) -> Figures:
    """A guest that says its figures every two seconds."""
    base = Figures(at, at, full, full, free, full)
    return replace(base, **more)  # type: ignore[arg-type]


def watched(seconds: float = 60, **more: float | None) -> tuple[Figures, ...]:
    """A guest that has been looked at for a while."""
    return tuple(figures(at, **more) for at in range(0, int(seconds) + 1, 2))  # type: ignore[arg-type]


@dataclass
class Guest:
    """A guest with a balloon that does at once what it is told, and a host that counts what is behind it."""

    full: int
    used: int
    touched: int
    at: float = 0
    faults: int = 0
    swapped: int = 0

    def __post_init__(self) -> None:
        self.actual, self.told = self.full, self.full
        self.history: tuple[Figures, ...] = ()

    def look(self, wish: Wish = WISH, *, moves: bool = True) -> Verdict:
        """One look, and what is done."""
        self.at += balloon.EVERY_SECONDS
        free = max(0, self.actual - self.used)
        resident = min(self.touched, self.actual)
        seen = Figures(self.at, self.at, self.full, self.actual, free, resident, self.swapped, self.faults)
        self.history = remembered(self.history, seen)
        verdict = decide(self.history, self.told, wish)
        self.told = verdict.target
        if moves:
            self.actual = self.told
        return verdict

    def settle(self, seconds: float = 1200, wish: Wish = WISH) -> list[int]:
        """What it was told in all that time."""
        return [self.look(wish).target for _ in range(int(seconds / balloon.EVERY_SECONDS))]


def test_what_lies_idle_is_taken_step_by_step() -> None:
    """Nothing in the first minute, then a 32nd each ten seconds, down to a little more than the reserve."""
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB)
    told = guest.settle(58)
    assert set(told) == {8 * GIB}
    told = guest.settle()
    assert told == sorted(told, reverse=True)
    steps = {before - after for before, after in zip([8 * GIB, *told], told, strict=False)}
    assert max(steps) == 256 * MIB
    assert told[-1] == 3 * GIB + 128 * MIB
    for _ in range(20):
        assert guest.look().target == told[-1], "it does not rest"


def test_what_the_node_has_already_is_not_taken() -> None:
    """Pages that a guest has never touched, or has reported free: taking them would bring nothing."""
    guest = Guest(8 * GIB, used=2 * GIB, touched=2 * GIB)
    assert set(guest.settle()) == {8 * GIB}
    guest.touched = 6 * GIB  # its page cache has grown
    told = guest.settle()
    assert told[-1] == 3 * GIB + 128 * MIB
    assert guest.told < guest.touched


def test_a_guest_that_reports_free_pages_is_not_squeezed_for_a_little() -> None:
    """Its 4Gi of free pages are the node's; only when much of its page cache is idle, too, they are taken for that."""
    guest = Guest(8 * GIB, used=2 * GIB, touched=4 * GIB)
    assert set(guest.settle()) == {8 * GIB}, "768Mi for 5Gi taken"
    guest.touched = 5 * GIB
    assert guest.settle()[-1] == 3 * GIB + 128 * MIB


def test_a_guest_without_figures_of_its_host_is_taken_from_all_the_same() -> None:
    history = watched(resident=None)
    assert decide(history, 4 * GIB, WISH).target == 4 * GIB - 128 * MIB


def test_a_guest_that_allocates_gets_what_is_missing_at_once() -> None:
    """In the very look in which it is seen; and nothing is taken for a minute."""
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB)
    guest.settle()
    guest.used += 400 * MIB
    verdict = guest.look()
    assert verdict == Verdict(3 * GIB + 528 * MIB, "GivenBack")
    assert [guest.look().target for _ in range(25)] == [verdict.target] * 25
    guest.used -= 400 * MIB
    assert guest.settle()[-1] == 3 * GIB + 128 * MIB


@pytest.mark.parametrize("kind", ["short", "swapped", "faults", "booted"])
def test_a_guest_under_pressure_gets_everything_at_once(kind: str) -> None:
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB, faults=10**6)
    guest.settle()
    assert guest.told < 4 * GIB
    guest.used += 700 * MIB if kind == "short" else 0
    guest.swapped += 4096 if kind == "swapped" else 0
    guest.faults += 200 if kind == "faults" else 0
    guest.faults = 100 if kind == "booted" else guest.faults
    assert guest.look() == Verdict(8 * GIB, "GivenBack")
    assert set(guest.settle(56)) == {8 * GIB}


def test_what_no_pool_wants_any_more_is_given_back() -> None:
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB)
    guest.settle()
    assert guest.look(Wish()) == Verdict(8 * GIB, "GivingBack")


def test_a_guest_of_which_nothing_is_written_yet_is_given_to_and_not_taken_from() -> None:
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB)
    guest.settle(120)
    before = guest.told
    still = Wish(RESERVE, steady=True)
    assert set(guest.settle(300, still)) == {before}
    guest.swapped += 4096
    assert guest.look(still).target == 8 * GIB


def test_a_driver_that_says_nothing_any_more_gets_everything_back() -> None:
    """Its guest hangs or is paused, or the driver is gone: nobody knows what it needs."""
    history = watched(actual=3 * GIB, available=RESERVE)
    assert decide(history, 3 * GIB, WISH).target == 3 * GIB
    for at in range(62, 90, 2):
        history = remembered(history, figures(at, actual=3 * GIB, available=RESERVE, updated=60))
    assert decide(history, 3 * GIB, WISH) == Verdict(4 * GIB, "NoStatistics")
    silent = watched(available=None)
    assert decide(silent, 4 * GIB, WISH) == Verdict(4 * GIB, "NoStatistics")
    first = (figures(1000, actual=3 * GIB, updated=0),)
    assert decide(first, 3 * GIB, WISH).target == 3 * GIB, "an agent that has just begun to listen"


def test_a_balloon_that_is_still_moving_is_waited_for() -> None:
    guest = Guest(8 * GIB, used=2 * GIB, touched=8 * GIB)
    guest.settle(60)
    first = guest.look(moves=False).target
    assert first < 8 * GIB
    assert {guest.look(moves=False).target for _ in range(30)} == {first}


# ------------------------------------------------------------------------------------------------- for all guests

sizes = st.integers(64, 64 * 1024).map(lambda mib: mib * MIB)


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Figures, ...], int, int]:
    """What has been seen of some guest, with what it was told and its reserve."""
    full, reserve = draw(sizes), draw(sizes)
    seen: tuple[Figures, ...] = ()
    calm = draw(st.booleans())
    actual = draw(st.integers(full // 2, full)) // MIB * MIB
    free = draw(st.integers(0, actual))
    at, faults, swapped = 0.0, 0, 0
    for _ in range(draw(st.integers(1, 45))):
        at += draw(st.sampled_from([2.0] if calm else [0.5, 2.0, 9.0]))
        if not calm:
            actual = max(0, min(full, actual + draw(st.integers(-64, 64)) * MIB))
            free = draw(st.one_of(st.just(free), st.integers(0, actual)))
            faults, swapped = faults + draw(st.integers(-5, 300)), swapped + draw(st.sampled_from([0, 0, 0, 4096]))
        resident = draw(st.none() | st.integers(0, full))
        seen = remembered(seen, Figures(at, at, full, actual, free, resident, swapped, faults))
    return seen, draw(st.sampled_from([actual, full, actual // MIB * MIB])), reserve


@given(histories())
def test_never_below_the_reserve_and_never_above_all(case: tuple[tuple[Figures, ...], int, int]) -> None:
    """Whatever a guest says: what is taken lies idle, is no more than a step, and is never what its node has."""
    history, told, reserve = case
    now, verdict = history[-1], decide(history, told, Wish(reserve))
    assert 0 < verdict.target <= now.full
    if verdict.target >= told:
        return
    taken = now.actual - verdict.target
    assert now.actual == told
    assert taken <= now.full // balloon.STEP_PART
    assert now.available is not None
    assert now.available - taken >= reserve
    assert taken <= now.available - now.unbacked
    assert balloon.is_calm(history, reserve)


@given(histories())
def test_pressure_is_answered_in_the_same_look(case: tuple[tuple[Figures, ...], int, int]) -> None:
    """Whatever has been before: what is missing comes back, and on swap-ins, faults and real shortage everything."""
    history, told, reserve = case
    now = history[-1]
    for worse in (
        replace(now, at=now.at + 2, updated=now.updated + 2, swapped_in=now.swapped_in + 4096),
        replace(now, at=now.at + 2, updated=now.updated + 2, major_faults=now.major_faults + 200),
        replace(now, at=now.at + 2, updated=now.updated + 2, available=reserve // 2 - 1),
    ):
        assert decide(remembered(history, worse), told, Wish(reserve)).target == now.full
    assume(reserve // 2 <= reserve - MIB)
    less = replace(now, at=now.at + 2, updated=now.updated + 2, available=reserve - MIB)
    verdict = decide(remembered(history, less), told, Wish(reserve))
    assert verdict.target >= min(now.full, now.actual + MIB)


@given(sizes, st.floats(0, 1), st.floats(0, 1), sizes)
def test_with_nothing_new_steps_go_one_way_and_end(full: int, used: float, touched: float, reserve: int) -> None:
    """A guest that does nothing is told ever less, and then always the same; it has its reserve all the time."""
    guest = Guest(full, used=int(full * used), touched=int(full * touched))
    free = guest.full - guest.used
    told = guest.settle(wish=Wish(reserve))
    assert told == sorted(told, reverse=True) or free < reserve
    assert guest.actual - guest.used >= reserve or told[-1] == full
    assert len(set(told[-60:])) == 1


# ------------------------------------------------------------------------------------------------- whose balloon it is


def test_a_balloon_that_somebody_filled_before_is_left_alone() -> None:
    with pytest.raises(SetByAnother, match="before anything was gathered"):
        present(watched(actual=3 * GIB), None, ours=False, since=0)
    assert present(watched(), None, ours=False, since=0) == Note(4 * GIB, reached=True)


def test_a_note_that_was_lost_on_the_way_is_written_anew() -> None:
    """The MemoryGuest says that the memory was gathered: a guest from another node is not left with less for ever."""
    assert present(watched(actual=3 * GIB), None, ours=True, since=0) == Note(3 * GIB, reached=True)


def test_a_balloon_that_somebody_else_moves_is_left_alone() -> None:
    """After some seconds: a guest that reboots begins with an empty one, and fills it again."""
    note = Note(3 * GIB, reached=True)
    history = watched(actual=3 * GIB)
    for at in range(62, 80, 2):
        history = remembered(history, figures(at, actual=2 * GIB))
        assert present(history, note, ours=True, since=0) == note
        assert balloon.is_strange(history[-1], note)
    for at in range(80, 104, 2):
        history = remembered(history, figures(at, actual=2 * GIB))
    with pytest.raises(SetByAnother, match="virsh setmem"):
        present(history, note, ours=True, since=0)
    back = remembered(history, figures(104, actual=3 * GIB))
    assert present(back, note, ours=True, since=0) == note


def test_a_balloon_without_a_driver_is_said_not_to_move() -> None:
    note = Note(3 * GIB)
    assert present(watched(20), note, ours=True, since=0) == note
    with pytest.raises(NotMoving, match="needs a driver"):
        present(watched(60), note, ours=True, since=0)
    with pytest.raises(NotMoving, match="does not take back"):
        present(watched(60, actual=2 * GIB), note, ours=True, since=0)


def test_what_a_guest_could_not_give_it_keeps() -> None:
    """A driver that finds no more pages: what it has given is what was asked for."""
    note = present(watched(60, actual=3 * GIB), Note(2 * GIB, period=10), ours=True, since=0)
    assert note == Note(3 * GIB, reached=True, period=10)
    assert present(watched(60, actual=2 * GIB), Note(2 * GIB), ours=True, since=0).reached
