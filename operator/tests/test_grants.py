"""Memory leaves a namespace only where a grant in that namespace says so (issue 4, item 5: Safety)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cast import Agent, wait_for

from tidepool_api import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidepool_api_testing.server import Server

LENDS = {"memory": "spare"}
BORROWS = {"memory": "short"}

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def owner(cluster: Server, namespace: str) -> Iterator[Agent]:
    """The agent of another namespace, which has a guest with memory to spare."""
    cluster.kubectl("create", "namespace", f"{namespace}-rich")
    with Agent(cluster, f"{namespace}-rich", f"node-of-{namespace}-rich") as one:
        one.guest("l", LENDS, address="10.0.0.9")
        yield one


def grant(owner: Agent, to: str, **more: Any) -> None:
    """What the owners of the guest write."""
    owner.server.apply(
        {
            "apiVersion": names.API_VERSION,
            "kind": "MemoryGrant",
            "metadata": {"name": "grant", "namespace": owner.namespace},
            "spec": {"to": [{"namespace": to}], **more},
        }
    )


def borrowing(agent: Agent, owner: Agent) -> None:
    """A pool that asks for lenders of the other namespace."""
    agent.guest("b", BORROWS, address="10.0.0.2")
    agent.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "1Gi", "namespaces": [owner.namespace]})


def only(agent: Agent) -> dict[str, Any]:
    """The pairing, when there is just one."""
    found = list(agent.pairings().values())
    return found[0] if len(found) == 1 else {}


def test_a_grant_says_who_makes_use_of_it(agent: Agent, owner: Agent) -> None:
    """Its owners see it on the grant itself, and on their quota, without a right in the namespace that borrows."""
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryQuota"}
    quota = {**head, "metadata": {"name": "quota", "namespace": owner.namespace}, "spec": {"maxLent": "600Mi"}}
    owner.server.apply(quota)
    borrowing(agent, owner)
    grant(owner, agent.namespace)
    made = wait_for("pairing", lambda: only(agent))["metadata"]["name"]
    agent.wait_for_names(made)
    agent.report(made, "lender", state="Connected", bootID="1", lentBytes=300 << 20)

    def used() -> dict[str, Any]:
        status: dict[str, Any] = owner.server.get("memorygrants", "grant", "-n", owner.namespace).get("status", {})
        return status if status.get("lent") == "300Mi" else {}

    found = wait_for("the grant says it", used, 60)
    (use,) = found["uses"]
    assert use == {
        "namespace": agent.namespace,
        "pool": "pool",
        "pairings": 1,
        "sizeBytes": 512 << 20,
        "lentBytes": 300 << 20,
    }

    def counted() -> Any:
        return owner.server.get("memoryquotas", "quota", "-n", owner.namespace).get("status")

    wait_for("the quota says it", lambda: counted() == {"borrowed": "0", "lent": "512Mi"})
    owner.server.kubectl("delete", "memorygrants", "-n", owner.namespace, "grant")


def test_a_grant_lets_memory_out_and_its_end_takes_it_back(agent: Agent, owner: Agent) -> None:
    """Nothing without one, nor with one for guests with other labels."""
    borrowing(agent, owner)
    agent.wait_for_reason("LendersFound", "NoLenders")
    grant(owner, agent.namespace, selector={"matchLabels": {"memory": "none"}})
    owner.guest("l", LENDS, address="10.0.0.8")
    agent.wait_for_reason("LendersFound", "NoLenders")
    assert agent.pairings() == {}
    grant(owner, agent.namespace)
    wait_for("pairing", lambda: only(agent))
    lender = only(agent)["spec"]["lender"]
    assert (lender["namespace"], lender["guest"], lender["nodeName"]) == (owner.namespace, "l", owner.node)
    agent.connect(only(agent)["metadata"]["name"])
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    owner.server.kubectl("delete", "tgrant", "-n", owner.namespace, "grant")
    wait_for("deletion", lambda: only(agent)["metadata"].get("deletionTimestamp"))


def test_a_pool_that_is_held_has_nothing_without_a_grant(agent: Agent, owner: Agent) -> None:
    """Issue 28, 1: a pairing written by hand goes at once, and an honest one when its grant does, paused or not."""
    borrowing(agent, owner)
    agent.pool(paused=True)
    end = {"guest": "l", "namespace": owner.namespace, "nodeName": owner.node, "address": "10.0.0.9"}
    by_hand = {
        "apiVersion": names.API_VERSION,
        "kind": "MemoryPairing",
        "metadata": {"name": "by-hand", "namespace": agent.namespace, "finalizers": [names.LENDER_FINALIZER]},
        "spec": {
            "pool": "pool",
            "lender": end,
            "borrower": {"guest": "b", "nodeName": agent.node},
            "size": "512Mi",
            "reserve": "256Mi",
            "maxLend": "1Gi",
        },
    }
    agent.server.create(by_hand)
    wait_for("deletion", lambda: only(agent)["metadata"].get("deletionTimestamp"))
    assert "identity" not in only(agent)["spec"]["lender"]
    wait_for("Event", lambda: ("by-hand", "NotGranted") in agent.events())
    agent.release("by-hand", "lender")
    wait_for("gone", lambda: not agent.pairings())
    grant(owner, agent.namespace)
    agent.server.create(by_hand)
    wait_for("identity", lambda: "identity" in only(agent)["spec"]["lender"])
    owner.server.kubectl("delete", "tgrant", "-n", owner.namespace, "grant")
    wait_for("deletion", lambda: only(agent)["metadata"].get("deletionTimestamp"))


def test_a_pool_at_home_comes_first(agent: Agent, owner: Agent) -> None:
    """A granted guest is selected in its own namespace: the other one gives it back, and only then it is used there."""
    grant(owner, agent.namespace)
    borrowing(agent, owner)
    wait_for("pairing", lambda: only(agent))
    name = only(agent)["metadata"]["name"]
    owner.guest("home", BORROWS, address="10.0.0.3")
    owner.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "512Mi"})
    assert f"{owner.namespace}/pool, which is" in agent.wait_for_reason("RolesConsistent", "GuestClaimed")["message"]
    wait_for("deletion", lambda: agent.pairing(name)["metadata"].get("deletionTimestamp"))
    assert owner.pairings() == {}
    agent.release(name, "lender")
    agent.release(name, "borrower")
    wait_for("pairing at home", lambda: list(owner.pairings()) == ["pool.home.l"])
