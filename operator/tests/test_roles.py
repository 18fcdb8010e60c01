"""Roles by need: who lends, who borrows, when that changes and when it does not (issue 4, item 1: Roles)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import BORROWER, LENDER, LONG_AGO, TEAM, auto_pool, carried_out, guest, mib, plan, pool

from tidepool_api import GuestRole, MemoryPool, Role
from tidepool_api.pool import MOST_ROLES
from tidepool_operator.planning.inventory import Node

if TYPE_CHECKING:
    from tidepool_api import GuestStatus, MemoryGuest, MemoryPairing
    from tidepool_operator.planning.planner import Plan

RICH = {"total": 2048, "available": 1500}
PRESSED = {"n1": Node(pressed=True)}
READS_AGAIN = {"available": 300, "refaults": 200, "io_wait": 30}


def after(made: Plan, *, of: MemoryPool | None = None) -> MemoryPool:
    """The pool with the status that a plan gives it."""
    return (
        auto_pool(roles=made.roles)
        if of is None
        else of.model_copy(update={"status": of.status.model_copy(update={"roles": made.roles})})
    )


def test_the_rich_lend_and_the_short_borrow() -> None:
    guests = [
        guest("reads-again", TEAM, **READS_AGAIN),
        guest("promised", TEAM, available=300, misses=400, curve={512: 0.5, 1024: 0.9}),
        guest("stalled", TEAM, available=300, stalled=15),
        guest("rich", TEAM, **RICH),
        guest("rich-too", TEAM, **RICH),
        guest("neither", TEAM, available=300),
        guest("stranger", {}, **RICH),
    ]
    made = plan(auto_pool(), guests, [])
    assert made.lenders == ("rich", "rich-too")
    assert made.borrowers == ("promised", "reads-again", "stalled")
    assert {turn.guest: turn.role.reason for turn in made.turns} == {
        "reads-again": "Refaults",
        "promised": "CurvePromisesHits",
        "stalled": "WaitsForMemory",
        "rich": "HasMemoryToSpare",
        "rich-too": "HasMemoryToSpare",
    }
    assert len(made.assignments) == 3


@pytest.mark.parametrize(
    "figures",
    [
        {"refaults": 200, "io_wait": 0},  # from a disk for which nobody waits
        {"misses": 400, "curve": {512: 0.9}, "references": 900},  # too few to be believed
        {"misses": 400, "curve": {512: 0.05}},  # a scan that no pool would help
        {"misses": 10, "curve": {512: 1.0}},
    ],
)
def test_who_would_gain_nothing_does_not_borrow(figures: dict[str, int]) -> None:
    assert (
        plan(auto_pool(), [guest("g", TEAM, available=300, **figures), guest("rich", TEAM, **RICH)], []).borrowers == ()
    )


def test_a_working_set_is_not_lent() -> None:
    """All but 300 MiB of it is page cache that it uses: MemAvailable alone would let it lend."""
    made = plan(auto_pool(), [guest("g", TEAM, total=2048, available=1900, working_set=1748)], [])
    assert made.lenders == ()


def test_a_guest_that_migrates_keeps_its_role_unless_it_needs_its_memory() -> None:
    """Issue 28, live migration: its figures are those of a guest that is copied. Its old node relieves nobody."""
    had = carried_out(plan(auto_pool(), [guest("b", TEAM, **READS_AGAIN), guest("l", TEAM, **RICH)], []))
    calm = [guest("b", TEAM, available=300, migrating=True), guest("l", TEAM, available=100, migrating=True)]
    new = [guest("x", TEAM, **RICH, migrating=True), guest("y", TEAM, **READS_AGAIN, migrating=True)]
    made = plan(auto_pool(), calm + new, had)
    assert (made.lenders, made.borrowers, made.turns) == (("l",), ("b",), ())
    assert mib(made) == {("b", "l"): 512}
    arrived = plan(auto_pool(), [one.model_copy(update={"status": _arrived(one)}) for one in calm + new], had)
    assert {turn.guest for turn in arrived.turns} == {"b", "l", "x", "y"}
    for lenders, nodes in ((auto_pool(), PRESSED), (pool(), PRESSED)):
        labels = TEAM | LENDER
        away = [guest("b", TEAM | BORROWER, **READS_AGAIN), guest("l", labels, **RICH, migrating=True)]
        assert mib(plan(lenders, away, had, nodes=nodes)) == {("b", "l"): 512}
        stays = [away[0], guest("l", labels, **RICH)]
        assert mib(plan(lenders, stays, had, nodes=nodes)) == {}
        short = [away[0], guest("l", labels, **RICH, stalled=60, migrating=True)]
        assert mib(plan(lenders, short, had)) == {}


def _arrived(one: MemoryGuest) -> GuestStatus:
    return one.status.model_copy(update={"migrating": None})


def test_between_the_thresholds_everybody_stays() -> None:
    """Figures that would not make a guest a borrower, or a lender, let it remain one, after any time."""
    guests = [guest("b", TEAM, **READS_AGAIN), guest("l", TEAM, **RICH)]
    first = plan(auto_pool(), guests, [])
    later = LONG_AGO + timedelta(days=1)
    between = [guest("b", TEAM, available=300, refaults=20), guest("l", TEAM, available=300)]
    assert plan(auto_pool(), between, [], at=later).assignments == ()
    made = plan(after(first), between, carried_out(first), at=later)
    assert (made.lenders, made.borrowers, made.turns) == (("l",), ("b",), ())
    # The roles are known from the pairings, too, when the status has forgotten them.
    assert plan(auto_pool(), between, carried_out(first), at=later).assignments == first.assignments


def test_a_role_is_kept_for_the_cool_down() -> None:
    guests = [guest("b", TEAM, **READS_AGAIN), guest("l", TEAM, **RICH)]
    first = plan(auto_pool(), guests, [])
    assert first.again == 600
    calm = [guest("b", TEAM, **RICH), guest("l", TEAM, **RICH)]
    soon = plan(after(first), calm, carried_out(first), at=LONG_AGO + timedelta(minutes=9))
    assert (soon.borrowers, soon.turns, soon.again) == (("b",), (), 60)
    late = plan(after(soon), calm, carried_out(first), at=LONG_AGO + timedelta(minutes=10))
    assert (late.borrowers, late.lenders) == ((), ("b", "l"))
    assert late.assignments == ()


def test_nobody_lends_before_it_has_given_back() -> None:
    """A former borrower whose pairing is still there is a lender, but takes nobody; and the other way round."""
    rich, short = guest("was-short", TEAM, **RICH), guest("was-rich", TEAM, **READS_AGAIN)
    old = carried_out(plan(auto_pool(), [guest("was-short", TEAM, **READS_AGAIN), guest("was-rich", TEAM, **RICH)], []))
    made = plan(auto_pool(), [rich, short], old, at=LONG_AGO)
    assert (made.lenders, made.borrowers) == (("was-short",), ("was-rich",))
    assert (made.assignments, made.waiting, made.problems) == ((), ("was-rich",), ())
    assert mib(plan(after(made), [rich, short], [])) == {("was-rich", "was-short"): 512}


@pytest.mark.parametrize("figures", [{"stalled": 25}, {"available": 200}])
def test_a_lender_that_needs_its_memory_is_relieved_at_once(figures: dict[str, int]) -> None:
    """In the middle of its cool-down; its borrower gets another lender in the same plan."""
    b = guest("b", TEAM, **READS_AGAIN)
    first = plan(auto_pool(), [b, guest("l", TEAM, **RICH)], [])
    pressed = guest("l", TEAM, **({"total": 2048, "available": 1500} | figures))
    other = guest("other", TEAM, **RICH)
    made = plan(after(first), [b, pressed, other], carried_out(first), at=LONG_AGO + timedelta(seconds=30))
    assert mib(made) == {("b", "other"): 512}
    assert [(turn.guest, turn.role.reason) for turn in made.turns if turn.before is Role.LENDER] == [
        ("l", "UnderMemoryPressure")
    ]
    well = guest("l", TEAM, **RICH)
    again = plan(after(made), [b, well, other], carried_out(made), at=LONG_AGO + timedelta(minutes=5))
    assert again.lenders == ("other",)
    assert "l" in plan(after(again), [b, well, other], carried_out(made), at=LONG_AGO + timedelta(minutes=11)).lenders


def test_relief_does_not_wait_for_its_turn() -> None:
    """However few borrowers may lose something at a time: all of a pressed lender's go."""
    guests = [guest(f"b{at}", TEAM, **READS_AGAIN) for at in range(4)]
    rich = {"total": 8192, "available": 6000}
    first = plan(auto_pool(max_lend=4096), [*guests, guest("l", TEAM, **rich)], [])
    pressed = [guest("l", TEAM, **rich, stalled=50), guest("other", TEAM, **rich)]
    made = plan(auto_pool(max_lend=4096), [*guests, *pressed], carried_out(first, connected=True))
    assert mib(made) == {(f"b{at}", "other"): 512 for at in range(4)}


