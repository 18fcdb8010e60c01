"""From pairings and a guest's state to steps. The model guest below does what the module does with each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import BORROWER, LENDER, OTHER, key, observation, pairing, want

from tidepool_agent import plan, report
from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.plan import (
    Change,
    Configure,
    Load,
    Measure,
    Remove,
    Replace,
    Set,
    Source,
    Step,
    Turn,
    Unload,
)
from tidepool_agent.report import Finding
from tidepool_api import GuestKey, LenderEnd, MemoryPairing
from tidepool_api.live import WAYS

UIDS = ("a", "b", "c", "d")
SIZES = ("16Mi", "100M", "1Gi")


def after(seen: Observation, step: Step) -> Observation:
    """What a guest looks like after a step; a step that a real module would refuse fails here."""
    peers = dict(seen.peers)
    match step:
        case Load():
            assert seen.module is None
            return replace(seen, module=Module("0.1.0", "NEW", ghost="Off"), peers={})
        case Unload():
            assert seen.module is not None
            assert not peers, "a module with peers cannot be unloaded"
            return replace(seen, module=None)
    assert seen.module is not None, "without the module there is no configfs"
    match step:
        case Remove(gone):
            assert set(gone) <= peers.keys()
            return replace(seen, peers={key: peer for key, peer in peers.items() if key not in gone})
        case Set(settings):
            enabled = any(p.enabled for (side, _), p in peers.items() if side is Side.BORROWERS)
            assert not (enabled and "port" in settings), "the port cannot change while a borrower is enabled"
            module = replace(seen.module, settings={**seen.module.settings, **settings})
            return replace(seen, module=module)
        case Measure(mode):
            assert mode != seen.module.ghost
            return replace(seen, module=replace(seen.module, ghost=mode))
        case Configure(wanted):
            before = peers.get(wanted.key, Peer()).attributes
            peers[wanted.key] = Peer({**before, **wanted.attributes, "enabled": "1"})
            assert "identity" in peers[wanted.key].attributes, "a peer cannot be enabled without an identity"
        case Change(wanted, attributes):
            assert attributes.keys() <= plan.CHANGEABLE[wanted.side]
            present = peers[wanted.key]
            assert present.enabled
            peers[wanted.key] = Peer({**present.attributes, **attributes})
    return replace(seen, peers=peers)


def settle(guest: str, pairings: list[MemoryPairing], seen: Observation) -> Observation:
    wanted = plan.desired(key(guest), pairings)
    for step in plan.steps(wanted, seen, Source.STORE):
        seen = after(seen, step)
    assert plan.steps(wanted, seen, Source.STORE) == [], "a second round has nothing to do"
    return seen


@st.composite
def pairings(draw: st.DrawFn, guest: str) -> list[MemoryPairing]:
    """Pairings that have this guest as lender, or as borrower, but not both; some of them being deleted."""
    lends = draw(st.booleans())
    port, address = draw(st.sampled_from((7470, 7471))), draw(st.sampled_from(("10.0.0.2", "2001:db8::2")))
    found: list[MemoryPairing] = []
    for uid in draw(st.lists(st.sampled_from(UIDS), unique=True)):
        ends: dict[str, Any] = (
            {"lender": guest, "borrower": f"b-{uid}"} if lends else {"lender": f"l-{uid}", "borrower": guest}
        )
        ends |= {"address": address, "port": port}
        spec: dict[str, Any] = {
            "size": draw(st.sampled_from(SIZES)),
            "deadline": draw(st.sampled_from(("100ms", "1s"))),
            "encryption": draw(st.sampled_from(("AES-GCM", "None"))),
            "filter": draw(st.sampled_from(("None", "Sequential"))),
            "latency": {"mode": draw(st.sampled_from(("Off", "Automatic")))},
            "identities": draw(st.sampled_from(((None, None), (LENDER, None), (LENDER, BORROWER), (OTHER, BORROWER)))),
        }
        found.append(pairing(uid, **ends, **spec, terminating=draw(st.booleans())))
    return found


@given(st.data())
def test_any_sequence_of_wishes_and_reboots_is_followed(data: st.DataObject) -> None:
    """Whatever was there before, after one round the guest has what the pairings say and nothing else.

    A peer whose identity is not known has to wait, and one that is there already may stay.
    """
    seen = observation()
    for _ in range(3):
        wished = data.draw(pairings("g"))
        if data.draw(st.booleans()):
            seen = observation()  # rebooted
        seen = settle("g", wished, seen)
        live = {one.metadata.uid for one in wished if not one.terminating}
        wants = {one.name: one for one in plan.desired(key("g"), wished).peers}
        assert {name for _, name in seen.peers} <= live
        assert {name for _, name in seen.peers} >= {name for name in live if wants[name].is_known}
        for (_, name), peer in seen.peers.items():
            assert wants[name].attributes.items() <= peer.attributes.items()
        assert (seen.module is not None) == bool(live)


@given(st.data())
def test_the_order_of_pairings_does_not_matter(data: st.DataObject) -> None:
    wished = data.draw(pairings("g"))
    shuffled = data.draw(st.permutations(wished))
    assert plan.desired(key("g"), wished) == plan.desired(key("g"), shuffled)


def test_a_lender_is_set_up_from_nothing() -> None:
    one = pairing()
    steps = plan.steps(plan.desired(key("lender"), [one]), observation(), Source.STORE)
    settings = {"port": "7470", "reserve_bytes": str(64 << 20), "lend_bytes": str(512 << 20), "hold": "0"}
    lend = Configure(want(Side.BORROWERS, one))
    assert steps == [Load(Source.STORE), Set(settings), lend, Measure("NonInclusive")]


def test_peers_stay_until_their_pairings_have_followed_the_guest() -> None:
    """A guest has come from another node; what is known here of its pairings takes nothing from the others."""
    here, behind, gone = pairing("here"), pairing("behind"), pairing("gone")
    seen = settle("lender", [here, behind, gone], observation())
    follow = frozenset({"behind"})
    for known in ([], [here]):
        wanted = replace(plan.desired(key("lender"), known), following=follow)
        left = seen
        for step in plan.steps(wanted, seen, Source.STORE):
            left = after(left, step)
        assert {name for _, name in left.peers} == {"behind", *(one.metadata.uid for one in known)}
    assert plan.steps(replace(plan.desired(key("lender"), []), following=follow), left, Source.STORE) == [
        Remove(((Side.BORROWERS, "here"),))
    ]


def test_a_lender_that_migrates_takes_nothing_meanwhile() -> None:
    """One attribute changes, and changes back: nobody's pages are lost by it."""
    seen = settle("lender", [pairing()], observation())
    for migrating, hold in ((True, "1"), (False, "0")):
        wanted = plan.desired(key("lender"), [pairing()], migrating=migrating)
        (step,) = plan.steps(wanted, seen, Source.STORE)
        assert step == Set({"hold": hold})
        seen = after(seen, step)
    assert plan.desired(key("borrower"), [pairing()], migrating=True) == plan.desired(key("borrower"), [pairing()])


