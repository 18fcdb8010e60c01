"""How long planning takes when there is much to plan (issue 4, item 6: Scale; issue 28, fault 10)."""

from __future__ import annotations

import asyncio
import functools
import random
from typing import TYPE_CHECKING, Any

import pytest
from world import LONG_AGO, carried_out, guest

from tidepool_api import GuestKey, MemoryPool, names
from tidepool_api_testing.pace import within
from tidepool_operator.cluster.cross_namespace import Grants, pairings_elsewhere
from tidepool_operator.cluster.state import Objects, State
from tidepool_operator.planning.inventory import Inventory, Node
from tidepool_operator.planning.planner import Plan, plan
from tidepool_operator.planning.quotas import Bound, Limits, Side
from tidepool_operator.status.grants import borrowed, status
from tidepool_operator.status.worth import of_pools
from tidepool_scale import world as cluster

if TYPE_CHECKING:
    from tidepool_api import GrantStatus, MemoryGuest, MemoryPairing
    from tidepool_operator.status.worth import PoolWorth

GUESTS, NODES = 10_000, 1_000
WHERE = {f"n{at}": Node(zone=f"z{at % 10}") for at in range(NODES)}
KINDS = {
    "fixed": {"size": "512Mi"},
    "planned": {"minimum": "64Mi", "maximum": "2Gi"},
    "auto": {"size": "512Mi"},
}


