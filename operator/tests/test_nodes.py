"""Nodes that lend: which a pool may have, how much of them, and what is said where there is none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from test_cross_namespace import Cluster
from world import BORROWER, LENDER, LONG_AGO, MIB, mib, reasons

from tidepool_api import names
from tidepool_api.defaults import MOST_BORROWERS
from tidepool_operator.cluster.cross_namespace import pairings_elsewhere
from tidepool_operator.cluster.nodelenders import NodeLenders
from tidepool_operator.planning import build
from tidepool_operator.planning.inventory import Inventory, Node
from tidepool_operator.planning.planner import Plan, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME, TEAM = "tidepool-system", "team"
WORKER = {"pool": "worker"}


class Nodes(Cluster):
    """A cluster with nodes that lend."""

    def __init__(self, *nodes: str, **more: Any) -> None:
        super().__init__()
        self.state.home = HOME
        self.lenders = NodeLenders(self.state)
        for name in nodes:
            self.node(name, **more)

    def node(
        self, name: str, labels: dict[str, str] | None = None, *, free: int = 16384, most: int = 8192, port: int = 7470
    ) -> None:
        """A node that lends; sizes in MiB."""
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": LONG_AGO}
        status = {
            "addresses": ["10.0.0.9"],
            "memory": {"totalBytes": 32768 * MIB, "availableBytes": free * MIB},
            "node": {"maxLendBytes": most * MIB, "reserveBytes": 1024 * MIB, "port": port},
            "conditions": [ready],
        }
        spec = {"provider": "Node", "vm": {"name": name, "uid": name}, "nodeName": name}
        self.put(names.GUESTS, HOME, name, spec, status=status, labels=labels or WORKER)

    def team(self, namespace: str = TEAM, *borrowers: str, size: int = 512, node: str = "n1", **nodes: Any) -> None:
        """A namespace with borrowers and a pool that names nodes; sizes in MiB."""
        for name in borrowers or ("b",):
            self.guest(namespace, name, BORROWER, node=node)
        self.naming(namespace, {"size": f"{size}Mi"}, **nodes)

    def naming(
        self, namespace: str, sizes: dict[str, Any], *, more: dict[str, Any] | None = None, **nodes: Any
    ) -> None:
        """A namespace's pool with these sizes; `more` is of its lenders beside nodes."""
        lenders = {"nodes": {"maxLend": "4Gi", **nodes}, **(more or {})}
        borrowing = {"selector": {"matchLabels": BORROWER}, **sizes}
        self.put(names.POOLS, namespace, "pool", {"lenders": lenders, "borrowers": borrowing})

    def may(self, *namespaces: str, **more: Any) -> None:
        """Lets pools of these namespaces use nodes."""
        self.grant(HOME, *({"namespace": one} for one in namespaces), **more)

    def made(self, namespace: str = TEAM, nodes: Mapping[str, Node] | None = None) -> Plan:
        """The plan for a pool, counted as the operator counts it."""
        found = self.state.pools.get(namespace, "pool")
        assert found is not None
        self.lenders.look()
        here, known = self.lenders.of(found), self.state.pairings.in_namespace(namespace)
        inventory = Inventory(
            self.state.guests.in_namespace(namespace),
            known,
            namespace=namespace,
            elsewhere=pairings_elsewhere(namespace, self.state),
            nodes=nodes,
            home=HOME,
            node_lenders=len(self.state.node_lenders()),
            lending=self.grants.lending(known),
        )
        there = self.grants.granted(found)
        promised = self.lenders.promises(found, here.values())
        ungranted = self.grants.ungranted(found)
        granted = there.guests | here
        planned = plan(found, inventory, granted=granted, at=LONG_AGO, ungranted=ungranted, promised=promised)
        self.lenders.count(found, planned)
        return planned

    def done(self, namespace: str, planned: Plan) -> None:
        """Carries a plan out."""
        found = self.state.pools.get(namespace, "pool")
        assert found is not None
        known = self.lenders.of(found)
        for one in planned.assignments:
            borrower = self.state.guests.get(namespace, one.borrower)
            assert borrower is not None
            body = build.pairing(found, one, build.pairing_spec(found, one, known[one.lender], borrower, 7470))
            self.put(names.PAIRINGS, namespace, body["metadata"]["name"], body["spec"])


