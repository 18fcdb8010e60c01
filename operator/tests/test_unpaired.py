"""Memory that is still lent though its pairing is gone, and the agent that would take it down is dead."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cast import PAIRING, Agent, OperatorProcess, connected_pool, wait_for
from test_cross_namespace import Cluster
from world import LENDER, MIB, guest, pairing

from tidepool_api import GuestKey, MemoryGuest, cadence, find, names
from tidepool_operator.cluster.heartbeats import Heartbeats
from tidepool_operator.status.outcome import Outcome
from tidepool_operator.status.unpaired import Unpaired, conditions, lent_to, tell, unpaired

if TYPE_CHECKING:
    from collections.abc import Collection

B, C = GuestKey("ns", "b"), GuestKey("ns", "c")


def lender(*peers: dict[str, Any], lent: int = 0) -> MemoryGuest:
    """A guest that said this last; figures in MiB."""
    body = guest("l", LENDER).to_dict()
    body["status"]["memory"] |= {"lentBytes": lent * MIB}
    return MemoryGuest.parse(body | {"status": body["status"] | {"peers": list(peers)}})


def peer(name: str = "", held: int = 100, *, namespace: str = "ns", role: str = "Borrower") -> dict[str, Any]:
    found = {"namespace": namespace, "role": role, "heldBytes": held * MIB}
    return found | ({"guest": name} if name else {})


@pytest.mark.parametrize(
    ("one", "borrowers", "held", "named"),
    [
        (lender(peer("b")), [], 100, ("ns/b",)),
        (lender(peer("b"), peer("c", 50)), [B], 50, ("ns/c",)),
        (lender(peer(namespace="poor")), [B], 100, ("guests of namespace poor",)),
        (lender(lent=7), [], 7, ()),
    ],
)
def test_what_it_said_last_and_no_pairing_names(
    one: MemoryGuest, borrowers: Collection[GuestKey], held: int, named: tuple[str, ...]
) -> None:
    found = unpaired(one, borrowers)
    assert found is not None
    assert (found.held_bytes, found.borrowers) == (held * MIB, named)


@pytest.mark.parametrize(
    ("one", "borrowers"),
    [
        (lender(peer("b")), [B]),
        (lender(peer("b"), peer("c")), [B, C]),
        (lender(peer(namespace="poor")), [GuestKey("poor", "x")]),
        (lender(peer("x", role="Lender")), []),
        (lender(peer("b", 0)), []),
        (lender(lent=7), [C]),
        (lender(), []),
    ],
)
def test_what_a_pairing_names_or_nobody_holds_is_none(one: MemoryGuest, borrowers: Collection[GuestKey]) -> None:
    """A total is nobody's in particular, and while there is a pairing it may be that one's."""
    assert unpaired(one, borrowers) is None


def test_a_pairing_names_it_until_its_ends_are_taken_down() -> None:
    """One that is there for somebody else's finalizer alone names nobody."""
    one = pairing("b", "l", 64 * MIB, terminating=True)
    assert lent_to([one]) == {GuestKey("ns", "l"): {B}}
    body = one.to_dict()
    kept = type(one).parse(body | {"metadata": body["metadata"] | {"finalizers": ["example.com/mine"]}})
    assert lent_to([kept]) == {}


def test_it_is_said_and_taken_back_and_what_an_agent_says_stays() -> None:
    one = lender(peer("b"))
    said = find(conditions(one, unpaired(one, [])), "LendingPaired")
    assert said is not None
    assert (said.status, said.reason) == ("False", "AgentNotResponding")
    assert said.message.startswith("it held 100Mi for ns/b when its agent last looked, and no MemoryPairing names that")
    many = Unpaired(MIB, tuple(f"ns/b{at}" for at in range(8))).condition(one)
    assert "for ns/b0, ns/b1, ns/b2, ns/b3, ns/b4 and 3 more when" in many.message
    known = one.model_copy(update={"status": one.status.model_copy(update={"conditions": (said,)})})
    assert conditions(known, None) == ()
    own = said.model_copy(update={"reason": "WithoutPairing"})
    known = one.model_copy(update={"status": one.status.model_copy(update={"conditions": (own,)})})
    assert conditions(known, None) == (own,)


