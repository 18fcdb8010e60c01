"""From pairings and a guest's state to steps. The model guest below does what the module does with each step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import observation, pairing, want

from tidepool_agent import plan
from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.plan import (
    Change,
    Configure,
    Desired,
    Load,
    Measure,
    Rekey,
    Remove,
    Replace,
    Set,
    Source,
    Step,
    Unload,
)
from tidepool_api import BorrowerStatus, MemoryPairing, PairingStatus

UIDS = ("a", "b", "c", "d")
SIZES = ("16Mi", "100M", "1Gi")


def desired(guest: str, pairings: list[MemoryPairing]) -> Desired:
    """What is wanted where every peer that there is has its pairing's present key."""
    given = {(side, one.metadata.uid): one.spec.key_secret.name for one in pairings for side in Side}
    return plan.desired(guest, pairings, given)


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
            peers[wanted.key] = Peer({**wanted.attributes, "enabled": "1"})
        case Change(wanted, attributes):
            assert attributes.keys() <= plan.CHANGEABLE[wanted.side]
            present = peers[wanted.key]
            assert present.enabled
            peers[wanted.key] = Peer({**present.attributes, **attributes})
    return replace(seen, peers=peers)


def settle(guest: str, pairings: list[MemoryPairing], seen: Observation) -> Observation:
    wanted = desired(guest, pairings)
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
        }
        found.append(pairing(uid, **ends, **spec, terminating=draw(st.booleans())))
    return found


@given(st.data())
def test_any_sequence_of_wishes_and_reboots_is_followed(data: st.DataObject) -> None:
    """Whatever was there before, after one round the guest has what the pairings say and nothing else."""
    seen = observation()
    for _ in range(3):
        wished = data.draw(pairings("g"))
        if data.draw(st.booleans()):
            seen = observation()  # rebooted
        seen = settle("g", wished, seen)
        live = {one.metadata.uid for one in wished if not one.terminating}
        assert {name for _, name in seen.peers} == live
        assert (seen.module is not None) == bool(live)


@given(st.data())
def test_the_order_of_pairings_does_not_matter(data: st.DataObject) -> None:
    wished = data.draw(pairings("g"))
    shuffled = data.draw(st.permutations(wished))
    assert desired("g", wished) == desired("g", shuffled)


def test_a_lender_is_set_up_from_nothing() -> None:
    one = pairing()
    steps = plan.steps(desired("lender", [one]), observation(), Source.STORE)
    settings = {"port": "7470", "reserve_bytes": str(64 << 20), "lend_bytes": str(512 << 20)}
    lend = Configure(want(Side.BORROWERS, one))
    assert steps == [Load(Source.STORE), Set(settings), lend, Measure("NonInclusive")]


def test_ghost_mode_is_on_where_nothing_is_borrowed() -> None:
    """A lender learns what borrowing would bring; a borrower is spared the work, and an older module the question."""
    lender, borrower = settle("lender", [pairing()], observation()), settle("borrower", [pairing()], observation())
    assert lender.module is not None
    assert borrower.module is not None
    assert (lender.module.ghost, borrower.module.ghost) == ("NonInclusive", "Off")
    turned = plan.steps(desired("lender", [pairing("p2", lender="x", borrower="lender")]), lender, Source.STORE)
    assert turned[-1] == Measure("Off")
    older = replace(lender, module=replace(lender.module, ghost=""))
    assert plan.steps(desired("lender", [pairing()]), older, Source.STORE) == []


def test_without_a_module_for_the_kernel_nothing_is_tried() -> None:
    assert plan.steps(desired("lender", [pairing()]), observation(), None) == []


def test_nothing_is_loaded_for_a_pairing_that_is_being_deleted() -> None:
    assert plan.steps(desired("lender", [pairing(terminating=True)]), observation(), Source.STORE) == []


def test_a_size_changes_without_stopping_the_peer() -> None:
    seen = settle("borrower", [pairing()], observation())
    larger = pairing(size="300Mi")
    steps = plan.steps(desired("borrower", [larger]), seen, Source.STORE)
    assert steps == [Change(want(Side.LENDERS, larger), {"size_bytes": str(300 << 20)})]


def test_latency_and_filter_change_without_stopping_the_peer() -> None:
    """Item 3: the pool's thresholds reach the module as they are."""
    seen = settle("borrower", [pairing()], observation())
    thresholds = {"mode": "Thresholds", "short": {"resume": "2ms", "stop": "50ms"}}
    other = pairing(latency=thresholds, filter="Sequential")
    steps = plan.steps(desired("borrower", [other]), seen, Source.STORE)
    changed = {"breaker": "Thresholds", "breaker_short": "2000 50000", "sequential_filter": "1"}
    assert steps == [Change(want(Side.LENDERS, other), changed)]


