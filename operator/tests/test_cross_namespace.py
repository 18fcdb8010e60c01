"""Which guests of other namespaces a pool may have, and what it makes of them (issue 4, item 5: Safety)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cast import identity_of
from prometheus_client import CollectorRegistry
from world import BORROWER, LENDER, LONG_AGO, MIB, guest, mib

from tidepool_api import GrantStatus, GuestKey, MemoryGrant, PoolKey, Reason, cadence, names
from tidepool_api.fields import MOST_BYTES
from tidepool_api.kube import Refused
from tidepool_operator.cluster.api import AT_ONCE
from tidepool_operator.cluster.cross_namespace import Grants, borrowing_from, is_granted, pairings_elsewhere
from tidepool_operator.cluster.heartbeats import Heartbeats
from tidepool_operator.cluster.state import State
from tidepool_operator.handlers import Operator
from tidepool_operator.metrics import Metrics
from tidepool_operator.planning import build
from tidepool_operator.planning.inventory import Inventory
from tidepool_operator.planning.planner import Plan, plan
from tidepool_operator.reconcile import Reconciler
from tidepool_operator.status import grants
from tidepool_operator.status.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


class Cluster:
    """What the operator knows, filled as by watches."""

    def __init__(self) -> None:
        self.state, self.version = State(), 0
        self.grants = Grants(self.state)

    def put(self, kind: str, namespace: str, name: str, spec: dict[str, Any], **more: Any) -> None:
        self.version += 1
        objects = {one.plural: one for one in self.state.kinds}[kind]
        labels = more.pop("labels", {})
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels}
        metadata |= {"ownerReferences": more.pop("owners", [])}
        created = f"2026-01-01T00:{self.version // 60:02}:{self.version % 60:02}Z"
        metadata |= {"resourceVersion": str(self.version), "creationTimestamp": created}
        objects.put({"apiVersion": names.API_VERSION, "metadata": metadata, "spec": spec, **more})

    def guest(self, namespace: str, name: str, labels: dict[str, str], **more: Any) -> None:
        one = guest(name, labels, **more).to_dict()
        owners = one["metadata"]["ownerReferences"]
        self.put(names.GUESTS, namespace, name, one["spec"], status=one["status"], labels=labels, owners=owners)

    def pool(self, namespace: str, *lending_namespaces: str, name: str = "pool", **more: Any) -> None:
        lenders = {"selector": {"matchLabels": LENDER}, "maxLend": "1Gi", "namespaces": list(lending_namespaces)}
        borrowers = {"selector": {"matchLabels": BORROWER}, "size": "512Mi"}
        self.put(names.POOLS, namespace, name, {"lenders": lenders, "borrowers": borrowers} | more)

    def grant(self, namespace: str, *to: dict[str, str], **more: Any) -> None:
        self.put(names.GRANTS, namespace, "grant", {"to": list(to), **more})

    def plan(self, namespace: str, name: str = "pool") -> Plan:
        found = self.state.pools.get(namespace, name)
        assert found is not None
        guests, pairings = self.state.guests.in_namespace(namespace), self.state.pairings.in_namespace(namespace)
        elsewhere = pairings_elsewhere(namespace, self.state)
        lending = self.grants.lending(pairings)
        inventory = Inventory(guests, pairings, namespace=namespace, elsewhere=elsewhere, lending=lending)
        there = self.grants.granted(found)
        return plan(found, inventory, claimed=there.claimed, granted=there.guests, ended=there.ended, at=LONG_AGO)

    def carry_out(self, namespace: str, made: Plan) -> None:
        found = self.state.pools.get(namespace, "pool")
        assert found is not None
        known = self.grants.granted(found).guests
        for one in made.assignments:
            lender = known.get(one.lender) or self.state.guests.get(namespace, one.lender)
            borrower = self.state.guests.get(namespace, one.borrower)
            assert lender is not None
            assert borrower is not None
            body = build.pairing(found, one, build.pairing_spec(found, one, lender, borrower, found.spec.port))
            self.put(names.PAIRINGS, namespace, body["metadata"]["name"], body["spec"])

    def connect(self, namespace: str) -> None:
        """All borrowers of a namespace work with what they have."""
        for one in self.state.pairings.in_namespace(namespace):
            status = {"phase": "Connected", "borrower": {"state": "Connected"}}
            self.put(names.PAIRINGS, namespace, one.name, one.spec.to_dict(), status=status)


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


FEW = {"borrowers": {"selector": {"matchLabels": BORROWER}, "size": "128Mi"}, "maxUnavailable": 1}


def four_and_a_lender_elsewhere() -> Cluster:
    """Four borrowers that work with what they have of a lender in `rich`; one of them may be disturbed at a time."""
    cluster = Cluster()
    cluster.guest("rich", "l", LENDER)
    cluster.grant("rich", {"namespace": "poor"})
    for name in "abcd":
        cluster.guest("poor", name, BORROWER)
    cluster.pool("poor", "rich", **FEW)
    cluster.carry_out("poor", cluster.plan("poor"))
    cluster.connect("poor")
    assert len(cluster.plan("poor").assignments) == 4
    return cluster


def asks_no_more(cluster: Cluster) -> None:
    cluster.pool("poor", **FEW)


def selects_others(cluster: Cluster) -> None:
    lenders = {"selector": {"matchLabels": {"other": "x"}}, "maxLend": "1Gi", "namespaces": ["rich"]}
    cluster.pool("poor", **FEW, lenders=lenders)


def is_labelled_otherwise(cluster: Cluster) -> None:
    cluster.guest("rich", "l", {"other": "y"})


@pytest.mark.parametrize("edit", [asks_no_more, selects_others, is_labelled_otherwise])
def test_who_is_no_longer_asked_for_goes_in_steps(edit: Callable[[Cluster], None]) -> None:
    """Issue 28, fault 2: whatever the edit is, and wherever the lender."""
    cluster = four_and_a_lender_elsewhere()
    edit(cluster)
    made = cluster.plan("poor")
    assert len(made.assignments) == 3
    assert len(made.deferred) == 3


def is_gone(cluster: Cluster) -> None:
    cluster.state.guests.remove("rich", "l", "rich-l")


def is_kept_out(cluster: Cluster) -> None:
    cluster.guest("rich", "l", LENDER, ready=False, reason=Reason.EXCLUDED)


def is_taken_at_home(cluster: Cluster) -> None:
    cluster.pool("rich")


@pytest.mark.parametrize("event", [is_gone, is_kept_out, is_taken_at_home])
def test_who_cannot_go_on_is_let_go_at_once(event: Callable[[Cluster], None]) -> None:
    """A lender that is gone, that Tidepool is kept out of, or that its own namespace's pool has."""
    cluster = four_and_a_lender_elsewhere()
    asks_no_more(cluster)
    event(cluster)
    made = cluster.plan("poor")
    assert (made.assignments, made.deferred) == ((), ())