class Api:
    """An API server that notes what guests are said to be."""

    def __init__(self) -> None:
        self.said: list[list[str]] = []

    async def patch(self, _plural: str, namespace: str, name: str, body: dict[str, Any], **_more: Any) -> Any:
        self.said.append([one["reason"] for one in body["status"]["conditions"]])
        return {"metadata": {"name": name, "namespace": namespace}}


def told(cluster: Cluster, heartbeats: Heartbeats) -> tuple[dict[GuestKey, int], list[list[str]]]:
    api: Any = Api()
    held = asyncio.run(tell(api, cluster.state, heartbeats, Outcome("guests")))
    return dict(held), api.said


def lease(node: str, age: float) -> dict[str, Any]:
    renewed = datetime.now(UTC) - timedelta(seconds=age)
    return {"metadata": {"name": names.agent_lease(node)}, "spec": {"renewTime": renewed.isoformat()}}


def test_it_is_said_of_the_dead_taken_back_from_the_living_and_left_where_nobody_knows() -> None:
    """An operator that has just started knows no agent dead that has no Lease, and none alive either."""
    cluster, heartbeats = Cluster(), Heartbeats()
    one = lender(peer("b")).to_dict()
    cluster.put(names.GUESTS, "ns", "l", one["spec"], status=one["status"])
    assert told(cluster, heartbeats) == ({}, [])
    heartbeats.update([lease("n1", 600)])
    assert told(cluster, heartbeats) == ({GuestKey("ns", "l"): 100 * MIB}, [["Reachable", "AgentNotResponding"]])
    left = unpaired(lender(peer("b")), [])
    said = [one.to_dict() for one in conditions(lender(peer("b")), left)]
    cluster.put(names.GUESTS, "ns", "l", one["spec"], status=one["status"] | {"conditions": said})
    assert told(cluster, heartbeats)[1] == []
    assert told(cluster, Heartbeats()) == ({GuestKey("ns", "l"): 100 * MIB}, []), "who has just started shows nothing"
    heartbeats.update([])
    assert told(cluster, heartbeats) == ({GuestKey("ns", "l"): 100 * MIB}, []), (
        "it shows nothing until the agent is back"
    )
    heartbeats.update([lease("n1", 0)])
    assert told(cluster, heartbeats) == ({}, [["Reachable"]])


def test_of_many_guests_it_is_said_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone fails, and with it hundreds of agents: the API server has other things to do then."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    cluster, heartbeats = Cluster(), Heartbeats()
    one = lender(peer("b")).to_dict()
    for at in range(50):
        cluster.put(names.GUESTS, "ns", f"l{at}", one["spec"], status=one["status"])
    heartbeats.update([lease("n1", 600)])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    held, said = told(cluster, heartbeats)
    assert len(held) == len(said) == 50
    assert sum(slept) == pytest.approx(50 / cadence.GUEST_WRITES)


def test_a_pool_that_is_deleted_while_the_lenders_agent_is_dead(agent: Agent, own_operator: OperatorProcess) -> None:
    """The pairing goes without it, and an operator that has just started says what is left, until it is back."""
    series = f'tidepool_guest_unpaired_bytes{{guest="l",namespace="{agent.namespace}"}}'
    with own_operator:
        connected_pool(agent)
        shared = {"namespace": agent.namespace, "guest": "b", "role": "Borrower", "heldBytes": 300 * MIB}
        agent.guest("l", {"memory": "spare"}, peers=[shared])
    agent.die()
    agent.renew(at=(datetime.now(UTC) - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    with own_operator:
        agent.server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false")
        wait_for("pairing gone", lambda: agent.is_gone("tpair", PAIRING))
    with own_operator:
        wait_for("it is said", lambda: _said(agent).get("status") == "False")
        assert f"it held 300Mi for {agent.namespace}/b when its agent last looked" in _said(agent)["message"]
        wait_for("metric", lambda: series in own_operator.get("/metrics"))
        assert own_operator.figure("tidepool_guest_unpaired_bytes") == 300 * MIB
        before = own_operator.figure("tidepool_operator_api_writes_total")
        agent.renew()
        wait_for("it is no longer said", lambda: not _said(agent))
        wait_for("no metric", lambda: series not in own_operator.get("/metrics"))
        assert own_operator.figure("tidepool_operator_api_writes_total") - before <= 2


def _said(agent: Agent) -> dict[str, Any]:
    found = agent.server.get("-n", agent.namespace, "tguest", "l")["status"]["conditions"]
    return next((one for one in found if one["type"] == "LendingPaired"), {})