def test_another_key_comes_without_stopping_the_peer() -> None:
    """Until it is known that the guest has it, from this agent's own memory or from the status."""
    seen = settle("borrower", [pairing()], observation())
    renewed = pairing(keySecret={"name": "p1-key-b"}, size="300Mi")
    wanted = plan.desired("borrower", [renewed], {(Side.LENDERS, "p1"): "p1-key"})
    assert wanted.peers == (replace(want(Side.LENDERS, renewed), key_secret="p1-key"),)
    rekey, change = plan.steps(wanted, seen, Source.STORE)
    assert rekey == Rekey(wanted.peers[0])
    assert change == Change(wanted.peers[0], {"size_bytes": str(300 << 20)})
    seen = after(seen, change)
    assert plan.steps(plan.desired("borrower", [renewed], {(Side.LENDERS, "p1"): "p1-key-b"}), seen, Source.STORE) == []
    status = PairingStatus(borrower=BorrowerStatus(key_secret="p1-key-b"))
    told = renewed.model_copy(update={"status": status})
    assert plan.steps(plan.desired("borrower", [told]), seen, Source.STORE) == []


def test_an_agent_that_does_not_know_which_key_a_peer_has_gives_it_again() -> None:
    seen = settle("lender", [pairing()], observation())
    assert plan.steps(plan.desired("lender", [pairing()]), seen, Source.STORE) == [
        Rekey(replace(want(Side.BORROWERS, pairing()), key_secret=None))
    ]


def test_an_address_cannot_change_without_stopping_the_peer() -> None:
    seen = settle("borrower", [pairing()], observation())
    moved = pairing(address="10.0.0.9")
    steps = plan.steps(desired("borrower", [moved]), seen, Source.STORE)
    assert steps == [Configure(want(Side.LENDERS, moved))]


def test_encryption_changes_at_the_borrower_alone() -> None:
    """The lender holds what it is given; it is not touched."""
    one, other = pairing(), pairing(encryption="AES-GCM")
    for guest, expected in (("borrower", [Configure(want(Side.LENDERS, other))]), ("lender", [])):
        seen = settle(guest, [one], observation())
        assert plan.steps(desired(guest, [other]), seen, Source.STORE) == expected


def test_the_port_changes_while_nobody_is_served() -> None:
    """The module refuses another port while a borrower is enabled."""
    seen = settle("lender", [pairing()], observation())
    moved = pairing(port=7471)
    steps = plan.steps(desired("lender", [moved]), seen, Source.STORE)
    assert steps == [Remove(((Side.BORROWERS, "p1"),)), Set({"port": "7471"}), Configure(want(Side.BORROWERS, moved))]


def test_two_spellings_of_an_address_are_one() -> None:
    one = pairing(address="2001:DB8:0:0::1")
    spelled = Peer({**want(Side.LENDERS, one).attributes, "address": "2001:db8::1", "enabled": "1"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): spelled})
    assert plan.steps(desired("borrower", [one]), seen, Source.STORE) == []


def test_what_was_left_half_done_is_done_again() -> None:
    one = pairing()
    half = Peer({**want(Side.LENDERS, one).attributes, "enabled": "0"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): half})
    assert plan.steps(desired("borrower", [one]), seen, Source.STORE) == [Configure(want(Side.LENDERS, one))]


@pytest.mark.parametrize("busy", [False, True])
def test_another_build_of_the_module_comes_when_nobody_uses_the_former_one(*, busy: bool) -> None:
    """Item 9: drained, replaced, and set up as it was."""
    one = pairing()
    peer = Peer({**want(Side.LENDERS, one).attributes, "enabled": "1"})
    seen = observation(loaded=True, peers={(Side.LENDERS, "p1"): peer} if busy else {})
    steps = plan.steps(desired("borrower", [one]), seen, Source.STORE, replace=True)
    drained = [Remove(((Side.LENDERS, "p1"),))] if busy else []
    assert steps == [*drained, Replace(), Configure(want(Side.LENDERS, one))]


def test_the_first_source_that_fits_is_taken() -> None:
    assert plan.source(observation(installed=True), in_store=True) is Source.INSTALLED
    assert plan.source(observation(), in_store=True) is Source.STORE
    assert plan.source(observation(buildable=True), in_store=True) is Source.STORE
    assert plan.source(observation(buildable=True), in_store=False) is Source.DKMS
    assert plan.source(observation(), in_store=False) is None


def test_sizes_are_whole_pages_as_the_module_shows_them() -> None:
    assert want(Side.LENDERS, pairing(size="100M")).attributes["size_bytes"] == str(100_000_000 // 4096 * 4096)