def test_the_pairing_names_the_namespace_and_stays() -> None:
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    made = cluster.plan("poor")
    cluster.carry_out("poor", made)
    (pairing,) = cluster.state.pairings.in_namespace("poor")
    assert (pairing.lender, pairing.lender_ref) == (GuestKey("rich", "l"), "rich/l")
    assert cluster.plan("poor").assignments == made.assignments
    assert cluster.grants.readers("rich") == {"poor"}
    assert cluster.grants.readers("poor") == set()


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


class Slow:
    """An API server that takes its time, and knows how much it was asked at once; what is to be deleted has gone."""

    waited = 0.0

    def __init__(self) -> None:
        self.busy, self.most, self.deleted = 0, 0, 0

    async def create_event(self, _body: object) -> None:
        """Nobody reads it."""

    async def delete(self, *_: object) -> None:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0.05)
        self.busy -= 1
        self.deleted += 1
        raise Refused(404, "DELETE", "not found", "NotFound")


def test_pairings_whose_grant_has_ended_go_several_at_a_time() -> None:
    """They may be thousands, and their namespace waits for it."""
    cluster, server = rich_and_poor(), Slow()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    (pairing,) = cluster.state.pairings.in_namespace("poor")
    for at in range(20):
        cluster.put(names.PAIRINGS, "poor", f"p{at}", pairing.spec.to_dict())
    cluster.state.grants.remove("rich", "grant", "rich-grant")
    cluster.state.pools.remove("poor", "pool", "poor-pool")
    api: Any = server
    reconciler = Reconciler(api, cluster.state, Heartbeats(), Metrics(CollectorRegistry()))
    asyncio.run(reconciler.namespace("poor"))
    assert (server.deleted, server.most) == (21, AT_ONCE)
    assert cluster.state.pairings.in_namespace("poor") == []


