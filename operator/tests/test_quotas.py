"""What a namespace lends and borrows stays within its MemoryQuotas (issue 28: what an administrator misses, item 4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cross_namespace import Cluster, Woken
from world import BORROWER, LENDER, LONG_AGO, MIB, carried_out, guest, mib, pairing, pool, reasons

from tidepool_api import MemoryQuota, names
from tidepool_operator.cluster.cross_namespace import pairings_elsewhere
from tidepool_operator.cluster.quotas import Quotas, counted
from tidepool_operator.handlers import Operator
from tidepool_operator.planning import planner
from tidepool_operator.planning.inventory import Inventory
from tidepool_operator.planning.quotas import Bound, Limits, Side, room, smallest
from tidepool_operator.status.quotas import status

if TYPE_CHECKING:
    from tidepool_api import MemoryPairing, MemoryPool
    from tidepool_operator.planning.planner import Plan


def limits(*, borrowed: int | None = None, lent: int | None = None) -> Limits:
    """The bounds of the only pool of a namespace, in MiB."""

    def bound(side: Side, most: int) -> Bound:
        return Bound("q", "ns", side, most * MIB, room=most * MIB)

    at_home = {} if lent is None else {"": bound(Side.LENT, lent)}
    return Limits(None if borrowed is None else bound(Side.BORROWED, borrowed), at_home)


def plan(one: MemoryPool, bounds: Limits, pairings: list[MemoryPairing] | None = None, borrowers: str = "abc") -> Plan:
    lenders = [guest(name, LENDER, total=8192) for name in ("l1", "l2", "l3")]
    inventory = Inventory([*lenders, *(guest(name, BORROWER) for name in borrowers)], pairings or [])
    return planner.plan(one, inventory, at=LONG_AGO, limits=bounds)


def total(made: Plan) -> int:
    return sum(mib(made).values())


# --- planning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [limits(borrowed=1100), limits(lent=1100)], ids=["borrowed", "lent"])
def test_no_more_is_placed_than_a_quota_allows(bounds: Limits) -> None:
    """Whoever comes too late is named with the quota, and no other reason is given."""
    made = plan(pool(size=512, max_lend=600), bounds)
    assert total(made) == 1024
    (problem,) = made.problems
    assert problem.reason.condition == "QuotaSufficient"
    assert problem.guests == made.unserved == ("c",)
    side = "borrows" if bounds.borrowed else "lends"
    field = "maxBorrowed" if bounds.borrowed else "maxLent"
    assert problem.message == (
        f"MemoryQuota q limits: namespace ns {side} 1Gi of at most 1100Mi; guest c would have more; "
        f"have its spec.{field} raised, or ask for less"
    )
    assert problem.leaves_out(made.unserved)


def test_several_lenders_of_one_borrower_share_a_quota() -> None:
    """Each has enough for a part, all together have not."""
    assert total(plan(pool(size=1024, max_lend=512), limits(lent=700), borrowers="a")) == 0
    spread = plan(pool(between=(64, 2048), max_lend=512), limits(lent=700), borrowers="a")
    assert 600 < total(spread) <= 700


@pytest.mark.parametrize("bounds", [limits(borrowed=1000), limits(lent=1000)], ids=["borrowed", "lent"])
def test_planned_sizes_share_what_a_quota_allows(bounds: Limits) -> None:
    """Nobody is left without its minimum, so the pool says who bounds it and is well."""
    made = plan(pool(between=(128, 1024), max_lend=4096), bounds)
    assert 900 < total(made) <= 1000
    assert min(mib(made).values()) >= 300
    (problem,) = made.problems
    assert problem.reason == "QuotaReached"
    assert not problem.leaves_out(made.unserved)


def test_a_quota_that_is_wide_enough_changes_nothing() -> None:
    one = pool(between=(128, 512))
    assert plan(one, limits(borrowed=4096, lent=4096)) == plan(one, Limits())


def test_a_lowered_quota_takes_from_few_at_a_time() -> None:
    """As every other edit: maxUnavailable says how many."""
    one = pool(max_unavailable=1)
    before = carried_out(plan(one, Limits(), borrowers="abcd"), connected=True)
    first = plan(one, limits(borrowed=520), before, "abcd")
    assert [name for name in "abcd" if name not in {one.borrower for one in first.assignments}] == ["b"]
    assert first.deferred == ("c", "d")
    made = first
    for _ in range(3):
        made = plan(one, limits(borrowed=520), carried_out(made, connected=True), "abcd")
    assert list(mib(made)) == [("a", "l1")]
    assert reasons(made) == ["QuotaReached"]


def test_what_is_on_its_way_out_counts_and_is_waited_for() -> None:
    """A pairing that makes room for another is no shortage."""
    leaving = pairing("gone", "l1", 512 * MIB, terminating=True)
    made = plan(pool(), limits(borrowed=512), [leaving], "a")
    assert total(made) == 0
    assert made.waiting == ("a",)
    assert made.problems == ()
    assert total(plan(pool(), limits(borrowed=1024), [leaving], "a")) == 512


def test_the_smallest_of_several_quotas_holds() -> None:
    def quota(name: str, **spec: str) -> MemoryQuota:
        return MemoryQuota.parse({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})

    several = [quota("a", maxBorrowed="2Gi"), quota("b", maxBorrowed="1Gi", maxLent="3Gi"), quota("c", maxLent="0")]
    assert smallest(several, Side.BORROWED) == (1024 * MIB, "b")
    assert smallest(several, Side.LENT) == (0, "c")
    assert smallest(several[:1], Side.LENT) is None


@pytest.mark.parametrize(
    ("most", "present", "older", "others", "expected"),
    [
        (10, 4, 0, 0, 10),
        (10, 4, 2, 4, 6),  # more only beside all others
        (10, 6, 2, 6, 6),  # what it has it keeps, though a younger one is too much
        (10, 6, 8, 8, 2),  # the younger one gives up what the older ones leave no room for
        (10, 6, 12, 12, 0),
    ],
)
def test_who_keeps_what(most: int, present: int, older: int, others: int, expected: int) -> None:
    assert room(most, present, older=older, others=others) == expected


# --- of all pools of a namespace --------------------------------------------------------------------------------------


def put_quota(cluster: Cluster, namespace: str, name: str = "q", **spec: str) -> None:
    cluster.put(names.QUOTAS, namespace, name, spec)


def plan_for(cluster: Cluster, quotas: Quotas, namespace: str, name: str = "pool") -> Plan:
    """A pool's plan as in a pass."""
    one = cluster.state.pools.get(namespace, name)
    assert one is not None
    guests, pairings = cluster.state.guests.in_namespace(namespace), cluster.state.pairings.in_namespace(namespace)
    elsewhere = pairings_elsewhere(namespace, cluster.state)
    inventory = Inventory(guests, pairings, namespace=namespace, elsewhere=elsewhere)
    there = cluster.grants.granted(one)
    quotas.look()
    made = planner.plan(
        one, inventory, claimed=there.claimed, granted=there.guests, at=LONG_AGO, limits=quotas.limits(one)
    )
    quotas.count(one, made)
    return made


