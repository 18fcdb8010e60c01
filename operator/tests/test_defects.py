"""An error of the operator's own, while it goes over one pool, is that pool's alone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from test_cross_namespace import Cluster
from world import BORROWER, LENDER

from tidepool_api import Condition, find, names
from tidepool_api.kube import Access, Refused
from tidepool_operator import reconcile
from tidepool_operator.cluster.heartbeats import Heartbeats
from tidepool_operator.metrics import Metrics
from tidepool_operator.reconcile import Reconciler
from tidepool_operator.status import report

if TYPE_CHECKING:
    from tidepool_api import MemoryPairing, MemoryPool


class Api:
    """An API server that does as it is told, and the state that it fills."""

    waited = 0.0

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.events = cluster, list[dict[str, Any]]()

    async def create(self, _plural: str, body: dict[str, Any]) -> dict[str, Any]:
        self.cluster.version += 1
        head = {"uid": body["metadata"]["name"], "resourceVersion": str(self.cluster.version)}
        return body | {"metadata": body["metadata"] | head}

    async def patch(self, plural: str, namespace: str, name: str, body: dict[str, Any], **_more: Any) -> dict[str, Any]:
        (objects,) = (one for one in self.cluster.state.kinds if one.plural == plural)
        present = objects.get(namespace, name)
        assert present is not None
        self.cluster.version += 1
        fresh = _merged(present.to_dict(), body)
        fresh["metadata"]["resourceVersion"] = str(self.cluster.version)
        return fresh

    async def create_event(self, body: dict[str, Any]) -> None:
        self.events.append(body)


def _merged(present: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    changed = {
        name: _merged(present.get(name) or {}, value) if isinstance(value, dict) else value
        for name, value in patch.items()
    }
    return {name: value for name, value in (present | changed).items() if value is not None}


class Trio:
    """Three pools of a namespace, of which the second, `bad`, selects a lender that the third would like to have."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.state.nodes.put({"metadata": {"name": "n1"}})
        for name in ("good", "bad", "late"):
            self.cluster.guest("ns", f"l-{name}", LENDER | {"of": name})
            self.cluster.guest("ns", f"b-{name}", BORROWER | {"of": name})
            lends = {"matchLabels": LENDER | ({} if name == "late" else {"of": name})}
            borrows = {"matchLabels": BORROWER | {"of": name}}
            spec = {
                "lenders": {"selector": lends, "maxLend": "1Gi"},
                "borrowers": {"selector": borrows, "size": "512Mi" if name != "late" else "1Gi"},
            }
            self.cluster.put(names.POOLS, "ns", name, spec)
        self.api = Api(self.cluster)
        self.registry = CollectorRegistry()
        api: Any = self.api
        self.reconciler = Reconciler(api, self.cluster.state, Heartbeats(), Metrics(self.registry))

    def pass_(self) -> float | None:
        """Goes over the namespace once."""
        return asyncio.run(self.reconciler.namespace("ns"))

    def condition(self, pool: str, type_: str = "Degraded") -> Condition:
        """What a pool says."""
        found = self.cluster.state.pools.get("ns", pool)
        assert found is not None
        said = find(found.status.conditions, type_)
        assert said is not None, f"{pool} says nothing"
        return said

    def pairs(self) -> set[tuple[str, str]]:
        """Who borrows from whom."""
        return {(one.borrower_ref, one.lender_ref) for one in self.cluster.state.pairings.in_namespace("ns")}

    def figure(self, name: str, **labels: str) -> float:
        """A metric."""
        return self.registry.get_sample_value(name, labels) or 0.0


def break_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reconcile.plan

    def plan(pool: MemoryPool, *facts: Any, **more: Any) -> Any:
        if pool.name == "bad":
            raise KeyError("other-namespace/secret-guest")
        return right(pool, *facts, **more)

    monkeypatch.setattr(reconcile, "plan", plan)


def break_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    right = report.judge

    def judge(pairing: MemoryPairing, *facts: Any) -> Any:
        if pairing.spec.pool == "bad":
            raise ZeroDivisionError
        return right(pairing, *facts)

    monkeypatch.setattr(report, "judge", judge)


