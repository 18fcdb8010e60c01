"""From which guests memory is gathered for their nodes: whom a pool may name, and what their agents are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from cast import BORROWS, GIB, Agent, wait_for
from test_nodes import HOME, TEAM, Nodes, told
from test_nodes_live import grant, node
from world import BORROWER, LENDER, reasons

from tidepool_api import names
from tidepool_operator.cluster.donors import Donors

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

IDLE = {"memory": "idle"}
BALLOON = names.BALLOON_ANNOTATION


class Cluster(Nodes):
    """A node that lends to a team, and guests of the team on it."""

    def __init__(self) -> None:
        super().__init__("n1")
        self.donors = Donors(self.state, self.lenders)
        self.may(TEAM)
        self.team(balloon={"selector": {"matchLabels": IDLE}, "reserve": "2Gi"})

    def asks(self, name: str = "pool", *, pool: dict[str, Any] | None = None, **balloon: Any) -> None:
        """A pool that gathers."""
        lenders = {"nodes": {"maxLend": "4Gi", "balloon": {"selector": {"matchLabels": IDLE}, **balloon}}}
        borrowers = {"selector": {"matchLabels": BORROWER}, "size": "512Mi"}
        self.put(names.POOLS, TEAM, name, {"lenders": lenders, "borrowers": borrowers, **(pool or {})})

    def told(self, *claimed: str, steady: bool = False, namespace: str = TEAM) -> dict[str, str | None]:
        """What guests are to be marked with, beside what they are."""
        return {one.guest.name: one.reserve for one in self.donors.news(namespace, claimed, steady=steady)}

    def marked(self, name: str, reserve: str = "2Gi", *, namespace: str = TEAM, **more: Any) -> None:
        """A guest that has its mark."""
        self.guest(namespace, name, IDLE, **more)
        one = self.state.guests.get(namespace, name)
        assert one is not None
        self.version += 1
        body = one.to_dict()
        body["metadata"] |= {"resourceVersion": str(self.version), "annotations": {BALLOON: reserve}}
        self.state.guests.put(body)


def test_idle_guests_on_nodes_that_lend_are_marked() -> None:
    """Those that the selector matches, with what stays available in them; others and guests elsewhere are not."""
    cluster = Cluster()
    cluster.guest(TEAM, "d", IDLE, node="n1")
    cluster.guest(TEAM, "far", IDLE, node="n2")
    cluster.guest(TEAM, "other", LENDER, node="n1")
    cluster.guest("strangers", "s", IDLE, node="n1")
    assert cluster.told() == {"d": "2Gi"}
    assert cluster.told(namespace="strangers") == {}
    cluster.marked("d", node="n1")
    assert cluster.told() == {}
    cluster.asks(reserve="1Gi")
    assert cluster.told() == {"d": "1Gi"}


def test_a_pool_says_that_there_is_nobody_to_gather_from() -> None:
    """As a word, and no harm: its nodes lend what they have."""
    cluster = Cluster()
    cluster.guest(TEAM, "far", IDLE, node="n2")
    planned = cluster.made()
    assert reasons(planned) == ["NoDonors"]
    assert "(memory=idle); guest far would, on other nodes; label a virtual machine there so" in told(planned)
    assert not planned.problems[0].leaves_out(planned.unserved)
    assert planned.assignments
    cluster.guest(TEAM, "d", IDLE, node="n1")
    assert reasons(cluster.made()) == []


def test_nobody_is_touched_where_no_pool_names_a_balloon() -> None:
    cluster = Cluster()
    cluster.team()
    cluster.guest(TEAM, "d", IDLE, node="n1")
    assert cluster.told() == {}


def test_a_node_that_is_not_granted_gathers_nothing() -> None:
    """The node is the cluster's: without its MemoryGrant, or not selected, it lends this pool nothing."""
    cluster = Cluster()
    cluster.marked("d", node="n1")
    assert cluster.told() == {}
    cluster.state.grants.remove(HOME, "grant", f"{HOME}-grant")
    assert cluster.told() == {"d": None}


def test_who_lends_or_borrows_is_no_donor() -> None:
    """By a plan, or by a pairing that is still there; one that moves away is marked no more."""
    cluster = Cluster()
    cluster.marked("d", node="n1")
    assert cluster.told("d") == {"d": None}
    cluster.guest(TEAM, "b", BORROWER | IDLE, node="n1")
    cluster.done(TEAM, cluster.made())
    assert [one.borrower.name for one in cluster.state.pairings.in_namespace(TEAM)] == ["b"]
    assert cluster.told() == {}
    cluster.marked("d", node="n2")
    assert cluster.told() == {"d": None}