def test_a_selected_lender_is_relieved_too() -> None:
    """What its label says is what it does again, when it is well and the cool-down is over."""
    b, other = guest("b", BORROWER), guest("other", LENDER)
    first = plan(pool(), [b, guest("l", LENDER)], [])
    pressed = guest("l", LENDER, stalled=40)
    made = plan(pool(), [b, pressed, other], carried_out(first))
    assert mib(made) == {("b", "other"): 512}
    assert made.problems == ()
    well = [b, guest("l", LENDER)]
    remembered = after(made, of=pool())
    assert plan(remembered, well, [], at=LONG_AGO + timedelta(minutes=9)).assignments == ()
    assert mib(plan(remembered, well, [], at=LONG_AGO + timedelta(minutes=10))) == {("b", "l"): 512}
    uneasy = [b, guest("l", LENDER, stalled=10)]
    assert plan(remembered, uneasy, [], at=LONG_AGO + timedelta(minutes=10)).assignments == ()


@pytest.mark.parametrize("of", [pool(), auto_pool()])
def test_a_role_that_begins_in_a_thousand_years_is_one_that_begins_now(of: MemoryPool) -> None:
    """Who may write the status of a pool can say so; one such word would stop the work on its whole namespace."""
    future = datetime(8999, 12, 31, 23, 59, 59, tzinfo=UTC)
    one = GuestRole(guest="l", role=Role.NONE, since=future, reason="UnderMemoryPressure")
    said = of.model_copy(update={"status": of.status.model_copy(update={"roles": (one,)})})
    made = plan(said, [guest("l", LENDER | TEAM), guest("b", BORROWER | TEAM, stalled=50)], [])
    assert all(role.since <= LONG_AGO for role in made.roles)