def test_ghost_mode_is_on_where_nothing_is_borrowed() -> None:
    """A lender learns what borrowing would bring; a borrower is spared the work, and an older module the question."""
    lender, borrower = settle("lender", [pairing()], observation()), settle("borrower", [pairing()], observation())
    assert lender.module is not None
    assert borrower.module is not None
    assert (lender.module.ghost, borrower.module.ghost) == ("NonInclusive", "Off")
    turned = plan.steps(
        plan.desired(key("lender"), [pairing("p2", lender="x", borrower="lender")]), lender, Source.STORE
    )
    assert turned[-1] == Measure("Off")
    older = replace(lender, module=replace(lender.module, ghost=""))
    assert plan.steps(plan.desired(key("lender"), [pairing()]), older, Source.STORE) == []


def test_without_a_module_for_the_kernel_nothing_is_tried() -> None:
    assert plan.steps(plan.desired(key("lender"), [pairing()]), observation(), None) == []


def test_nothing_is_loaded_for_a_pairing_that_is_being_deleted() -> None:
    assert plan.steps(plan.desired(key("lender"), [pairing(terminating=True)]), observation(), Source.STORE) == []


def test_a_size_changes_without_stopping_the_peer() -> None:
    seen = settle("borrower", [pairing()], observation())
    larger = pairing(size="300Mi")
    steps = plan.steps(plan.desired(key("borrower"), [larger]), seen, Source.STORE)
    assert steps == [Change(want(Side.LENDERS, larger), {"size_bytes": str(300 << 20)})]


def test_latency_and_filter_change_without_stopping_the_peer() -> None:
    """Item 3: the pool's thresholds reach the module as they are."""
    seen = settle("borrower", [pairing()], observation())
    thresholds = {"mode": "Thresholds", "short": {"resume": "2ms", "stop": "50ms"}}
    other = pairing(latency=thresholds, filter="Sequential")
    steps = plan.steps(plan.desired(key("borrower"), [other]), seen, Source.STORE)
    changed = {"breaker": "Thresholds", "breaker_short": "2000 50000", "sequential_filter": "1"}
    assert steps == [Change(want(Side.LENDERS, other), changed)]