def lending_to_two(*, held: str = "") -> Cluster:
    """Two namespaces may each borrow from a guest of a third; the pool of the one that is `held` is paused."""
    cluster = Cluster()
    for namespace, name in (("older", "l1"), ("younger", "l2")):
        cluster.guest("rich", name, LENDER | {"for": namespace})
        cluster.guest(namespace, "b", BORROWER)
        cluster.pool(namespace, "rich", paused=namespace == held)
    both = [({"namespace": name}, {"matchLabels": {"for": name}}) for name in ("older", "younger")]
    for number, (to, selector) in enumerate(both):
        cluster.put(names.GRANTS, "rich", f"grant-{number}", {"to": [to], "selector": selector})
    return cluster


def test_what_others_are_about_to_borrow_counts() -> None:
    """Two namespaces that are planned at the same time do not both take what is left to lend."""
    cluster = lending_to_two()
    put_quota(cluster, "rich", maxLent="600Mi")
    quotas = Quotas(cluster.state)
    assert mib(plan_for(cluster, quotas, "younger")) == {("b", "rich/l2"): 512}
    late = plan_for(cluster, quotas, "older")
    assert mib(late) == {}
    assert "namespace rich lends 512Mi of at most 600Mi; guest b would have more" in late.problems[0].message


def test_the_younger_pool_gives_up_first_when_a_quota_is_lowered() -> None:
    cluster = lending_to_two()
    quotas = Quotas(cluster.state)
    for namespace in ("older", "younger"):
        cluster.carry_out(namespace, plan_for(cluster, quotas, namespace))
    put_quota(cluster, "rich", maxLent="600Mi")
    assert mib(plan_for(cluster, quotas, "older")) == {("b", "rich/l1"): 512}
    assert mib(plan_for(cluster, quotas, "younger")) == {("b", "rich/l2"): 88}
    assert status("rich", cluster.state).to_dict() == {"borrowed": "0", "lent": "1Gi"}
    assert status("older", cluster.state).to_dict() == {"borrowed": "512Mi", "lent": "0"}