def told(planned: Plan) -> str:
    return "; ".join(one.message for one in planned.problems)


def test_a_node_lends_where_no_guest_does() -> None:
    """And its pairing says what the chart and the pool let it."""
    cluster = Nodes("n1", most=2048)
    cluster.team()
    cluster.may(TEAM)
    planned = cluster.made()
    assert mib(planned) == {("b", f"{HOME}/n1"): 512}
    assert reasons(planned) == []
    cluster.done(TEAM, planned)
    (pairing,) = cluster.state.pairings.in_namespace(TEAM)
    spec = pairing.spec
    assert (spec.lender.namespace, spec.lender.guest, spec.lender.node_name) == (HOME, "n1", "n1")
    assert (spec.max_lend, spec.reserve, spec.lender.address) == ("2Gi", "1Gi", "10.0.0.9")
    assert mib(cluster.made()) == mib(planned)


def test_the_node_of_the_borrower_comes_first() -> None:
    """A lender on the same node is nearest, also when another node has more; so is one that has to be there."""
    cluster = Nodes("n2", "n3", free=30000)
    cluster.node("n1", free=4096)
    cluster.team()
    cluster.may(TEAM)
    assert mib(cluster.made()) == {("b", f"{HOME}/n1"): 512}
    for require, lender in (("SameNode", "n1"), ("SameZone", "n1")):
        found = cluster.state.pools.get(TEAM, "pool")
        assert found is not None
        spec = found.spec.to_dict() | {"placement": {"require": require}}
        cluster.put(names.POOLS, TEAM, "pool", spec)
        assert mib(cluster.made()) == {("b", f"{HOME}/{lender}"): 512}
    cluster.state.guests.remove(HOME, "n1", f"{HOME}-n1")
    assert mib(cluster.made()) == {}


def test_nodes_that_are_no_longer_asked_for_are_left_in_steps() -> None:
    """Issue 28, fault 2: whatever the edit is. A node that is gone is left at once."""
    cluster = Nodes("n1")
    cluster.may(TEAM)
    cluster.team(TEAM, "a", "b", "c", "d", size=128)
    cluster.done(TEAM, cluster.made())
    cluster.connect(TEAM)
    others = {"selector": {"matchLabels": {"other": "x"}}}
    cluster.naming(TEAM, {"size": "128Mi"}, **others)
    made = cluster.made()
    assert (len(made.assignments), len(made.deferred)) == (3, 3)
    cluster.state.guests.remove(HOME, "n1", f"{HOME}-n1")
    assert cluster.made().assignments == ()


def test_the_administrator_of_the_cluster_grants_nodes() -> None:
    """Without a grant in the release's namespace there is none, and the condition says what is missing."""
    cluster = Nodes("n1")
    cluster.team()
    planned = cluster.made()
    assert planned.assignments == ()
    assert set(reasons(planned)) == {"NoLenders", "NotGranted"}
    assert f"no MemoryGrant of namespace {HOME}" in told(planned)
    assert "pool team/pool: have one written" in told(planned)
    cluster.may("others")
    assert cluster.made().assignments == ()
    cluster.may(TEAM, selector={"matchLabels": {"pool": "storage"}})
    assert "or a MemoryGrant leaves it out" in told(cluster.made())
    cluster.may(TEAM, selector={"matchLabels": WORKER})
    assert mib(cluster.made()) == {("b", f"{HOME}/n1"): 512}


def test_the_release_needs_no_grant_for_its_own_nodes() -> None:
    """And no selector of guests there matches a node: it would be made to borrow, or lend as if it were idle."""
    cluster = Nodes("n1")
    cluster.node("n2", BORROWER)
    cluster.node("n3", LENDER)
    cluster.team(HOME)
    assert mib(cluster.made(HOME)) == {("b", "n1"): 512}
    lenders, borrowing = ({"selector": {"matchLabels": labels}} for labels in (LENDER, BORROWER))
    spec = {"lenders": lenders | {"maxLend": "4Gi"}, "borrowers": borrowing | {"size": "1Gi"}}
    cluster.put(names.POOLS, HOME, "pool", spec)
    assert cluster.made(HOME).borrowers == ("b",)
    assert cluster.made(HOME).lenders == ()