def test_a_pool_at_home_has_it_first_and_waits_until_it_is_back() -> None:
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    cluster.guest("rich", "home", BORROWER)
    cluster.pool("rich")
    made = cluster.plan("poor")
    assert made.assignments == ()
    assert "rich/pool" in str(made.problems)
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


def test_a_pool_that_is_held_has_what_it_has_and_no_more() -> None:
    """Issue 28, fault 5, across namespaces: paused, the older pool leaves the guest to the other until it has it."""
    cluster = Cluster()
    cluster.guest("rich", "l", LENDER)
    cluster.grant("rich", {"namespace": "poor"}, {"namespace": "late"})
    for namespace, paused in (("poor", True), ("late", False)):
        cluster.guest(namespace, "b", BORROWER)
        cluster.pool(namespace, "rich", paused=paused)
    cluster.pool("rich", name="at-home", paused=True)
    assert mib(cluster.plan("late")) == {("b", "rich/l"): 512}
    cluster.carry_out("poor", cluster.plan("poor"))
    assert cluster.plan("late").assignments == ()


def test_a_namespace_that_grants_nothing_is_named() -> None:
    """Issue 28, fault 9: one that is misspelt, or whose grant is for another pool."""
    cluster = rich_and_poor()
    cluster.pool("poor", "rich", "nowhere", "poor")
    found = cluster.state.pools.get("poor", "pool")
    assert found is not None
    cluster.grant("rich", {"namespace": "poor", "pool": "another"})
    assert cluster.grants.ungranted(found) == ["rich", "nowhere"]
    cluster.grant("rich", {"namespace": "poor"})
    assert cluster.grants.ungranted(found) == ["nowhere"]
    there = cluster.grants.granted(found)
    inventory = Inventory(cluster.state.guests.in_namespace("poor"), namespace="poor")
    (problem,) = plan(found, inventory, granted=there.guests, at=LONG_AGO, ungranted=["nowhere"]).problems
    assert problem.reason.condition == "LendersGranted"
    assert "nowhere, and no MemoryGrant there is for pool poor/pool" in problem.message
    assert not problem.leaves_out(["b"])


def test_namesakes_are_paired() -> None:
    """Each is known by its namespace as well: what two guests of two namespaces are called is their own affair."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.guest("poor", "l", BORROWER)
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512, ("l", "rich/l"): 512}


def test_a_guest_that_is_excluded_lends_nothing_elsewhere() -> None:
    """Its agent says so; the pool looks elsewhere, until the guest is let take part again."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    found = cluster.state.pools.get("poor", "pool")
    assert found is not None
    assert list(cluster.grants.granted(found).guests) == ["rich/l"]
    cluster.guest("rich", "l", LENDER, ready=False, reason="Excluded")
    assert cluster.grants.granted(found).guests == {}
    cluster.grant("rich", {"namespace": "poor"}, selector={"matchLabels": LENDER})
    assert cluster.grants.granted(found).guests == {}
    cluster.guest("rich", "l", LENDER)
    assert list(cluster.grants.granted(found).guests) == ["rich/l"]


def used(cluster: Cluster) -> GrantStatus:
    """What is said on the only grant."""
    (grant,) = cluster.state.grants.in_namespace("rich")
    assert isinstance(grant, MemoryGrant)
    every = [one for name in ("poor", "rich") for one in cluster.state.pairings.in_namespace(name)]
    return grants.status(grant, grants.borrowed(every).get("rich", {}), cluster.state)