def test_a_guest_gets_its_module_before_anybody_knows_its_peer() -> None:
    """It is what gives it an identity of its own; the peer follows when that one has one, too."""
    for guest, side in (("lender", Side.BORROWERS), ("borrower", Side.LENDERS)):
        waiting = pairing(identities=(None, None))
        steps = plan.steps(plan.desired(key(guest), [waiting]), observation(), Source.STORE)
        assert steps[0] == Load(Source.STORE)
        assert not [step for step in steps if isinstance(step, Configure)]
        seen = settle(guest, [waiting], observation())
        assert seen.peers == {}
        assert plan.steps(plan.desired(key(guest), [pairing()]), seen, Source.STORE) == [
            Configure(want(side, pairing()))
        ]


def test_another_identity_comes_without_stopping_the_peer() -> None:
    """It has loaded its module anew, and may be somewhere else, too."""
    rebooted = pairing(identities=(OTHER, OTHER))
    for guest, side in (("lender", Side.BORROWERS), ("borrower", Side.LENDERS)):
        seen = settle(guest, [pairing()], observation())
        steps = plan.steps(plan.desired(key(guest), [rebooted]), seen, Source.STORE)
        assert steps == [Change(want(side, rebooted), {"identity": OTHER})]
    moved = pairing(identities=(OTHER, OTHER), address="10.0.0.9")
    steps = plan.steps(
        plan.desired(key("borrower"), [moved]), settle("borrower", [pairing()], observation()), Source.STORE
    )
    assert steps == [Change(want(Side.LENDERS, moved), {"identity": OTHER, "address": "10.0.0.9"})]


def test_an_identity_that_is_not_known_for_a_moment_changes_nothing() -> None:
    for guest in ("lender", "borrower"):
        seen = settle(guest, [pairing()], observation())
        assert plan.steps(plan.desired(key(guest), [pairing(identities=(None, None))]), seen, Source.STORE) == []


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"address": "10.0.0.9"}, {"address": "10.0.0.9"}),
        ({"strategy": "Exclusive"}, {"strategy": "Exclusive"}),
        ({"deadline": "1s"}, {"deadline_us": "1000000"}),
    ],
)
def test_what_may_change_stops_no_peer(change: dict[str, str], written: dict[str, str]) -> None:
    """The session goes on, wherever the lender is now."""
    seen = settle("borrower", [pairing()], observation())
    other = pairing(**change)
    steps = plan.steps(plan.desired(key("borrower"), [other]), seen, Source.STORE)
    assert steps == [Change(want(Side.LENDERS, other), written)]


def test_a_pairing_sets_what_the_table_of_edits_says() -> None:
    """Every attribute that the agent writes is in it, but for what no pool says, and none that it does not write."""
    one = pairing()
    lender = plan.desired(key("lender"), [one])
    peers = (*lender.peers, *plan.desired(key("borrower"), [one]).peers)
    written = {*lender.settings, *(f"{want.side}/{name}" for want in peers for name in want.attributes)}
    assert written - {"hold"} == {name for way in WAYS for name in way.attributes}


def borrowing(one: MemoryPairing, address: str, **said: str) -> list[Step]:
    """What is done where the module has a lender at an address and says this of it."""
    peer = Peer({**want(Side.LENDERS, one).attributes, "enabled": "1", "address": address, **said})
    seen = observation(loaded=True, peers={(Side.LENDERS, one.metadata.uid): peer})
    return plan.steps(plan.desired(key("borrower"), [one]), seen, Source.STORE)


def test_a_lender_that_is_not_found_is_looked_for_at_its_next_address() -> None:
    one = pairing(address="2001:db8::2", others=("10.0.0.2",))
    lost = {"state": "Connecting", "reason": "Unreachable"}
    (turn,) = borrowing(one, "2001:db8::2", **lost)
    assert isinstance(turn, Turn)
    assert turn.address == "10.0.0.2"
    assert borrowing(one, "10.0.0.2", state="Connected") == []


def test_a_session_stays_where_it_is_while_another_address_is_named() -> None:
    """Until it ends; what was changed beside the address is carried out meanwhile, without stopping the peer."""
    flipped = pairing(address="10.0.2.2")
    assert borrowing(flipped, "10.0.0.2", state="Connected") == []
    moved = Change(want(Side.LENDERS, flipped), {"address": "10.0.2.2"})
    assert borrowing(flipped, "10.0.0.2", state="Connecting") == [moved]
    (change,) = borrowing(pairing(address="10.0.2.2", deadline="1s"), "10.0.0.2", state="Connected", deadline_us="1")
    assert isinstance(change, Change)
    assert change.attributes == {"deadline_us": "1000000"}
    (anew,) = borrowing(pairing(address="10.0.2.2"), "10.0.0.2", state="Connected", encryption="AES-GCM")
    assert isinstance(anew, Configure)
    assert anew.want.attributes["address"] == "10.0.0.2"