def test_guests_of_a_namespace_that_is_the_releases_are_granted_without_its_nodes() -> None:
    """A pool that names the namespace among those whose guests lend has guests of it, and no node."""
    cluster = Nodes()
    cluster.node("n1", LENDER)
    cluster.guest(HOME, "l", LENDER)
    cluster.guest(TEAM, "b", BORROWER)
    cluster.pool(TEAM, HOME)
    cluster.may(TEAM)
    assert list(cluster.made().lenders) == [f"{HOME}/l"]


def test_only_labels_of_the_node_are_asked_for() -> None:
    cluster = Nodes("n1")
    cluster.node("n2", {"pool": "storage"})
    cluster.team(selector={"matchLabels": {"pool": "storage"}})
    cluster.may(TEAM)
    assert mib(cluster.made()) == {("b", f"{HOME}/n2"): 512}
    cluster.team(selector={"matchLabels": {"pool": "gpu"}})
    planned = cluster.made()
    assert reasons(planned) == ["NoLenders"]
    assert "no node of the 2 that lend matches spec.lenders.nodes.selector (pool=gpu)" in told(planned)
    cluster.guest(TEAM, "l", LENDER)
    guests = {"selector": {"matchLabels": LENDER}, "maxLend": "1Gi"}
    nodes = {"maxLend": "1Gi", "selector": {"matchLabels": {"pool": "gpu"}}}
    borrowing = {"selector": {"matchLabels": BORROWER}, "size": "512Mi"}
    cluster.put(names.POOLS, TEAM, "pool", {"lenders": guests | {"nodes": nodes}, "borrowers": borrowing})
    planned = cluster.made()
    assert mib(planned) == {("b", "l"): 512}
    assert reasons(planned) == ["NoNodes"]
    assert not planned.problems[0].leaves_out(planned.unserved)


def test_a_chart_without_node_lenders_is_named() -> None:
    cluster = Nodes()
    cluster.team()
    cluster.may(TEAM)
    assert "have nodeLender.enabled, the chart's value, set" in told(cluster.made())


def test_two_pools_share_a_node_and_are_promised_nothing_twice() -> None:
    """Issue 31: also while what was planned for one is not there yet; each has its own maxLend."""
    cluster = Nodes("n1", most=4096)
    for namespace in ("one", "two", "three"):
        cluster.team(namespace, "a", "b", "c", size=512, maxLend="1536Mi")
    cluster.may("one", "two", "three")
    first = cluster.made("one")
    assert sum(mib(first).values()) == 1536
    assert sum(mib(cluster.made("two")).values()) == 1536
    third = cluster.made("three")
    assert sum(mib(third).values()) == 1024
    assert reasons(third) == ["InsufficientCapacity"]
    assert "raise spec.lenders.nodes.maxLend (1536Mi), lower spec.lenders.nodes.reserve (1Gi)" in told(third)
    for namespace in ("one", "two", "three"):
        cluster.done(namespace, cluster.made(namespace))
    assert [sum(mib(cluster.made(name)).values()) for name in ("one", "two", "three")] == [1536, 1536, 1024]


def test_a_node_that_may_lend_less_takes_it_from_the_youngest() -> None:
    """nodeLender.maxLend is lowered: the older pool keeps its memory."""
    cluster = Nodes("n1", most=2048)
    for namespace in ("one", "two"):
        cluster.team(namespace, "a", "b", size=512)
    cluster.may("one", "two")
    for namespace in ("one", "two"):
        cluster.done(namespace, cluster.made(namespace))
    cluster.node("n1", most=1024)
    assert [sum(mib(cluster.made(name)).values()) for name in ("one", "two")] == [1024, 0]


def test_the_larger_reserve_holds() -> None:
    """The chart's or the pool's; what is available beyond it is lent."""
    cluster = Nodes("n1", free=1536)
    cluster.team()
    cluster.may(TEAM)
    assert mib(cluster.made()) == {("b", f"{HOME}/n1"): 512}
    cluster.team(reserve="1200Mi")
    assert mib(cluster.made()) == {}
    cluster.team(reserve="100Mi", size=600)
    assert mib(cluster.made()) == {}


