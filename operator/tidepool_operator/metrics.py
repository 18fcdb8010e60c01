"""What the operator exports for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from tidepool_api import ConditionType, Metric, PairingPhase, Reason, is_true, now
from tidepool_api.metrics import OPERATOR
from tidepool_operator.planning.identities import is_overdue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidepool_api import GuestKey, MemoryPool, PoolKey, PoolStatus
    from tidepool_operator.status.report import Judged
    from tidepool_operator.status.worth import PoolWorth

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All of it; pools that are gone leave nothing behind."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def gauge(name: Metric) -> Gauge:
            return Gauge(name, OPERATOR[name].help, OPERATOR[name].labels, registry=registry)

        def counter(name: Metric) -> Counter:
            return Counter(name, OPERATOR[name].help, OPERATOR[name].labels, registry=registry)

        def plan_histogram(name: Metric) -> Histogram:
            buckets = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)
            return Histogram(name, OPERATOR[name].help, OPERATOR[name].labels, buckets=buckets, registry=registry)

        self.lent = gauge(Metric.POOL_LENT_BYTES)
        self.used = gauge(Metric.POOL_USED_BYTES)
        self.hit_ratio = gauge(Metric.POOL_HIT_RATIO)
        self.ready = gauge(Metric.POOL_READY)
        self.degraded = gauge(Metric.POOL_DEGRADED)
        self.guests = gauge(Metric.POOL_GUESTS)
        self.pairings = gauge(Metric.POOL_PAIRINGS)
        self.unattended = gauge(Metric.POOL_UNATTENDED)
        self.overdue_identities = gauge(Metric.POOL_OVERDUE_IDENTITIES)
        self.refused = gauge(Metric.POOL_REFUSED_WRITES)
        self.forecast = gauge(Metric.POOL_FORECAST)
        self.unneeded = gauge(Metric.POOL_UNNEEDED_BYTES)
        self.unpaired = gauge(Metric.GUEST_UNPAIRED_BYTES)
        self._only: dict[Gauge, set[tuple[str, ...]]] = {}  # gauge -> labels that it shows
        self._refused: dict[str, set[str]] = {}  # namespace -> pools that show some
        self.plan_seconds = plan_histogram(Metric.PLAN_SECONDS)
        self.pass_seconds = plan_histogram(Metric.PASS_PLAN_SECONDS)
        self.reconciles = counter(Metric.RECONCILES)
        self.leading = gauge(Metric.LEADING)
        self.errors = counter(Metric.RECONCILE_ERRORS)
        self.writes = counter(Metric.API_WRITES)

    def show(self, pool: MemoryPool, status: PoolStatus, pairings: Sequence[Judged]) -> None:
        """Shows one pool."""
        key, at = pool.key, now()
        self.lent.labels(*key).set(status.lent_bytes or 0)
        self.used.labels(*key).set(status.used_bytes or 0)
        self.ready.labels(*key).set(is_true(status.conditions, ConditionType.READY))
        self.degraded.labels(*key).set(is_true(status.conditions, ConditionType.DEGRADED))
        self.guests.labels(*key, "lender").set(status.lenders or 0)
        self.guests.labels(*key, "borrower").set(status.borrowers or 0)
        self.overdue_identities.labels(*key).set(sum(is_overdue(one.pairing, at) for one in pairings))
        verdicts = [one.verdict for one in pairings]
        self.unattended.labels(*key).set([one.reason for one in verdicts].count(Reason.AGENT_NOT_RESPONDING))
        phases = [one.phase for one in verdicts]
        for phase in PairingPhase:
            self.pairings.labels(*key, phase).set(phases.count(phase))
        if status.hit_ratio is not None:
            self.hit_ratio.labels(*key).set(float(status.hit_ratio))

    def show_stuck(self, key: PoolKey) -> None:
        """Shows a pool that cannot be gone over; its other figures stay as they were."""
        self.ready.labels(*key).set(0)
        self.degraded.labels(*key).set(1)

    def written(self, kind: str) -> None:
        """Counts a write."""
        self.writes.labels(kind).inc()

    def show_refused(self, namespace: str, pools: Mapping[str, int]) -> None:
        """Shows how many writes of each pool of a namespace are refused, be it gone itself; the others have none."""
        for pool in self._refused.pop(namespace, set()) - pools.keys():
            self.refused.remove(namespace, pool)
        for pool, number in pools.items():
            self.refused.labels(namespace, pool).set(number)
        if pools:
            self._refused[namespace] = set(pools)

    def show_unpaired(self, held: Mapping[GuestKey, int]) -> None:
        """Shows how many bytes guests of dead agents lend without a pairing; all others lend none so."""
        self._show_only(self.unpaired, held.items())

    def show_worth(self, pools: Mapping[PoolKey, PoolWorth]) -> None:
        """Shows what memory is worth in each pool, as far as that is known."""
        reads = {(*key, f"{size}"): value for key, one in pools.items() for size, value in one.forecast.items()}
        self._show_only(self.forecast, reads.items())
        known = {key: one.unneeded_bytes for key, one in pools.items() if one.unneeded_bytes is not None}
        self._show_only(self.unneeded, known.items())

    def _show_only(self, gauge: Gauge, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Shows these values, by their labels, and no others; who scrapes meanwhile misses none that stays."""
        fresh = dict(values)
        for labels in self._only.get(gauge, set()) - fresh.keys():
            gauge.remove(*labels)
        for labels, value in fresh.items():
            gauge.labels(*labels).set(value)
        self._only[gauge] = set(fresh)

    def forget(self, namespace: str, pool: str) -> None:
        """Removes a pool that is gone."""
        flags = (self.ready, self.degraded, self.unattended, self.overdue_identities)
        for gauge in (self.lent, self.used, self.hit_ratio, *flags, self.guests, self.pairings):
            gauge.remove_by_labels({"namespace": namespace, "pool": pool})