def test_a_guest_of_which_nothing_is_known_stays_what_it_is() -> None:
    """It reboots, or its agent is away: no news is no reason."""
    guests = [guest("b", TEAM, **READS_AGAIN), guest("l", TEAM, **RICH)]
    first = plan(auto_pool(), guests, [])
    made = plan(
        after(first),
        [guest("b", TEAM), guest("l", TEAM, stalled=90)],
        carried_out(first),
        silent={"n1"},
        at=LONG_AGO + timedelta(days=1),
    )
    assert made.assignments == first.assignments


reports = st.fixed_dictionaries(
    {
        "available": st.integers(0, 2048),
        "stalled": st.integers(0, 30),
        "io_wait": st.integers(0, 30),
        "refaults": st.integers(0, 200),
    }
)
days = st.lists(st.tuples(st.integers(1, 900), st.lists(reports, min_size=4, max_size=4)), min_size=2, max_size=12)


@settings(max_examples=150)
@given(days)
def test_a_role_changes_once_in_a_cool_down(day: list[tuple[int, list[dict[str, int]]]]) -> None:
    """Whatever is reported: a guest is given no two roles in ten minutes, relief excepted, and never both at a time."""
    at, world = LONG_AGO, auto_pool()
    pairings: list[MemoryPairing] = []
    turned: dict[str, float] = {}
    for seconds, figures in day:
        at += timedelta(seconds=seconds)
        guests = [guest(f"g{number}", TEAM, **one) for number, one in enumerate(figures)]
        made = plan(world, guests, pairings, at=at)
        for turn in made.turns:
            if turn.role.reason != "UnderMemoryPressure":
                assert at.timestamp() - turned.get(turn.guest, 0) >= 600
            turned[turn.guest] = at.timestamp()
        assert set(made.lenders).isdisjoint(made.borrowers)
        again = plan(after(made), guests, carried_out(made), at=at)
        assert {turn.before for turn in again.turns} <= {Role.NONE}  # of those that waited for former pairings to go
        assert plan(after(again), guests, carried_out(again), at=at).turns == ()
        world, pairings = after(made), carried_out(made)


def test_a_large_pool_of_idle_guests_settles_and_its_status_stays_small() -> None:
    """Whatever could be had of the pairings or of the reports is not written down (issue 28, fault 10)."""
    guests = [guest(f"g{number:04d}", TEAM, **RICH) for number in range(3000)]
    made = plan(auto_pool(), guests, [])
    assert (len(made.lenders), made.roles, made.turns, made.again) == (3000, (), (), None)
    guests += [guest(f"s{number:04d}", TEAM, **READS_AGAIN) for number in range(1000)]
    made = plan(auto_pool(), guests, [])
    assert (len(made.borrowers), len(made.roles)) == (1000, MOST_ROLES)
    again = plan(after(made), guests, carried_out(made), at=LONG_AGO + timedelta(seconds=1))
    assert (again.assignments, again.roles, again.turns) == (made.assignments, made.roles, ())


def test_a_pairing_remembers_how_long_it_has_been() -> None:
    """For who has one the cool-down holds, also when the status has no room for it."""
    made = plan(auto_pool(), [guest("b", TEAM, **READS_AGAIN), guest("l", TEAM, **RICH)], [])
    (one,) = carried_out(made)
    young = one.model_copy(update={"metadata": one.metadata.model_copy(update={"creation_timestamp": LONG_AGO})})
    calm = [guest("b", TEAM, **RICH), guest("l", TEAM, **RICH)]
    soon = plan(auto_pool(), calm, [young], at=LONG_AGO + timedelta(minutes=9))
    assert (soon.borrowers, soon.turns, soon.again) == (("b",), (), 60)
    late = plan(auto_pool(), calm, [young], at=LONG_AGO + timedelta(minutes=10))
    assert [turn.guest for turn in late.turns] == ["b"]


def _read_again(names: list[str]) -> list[MemoryGuest]:
    return [guest(name, TEAM, **READS_AGAIN) for name in names]


def test_shortage_is_said_and_calm_is_not() -> None:
    """With role Auto nobody short is no problem; nobody to help is."""
    assert plan(auto_pool(), [guest("l", TEAM, **RICH)], []).problems == ()
    (problem,) = plan(auto_pool(), _read_again(["a", "b"]), []).problems
    assert "nobody has memory to spare for guests a, b" in problem.message
    (problem,) = plan(auto_pool(), [guest("l", {}, **RICH)], []).problems
    assert "matches spec.selector (team=a)" in problem.message