def test_a_node_under_pressure_lends_nothing_more_and_keeps_what_it_lends() -> None:
    """Its kernel takes pages back by itself, before it swaps or kills: pairings stay, unlike a guest's there."""
    cluster = Nodes("n1")
    cluster.team()
    cluster.may(TEAM)
    cluster.done(TEAM, cluster.made())
    cluster.guest(TEAM, "late", BORROWER)
    for pressed, borrowers in ((True, ["b"]), (False, ["b", "late"])):
        planned = cluster.made(nodes={"n1": Node(pressed=pressed)})
        assert mib(planned) == {(name, f"{HOME}/n1"): 512 for name in borrowers}
    assert "under memory pressure" in told(cluster.made(nodes={"n1": Node(pressed=True)}))


def test_a_cordoned_node_gets_nothing_new_and_one_that_is_gone_lends_nothing() -> None:
    cluster = Nodes("n1", "n2")
    cluster.team(node="n2")
    cluster.may(TEAM)
    assert mib(cluster.made(nodes={"n1": Node(), "n2": Node(cordoned=True)})) == {}
    cluster.team(node="n1")
    cluster.done(TEAM, cluster.made())
    assert mib(cluster.made(nodes={"n1": Node(cordoned=True), "n2": Node()})) == {("b", f"{HOME}/n1"): 512}
    planned = cluster.made(nodes={"n2": Node()})
    assert "the cluster has no node n1" in told(planned)


def test_a_pool_of_role_auto_may_name_nodes() -> None:
    """Its guests take their roles by need, and nodes lend beside them."""
    cluster = Nodes("n1")
    cluster.guest(TEAM, "b", {"team": "a"}, refaults=500, io_wait=50)
    spec = {
        "role": "Auto",
        "selector": {"matchLabels": {"team": "a"}},
        "lenders": {"maxLend": "1Gi", "nodes": {"maxLend": "1Gi"}},
        "borrowers": {"size": "512Mi"},
    }
    cluster.put(names.POOLS, TEAM, "pool", spec)
    cluster.may(TEAM)
    assert mib(cluster.made()) == {("b", f"{HOME}/n1"): 512}


@pytest.mark.parametrize("port", [7470, 7480])
def test_a_pool_has_the_port_of_node_lenders(port: int) -> None:
    """Borrowers look for all lenders of a pool on one port."""
    cluster = Nodes("n1", port=port)
    cluster.team()
    cluster.may(TEAM)
    planned = cluster.made()
    assert len(planned.assignments) == (port == 7470)
    assert ("node lenders listen on port 7480, and spec.port is 7470" in told(planned)) == (port != 7470)


def test_a_forged_node_is_believed_by_nobody() -> None:
    """One in a tenant's namespace is none; one of another name than its node is somebody's mistake, and not ready."""
    cluster = Nodes()
    cluster.team()
    cluster.may(TEAM)
    spec = {"provider": "Node", "vm": {"name": "n1", "uid": "n1"}, "nodeName": "n1"}
    cluster.put(names.GUESTS, TEAM, "n1", spec, labels=LENDER)
    assert cluster.state.node_lenders() == []
    cluster.node("n1")
    one = cluster.state.guests.get(HOME, "n1")
    assert one is not None
    cluster.put(names.GUESTS, HOME, "n7", spec, labels=WORKER, status=one.status.to_dict())
    planned = cluster.made()
    assert mib(planned) == {("b", f"{HOME}/n1"): 512}
    assert f"{HOME}/n7 (NodeUnknown: it is called n7, and says to be node n1" in told(planned)


def _crowd(count: int) -> list[str]:
    return [f"b{number:02}" for number in range(count)]


def test_a_node_takes_no_more_borrowers_than_its_node_lender() -> None:
    """The rest goes to another node, however much the full one has left; whoever has a pairing keeps it."""
    cluster = Nodes("n1", "n2", free=30000, most=30000)
    cluster.team(TEAM, *_crowd(MOST_BORROWERS + 2), size=64, node="n1", maxLend="20Gi")
    cluster.may(TEAM)
    planned = cluster.made()
    by_node = Counter(lender for _, lender in mib(planned))
    assert by_node == {f"{HOME}/n1": MOST_BORROWERS, f"{HOME}/n2": 2}
    cluster.done(TEAM, planned)
    assert mib(cluster.made()) == mib(planned)
    cluster.team(TEAM, *_crowd(MOST_BORROWERS + 2), size=96, node="n1", maxLend="20Gi")
    assert {*mib(cluster.made()).values()} == {96}, "who has a pairing gets more of a full node"