@pytest.mark.parametrize(("broken", "kind"), [(break_plan, "KeyError"), (break_judging, "ZeroDivisionError")])
def test_the_others_are_planned_and_told_and_the_pool_says_so(
    broken: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = Trio()
    broken(monkeypatch)
    again = trio.pass_()
    assert {"b-good", "b-late"} <= {borrower for borrower, _ in trio.pairs()}
    for pool in ("good", "late"):
        assert trio.condition(pool).reason != "OperatorDefect"
        assert trio.condition(pool, "Progressing").status == "True"
    said = trio.condition("bad")
    assert (said.status, said.reason) == ("True", "OperatorDefect")
    assert f"a defect of the operator ({kind} in reconcile.py, line " in said.message
    assert "secret-guest" not in said.message
    assert trio.condition("bad", "Ready").status == "False"
    assert [one["involvedObject"]["name"] for one in trio.api.events if one["reason"] == "OperatorDefect"] == ["bad"]
    assert trio.figure("tidepool_operator_reconcile_errors_total") == 1
    assert trio.figure("tidepool_pool_degraded", namespace="ns", pool="bad") == 1
    assert again is not None
    assert again <= 60


def test_it_keeps_its_guests_and_is_well_again_when_the_defect_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    trio = Trio()
    trio.pass_()
    before = trio.pairs()
    assert ("b-bad", "l-bad") in before
    trio.cluster.guest("ns", "b-too", BORROWER | {"of": "late"})  # for whom there is room in l-bad alone
    with monkeypatch.context() as patch:
        break_plan(patch)
        trio.pass_()
        assert trio.pairs() == before
        assert "l-bad" in trio.condition("late").message
    trio.pass_()
    assert trio.condition("bad").status == "False"


def test_the_line_is_ours_also_where_a_library_raised() -> None:
    with pytest.raises(FileNotFoundError) as raised:
        Access.by_token("https://server", authority=Path("/nowhere"), token=Path("/nowhere"))
    assert re.fullmatch(r"FileNotFoundError in access\.py, line \d+", reconcile.where(raised.value))


def test_an_api_server_that_is_away_is_no_pools_defect() -> None:
    trio = Trio()

    async def patch(*_: object, **_more: object) -> None:
        raise Refused(0, "PATCH", "connection refused")

    api: Any = trio.api
    api.patch = patch
    with pytest.raises(Refused):
        trio.pass_()


def test_of_too_many_pools_the_oldest_are_gone_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes thousands keeps the operator from nobody else's, and reads why his own stay as they are."""
    monkeypatch.setattr(reconcile, "POOLS_AT_MOST", 2)
    trio = Trio()
    trio.pass_()
    said = {pool: trio.condition(pool).reason for pool in ("good", "bad", "late")}
    assert sorted(said.values()) == ["AsExpected", "AsExpected", "TooManyPools"]
    (left_out,) = (pool for pool, reason in said.items() if reason == "TooManyPools")
    assert "only the 2 oldest pools of a namespace are gone over" in trio.condition(left_out).message


def test_a_pool_that_gathers_nothing_waits_for_nobody_elses_donor() -> None:
    """What somebody's policy keeps from a guest is on the pool that gathered from it."""
    trio = Trio()
    guests, pools = trio.cluster.state.guests, trio.cluster.state.pools
    _edited(guests, "l-bad", annotations={names.BALLOON_ANNOTATION: "1Gi"})
    _edited(pools, "good", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=[names.POOL_FINALIZER])
    finalizers, patch = dict[str, list[str]](), trio.api.patch

    async def picky(plural: str, namespace: str, name: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        if plural == names.GUESTS:
            raise Refused(403, f"patch {name}", "not on my watch")
        if plural == names.POOLS and "finalizers" in body.get("metadata", {}):
            finalizers[name] = body["metadata"]["finalizers"]
        return await patch(plural, namespace, name, body, **more)

    trio.api.patch = picky  # type: ignore[method-assign]
    trio.pass_()
    assert finalizers["good"] == []


def _edited(objects: Any, name: str, **metadata: Any) -> None:
    body = objects.get("ns", name).to_dict()
    body["metadata"] |= metadata | {"resourceVersion": "1000"}
    objects.put(body)


def test_namespaces_that_a_pool_only_names_are_forgotten() -> None:
    """A tenant may name other ones in each edit: what is remembered of them must not grow."""
    trio = Trio()
    for at in range(20):
        trio.cluster.pool("ns", f"nowhere-{at}", name="good")
        trio.pass_()
    assert len(trio.reconciler.grants._known) == 20  # noqa: SLF001 - that it does not grow is what is asked
    trio.reconciler.forget_gone()
    assert trio.reconciler.grants._known == {}  # noqa: SLF001
