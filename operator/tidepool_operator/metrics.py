"""What the operator exports for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from tidepool_api import ConditionType, Metric, PairingPhase, is_true

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidepool_api import MemoryPool, PoolStatus
    from tidepool_operator.report import Judged

POOL = ("namespace", "pool")

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All of it; pools that are gone leave nothing behind."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def gauge(name: Metric, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, (*POOL, *labels), registry=registry)

        self.lent = gauge(Metric.POOL_LENT_BYTES, "Memory that lenders hold ready for connected borrowers.")
        self.used = gauge(Metric.POOL_USED_BYTES, "Memory that borrowers use at their lenders.")
        self.hit_ratio = gauge(Metric.POOL_HIT_RATIO, "Reads of evicted pages that lenders answered, among all such.")
        self.ready = gauge(Metric.POOL_READY, "1 if the pool is Ready.")
        self.guests = gauge(Metric.POOL_GUESTS, "Guests that the selectors match.", "role")
        self.pairings = gauge(Metric.POOL_PAIRINGS, "Pairings by phase.", "phase")
        self.plan_seconds = Histogram(
            Metric.PLAN_SECONDS,
            "Time to plan one pool.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=registry,
        )
        self.pass_seconds = Histogram(
            Metric.PASS_PLAN_SECONDS,
            "Time to plan all pools of a namespace.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=registry,
        )
        self.reconciles = Counter(Metric.RECONCILES, "Namespaces gone over.", registry=registry)
        self.leading = Gauge(Metric.LEADING, "1 if this operator acts, 0 if it waits for another.", registry=registry)
        self.errors = Counter(Metric.RECONCILE_ERRORS, "Namespaces given up until the next try.", registry=registry)
        self.writes = Counter(Metric.API_WRITES, "Objects written.", ("kind",), registry=registry)

    def show(self, pool: MemoryPool, status: PoolStatus, pairings: Iterable[Judged]) -> None:
        """Shows one pool."""
        key = (pool.namespace, pool.name)
        self.lent.labels(*key).set(status.lent_bytes or 0)
        self.used.labels(*key).set(status.used_bytes or 0)
        self.ready.labels(*key).set(is_true(status.conditions, ConditionType.READY))
        self.guests.labels(*key, "lender").set(status.lenders or 0)
        self.guests.labels(*key, "borrower").set(status.borrowers or 0)
        phases = [one.verdict.phase for one in pairings]
        for phase in PairingPhase:
            self.pairings.labels(*key, phase).set(phases.count(phase))
        if status.hit_ratio is not None:
            self.hit_ratio.labels(*key).set(float(status.hit_ratio))

    def forget(self, namespace: str, pool: str) -> None:
        """Removes a pool that is gone."""
        for gauge in (self.lent, self.used, self.hit_ratio, self.ready, self.guests, self.pairings):
            gauge.remove_by_labels({"namespace": namespace, "pool": pool})