def test_a_lender_of_another_namespace_that_was_killed_is_said_to_have_failed() -> None:
    """To whom it is granted, and while it is: else its name is nobody's business."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
    cluster.guest("rich", "l", LENDER, ready=False, reason="Ended", message="VMI l is Failed")
    made = cluster.plan("poor")
    assert made.assignments == ()
    assert made.problems[0].message.endswith("; VMI l is Failed (namespace rich): start it again")
    assert made.problems[1].message == "not ready: rich/l (VMI l is Failed (namespace rich))"
    cluster.grant("rich", {"namespace": "others"})
    assert "VMI l" not in str(cluster.plan("poor").problems)


def test_what_is_lent_under_a_grant_is_added_up() -> None:
    """By pool; what stays in the namespace is none of it, nor what another grant allows; whose lender is away is."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    assert used(cluster).uses == ()
    cluster.carry_out("poor", cluster.plan("poor"))
    (use,) = used(cluster).uses
    assert (use.namespace, use.pool, use.pairings, use.size_bytes, use.lent_bytes) == ("poor", "pool", 1, 512 * MIB, 0)
    cluster.grant("rich", {"namespace": "poor"}, selector={"matchLabels": LENDER})
    cluster.state.guests.remove("rich", "l", "rich-l")  # a moment before its pairing
    assert used(cluster).pairings == 1
    cluster.grant("rich", {"namespace": "others"})
    assert used(cluster).uses == ()


def held_by_another(cluster: Cluster, *finalizers: str) -> None:
    """The only pairing is deleted, and these are the finalizers that are left."""
    (one,) = cluster.state.pairings.in_namespace("poor")
    cluster.version += 1
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": list(finalizers)}
    body = one.to_dict()
    cluster.state.pairings.put(
        body | {"metadata": body["metadata"] | going | {"resourceVersion": str(cluster.version)}}
    )


def test_a_pairing_that_somebody_else_keeps_holds_none_of_the_lenders_memory() -> None:
    """Else who borrows once could keep a lender of another namespace from its owners, whatever they grant."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    for name in ("one", "two"):
        cluster.guest("rich", name, BORROWER)
    cluster.pool("rich")
    held_by_another(cluster, names.LENDER_FINALIZER, "example.com/mine")
    assert [one.borrower for one in cluster.plan("rich").assignments] == ["one"]
    assert used(cluster).pairings == 1
    held_by_another(cluster, "example.com/mine")
    assert [one.borrower for one in cluster.plan("rich").assignments] == ["one", "two"]
    assert used(cluster).pairings == 0


def test_a_pool_waits_for_no_pairing_that_somebody_else_keeps() -> None:
    cluster, patches = rich_and_poor(), list[dict[str, Any]]()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    held_by_another(cluster, "example.com/mine")
    pool = cluster.state.pools.get("poor", "pool")
    assert pool is not None
    meta = pool.metadata.to_dict() | {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [names.POOL_FINALIZER]}
    cluster.version += 1
    cluster.state.pools.put({"metadata": meta | {"resourceVersion": str(cluster.version)}, "spec": pool.spec.to_dict()})

    async def patch(plural: str, _namespace: str, _name: str, body: dict[str, Any], **_more: Any) -> dict[str, Any]:
        patches.append({plural: body})
        return pool.to_dict()

    api: Any = SimpleNamespace(patch=patch, namespaces=(), waited=0.0)
    reconciler = Reconciler(api, cluster.state, Heartbeats(), Metrics(CollectorRegistry()))
    asyncio.run(reconciler.namespace("poor"))
    assert [one["memorypools"]["metadata"]["finalizers"] for one in patches if "memorypools" in one] == [[]]


def test_a_pass_knows_the_identities_that_its_lenders_have_met_elsewhere() -> None:
    """So that nobody borrows from them under a name that another namespace's guest has there."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"}, {"namespace": "copy"})
    cluster.carry_out("poor", cluster.plan("poor"))
    (one,) = cluster.state.pairings.in_namespace("poor")
    cluster.version += 1
    body = one.to_dict()
    body["metadata"] |= {"resourceVersion": str(cluster.version)}
    body["spec"]["borrower"]["identity"] = identity_of("b")
    cluster.state.pairings.put(body)
    cluster.pool("copy", "rich")
    nothing: Any = None
    reconciler = Reconciler(nothing, cluster.state, Heartbeats(), nothing)
    scene = reconciler._round("copy", Outcome("copy"))  # noqa: SLF001 - what a pass begins with
    assert scene.others == {identity_of("b"): f"poor/{one.spec.borrower.guest}"}


