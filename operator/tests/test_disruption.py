"""Edits that would disturb many borrowers disturb a few at a time (issue 4, item 5: Safety; issue 28, fault 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import BORROWER, LENDER, MIB, carried_out, guest, mib, pairing, plan, pool, reasons

from tidepool_api import Encryption, MemoryPairing
from tidepool_api.live import live_part
from tidepool_operator.planning import changes
from tidepool_operator.planning.changes import Create, Update
from tidepool_operator.planning.disruption import is_settled
from tidepool_operator.planning.placement import Assignment

if TYPE_CHECKING:
    from tidepool_api import MemoryPool
    from tidepool_operator.planning.changes import Change
    from tidepool_operator.planning.planner import Plan

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


def test_a_borrower_whose_connection_does_not_last_has_pages_to_lose() -> None:
    """While a connection is only made it has none; one that is lost again and again brings them back each time."""
    for phase, done in (("Unstable", 2), ("Connecting", 8)):
        status = {"phase": phase, "borrower": {"state": "Connected"}}
        pairings = [MemoryPairing.parse(one.to_dict() | {"status": status}) for one in running()]
        assert sizes(plan(pool(size=256, max_lend=8192), EVERYBODY, pairings)).count(256) == done


def test_who_is_paused_holds_nobody_up() -> None:
    """Nothing is wrong with it, and it may be paused for days. One that has failed may have failed by the edit."""
    for phase, done in (("Paused", 2 + 2), ("Failed", 2)):
        pairings = [
            MemoryPairing.parse(one.to_dict() | {"status": {"phase": phase}}) if at < 2 else one
            for at, one in enumerate(running())
        ]
        assert sizes(plan(pool(size=256, max_lend=8192), EVERYBODY, pairings)).count(256) == done


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


def test_a_lower_limit_costs_what_is_above_it_and_no_more() -> None:
    """Each lender gets back what it has too much, whatever `maxUnavailable` is, and nobody is set up anew for it.

    Nobody waits for it, so that nobody is said to; other edits still go in steps.
    """
    before = running()
    less = pool(max_lend=1792, max_unavailable=1)
    made = plan(less, EVERYBODY, before)
    assert sum(sizes(made)) == 2 * 1792
    assert sorted(sizes(made)) == [256] * 2 + [512] * 6
    assert (made.deferred, reasons(made)) == ((), ["InsufficientCapacity"])
    edits = changes.between(less, made, before, BY_NAME)
    assert all(isinstance(one, Update) for one in edits)
    assert {name for one in edits if isinstance(one, Update) for name in one.patch} == {"size", "maxLend"}
    both = less.model_copy(update={"spec": less.spec.model_copy(update={"encryption": Encryption.AES_GCM})})
    again = plan(both, EVERYBODY, before)
    assert sizes(again) == sizes(made)
    anew = [one for one in changes.between(both, again, before, BY_NAME) if "encryption" in getattr(one, "patch", {})]
    assert len(anew) == 1


def test_a_lower_limit_lets_no_other_edit_pass() -> None:
    """A size is edited together with a `maxLend` that is a MiB too little: one is cut for that, two as they may be."""
    world = [guest("l", LENDER, total=4096), *BORROWERS]
    before = [pairing(one.name, "l", 200 * MIB, connected=True) for one in BORROWERS]
    for most, done in ((1600, 2), (1599, 3), (1401, 4), (1000, 8)):
        made = plan(pool(size=100, max_lend=most), world, before)
        assert sizes(made).count(100) == done, most
        assert len(made.deferred) == 8 - done


def test_of_planned_sizes_all_give_up_their_part_at_once() -> None:
    """One that kept its own for longer would keep what lesser ones have, and cost them their pairings."""
    world = [guest("l", LENDER), *(guest(f"b{at}", BORROWER) for at in range(4))]
    had = {"b0": 840, "b1": 36, "b2": 38, "b3": 347}
    before = [pairing(name, "l", size * MIB, connected=True) for name, size in had.items()]
    made = plan(pool(between=(16, 484), max_lend=768, max_unavailable=1), world, before)
    assert set(made.borrowers) == {borrower for borrower, _ in mib(made)}
    assert sum(sizes(made)) > 700
    assert made.deferred == ()


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


@settings(max_examples=150)
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


# --- fields that the module changes while it is in use, and those that it does not ------------------------------------

BY_NAME = {one.name: one for one in EVERYBODY}
LIVE = {
    "deadline": "300ms",
    "strategy": "Exclusive",
    "filter": "Sequential",
    "latency": {"mode": "Thresholds", "short": {"resume": "2ms", "stop": "9ms"}},
}
SWAP = {"backing": "File", "size": "1Gi", "write": "Through"}
ON_DISK = {"backing": "Device", "device": "/dev/vdc", "write": "Behind"}
NO_DEVICE = {"device": None}
TWO = {"devices": ["/dev/vdb", "/dev/vdd"], "force": ["/dev/vdd"]}
DISKS = ["/dev/vdb", "/dev/vdd", "/dev/vde"]
ON = st.just(ON_DISK)
Block = dict[str, Any]  # what is said of borrowers' devices, swap and memory for programs
Patches = dict[str, dict[str, Any]]  # by the pairing's borrower


def todo(edit: MemoryPool, pairings: list[MemoryPairing]) -> list[Change]:
    """What is written at once."""
    return changes.between(edit, plan(edit, EVERYBODY, pairings), pairings, BY_NAME)


def patches(edit: MemoryPool, pairings: list[MemoryPairing]) -> Patches:
    """That part of it which changes pairings."""
    updates = [one for one in todo(edit, pairings) if isinstance(one, Update) and one.patch]
    return {one.pairing.spec.borrower.guest: one.patch for one in updates}


def disturbed(pairings: list[MemoryPairing], made: Patches) -> list[str]:
    """The borrowers whom patches cost something of what they have."""
    specs = {one.spec.borrower.guest: one.spec for one in pairings}
    return sorted(name for name, patch in made.items() if live_part(patch, specs[name]) != patch)


def disturbing(edit: MemoryPool, pairings: list[MemoryPairing]) -> list[str]:
    """The borrowers whom an edit costs something at once."""
    return disturbed(pairings, patches(edit, pairings))


def written(pairings: list[MemoryPairing], made: Patches) -> list[MemoryPairing]:
    """The pairings with these patches: agents have not followed, and those that are disturbed are not connected."""
    bodies = {one.spec.borrower.guest: one.to_dict() for one in pairings}
    for name, patch in made.items():
        spec = bodies[name]["spec"]
        bodies[name]["spec"] = spec | patch | {end: spec[end] | patch.get(end, {}) for end in ("lender", "borrower")}
        bodies[name]["metadata"]["generation"] += 1
    for name in disturbed(pairings, made):
        bodies[name]["status"]["phase"] = "Connecting"
    return [MemoryPairing.parse(body) for body in bodies.values()]


def followed(pairings: list[MemoryPairing]) -> list[MemoryPairing]:
    """The same when both agents of each have done what it says."""
    return [MemoryPairing.parse(one.to_dict() | {"status": _followed(one.metadata.generation)}) for one in pairings]


def _followed(generation: int, lender: int | None = None) -> dict[str, Any]:
    seen = {"lender": generation if lender is None else lender, "borrower": generation}
    ends = {side: {"state": "Connected", "observedGeneration": number} for side, number in seen.items()}
    return {"phase": "Connected", **ends}


def as_before(edit: MemoryPool) -> list[MemoryPairing]:
    """Eight borrowers that work with what they have, which an edit of sizes leaves to them."""
    spec = {"reserve": edit.spec.lenders.reserve, "max_lend": edit.spec.lenders.max_lend}
    changed = [one.model_copy(update={"spec": one.spec.model_copy(update=spec)}) for one in running()]
    return followed(changed)


@pytest.mark.parametrize("field", LIVE)
def test_what_is_live_reaches_all_at_once(field: str) -> None:
    edit = pool(max_lend=8192, max_unavailable=1, **{field: LIVE[field]})
    assert len(patches(edit, as_before(edit))) == 8
    assert plan(edit, EVERYBODY, as_before(edit)).deferred == ()


def test_another_encryption_reaches_two_at_a_time_and_what_is_live_all() -> None:
    edit = pool(max_lend=8192, encryption="AES-GCM", deadline="300ms")
    before = as_before(edit)
    first = patches(edit, before)
    assert disturbed(before, first) == ["b0", "b1"]
    assert [patch["deadline"] for patch in first.values()] == ["300ms"] * 8
    under_way = written(before, first)
    assert patches(edit, under_way) == {}
    assert disturbing(edit, followed(under_way)) == ["b2", "b3"]
    assert plan(edit, EVERYBODY, followed(under_way)).deferred == ("b4", "b5", "b6", "b7")


def test_devices_reach_all_at_once_and_swap_two_at_a_time() -> None:
    """A device is put behind the pool and taken out without a loss; swap comes back into memory on its way."""
    edit = pool(max_lend=8192, block={"devices": ["/dev/vdb"], "swap": SWAP, "force": ["/dev/vdb"]})
    before = as_before(edit)
    first = patches(edit, before)
    assert [patch["borrower"]["devices"] for patch in first.values()] == [["/dev/vdb"]] * 8
    assert [name for name, patch in first.items() if "swap" in patch["borrower"]] == ["b0", "b1"]
    assert disturbed(before, first) == ["b0", "b1"]
    under_way = written(before, first)
    assert patches(edit, under_way) == {}
    second = patches(edit, followed(under_way))
    assert second == {name: {"borrower": {"swap": SWAP | NO_DEVICE}} for name in ("b2", "b3")}


def having(asked: MemoryPool) -> list[MemoryPairing]:
    """Eight borrowers that work with all that a pool asks for."""
    pairings = as_before(asked)
    while made := patches(asked, pairings):
        pairings = followed(written(pairings, made))
    return pairings


def test_memory_for_programs_reaches_all_at_once_and_disturbs_nobody() -> None:
    """Its size, its mode and its group; what is not said is taken out."""
    apps = {"size": "256Mi", "mode": "0660", "group": "redis"}
    asked, nothing = pool(max_lend=8192, block={"applications": apps}), as_before(pool(max_lend=8192))
    for before, wish, patch in (
        (nothing, apps, apps),
        (having(asked), apps, None),
        (having(asked), apps | {"size": "128Mi"}, {"size": "128Mi"}),
        (having(asked), {"size": "256Mi"}, {"mode": None, "group": None}),
    ):
        made = patches(pool(max_lend=8192, block={"applications": wish}), before)
        assert made == ({one.name: {"borrower": {"applications": patch}} for one in BORROWERS} if patch else {})
        assert disturbed(before, made) == []


@pytest.mark.parametrize(
    ("present", "block", "patch"),
    [
        (TWO, {}, {"devices": [], "force": []}),
        (TWO, {"devices": ["/dev/vdb"]}, {"devices": ["/dev/vdb"], "force": []}),
        (TWO, {"devices": ["/dev/vde", "/dev/vdb"]}, {"devices": ["/dev/vde", "/dev/vdb"], "force": []}),
        ({"applications": {"size": "256Mi"}}, {}, {"applications": None}),
    ],
)
def test_what_is_removed_goes_two_at_a_time(present: Block, block: Block, patch: Block) -> None:
    """What lenders have of a device, and programs' values, are lost by it: not those of all borrowers at once."""
    edit, pairings, done = pool(max_lend=8192, block=block), having(pool(max_lend=8192, block=present)), []
    while made := patches(edit, pairings):
        assert made == {name: {"borrower": patch} for name in disturbed(pairings, made)}
        done.append(len(made))
        under_way = written(pairings, made)
        assert patches(edit, under_way) == {}
        pairings = followed(under_way)
    assert done == [2] * 4
    assert plan(edit, EVERYBODY, pairings).deferred == ()


