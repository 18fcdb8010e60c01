"""What Prometheus gets from the operator."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from world import LONG_AGO, MIB, pairing, pool

from tidepool_api import ConditionType, GuestKey, PoolStatus, condition
from tidepool_api.metrics import OPERATOR
from tidepool_operator.metrics import Metrics
from tidepool_operator.status import report

KEY = {"namespace": "ns", "pool": "pool"}


def shown(*, silent: bool = False, degraded: bool = False) -> tuple[Metrics, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    one = pairing("b", "l", 512 * MIB)
    judged = [report.Judged(one, report.judge(one, LONG_AGO, {one.spec.lender.node_name} if silent else ()))]
    conditions = (condition(ConditionType.DEGRADED, degraded, "NoLender"),)
    metrics.show(pool(), PoolStatus(hit_ratio="0.97", conditions=conditions), judged)
    metrics.show_unpaired({GuestKey("ns", "l"): 4096})
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
    assert [one for family in registry.collect() for one in family.samples if "pool" in one.labels] == []
