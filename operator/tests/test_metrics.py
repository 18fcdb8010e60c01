"""What Prometheus gets from the operator."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from world import BORROWER, MIB, guest, pairing, pool

from tidepool_api import ConditionType, GuestKey, PoolKey, PoolStatus, condition
from tidepool_api.metrics import OPERATOR
from tidepool_api.worth import Guests
from tidepool_operator.cluster.state import State
from tidepool_operator.metrics import Metrics
from tidepool_operator.status import report
from tidepool_operator.status.worth import PoolWorth, of_pools, pool_worth

KEY = {"namespace": "ns", "pool": "pool"}


def shown(*, silent: bool = False, degraded: bool = False) -> tuple[Metrics, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    one = pairing("b", "l", 512 * MIB)
    judged = [report.Judged(one, report.judge(one, {one.spec.lender.node_name} if silent else ()))]
    conditions = (condition(ConditionType.DEGRADED, degraded, "NoLender"),)
    metrics.show(pool(), PoolStatus(hit_ratio="0.97", conditions=conditions), judged)
    metrics.show_unpaired({GuestKey("ns", "l"): 4096})
    metrics.show_worth({PoolKey("ns", "pool"): PoolWorth({512 * MIB: 100.0}, 4096)})
    return metrics, registry


def test_it_exports_what_is_documented() -> None:
    """Every metric of the operator in docs/reference/metrics.md, with its labels, and no other."""
    _, registry = shown()
    families = {family.name: family for family in registry.collect()}
    assert set(families) == {name.removesuffix("_total") for name in OPERATOR}
    for name, one in OPERATOR.items():
        for sample in families[name.removesuffix("_total")].samples:
            assert set(sample.labels) - {"le"} == set(one.labels)


def test_a_degraded_pool_is_shown_as_such() -> None:
    assert shown()[1].get_sample_value("tidepool_pool_degraded", KEY) == 0
    assert shown(degraded=True)[1].get_sample_value("tidepool_pool_degraded", KEY) == 1


def test_pairings_without_an_agent_are_counted() -> None:
    assert shown()[1].get_sample_value("tidepool_pool_unattended_pairings", KEY) == 0
    assert shown(silent=True)[1].get_sample_value("tidepool_pool_unattended_pairings", KEY) == 1


def test_a_pool_that_is_gone_leaves_nothing() -> None:
    metrics, registry = shown()
    metrics.forget("ns", "pool")
    metrics.show_worth({})
    assert [one for family in registry.collect() for one in family.samples if "pool" in one.labels] == []


def test_what_memory_is_worth_is_what_the_plugin_says() -> None:
    """Of one that borrows and one that could, by their curves: half of what is wanted, all of it, and twice as much.

    1000 reads a second, of which 512 MiB answer half: with 256 MiB in use, a quarter, for which 256 MiB would do.
    """
    state, curve = State(), {512: 0.5, 1024: 0.8}
    names_ = ("b", "idle", "dull")
    readers = [guest(name, BORROWER, misses=1000, curve=curve if name != "dull" else {}) for name in names_]
    present = pairing("b", "l", 512 * MIB, connected=True).to_dict()
    present["status"]["borrower"] |= {"usedBytes": 256 * MIB}
    lends = pool()
    for at, (objects, body) in enumerate(
        ((state.pools, lends.to_dict()), *((state.guests, one.to_dict()) for one in readers), (state.pairings, present))
    ):
        objects.put(body | {"metadata": body["metadata"] | {"resourceVersion": f"{at + 1}"}})
    worth = asyncio.run(of_pools(state))[lends.key]
    assert worth == PoolWorth({0.5: 500.0, 1: 1000.0, 2: 1600.0}, 256 * MIB)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.show_worth({lends.key: worth})
    assert registry.get_sample_value("tidepool_pool_unneeded_bytes", KEY) == 256 * MIB
    for factor, reads in (("0.5", 500), ("1", 1000), ("2", 1600)):
        labels = KEY | {"factor": factor}
        assert registry.get_sample_value("tidepool_pool_forecast_saved_disk_reads", labels) == reads
    metrics.show_worth({lends.key: PoolWorth({}, None)})
    assert registry.get_sample_value("tidepool_pool_forecast_saved_disk_reads", KEY | {"factor": "1"}) is None


def test_where_no_curve_is_known_nothing_is_promised() -> None:
    assert pool_worth(pool(), Guests([guest("b", BORROWER, misses=1000)]), ()) == PoolWorth({}, None)