def test_other_devices_that_stay_or_come_wait_for_nobody() -> None:
    """More of them, and the same in another order, while another change of the same pairings waits."""
    for devices in (["/dev/vdb", "/dev/vdd", "/dev/vde"], ["/dev/vdd", "/dev/vdb"]):
        wish = {"devices": devices, "swap": SWAP, "force": TWO["force"]}
        made = patches(pool(max_lend=8192, block=wish), having(pool(max_lend=8192, block=TWO)))
        assert [patch["borrower"]["devices"] for patch in made.values()] == [devices] * 8


@given(*[st.fixed_dictionaries({}, optional={"devices": st.sets(st.sampled_from(DISKS)), "swap": ON})] * 2)
def test_what_is_forced_is_always_one_of_those_that_there_are(present: Block, wish: Block) -> None:
    """The API server refuses a pairing that says otherwise, also one that gets a part of an edit."""
    edit, before = pool(max_lend=8192, block=forced(wish)), having(pool(max_lend=8192, block=forced(present)))
    while made := patches(edit, before):
        before = followed(written(before, made))
        for one in (each.spec.borrower for each in before):
            assert set(one.force) <= {*one.devices, *([one.swap.device] if one.swap else [])}
    assert {one.spec.borrower.force for one in before} == {edit.spec.borrowers.force}