def test_figures_that_no_guest_can_have_hold_up_no_grant() -> None:
    """Root in two lenders says what they hold, and all grants of the cluster are told one after the other."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    cluster.carry_out("poor", cluster.plan("poor"))
    (one,) = cluster.state.pairings.in_namespace("poor")
    status = one.status.model_validate({"lender": {"state": "Connected", "lentBytes": MOST_BYTES}})
    found = {PoolKey("poor", "pool"): [one.model_copy(update={"status": status})] * 2}
    (grant,) = cluster.state.grants.in_namespace("rich")
    assert grants.status(grant, found, cluster.state).uses[0].lent_bytes == MOST_BYTES


def test_so_many_grants_are_written_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes many has no more written for that."""
    cluster, slept, written = rich_and_poor(), list[float](), list[str]()
    for name in "abc":
        cluster.put(names.GRANTS, "rich", name, {"to": [{"namespace": "poor"}]})

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def patch(_plural: str, namespace: str, name: str, body: Any, **_more: Any) -> Any:
        written.append(name)
        return {"metadata": {"name": name, "namespace": namespace}, **body}

    monkeypatch.setattr(grants.asyncio, "sleep", sleep)
    api: Any = SimpleNamespace(patch=patch)
    asyncio.run(grants.tell(api, cluster.state, Outcome("grants")))
    assert written == ["a", "b", "c"]
    assert sum(slept) == pytest.approx(3 / cadence.GRANT_WRITES)


def test_figures_of_a_grant_are_written_when_they_have_clearly_moved() -> None:
    def status(lent: int, pairings: int = 1) -> GrantStatus:
        use = {"namespace": "poor", "pool": "p", "pairings": pairings, "sizeBytes": 512 * MIB, "lentBytes": lent * MIB}
        return GrantStatus.model_validate({"pairings": pairings, "uses": [use]})

    assert not grants.worth_writing(status(132), status(100))
    assert grants.worth_writing(status(133), status(100))
    assert grants.worth_writing(status(100, 2), status(100))
    assert grants.worth_writing(status(100), GrantStatus())
    assert grants.worth_writing(GrantStatus(pairings=0), GrantStatus())


class Woken(list[str]):
    """The namespaces that were to be gone over."""

    async def add(self, namespace: str, _delay: float = 0) -> None:
        self.append(namespace)


def test_what_is_said_on_a_grant_wakes_nobody() -> None:
    """But what it grants does, and its end."""
    queue, nothing = Woken(), dict.fromkeys(("settings", "cluster", "heartbeats", "election", "metrics"))
    state = State()
    reconciler = SimpleNamespace(grants=Grants(state))
    operator: Any = Operator(**nothing, reconciler=reconciler, state=state, queue=queue)  # type: ignore[arg-type]

    def seen(version: int, generation: int, kind: str = "MODIFIED") -> list[str]:
        metadata = {"name": "g", "namespace": "rich", "uid": "u", "generation": generation}
        body = {
            "metadata": metadata | {"resourceVersion": str(version)},
            "spec": {"to": [{"namespace": f"poor-{generation}"}]},
        }
        queue.clear()
        asyncio.run(operator.take_in(operator.state.grants, kind, body))
        return list(queue)

    assert seen(1, 1) == ["rich"]
    assert seen(2, 1) == []
    assert operator.state.grants.get("rich", "g").metadata.resource_version == "2"
    assert seen(3, 2) == ["rich"]
    assert seen(4, 2, kind="DELETED") == ["rich"]


def test_who_has_a_guest_hears_of_its_figures() -> None:
    """Its own namespace, and that of the pool which has it; nobody else of those who would have liked it."""
    cluster = rich_and_poor()
    cluster.pool("late", "rich")
    assert cluster.grants.concerned(GuestKey("rich", "l")) == {"rich"}
    cluster.grant("rich", {"namespace": "poor"}, {"namespace": "late"})
    assert cluster.grants.concerned(GuestKey("rich", "l")) == {"rich", "poor"}
    cluster.pool("rich")
    assert cluster.grants.concerned(GuestKey("rich", "l")) == {"rich"}


def test_a_guest_that_is_relabelled_or_goes_is_no_longer_granted() -> None:
    """What was looked up before is not believed after a change."""
    cluster = rich_and_poor()
    cluster.grant("rich", {"namespace": "poor"})
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
    cluster.guest("rich", "l", {})
    assert cluster.plan("poor").assignments == ()
    cluster.guest("rich", "l", LENDER)
    assert mib(cluster.plan("poor")) == {("b", "rich/l"): 512}
    cluster.state.guests.remove("rich", "l", "rich-l")
    assert cluster.plan("poor").assignments == ()