def test_a_session_goes_to_the_network_that_the_pool_names_and_no_page_is_lost() -> None:
    """Issue 28: the module takes the other address while enabled, though the old one works."""
    there = pairing(address="10.20.0.2", network={"cidrs": ["10.20.0.0/16"]})
    moved = Change(want(Side.LENDERS, there), {"address": "10.20.0.2"})
    assert borrowing(there, "10.0.0.2", state="Connected") == [moved]
    assert borrowing(there, "10.20.0.2", state="Connected") == []


def test_encryption_changes_at_the_borrower_alone() -> None:
    """The lender holds what it is given; it is not touched."""
    one, other = pairing(), pairing(encryption="AES-GCM")
    for guest, expected in (("borrower", [Configure(want(Side.LENDERS, other))]), ("lender", [])):
        seen = settle(guest, [one], observation())
        assert plan.steps(plan.desired(key(guest), [other]), seen, Source.STORE) == expected


def test_the_port_changes_while_nobody_is_served() -> None:
    """The module refuses another port while a borrower is enabled."""
    seen = settle("lender", [pairing()], observation())
    moved = pairing(port=7471)
    steps = plan.steps(plan.desired(key("lender"), [moved]), seen, Source.STORE)
    assert steps == [Remove(((Side.BORROWERS, "p1"),)), Set({"port": "7471"}), Configure(want(Side.BORROWERS, moved))]


@pytest.mark.parametrize("useless", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1"])
def test_a_guest_looks_for_no_lender_in_itself_or_on_its_own_link(useless: str) -> None:
    """Whoever has another node's agent names the addresses: a cloud's metadata service is not asked for a lender."""
    lost = want(Side.LENDERS, pairing(address=useless))
    assert (lost.addresses, lost.is_known, "address" in lost.attributes) == ((), False, False)
    made = plan.steps(plan.Desired({}, (lost,)), observation(loaded=True), None)
    assert not [step for step in made if isinstance(step, Configure)]
    (found,) = want(Side.LENDERS, pairing(address=useless, others=("10.0.0.2",))).addresses
    assert found == "10.0.0.2"
    (why,) = report.end(lost, Finding(seen=observation(loaded=True))).conditions
    assert (why.reason, "mean" in why.message) == ("PeerUnknown", True)


def test_two_spellings_of_an_address_are_one() -> None:
    one = pairing(address="2001:DB8:0:0::1")
    spelled = Peer({**want(Side.LENDERS, one).attributes, "address": "2001:db8::1", "enabled": "1"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): spelled})
    assert plan.steps(plan.desired(key("borrower"), [one]), seen, Source.STORE) == []


def test_what_was_left_half_done_is_done_again() -> None:
    one = pairing()
    half = Peer({**want(Side.LENDERS, one).attributes, "enabled": "0"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): half})
    assert plan.steps(plan.desired(key("borrower"), [one]), seen, Source.STORE) == [Configure(want(Side.LENDERS, one))]


@pytest.mark.parametrize("busy", [False, True])
def test_another_build_of_the_module_comes_when_nobody_uses_the_former_one(*, busy: bool) -> None:
    """Item 9: drained, replaced, and set up as it was."""
    one = pairing()
    peer = Peer({**want(Side.LENDERS, one).attributes, "enabled": "1"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): peer} if busy else {})
    steps = plan.steps(plan.desired(key("borrower"), [one]), seen, Source.STORE, replace=True)
    drained = [Remove(((Side.LENDERS, "p1"),))] if busy else []
    assert steps == [*drained, Replace(), Configure(want(Side.LENDERS, one))]


def test_the_first_source_that_fits_is_taken() -> None:
    assert plan.source(observation(installed=True), in_store=True) is Source.INSTALLED
    assert plan.source(observation(), in_store=True) is Source.STORE
    assert plan.source(observation(buildable=True), in_store=True) is Source.STORE
    assert plan.source(observation(buildable=True), in_store=False, may_build=True) is Source.DKMS
    assert plan.source(observation(buildable=True), in_store=False) is None
    assert plan.source(observation(), in_store=False) is None


def test_sizes_are_whole_pages_as_the_module_shows_them() -> None:
    assert want(Side.LENDERS, pairing(size="100M")).attributes["size_bytes"] == str(100_000_000 // 4096 * 4096)


def test_namesakes_are_told_apart_by_their_namespaces() -> None:
    """A guest that borrows from one of its own name elsewhere is no lender for it, and that one is no borrower."""
    one = pairing(lender="twin", borrower="twin")
    one = one.model_copy(update={"spec": one.spec.model_copy(update={"lender": of("rich", one.spec.lender)})})
    wanted = {guest: [peer.side for peer in plan.desired(guest, [one]).peers] for guest in one.ends}
    assert wanted == {GuestKey("rich", "twin"): [Side.BORROWERS], key("twin"): [Side.LENDERS]}


def of(namespace: str, end: LenderEnd) -> LenderEnd:
    """A lender of another namespace."""
    return end.model_copy(update={"namespace": namespace})