def forced(block: Block) -> Block:
    """The same, with all of it to be taken though something lies on it."""
    devices = sorted(block.get("devices", ()))
    return {**block, "devices": devices, "force": [*devices, *([ON_DISK["device"]] if "swap" in block else [])]}


def test_swap_that_a_pool_no_longer_asks_for_is_taken_out_of_its_pairings() -> None:
    pairings = having(pool(max_lend=8192, block={"swap": SWAP}))
    for block, patch in (({}, {"swap": None}), ({"swap": ON_DISK}, {"swap": {"size": None} | ON_DISK})):
        made = patches(pool(max_lend=8192, max_unavailable=8, block=block), pairings)
        assert made == {one.name: {"borrower": patch} for one in BORROWERS}


def test_agents_that_have_not_followed_yet_hold_up_the_next_edit() -> None:
    """A live edit touches all; the cut that comes right after it does not find everybody with nothing to lose."""
    live = pool(max_lend=8192, deadline="300ms")
    under_way = written(as_before(live), patches(live, as_before(live)))
    less = pool(size=256, max_lend=8192, deadline="300ms")
    assert sizes(plan(less, EVERYBODY, under_way)) == [512] * 8
    assert sizes(plan(less, EVERYBODY, followed(under_way))) == [256] * 2 + [512] * 6