def test_borrowers_of_other_pools_count_before_their_pairings_are_there() -> None:
    """And it is said why a node that has memory left takes no more."""
    cluster = Nodes("n1", free=30000, most=30000)
    cluster.team("one", *_crowd(MOST_BORROWERS - 1), size=64, maxLend="20Gi")
    cluster.team("two", "a", "b", size=64)
    cluster.may("one", "two")
    first = cluster.made("one")
    second = cluster.made("two")
    assert (len(mib(first)), len(mib(second))) == (MOST_BORROWERS - 1, 1)
    assert reasons(second) == ["InsufficientCapacity"]
    assert f"({HOME}/n1, …) with the {MOST_BORROWERS} borrowers that one takes" in told(second)


def _sized(*borrowers: str, free: int = 8192 + 1024, **pool: Any) -> Nodes:
    """One node of which so many MiB are left, and a pool that sizes what each of these has, from 64 MiB on."""
    cluster = Nodes("n1", free=free, most=30000)
    for name in borrowers:
        cluster.guest(TEAM, name, BORROWER, node="n1")
    cluster.naming(TEAM, {"minimum": "64Mi", "maximum": "1Gi"}, maxLend="20Gi", **pool)
    cluster.may(TEAM)
    return cluster


def test_nothing_is_set_aside_for_borrowers_that_no_node_takes() -> None:
    """Where a pool's sizes are planned, the 64 that a node takes share all of it, and the rest is told why."""
    planned = _sized(*_crowd(MOST_BORROWERS + 2)).made()
    assert set(mib(planned).values()) == {8192 // MOST_BORROWERS}
    assert {name for name, _ in mib(planned)} == set(_crowd(MOST_BORROWERS))
    assert reasons(planned) == ["InsufficientCapacity"]
    assert f"with the {MOST_BORROWERS} borrowers that one takes" in told(planned)


def test_who_sits_at_a_node_stays_when_others_come() -> None:
    """Also before those of higher weight, and with as much as before; who comes waits for a free place."""
    cluster = _sized(*_crowd(MOST_BORROWERS))
    before = cluster.made()
    cluster.done(TEAM, before)
    for name in ("aa", "zz"):
        cluster.guest(TEAM, name, BORROWER | {"app": "db"}, node="n1")
    weights = [{"selector": {"matchLabels": {"app": "db"}}, "weight": 50}]
    cluster.naming(TEAM, {"minimum": "64Mi", "maximum": "1Gi", "weights": weights}, maxLend="20Gi")
    assert mib(cluster.made()) == mib(before)


def test_the_weighty_have_the_places_that_are_left() -> None:
    """As they have the minimum; guests that lend as well take those for whom a node has no place."""
    cluster = _sized(*_crowd(MOST_BORROWERS))
    cluster.guest(TEAM, "zz", BORROWER | {"app": "db"}, node="n1")
    weights = [{"selector": {"matchLabels": {"app": "db"}}, "weight": 2}]
    sizes = {"minimum": "64Mi", "maximum": "1Gi", "weights": weights}
    cluster.naming(TEAM, sizes, maxLend="20Gi")
    left_out = {*_crowd(MOST_BORROWERS), "zz"} - {name for name, _ in mib(cluster.made())}
    assert left_out == {_crowd(MOST_BORROWERS)[-1]}
    cluster.guest(TEAM, "l", LENDER, node="n1")
    more = {"selector": {"matchLabels": LENDER}, "maxLend": "1Gi", "reserve": "64Mi"}
    cluster.naming(TEAM, sizes, maxLend="20Gi", more=more)
    planned = cluster.made()
    assert {name for name, _ in mib(planned)} == {*_crowd(MOST_BORROWERS), "zz"}
    assert reasons(planned) == []