def test_a_guest_that_lends_to_another_namespace_is_no_donor() -> None:
    cluster = Cluster()
    cluster.marked("d", node="n1")
    cluster.guest("others", "b", BORROWER)
    spec = {
        "pool": "pool",
        "size": "512Mi",
        "lender": {"guest": "d", "namespace": TEAM, "nodeName": "n1", "address": "10.0.0.1"},
        "borrower": {"guest": "b", "nodeName": "n2"},
    }
    base = {"encryption": "None", "strategy": "NonInclusive", "maxLend": "1Gi", "reserve": "1Gi"}
    cluster.put(names.PAIRINGS, "others", "p", base | spec)
    assert cluster.told() == {"d": None}


def test_of_two_pools_the_larger_reserve_holds() -> None:
    """And when that pool goes, the other's."""
    cluster = Cluster()
    cluster.marked("d", node="n1")
    cluster.asks("careful", reserve="3Gi")
    assert cluster.told() == {"d": "3Gi"}
    cluster.asks("careless", reserve="1Gi")
    assert cluster.told() == {"d": "3Gi"}
    cluster.state.pools.remove(TEAM, "careful", f"{TEAM}-careful")
    assert cluster.told() == {}


def test_a_pool_that_is_held_keeps_its_donors_and_takes_no_others() -> None:
    cluster = Cluster()
    cluster.marked("d", node="n1")
    cluster.guest(TEAM, "late", IDLE, node="n1")
    cluster.asks(reserve="2Gi", pool={"paused": True})
    assert cluster.told() == {}


def test_a_pool_that_nobody_can_read_takes_nothing_from_its_donors() -> None:
    """Unless they lend or borrow meanwhile; and when it is gone they have all of their memory again."""
    cluster = Cluster()
    cluster.marked("d", node="n1")
    cluster.state.pools.remove(TEAM, "pool", f"{TEAM}-pool")
    assert cluster.told(steady=True) == {}
    assert cluster.told("d", steady=True) == {"d": None}
    assert cluster.told() == {"d": None}
    assert TEAM in cluster.state.namespaces()


# ----------------------------------------------------------------------------------------- beside a real API server


def mark(agent: Agent, name: str) -> str | None:
    meta = agent.server.get("tguest", name, "-n", agent.namespace)["metadata"]
    found: str | None = meta.get("annotations", {}).get(BALLOON)
    return found


@pytest.mark.usefixtures("operator")
def test_a_pool_comes_and_goes(agent: Agent, cluster: Server, namespace: str) -> None:
    """By `kubectl apply`: the donor is marked, loses the mark when it is to lend, and when its pool goes."""
    with node(cluster, namespace) as there:
        there.lend()
        grant(cluster, namespace)
        agent.guest("b", BORROWS, address="10.0.0.2", node=there.node)
        agent.guest("d", IDLE, node=there.node, available=GIB)
        nodes = {"selector": {"matchLabels": {"room": there.node}}, "maxLend": "4Gi"}
        gathers = {"nodes": nodes | {"balloon": {"selector": {"matchLabels": IDLE}}}}
        agent.pool(lenders=gathers)
        wait_for("marked", lambda: mark(agent, "d") == "1Gi")
        assert mark(agent, "b") is None
        agent.guest("d", IDLE, node=there.node, available=GIB, balloon={"fullBytes": 2 * GIB, "gatheredBytes": GIB})
        assert mark(agent, "d") == "1Gi"
        agent.pool("second", lends="idle", borrows="nobody")
        wait_for("to lend", lambda: mark(agent, "d") is None)
        cluster.kubectl("delete", "tpool", "second", "-n", namespace)
        wait_for("marked again", lambda: mark(agent, "d") == "1Gi")
        cluster.kubectl("delete", "tpool", "pool", "-n", namespace, "--wait=false")
        wait_for("given back", lambda: mark(agent, "d") is None)
        for name in agent.pairings():
            for side in ("lender", "borrower"):
                agent.release(name, side)
        wait_for("gone", lambda: agent.is_gone("tpool", "pool"))
        cluster.kubectl("delete", "tguest", "-n", "tidepool-system", there.node)