def test_a_borrower_is_settled_when_both_its_agents_have_followed() -> None:
    """Another port is the lender's to take: the borrower's side alone says nothing."""
    body = running()[0].to_dict()
    body["metadata"]["generation"] = 2
    for lender, settled in ((2, True), (1, False)):
        assert is_settled(MemoryPairing.parse(body | {"status": _followed(2, lender)})) is settled


def test_the_borrowers_of_a_lender_change_its_port_together() -> None:
    """It listens on one; a borrower that is new to it meanwhile is told of that one."""
    edit = pool(max_lend=2048, port=7471, max_unavailable=4)
    before = as_before(edit)[:-1]
    first = todo(edit, before)
    assert patches(edit, before) == {name: {"lender": {"port": 7471}} for name in ("b0", "b2", "b4", "b6")}
    assert [(one.assignment, one.spec["lender"]["port"]) for one in first if isinstance(one, Create)] == [
        (Assignment("b7", "l1", 512 * MIB), 7470)
    ]
    under_way = written(before, patches(edit, before))
    assert patches(edit, under_way) == {}
    assert disturbing(edit, followed(under_way)) == ["b1", "b3", "b5"]


def test_a_lender_with_more_borrowers_than_may_be_disturbed_changes_its_port_alone() -> None:
    edit = pool(max_lend=8192, port=7471, max_unavailable=2)
    before = as_before(edit)
    assert disturbing(edit, before) == ["b0", "b2", "b4", "b6"]
    assert disturbing(edit, _down(before, 1)) == ["b0", "b2", "b4", "b6"]
    assert patches(edit, _down(before, 2)) == {}


def _down(pairings: list[MemoryPairing], count: int) -> list[MemoryPairing]:
    """So many of those of the second lender are not connected."""
    gone = {one.name for one in pairings[1::2][:count]}
    status = {"phase": "Connecting"}
    return [MemoryPairing.parse(one.to_dict() | {"status": status}) if one.name in gone else one for one in pairings]


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {"encryption": st.sampled_from(["None", "AES-GCM"]), "port": st.sampled_from([7470, 7471])},
        optional={name: st.just(value) for name, value in LIVE.items()},
    ),
    st.sampled_from([384, 512]),
    st.integers(1, 8),
)
def test_whatever_is_edited_disturbs_no_more_than_may_be(edit: dict[str, Any], size: int, allowed: int) -> None:
    """All fields that reach pairings: bounded at each step, but for one lender's port, and done in the end."""
    wanted = pool(size=size, max_lend=8192, max_unavailable=allowed, **edit)
    pairings = as_before(wanted)
    while made := patches(wanted, pairings):
        losing = {*disturbed(pairings, made), *(name for name, patch in made.items() if "size" in patch)}
        assert len(losing) <= max(allowed, 4 if edit["port"] != 7470 else 0)
        pairings = followed(written(pairings, made))
    assert {(one.spec.encryption, one.spec.lender.port, one.spec.size) for one in pairings} == {
        (edit["encryption"], edit["port"], f"{size}Mi")
    }