def test_a_held_pool_counts_with_what_it_has() -> None:
    """What would be taken from it is not, so a younger one gives up."""
    cluster = lending_to_two(held="older")
    quotas = Quotas(cluster.state)
    for namespace in ("older", "younger"):
        cluster.carry_out(namespace, plan_for(cluster, quotas, namespace))
    put_quota(cluster, "rich", maxLent="600Mi")
    put_quota(cluster, "older", maxBorrowed="0")
    assert mib(plan_for(cluster, quotas, "older")) == {}
    assert mib(plan_for(cluster, quotas, "younger")) == {("b", "rich/l2"): 88}


def test_who_shares_a_quota_hears_of_what_counts_and_of_its_bound() -> None:
    """Another namespace may borrow what a pairing leaves; what is said on a quota wakes nobody."""
    cluster, queue = lending_to_two(), Woken()
    cluster.carry_out("older", plan_for(cluster, Quotas(cluster.state), "older"))
    (one,) = cluster.state.pairings.in_namespace("older")
    nothing = dict.fromkeys(("settings", "cluster", "heartbeats", "election", "metrics"))
    reconciler: Any = SimpleNamespace(grants=cluster.grants)
    operator: Any = Operator(**nothing, reconciler=reconciler, state=cluster.state, queue=queue)  # type: ignore[arg-type]

    def woken(objects: Any, body: dict[str, Any], kind: str = "MODIFIED") -> set[str]:
        queue.clear()
        asyncio.run(operator.take_in(objects, kind, body))
        return set(queue)

    quota = {"metadata": {"name": "q", "namespace": "rich", "uid": "q", "resourceVersion": "99"}}
    quota["spec"] = {"maxLent": "600Mi"}
    assert woken(cluster.state.quotas, quota) == {"rich", "older", "younger"}
    quota["metadata"]["resourceVersion"] = "100"
    assert woken(cluster.state.quotas, quota | {"status": {"lent": "512Mi"}}) == set()
    assert woken(cluster.state.pairings, one.to_dict(), "DELETED") == {"rich", "older", "younger"}


NAMESPACES = ("older", "younger")
rounds = st.tuples(st.integers(0, 1200), st.permutations(NAMESPACES), st.sets(st.sampled_from(NAMESPACES)))


@settings(max_examples=100)
@given(st.lists(rounds, min_size=1, max_size=6))
def test_namespaces_together_are_never_given_more_than_a_quota_allows(
    some: list[tuple[int, tuple[str, ...], set[str]]],
) -> None:
    """In whatever order they are planned, and whosever plan is carried out late; in the end it is kept."""
    cluster = lending_to_two()
    quotas = Quotas(cluster.state)
    most = some[-1][0]
    for most_now, order, carried in [*some, *[(most, NAMESPACES, set(NAMESPACES))] * 3]:
        before = lent_by_rich(cluster)
        put_quota(cluster, "rich", maxLent=f"{most_now}Mi")
        made = {namespace: plan_for(cluster, quotas, namespace) for namespace in order}
        for namespace in carried:
            cluster.carry_out(namespace, made[namespace])
            take_down(cluster, namespace, made[namespace])
        assert lent_by_rich(cluster) <= max(before, most_now)
    assert lent_by_rich(cluster) <= most


def lent_by_rich(cluster: Cluster) -> int:
    """What counts there, in MiB."""
    return sum(one.spec.size_bytes for one in counted((Side.LENT, "rich"), cluster.state)) // MIB


def take_down(cluster: Cluster, namespace: str, made: Plan) -> None:
    """Removes the pairings that a plan does not have."""
    assigned = {(one.borrower, one.lender) for one in made.assignments}
    for one in cluster.state.pairings.in_namespace(namespace):
        if (one.spec.borrower.guest, one.lender_ref) not in assigned:
            cluster.state.pairings.remove(namespace, one.name, one.metadata.uid)
