"""Which guests of other namespaces a pool may have, and what it makes of them (issue 4, item 5: Safety)."""

from __future__ import annotations

from typing import Any

from world import BORROWER, LENDER, LONG_AGO, guest, mib

from tidepool_api import names
from tidepool_operator import build
from tidepool_operator.abroad import borrowing_from, is_granted, look_abroad, pairings_elsewhere, readers
from tidepool_operator.inventory import Inventory
from tidepool_operator.planner import Plan, plan
from tidepool_operator.state import State


class Cluster:
    """What the operator knows, filled as by watches."""

    def __init__(self) -> None:
        self.state, self.version = State(), 0

    def put(self, kind: str, namespace: str, name: str, spec: dict[str, Any], **more: Any) -> None:
        self.version += 1
        objects = {one.plural: one for one in self.state.kinds}[kind]
        labels = more.pop("labels", {})
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels}
        metadata |= {"ownerReferences": more.pop("owners", [])}
        metadata |= {"resourceVersion": str(self.version), "creationTimestamp": f"2026-01-01T00:00:{self.version:02}Z"}
        objects.put({"apiVersion": names.API_VERSION, "metadata": metadata, "spec": spec, **more})

    def guest(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        one = guest(name, labels).to_dict()
        owners = one["metadata"]["ownerReferences"]
        self.put(names.GUESTS, namespace, name, one["spec"], status=one["status"], labels=labels, owners=owners)

    def pool(self, namespace: str, *abroad: str, name: str = "pool") -> None:
        lenders = {"selector": {"matchLabels": LENDER}, "maxLend": "1Gi", "namespaces": list(abroad)}
        spec = {"lenders": lenders, "borrowers": {"selector": {"matchLabels": BORROWER}, "size": "512Mi"}}
        self.put(names.POOLS, namespace, name, spec)

    def grant(self, namespace: str, *to: dict[str, str], **more: Any) -> None:
        self.put(names.GRANTS, namespace, "grant", {"to": list(to), **more})

    def plan(self, namespace: str, name: str = "pool") -> Plan:
        found = self.state.pools.get(namespace, name)
        assert found is not None
        guests, pairings = self.state.guests.in_namespace(namespace), self.state.pairings.in_namespace(namespace)
        elsewhere = pairings_elsewhere(namespace, self.state)
        inventory = Inventory(guests, pairings, namespace=namespace, elsewhere=elsewhere)
        there = look_abroad(found, self.state)
        return plan(found, inventory, claimed=there.claimed, abroad=there.guests, at=LONG_AGO)

    def carry_out(self, namespace: str, made: Plan) -> None:
        found = self.state.pools.get(namespace, "pool")
        assert found is not None
        known = look_abroad(found, self.state).guests
        for one in made.assignments:
            lender = known.get(one.lender) or self.state.guests.get(namespace, one.lender)
            borrower = self.state.guests.get(namespace, one.borrower)
            assert lender is not None
            assert borrower is not None
            body = build.pairing(found, one, build.pairing_spec(found, one, lender, borrower))
            self.put(names.PAIRINGS, namespace, body["metadata"]["name"], body["spec"])


def rich_and_poor() -> Cluster:
    """A lender in `rich`, a borrower in `poor` whose pool asks for it."""
    cluster = Cluster()
    cluster.guest("rich", "l", LENDER)
    cluster.guest("poor", "b", BORROWER)
    cluster.pool("poor", "rich")
    return cluster


def test_only_what_is_granted() -> None:
    cluster = rich_and_poor()
    assert cluster.plan("poor").assignments == ()
    for spec, works in (
        ({"namespace": "other"}, False),
        ({"namespace": "poor", "pool": "another"}, False),
        ({"namespace": "poor", "pool": "pool"}, True),
        ({"namespace": "poor"}, True),
    ):
        cluster.grant("rich", spec)
        assert bool(cluster.plan("poor").assignments) == works
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
    cluster.grant("rich", {"namespace": "poor"}, selector={"matchLabels": {"tier": "x"}})
    assert cluster.plan("poor").assignments == ()


def test_it_is_asked_for_by_name() -> None:
    """A grant alone brings nothing: the pool has to name the namespace, too."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.pool("poor")
    assert cluster.plan("poor").assignments == ()


def test_the_pairing_names_the_namespace_and_stays() -> None:
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    made = cluster.plan("poor")
    cluster.carry_out("poor", made)
    (pairing,) = cluster.state.pairings.in_namespace("poor")
    assert (pairing.lender_namespace, pairing.lender_ref, pairing.spec.lender.guest) == ("rich", "rich/l", "l")
    assert cluster.plan("poor").assignments == made.assignments
    assert readers(cluster.state) == {"rich": {"poor"}}


def test_a_pairing_stands_while_a_grant_does() -> None:
    """Whatever its pool says: who is named there, and which guests. A lender that is just away is not refused."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    (pairing,) = cluster.state.pairings.in_namespace("poor")
    assert borrowing_from("rich", cluster.state) == {"poor"}
    for to, labels, stands in (
        ("poor", LENDER, True),
        ("poor", BORROWER, False),
        ("other", LENDER, False),
    ):
        cluster.grant("rich", {"namespace": to}, selector={"matchLabels": labels})
        assert is_granted(pairing, cluster.state) == stands
    cluster.grant("rich", {"namespace": "poor", "pool": "pool"}, selector={"matchLabels": BORROWER})
    cluster.state.guests.remove("rich", "l", "rich-l")
    assert is_granted(pairing, cluster.state)
    cluster.state.grants.remove("rich", "grant", "rich-grant")
    assert not is_granted(pairing, cluster.state)


def test_a_pool_at_home_has_it_first_and_waits_until_it_is_back() -> None:
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    cluster.guest("rich", "home", BORROWER)
    cluster.pool("rich")
    made = cluster.plan("poor")
    assert made.assignments == ()
    assert "the older pool rich/pool has" in made.problems[-1].message or "rich/pool" in str(made.problems)
    assert mib(cluster.plan("rich")) == {("home", "l"): 512}  # 1 GiB is enough for both until the other is gone
    cluster.guest("rich", "home-too", BORROWER)
    assert cluster.plan("rich").waiting == ("home-too",)


def test_of_two_namespaces_the_older_pool_has_it() -> None:
    cluster = rich_and_poor()
    cluster.guest("late", "b", BORROWER)
    cluster.pool("late", "rich")
    cluster.grant("rich", {"namespace": "poor"}, {"namespace": "late"})
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
    assert cluster.plan("late").assignments == ()


def test_namesakes_are_not_paired() -> None:
    """Agents tell the ends of a pairing apart by their names."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.guest("poor", "l", BORROWER)
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