@functools.cache
def everybody(pools: int) -> list[MemoryGuest]:
    """Guests of so many teams, half of each with memory to spare and half short of it."""
    return [
        guest(
            f"g{at:05d}",
            {"team": f"t{at % pools}", "lends": str(at // pools % 2)},
            node=f"n{at % NODES}",
            available=1800 if at // pools % 2 else 300,
            misses=0 if at // pools % 2 else 400,
            curve={512: 0.5, 1024: 0.8},
        )
        for at in range(GUESTS)
    ]


def pool_of(team: int, kind: str) -> MemoryPool:
    """The pool of one team."""
    lenders, borrowers = ({"matchLabels": {"team": f"t{team}", "lends": role}} for role in "10")
    spec: dict[str, object] = {
        "lenders": {"maxLend": "1Gi"} | ({} if kind == "auto" else {"selector": lenders}),
        "borrowers": KINDS[kind] | ({} if kind == "auto" else {"selector": borrowers}),
    }
    if kind == "auto":
        spec |= {"role": "Auto", "selector": {"matchLabels": {"team": f"t{team}"}}}
    return MemoryPool.parse({"metadata": {"name": f"p{team}", "namespace": "ns"}, "spec": spec})


@pytest.mark.parametrize(("pools", "kind"), [(200, kind) for kind in KINDS] + [(1, "fixed")])
def test_ten_thousand_guests_are_planned_in_a_second(pools: int, kind: str) -> None:
    """All pools of one namespace, from nothing and then again when all pairings are there: a second of CPU each."""
    guests, teams = everybody(pools), [pool_of(team, kind) for team in range(pools)]
    pairings: list[MemoryPairing] = []

    plans: list[Plan] = []

    def planned() -> None:
        inventory = Inventory(guests, pairings, nodes=WHERE)
        plans[:] = [plan(one, inventory, at=LONG_AGO) for one in teams]

    for _ in range(2):
        assert within(1, planned)
        pairings = [one for of, made in zip(teams, plans, strict=True) for one in carried_out(made, of.name)]
        assert len({one.spec.borrower.guest for one in pairings}) == GUESTS // 2


@pytest.mark.parametrize("gib", [10_000, 500])
def test_a_quota_does_not_make_planning_slow(gib: int) -> None:
    """Be it wide or soon used up."""
    guests, one = everybody(1), pool_of(0, "fixed")
    bound = Bound("quota", "ns", Side.LENT, gib << 30, room=gib << 30)
    inventory = Inventory(guests, [], nodes=WHERE)
    made: list[Plan] = []
    assert within(1, lambda: made.append(plan(one, inventory, at=LONG_AGO, limits=Limits(lent={"": bound}))))
    assert len(made[0].assignments) == min(GUESTS // 2, gib * 2)


def put(objects: Objects[Any], namespace: str, name: str, version: int, **fields: Any) -> None:
    """Takes in an object as a watch would."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": str(version)}
    metadata |= {"labels": fields.pop("labels", {}), "creationTimestamp": "2026-01-01T00:00:00Z"}
    objects.put({"apiVersion": names.API_VERSION, "metadata": metadata, **fields})


def test_sixty_namespaces_look_at_two_thousand_lenders() -> None:
    """While figures move all pools look in half a second together, and each report concerns one of them."""
    state, lends = State(), {"lends": "yes"}
    borrowing = [f"team-{at:02d}" for at in range(60)]
    for at in range(2000):
        one = guest(f"g{at}", lends).to_dict()
        put(state.guests, "bank", f"g{at}", 1, labels=lends, spec=one["spec"], status=one["status"])
    for at in range(0, 60, 15):
        to = [{"namespace": name} for name in borrowing[at : at + 15]]
        put(state.grants, "bank", f"grant-{at}", 1, spec={"to": to})
    lenders = {"selector": {"matchLabels": lends}, "maxLend": "1Gi", "namespaces": ["bank"]}
    for name in borrowing:
        borrowers = {"selector": {"matchLabels": {"lends": "no"}}, "size": "512Mi"}
        put(state.pools, name, "pool", 1, spec={"lenders": lenders, "borrowers": borrowers})
    pools = [one for name in borrowing for one in state.pools.in_namespace(name)]
    grants = Grants(state)
    assert [len(grants.granted(one).guests) for one in pools] == [2000] * 60
    one = guest("g0", lends, available=1000).to_dict()
    put(state.guests, "bank", "g0", 2, labels=lends, spec=one["spec"], status=one["status"])
    claimed: list[int] = []
    assert within(0.5, lambda: claimed.extend(len(grants.granted(one).claimed) for one in pools), tries=1)
    assert claimed == [0] + [2000] * 59
    assert grants.concerned(GuestKey("bank", "g0")) == {"bank", "team-00"}


def test_who_uses_sixty_grants_is_added_up_in_a_quarter_of_a_second() -> None:
    """One grant for each of sixty namespaces, which borrow from two thousand guests together."""
    state, lends = State(), {"lends": "yes"}
    sizes = {"pool": "pool", "size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
    for at in range(60):
        to = [{"namespace": f"team-{at}"}]
        put(state.grants, "bank", f"grant-{at}", 1, spec={"to": to, "selector": {"matchLabels": lends}})
    for at in range(2000):
        put(state.guests, "bank", f"g{at}", 1, labels=lends, spec=guest(f"g{at}", lends).spec.to_dict())
        lender = {"guest": f"g{at}", "namespace": "bank", "nodeName": "n", "address": "10.0.0.1"}
        spec = {"lender": lender, "borrower": {"guest": f"b{at}", "nodeName": "n"}, **sizes}
        put(state.pairings, f"team-{at % 60}", f"p{at}", 1, spec=spec)
    pairings = [one for name in sorted(state.pairings.namespaces()) for one in state.pairings.in_namespace(name)]

    def added_up() -> list[GrantStatus]:
        found = borrowed(pairings)["bank"]
        return [status(one, found, state) for one in state.grants.in_namespace("bank")]

    assert within(0.25, added_up)
    said = added_up()
    assert sum(one.pairings or 0 for one in said) == 2000
    assert {len(one.uses) for one in said} == {1}


def test_two_thousand_reports_of_guests_that_a_paused_pool_has() -> None:
    """Whom each concerns is looked up for every guest each time that heartbeats are read, in half a second for all."""
    state, lends = State(), {"lends": "yes"}
    lenders = {"selector": {"matchLabels": lends}, "maxLend": "1Gi", "namespaces": ["bank"]}
    borrowers = {"selector": {"matchLabels": {"lends": "no"}}, "size": "512Mi"}
    put(state.pools, "team", "pool", 1, spec={"lenders": lenders, "borrowers": borrowers, "paused": True})
    sizes = {"size": "512Mi", "reserve": "256Mi", "maxLend": "1Gi"}
    for at in range(2000):
        put(state.guests, "bank", f"g{at}", 1, labels=lends, spec=guest(f"g{at}", lends).spec.to_dict())
        lender = {"guest": f"g{at}", "namespace": "bank", "nodeName": "n", "address": "10.0.0.1"}
        borrower = {"guest": f"b{at}", "nodeName": "n"}
        put(state.pairings, "team", f"p{at}", 1, spec={"pool": "pool", "lender": lender, "borrower": borrower, **sizes})
    grants = Grants(state)
    concerned: list[set[str]] = []
    assert within(
        0.5, lambda: concerned.extend(grants.concerned(GuestKey("bank", f"g{at}")) for at in range(2000)), tries=1
    )
    assert concerned == [{"bank", "team"}] * 2000
    state.pairings.remove("team", "p7", "team-p7")
    assert grants.concerned(GuestKey("bank", "g7")) == {"bank"}


def full_cluster() -> State:
    """What `make scale` has at its largest."""
    state, chance = State(), random.Random(4)
    for one in cluster.guests(GUESTS):
        body = one.body()
        labels = body["metadata"]["labels"]
        put(state.guests, one.namespace, one.name, 1, labels=labels, spec=body["spec"], status=one.report(chance))
    for objects, bodies in ((state.grants, cluster.grants(GUESTS)), (state.pools, cluster.pools(GUESTS))):
        for body in bodies:
            put(objects, body["metadata"]["namespace"], body["metadata"]["name"], 1, spec=body["spec"])
    for body in cluster.nodes(GUESTS):
        state.nodes.put(body)
    return state


def test_two_hundred_namespaces_with_grants_are_planned_in_a_second() -> None:
    """All guests in namespaces of 50, every fifth of which borrows from its neighbour."""
    state = full_cluster()
    served: list[int] = []
    assert within(1, lambda: served.append(_served(state)))
    assert set(served) == {sum(one.borrows for one in cluster.guests(GUESTS))} == {4000}


def _served(state: State) -> int:
    """Plans all pools; how many borrowers got something."""
    grants, served = Grants(state), 0
    for namespace in map(cluster.namespace, range(cluster.teams_of(GUESTS))):
        inventory = Inventory(
            state.guests.in_namespace(namespace),
            state.pairings.in_namespace(namespace),
            namespace=namespace,
            elsewhere=pairings_elsewhere(namespace, state),
            nodes=state.nodes.known,
        )
        for pool in state.pools.in_namespace(namespace):
            granted = grants.granted(pool)
            made = plan(pool, inventory, claimed=granted.claimed, granted=granted.guests, at=LONG_AGO)
            served += len({one.borrower for one in made.assignments})
    return served


@pytest.mark.parametrize("kind", ["fixed", "auto"])
def test_what_memory_is_worth_in_two_hundred_pools_of_a_namespace(kind: str) -> None:
    """Every 15 s, in half a second: a pool costs what its own guests do, not what all idle ones do."""
    state = State()
    for one in everybody(200):
        body = one.to_dict()
        put(state.guests, "ns", one.name, 1, labels=one.metadata.labels, spec=body["spec"], status=body["status"])
    for team in range(200):
        body = pool_of(team, kind).to_dict()
        put(state.pools, "ns", body["metadata"]["name"], 1, spec=body["spec"])
    found: list[PoolWorth] = []
    assert within(0.5, lambda: found.extend(asyncio.run(of_pools(state)).values()))
    assert [one.forecast[1] for one in found[:200]] == [GUESTS // 200 // 2 * 400 * 0.5] * 200
