"""Nodes lend by `kubectl apply`: the operator beside a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cast import BORROWS, GIB, OWN_NAMESPACE, Agent, identity_of, wait_for

from tidepool_api import Provider, names

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

pytestmark = pytest.mark.usefixtures("operator")

NODES = {"nodes": {"maxLend": "4Gi"}}


class Node(Agent):
    """The agent of a node that lends its own memory."""

    def lend(self, *, identity: str = "", ready: bool = True) -> None:
        """Publishes the node."""
        terms = {"maxLendBytes": 8 * GIB, "reserveBytes": GIB, "port": 7470}
        labels = {"room": self.node}
        known = identity or identity_of(self.node)
        more: dict[str, Any] = {"terms": terms, "identity": known, "address": "10.0.0.9", "total": 16 * GIB}
        self.guest(self.node, labels, provider=Provider.NODE, ready=ready, **more)


def node(cluster: Server, namespace: str) -> Node:
    """A node for one test."""
    return Node(cluster, OWN_NAMESPACE, f"node-of-{namespace}")


def grant(cluster: Server, namespace: str) -> None:
    """The administrator of the cluster lets a namespace use nodes."""
    spec = {"to": [{"namespace": namespace}]}
    meta = {"name": f"nodes-for-{namespace}", "namespace": OWN_NAMESPACE}
    cluster.apply({"apiVersion": names.API_VERSION, "kind": "MemoryGrant", "metadata": meta, "spec": spec})


def only(agent: Agent) -> dict[str, Any]:
    """The pairing, when there is just one."""
    found = list(agent.pairings().values())
    return found[0] if len(found) == 1 else {}


def lenders(name: str) -> dict[str, Any]:
    """What a pool says of its lenders that asks for one node alone."""
    return {"nodes": {"maxLend": "4Gi", "selector": {"matchLabels": {"room": name}}}}


def test_a_node_lends_to_a_pool_that_is_granted_it(agent: Agent, cluster: Server, namespace: str) -> None:
    """Nobody before the grant; then a pairing with the node's address and identity, which follows another identity.

    When the grant is withdrawn the node is given back.
    """
    with node(cluster, namespace) as there:
        there.lend()
        agent.guest("b", BORROWS, address="10.0.0.2")
        agent.pool(lenders=lenders(there.node))
        message = agent.wait_for_reason("LendersGranted", "NotGranted")["message"]
        assert f"no MemoryGrant of namespace {OWN_NAMESPACE}" in message
        assert agent.pairings() == {}
        grant(cluster, namespace)
        made = wait_for("pairing", lambda: only(agent))
        lender = {"guest": there.node, "namespace": OWN_NAMESPACE, "nodeName": there.node, "address": "10.0.0.9"}
        assert made["spec"]["lender"].items() >= lender.items()
        assert (made["spec"]["maxLend"], made["spec"]["reserve"]) == ("4Gi", "1Gi")
        agent.connect(made["metadata"]["name"])
        wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
        name, anew = made["metadata"]["name"], identity_of("restarted")
        there.lend(identity=anew)
        wait_for("the new identity", lambda: agent.pairing(name)["spec"]["lender"]["identity"] == anew)
        cluster.kubectl("delete", "tgrant", "-n", OWN_NAMESPACE, f"nodes-for-{namespace}")
        wait_for("given back", lambda: "deletionTimestamp" in only(agent)["metadata"])
        for side in ("lender", "borrower"):
            agent.release(name, side)
        wait_for("gone", lambda: agent.pairings() == {})
        cluster.kubectl("delete", "tguest", "-n", OWN_NAMESPACE, there.node)


def test_a_pool_is_told_what_is_the_matter_with_its_node(agent: Agent, cluster: Server, namespace: str) -> None:
    """A daemon that is down: the pool repeats what the node's agent says of it."""
    with node(cluster, namespace) as there:
        there.lend(ready=False)
        grant(cluster, namespace)
        agent.guest("b", BORROWS, address="10.0.0.2")
        agent.pool(lenders=lenders(there.node))
        said = agent.wait_for_reason("GuestsReady", "GuestNotReady")["message"]
        assert f"{OWN_NAMESPACE}/{there.node} (NotConnected: " in said
        there.lend()
        wait_for("pairing", lambda: only(agent))
        agent.pool(lenders=lenders("nowhere"))
        said = agent.wait_for_reason("LendersFound", "NoLenders")["message"]
        assert "matches spec.lenders.nodes.selector (room=nowhere)" in said
        cluster.kubectl("delete", "tguest", "-n", OWN_NAMESPACE, there.node)
