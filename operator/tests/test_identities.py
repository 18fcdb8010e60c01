"""The operator names the guests of a pairing by their modules' keys, believes nobody another's, and says what lacks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cast import BORROWS, LENDS, PAIRING, Agent, connected_pool, identity_of, wait_for
from world import BORROWER, LENDER, LONG_AGO, MIB, guest, pairing

from tidepool_api import MemoryGuest, MemoryPairing, PairingStatus, Status
from tidepool_operator.planning import identities
from tidepool_operator.planning.identities import Claims, claims

if TYPE_CHECKING:
    from collections.abc import Mapping

L, B = identity_of("l"), identity_of("b")


def reporting(**identity: str | None) -> dict[str, MemoryGuest]:
    """Guests by name, each with the identity that it reports."""
    found = {}
    for name, one in identity.items():
        made = guest(name, LENDER if name == "l" else BORROWER)
        found[name] = made.model_copy(update={"status": made.status.model_copy(update={"identity": one})})
    return found


def nameless(one: MemoryPairing) -> MemoryPairing:
    """A pairing that has just been made."""
    ends = {side: getattr(one.spec, side).model_copy(update={"identity": None}) for side in ("lender", "borrower")}
    return one.model_copy(update={"spec": one.spec.model_copy(update=ends)})


def given(one: MemoryPairing, conditions: tuple[Any, ...] = (), **peers: str) -> MemoryPairing:
    """A pairing whose ends say which identity of their peer they have."""
    ends = {side: {"peerIdentity": identity} for side, identity in peers.items()}
    status = PairingStatus.model_validate(ends).model_copy(update={"conditions": conditions})
    return one.model_copy(update={"status": status})


PAIR = pairing("b", "l", 512 * MIB)


def test_a_new_pairing_is_named_by_what_its_guests_report() -> None:
    fresh = nameless(PAIR)
    assert identities.news(fresh, claims(reporting(l=None, b=None), [fresh])) == {}
    half = identities.news(fresh, claims(reporting(l=L, b=None), [fresh]))
    assert half == {"lender": {"identity": L}}
    whole = identities.news(fresh, claims(reporting(l=L, b=B), [fresh]))
    assert whole == {"lender": {"identity": L}, "borrower": {"identity": B}}
    assert identities.news(PAIR, claims(reporting(l=L, b=B), [PAIR])) == {}


def test_a_pairing_of_guests_that_have_the_module_is_made_with_their_names() -> None:
    spec = {side: {"guest": side[0]} for side in ("lender", "borrower")} | {"size": "512Mi"}
    half = identities.introduced(spec, "l", "b", claims(reporting(l=L, b=None), []))
    assert half == spec | {"lender": {"guest": "l", "identity": L}}
    whole = identities.introduced(spec, "l", "b", claims(reporting(l=L, b=B), []))
    assert whole == half | {"borrower": {"guest": "b", "identity": B}}


@pytest.mark.parametrize("known", [{}, {"l": None, "b": None}, {"l": L, "b": None}])
def test_what_is_not_known_now_stays(known: dict[str, str | None]) -> None:
    """An agent that is down, a guest that is gone for a moment, a module that is about to be loaded again."""
    assert identities.news(PAIR, claims(reporting(**known), [PAIR])) == {}


def test_an_identity_of_a_guest_elsewhere_is_its_own() -> None:
    """A lender takes an identity from one borrower only: a copy in another namespace would keep that one out."""
    theirs = PAIR.model_copy(update={"metadata": PAIR.metadata.model_copy(update={"namespace": "theirs"})})
    lender = theirs.spec.lender.model_copy(update={"namespace": "ns"})
    theirs = theirs.model_copy(update={"spec": theirs.spec.model_copy(update={"lender": lender})})
    others = identities.elsewhere("ns", [theirs])
    assert others == {L: "l", B: "theirs/b"}
    fresh = nameless(pairing("c", "l", 512 * MIB))
    posing = claims(reporting(l=L, c=B), [fresh], others)
    assert (posing.believed, posing.disputed) == ({"l": L}, {"c": B})
    assert identities.news(fresh, posing) == {"lender": {"identity": L}}


def test_a_module_that_was_loaded_anew_has_its_pairings_follow() -> None:
    second = pairing("c", "l", 512 * MIB)
    anew = claims(reporting(l=identity_of("l", 1), b=B, c=identity_of("c")), [PAIR, second])
    for one in (PAIR, second):
        assert identities.news(one, anew) == {"lender": {"identity": identity_of("l", 1)}}


@pytest.mark.parametrize(
    ("reported", "pairings", "believed"),
    [
        # who has it keeps it, be it that it is silent now
        ({"b": B, "thief": B}, [PAIR], {"b": B}),
        ({"b": None, "thief": B}, [PAIR], {}),
        ({"thief": B}, [PAIR], {}),
        ({"l": B, "b": B}, [PAIR], {"b": B}),
        # who has none yet is not believed while another says the same
        ({"b": B, "thief": B}, [nameless(PAIR)], {}),
        # the owner has another one by now and so does its pairing: the old one is worth nothing
        ({"b": identity_of("b", 1), "thief": B}, [PAIR], {"b": identity_of("b", 1)}),
    ],
)
def test_nobody_is_believed_anothers(
    reported: Mapping[str, str | None], pairings: list[MemoryPairing], believed: dict[str, str]
) -> None:
    found = claims(reporting(**reported), pairings)
    assert found.believed == believed
    assert found.disputed.keys() == {name for name, one in reported.items() if one and name not in believed}


def test_what_is_missing_is_said_with_whom_it_waits_for() -> None:
    steps = [
        (nameless(PAIR), "IdentityUnknown", "of lender l and borrower b, which is known once the module is loaded"),
        (PAIR, "IdentityNotGiven", "to lender l that of borrower b and to borrower b that of lender l"),
        (given(PAIR, lender=B), "IdentityNotGiven", "to borrower b that of lender l"),
        (given(PAIR, lender=identity_of("b", 7), borrower=L), "IdentityNotGiven", "to lender l that of borrower b"),
        (given(PAIR, lender=B, borrower=L), "Exchanged", "each guest has been given the other's identity"),
    ]
    for one, reason, message in steps:
        said = identities.judge(one, Claims(), LONG_AGO)
        assert (said.status, said.reason) == (Status.of(reason == "Exchanged"), reason)
        assert said.message.endswith(message) or message in said.message


def test_what_takes_too_long_is_complained_about_once() -> None:
    behind = given(PAIR, lender=B)
    first = identities.judge(behind, Claims(), LONG_AGO)
    begun = given(PAIR, (first.model_copy(update={"last_transition_time": LONG_AGO}),), lender=B)
    early = identities.judge(begun, Claims(), LONG_AGO + timedelta(minutes=4))
    late = identities.judge(begun, Claims(), LONG_AGO + timedelta(minutes=5))
    assert (early.reason, late.reason) == ("IdentityNotGiven", "Overdue")
    assert "to borrower b that of lender l; this takes longer than 5 minutes" in late.message
    assert not identities.is_overdue(begun, LONG_AGO + timedelta(minutes=4))
    assert identities.is_overdue(begun, LONG_AGO + timedelta(minutes=5))
    assert identities.is_bad_news(begun, late)
    assert not identities.is_bad_news(begun, early)
    assert not identities.is_bad_news(given(PAIR, (late,), lender=B), late)
    done = identities.judge(given(begun, begun.status.conditions, lender=B, borrower=L), Claims(), LONG_AGO)
    assert done.status is Status.TRUE


def test_a_dispute_names_the_guest_and_what_to_do() -> None:
    known = claims(reporting(l=L, b=identity_of("c"), c=identity_of("c")), [PAIR])
    said = identities.judge(given(PAIR, lender=B, borrower=L), known, LONG_AGO)
    assert (said.status, said.reason) == (Status.FALSE, "IdentityDisputed")
    assert (
        f"borrower b reports the identity {identity_of('c')}, which another guest has or reports, too" in said.message
    )


def exchange(agent: Agent) -> dict[str, Any]:
    conditions = agent.pairing(PAIRING).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "IdentitiesExchanged"), {})


@pytest.mark.usefixtures("operator")
def test_a_pairing_waits_for_its_guests_and_outlives_their_reboots(agent: Agent) -> None:
    """Made before anybody has a module, named when both have, and named anew without being made anew."""
    agent.guest("l", LENDS, identity=None)
    agent.guest("b", BORROWS, address="10.0.0.2", identity=None)
    agent.pool()
    wait_for("condition", lambda: exchange(agent).get("reason") == "IdentityUnknown")
    made = agent.pairing(PAIRING)
    assert made["status"]["phase"] == "Pending"
    assert agent.condition("Degraded")["status"] == "False"
    agent.guest("l", LENDS)
    agent.guest("b", BORROWS, address="10.0.0.2")
    wait_for("condition", lambda: exchange(agent).get("reason") == "IdentityNotGiven")
    agent.connect(PAIRING)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    assert exchange(agent).get("reason") == "Exchanged"
    agent.guest("l", LENDS, identity=None)
    agent.guest("l", LENDS, identity=identity_of("l", 1))
    wait_for("named anew", lambda: agent.pairing(PAIRING)["spec"]["lender"]["identity"] == identity_of("l", 1))
    wait_for("condition", lambda: exchange(agent).get("reason") == "IdentityNotGiven")
    agent.report(PAIRING, "lender", state="Listening")
    agent.report(PAIRING, "borrower", state="Rejected", peerIdentity=L)
    wait_for("Event", lambda: (PAIRING, "IdentityChanged") in agent.events())
    assert agent.condition("Degraded")["status"] == "False"
    agent.connect(PAIRING)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready" and exchange(agent).get("reason") == "Exchanged")
    assert agent.pairing(PAIRING)["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.usefixtures("operator")
def test_a_paused_pool_outlives_a_reboot(agent: Agent) -> None:
    """That everything stays as it is takes another identity there."""
    connected_pool(agent)
    agent.pool(paused=True)
    wait_for("paused", lambda: agent.condition("ChangesPending"))
    agent.guest("b", BORROWS, address="10.0.0.2", identity=identity_of("b", 1))
    wait_for("named anew", lambda: agent.pairing(PAIRING)["spec"]["borrower"]["identity"] == identity_of("b", 1))


@pytest.mark.usefixtures("operator")
def test_an_identity_of_another_is_not_taken_over(agent: Agent) -> None:
    connected_pool(agent)
    agent.guest("l", LENDS, identity=B)
    wait_for("condition", lambda: exchange(agent).get("reason") == "IdentityDisputed")
    assert agent.pairing(PAIRING)["spec"]["lender"]["identity"] == L
    agent.guest("l", LENDS)
    wait_for("condition", lambda: exchange(agent).get("reason") == "Exchanged")


def test_a_guest_that_is_made_up_disputes_nobodys_identity(agent: Agent) -> None:
    """An agent sees what each guest reports: by saying the same it would keep pairings of other nodes from pages."""
    fresh = identity_of("b", 9)
    connected_pool(agent)
    agent.guest("made-up", {}, identity=fresh, owned=False)
    agent.guest("b", BORROWS, identity=fresh)
    wait_for("new identity", lambda: agent.pairing(PAIRING)["spec"]["borrower"]["identity"] == fresh)
    agent.delete_guest("made-up")
