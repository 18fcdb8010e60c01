"""The last collected figures as Prometheus metrics. A scrape reads memory only; it never waits for a guest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidepool_agent.appmem import AppMemory, AppPool
from tidepool_agent.guestfs import GHOST_OFF, Observation, Peer, Side
from tidepool_agent.histogram import Histogram
from tidepool_agent.report import lent, used
from tidepool_api import Condition, GuestKey, Status
from tidepool_api import Metric as Name
from tidepool_api.curve import ENOUGH_REFERENCES
from tidepool_api.metrics import AGENT

BOUNDS_US = tuple(1 << power for power in range(4, 25))
CONNECTED = "Connected"

TRUTH = {Status.TRUE: 1, Status.FALSE: 0, Status.UNKNOWN: -1}

MOST_POOLS = 8
"""Pools of programs of a guest that have figures of their own, as long as the guest is there."""
MOST_BUILDS, MOST_SIZES = 16, 128
"""Pairs of kernel and module that a guest is shown with, and sizes of pools that it forecasts for, as long.

A module forecasts for seven sizes, which depend on its guest's memory.
"""

Value = Callable[[Peer], float]


@dataclass(frozen=True)
class Labels:
    """What a guest or its programs name, and figures are shown by: so much of it as long as the guest is there.

    What has figures keeps them. A guest that named something new all the time would bring as many series.
    """

    pools: frozenset[str] = frozenset()
    """Names of pools of its programs."""
    builds: frozenset[tuple[str, str]] = frozenset()
    """Releases of its kernel, with versions of its module."""
    sizes: frozenset[int] = frozenset()
    """Sizes in bytes, of pools that its module forecasts for."""

    def grown(self, seen: Observation) -> Labels:
        """With what is new, while there is room."""
        app, module = seen.app, seen.module
        sizes = sorted({size for size, _ in module.curve} - self.sizes) if module else []
        return Labels(
            admitted(self.pools, app.pools if app else {}),
            self.builds if len(self.builds) == MOST_BUILDS else self.builds | {build(seen)},
            self.sizes | frozenset(sizes[: MOST_SIZES - len(self.sizes)]),
        )


def build(seen: Observation) -> tuple[str, str]:
    """The release of a guest's kernel, and the version of its module."""
    return seen.release, seen.module.version if seen.module else ""


@dataclass(frozen=True)
class Sample:
    """The figures of one guest and what belongs to them."""

    seen: Observation
    provider: str
    pairings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Pool and name of the pairing by the name of its directory."""
    devices: frozenset[str] = frozenset()
    """Mapped names of the devices that its pairings name."""
    stale: bool = False
    labels: Labels = field(default_factory=Labels)


Samples = list[tuple[GuestKey, Sample]]


class Figures(Collector):
    """Holds one sample per guest and turns them into metrics."""

    def __init__(self) -> None:
        self._samples: dict[GuestKey, Sample] = {}
        self._labels: dict[GuestKey, Labels] = {}
        self._conditions: dict[GuestKey, tuple[Condition, ...]] = {}
        self._gathered: dict[GuestKey, int] = {}
        self._errors = Counter[tuple[str, str]]()

    def put(self, key: GuestKey, sample: Sample) -> None:
        """The newest figures of a guest."""
        labels = self._labels[key] = self._labels.get(key, Labels()).grown(sample.seen)
        self._samples[key] = replace(sample, labels=labels)

    def judge(self, key: GuestKey, conditions: tuple[Condition, ...]) -> None:
        """What the agent says of a guest, which may be one that never answered and has no figures."""
        self._conditions[key] = conditions

    def gather(self, key: GuestKey, size: int | None) -> None:
        """What a guest's balloon holds; None of one from which nothing is gathered."""
        if size is None:
            self._gathered.pop(key, None)
        else:
            self._gathered[key] = size

    def answer_for(self, node: str, namespace: str) -> None:
        """Counts what goes wrong about a namespace's guests from 0 on: a rate does not see what begins with 1."""
        self._errors.setdefault((node, namespace), 0)

    def failed(self, node: str, namespace: str) -> None:
        """Something that the agent of a node does, about a guest of a namespace, went wrong."""
        self._errors[node, namespace] += 1

    def leave_alone(self, key: GuestKey) -> None:
        """Shows no figures of a guest in which nothing is run; labels that it has had are not its again."""
        self._samples.pop(key, None)

    def drop(self, key: GuestKey) -> None:
        """Forgets a guest that is gone."""
        self._samples.pop(key, None)
        self._labels.pop(key, None)
        self._conditions.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        samples = list(self._samples.items())
        yield _erred(list(self._errors.items()))
        yield _judged(list(self._conditions.items()))
        yield _held(list(self._gathered.items()))
        yield from _guests(samples)
        yield from _needs(samples)
        yield from _forecast(samples)
        yield from _both_ends(samples)
        yield from _lending(samples)
        yield from _borrowing(samples)
        yield from _breaker(samples)
        yield from _latency(samples)
        yield from _devices(samples)
        yield from _values(samples)
        yield from _value_pools(samples)
        yield _dropped(samples)


def _gauges(name: Name) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, AGENT[name].help, labels=AGENT[name].labels)


def _counters(name: Name) -> CounterMetricFamily:
    return CounterMetricFamily(name, AGENT[name].help, labels=AGENT[name].labels)


def _histograms(name: Name) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, AGENT[name].help, labels=AGENT[name].labels)


def _erred(errors: list[tuple[tuple[str, str], int]]) -> Metric:
    family = _counters(Name.AGENT_ERRORS)
    for key, count in errors:
        family.add_metric(key, count)
    return family


def _judged(conditions: list[tuple[GuestKey, tuple[Condition, ...]]]) -> Metric:
    family = _gauges(Name.GUEST_CONDITION)
    for key, each in conditions:
        for one in each:
            family.add_metric((*key, one.type, one.reason), TRUTH[one.status])
    return family


def _held(balloons: list[tuple[GuestKey, int]]) -> Metric:
    family = _gauges(Name.GUEST_GATHERED_BYTES)
    for key, size in balloons:
        family.add_metric(key, size)
    return family


def _guests(samples: Samples) -> Iterator[Metric]:
    total, available = _gauges(Name.GUEST_MEMORY_BYTES), _gauges(Name.GUEST_AVAILABLE_BYTES)
    stale, info = _gauges(Name.GUEST_STALE), _gauges(Name.GUEST_INFO)
    disk, warnings = _counters(Name.GUEST_DISK_READS), _counters(Name.GUEST_WARNINGS)
    verified, differ = _counters(Name.GUEST_VERIFIED), _counters(Name.GUEST_VERIFY_FAILED)
    for key, sample in samples:
        seen, module = sample.seen, sample.seen.module
        total.add_metric(key, seen.total_bytes)
        available.add_metric(key, seen.available_bytes)
        stale.add_metric(key, sample.stale)
        shown = build(seen) if build(seen) in sample.labels.builds else ("", "")
        info.add_metric((*key, sample.provider, *shown), 1)
        if module:
            disk.add_metric(key, module.stats.get("misses", 0))
            warnings.add_metric(key, module.stats.get("warnings", 0))
            verified.add_metric(key, module.stats.get("verified", 0))
            differ.add_metric(key, module.stats.get("verify_failed", 0))
    yield from (total, available, stale, info, disk, warnings, verified, differ)


def _needs(samples: Samples) -> Iterator[Metric]:
    working_set, pressure = _gauges(Name.GUEST_WORKING_SET_BYTES), _gauges(Name.GUEST_PRESSURE)
    refaults = _counters(Name.GUEST_REFAULTS)
    for key, sample in samples:
        if sample.seen.working_set_bytes is not None:
            working_set.add_metric(key, sample.seen.working_set_bytes)
        if sample.seen.refaults is not None:
            refaults.add_metric(key, sample.seen.refaults)
        for what, percent in sample.seen.stalls.items():
            pressure.add_metric((*key, *what.split()), percent / 100)
    yield from (working_set, refaults, pressure)


def _forecast(samples: Samples) -> Iterator[Metric]:
    """What ghost mode has found out, as long as it is on."""
    reads, ratio = _counters(Name.GUEST_GHOST_READS), _gauges(Name.GUEST_FORECAST)
    for key, sample in samples:
        module = sample.seen.module
        if module is None or module.ghost in ("", GHOST_OFF):
            continue
        reads.add_metric(key, module.references)
        for size, part in module.curve if module.sampled_references >= ENOUGH_REFERENCES else ():
            if size in sample.labels.sizes:
                ratio.add_metric((*key, str(size)), part)
    yield from (reads, ratio)


def _both_ends(samples: Samples) -> Iterator[Metric]:
    connected, granted = _gauges(Name.GUEST_CONNECTED), _gauges(Name.GUEST_GRANTED_BYTES)
    for side, word in ((Side.BORROWERS, "lender"), (Side.LENDERS, "borrower")):
        for key, peer in _peers(samples, side):
            connected.add_metric((*key, word), peer.state == CONNECTED)
            granted.add_metric((*key, word), peer.stats.get("granted_bytes", 0))
    yield from (connected, granted)


def _lending(samples: Samples) -> Iterator[Metric]:
    side = Side.BORROWERS
    yield _gauge(samples, side, Name.GUEST_LENT_BYTES, lent)
    yield _counter(samples, side, Name.GUEST_RECLAIMED, _stat("reclaimed"))
    yield _counter(samples, side, Name.GUEST_RECYCLED, _stat("recycled"))


def _borrowing(samples: Samples) -> Iterator[Metric]:
    side = Side.LENDERS
    yield _gauge(samples, side, Name.GUEST_USED_BYTES, used)
    yield _counter(samples, side, Name.GUEST_CONNECTS, _stat("connects"))
    yield _counter(samples, side, Name.GUEST_GETS_HIT, _stat("get_hits"))
    yield _counter(samples, side, Name.GUEST_GETS_MISSED, _stat("get_misses"))
    yield _counter(samples, side, Name.GUEST_GETS_LATE, _late)
    yield _counter(samples, side, Name.GUEST_GETS_CORRUPT, _stat("get_corrupt"))
    yield _counter(samples, side, Name.GUEST_PUTS, _stat("puts"))


def _breaker(samples: Samples) -> Iterator[Metric]:
    side = Side.LENDERS
    yield _gauge(samples, side, Name.GUEST_BREAKER_OPEN, _stat("breaker_open"))
    yield _counter(samples, side, Name.GUEST_BREAKER_OPENED, _stat("breaker_opened"))
    skipped = _counters(Name.GUEST_GETS_SKIPPED)
    for key, peer in _peers(samples, side):
        skipped.add_metric((*key, "breaker"), peer.stats.get("get_skipped", 0))
        skipped.add_metric((*key, "sequential"), peer.stats.get("get_skipped_sequential", 0))
        skipped.add_metric((*key, "unasked"), peer.stats.get("get_unasked", 0))
        skipped.add_metric((*key, "incomplete"), peer.stats.get("get_incomplete", 0))
    yield skipped


_LATENCIES = {"get": Name.GUEST_GET_SECONDS, "put": Name.GUEST_PUT_SECONDS, "ping": Name.GUEST_PING_SECONDS}


def _latency(samples: Samples) -> Iterator[Metric]:
    for word, name in _LATENCIES.items():
        family = _histograms(name)
        for key, peer in _peers(samples, Side.LENDERS):
            _add(family, key, peer.latency.get(word, Histogram()))
        yield family
    disk = _histograms(Name.GUEST_DISK_READ_SECONDS)
    for guest, sample in samples:
        if sample.seen.module:
            _add(disk, guest, sample.seen.module.latency.get("disk", Histogram()))
    yield disk


def _add(family: HistogramMetricFamily, key: tuple[str, ...], measured: Histogram) -> None:
    family.add_metric(key, _cumulative(measured), _sum_seconds(measured))


def _devices(samples: Samples) -> Iterator[Metric]:
    """Those that pairings name: a guest cannot invent labels."""
    size, lent_to = _gauges(Name.GUEST_DEVICE_BYTES), _gauges(Name.GUEST_DEVICE_LENT)
    hits, reads = _counters(Name.GUEST_DEVICE_HITS), _counters(Name.GUEST_DEVICE_DISK_READS)
    puts, swapped = _counters(Name.GUEST_DEVICE_PUTS), _gauges(Name.GUEST_SWAPPED_BYTES)
    for guest, sample in samples:
        for name in sorted(sample.devices & sample.seen.mapped.keys()):
            one = sample.seen.mapped[name]
            key = (*guest, "swap" if one.is_swap else "device", name)
            size.add_metric(key, one.size_bytes)
            lent_to.add_metric(key, one.is_lent)
            hits.add_metric(key, one.stats.get("hits", 0))
            reads.add_metric(key, one.stats.get("misses", 0) + one.stats.get("fallbacks", 0))
            puts.add_metric(key, one.stats.get("puts", 0))
            if one.swapped_bytes is not None:
                swapped.add_metric(key, one.swapped_bytes)
    yield from (size, lent_to, hits, reads, puts, swapped)


_VALUES = {
    Name.GUEST_VALUES_BYTES: "bytes",
    Name.GUEST_VALUES: "values",
    Name.GUEST_VALUE_POOLS: "pools",
    Name.GUEST_VALUE_HITS: "hits",
    Name.GUEST_VALUE_MISSES: "misses",
    Name.GUEST_VALUES_LOST: "lost",
    Name.GUEST_VALUE_PUTS: "puts",
    Name.GUEST_VALUE_PAGE_HITS: "page_hits",
    Name.GUEST_VALUE_LOCAL_HITS: "local",
    Name.GUEST_VALUES_FRONT_BYTES: "front_bytes",
    Name.GUEST_VALUE_DISK_READS: "spilled",
}
_VALUE_TIMES = {"get": Name.GUEST_VALUE_GET_SECONDS, "put": Name.GUEST_VALUE_PUT_SECONDS}

_VALUE_POOLS = {
    Name.VALUE_POOL_BYTES: "bytes",
    Name.VALUE_POOL_HITS: "hits",
    Name.VALUE_POOL_MISSES: "misses",
    Name.VALUE_POOL_LOST: "lost",
    Name.VALUE_POOL_PUTS: "puts",
    Name.VALUE_POOL_LOCAL_HITS: "local",
    Name.VALUE_POOL_FRONT_BYTES: "front_bytes",
    Name.VALUE_POOL_DISK_READS: "spilled",
}
_VALUE_POOL_TIMES = {"get": Name.VALUE_POOL_GET_SECONDS, "put": Name.VALUE_POOL_PUT_SECONDS}


def _values(samples: Samples) -> Iterator[Metric]:
    """What programs keep, of guests in which they can; all pools together."""
    each = [(key, sample.seen.app) for key, sample in samples if sample.seen.app]
    limit, opened = _gauges(Name.GUEST_VALUES_LIMIT_BYTES), _gauges(Name.GUEST_VALUES_OPENED)
    for key, there in each:
        limit.add_metric(key, there.size_bytes)
        opened.add_metric(key, there.opened)
    yield from (limit, opened)
    yield from _kept(each, _VALUES, _VALUE_TIMES)


def admitted(before: frozenset[str], there: Mapping[str, AppPool]) -> frozenset[str]:
    """The pools of a guest that have figures of their own: the first; of those that are new together, the largest."""
    new = sorted(there.keys() - before, key=lambda name: (-there[name].stats.get("bytes", 0), name))
    return before | frozenset(new[: MOST_POOLS - len(before)])


def _value_pools(samples: Samples) -> Iterator[Metric]:
    """Those that programs have named, by their names."""
    each = [
        ((*guest, name), sample.seen.app.pools[name])
        for guest, sample in samples
        if sample.seen.app
        for name in sorted(sample.labels.pools & sample.seen.app.pools.keys())
    ]
    yield from _kept(each, _VALUE_POOLS, _VALUE_POOL_TIMES)


def _kept(
    each: Sequence[tuple[tuple[str, ...], AppMemory | AppPool]], counts: Mapping[Name, str], times: Mapping[str, Name]
) -> Iterator[Metric]:
    """Counts and durations of what programs keep, by labels: of each guest, or of each pool."""
    for name, word in counts.items():
        family = _counters(name) if name.endswith("_total") else _gauges(name)
        for key, there in each:
            family.add_metric(key, there.stats.get(word, 0))
        yield family
    for word, name in times.items():
        durations = _histograms(name)
        for key, there in each:
            _add(durations, key, there.latency.get(word, Histogram()))
        yield durations


def _dropped(samples: Samples) -> Metric:
    """Dropped puts by reason; those that happen before a lender is chosen have no pairing."""
    family = _counters(Name.GUEST_PUTS_DROPPED)
    for key, peer in _peers(samples, Side.LENDERS):
        for reason, count in _drops(peer.stats):
            family.add_metric((*key, reason), count)
    for guest, sample in samples:
        for reason, count in _drops(sample.seen.module.stats if sample.seen.module else {}):
            family.add_metric((*guest, "", "", reason), count)
    return family


def _peers(samples: Samples, side: Side) -> Iterator[tuple[tuple[str, ...], Peer]]:
    """The peers that belong to a pairing we know: a guest cannot invent labels."""
    for (namespace, guest), sample in samples:
        for name, peer in sample.seen.side(side).items():
            if name in sample.pairings:
                yield (namespace, guest, *sample.pairings[name]), peer


def _gauge(samples: Samples, side: Side, name: Name, value: Value) -> Metric:
    family = _gauges(name)
    for key, peer in _peers(samples, side):
        family.add_metric(key, value(peer))
    return family


def _counter(samples: Samples, side: Side, name: Name, value: Value) -> Metric:
    family = _counters(name)
    for key, peer in _peers(samples, side):
        family.add_metric(key, value(peer))
    return family


def _stat(name: str) -> Value:
    return lambda peer: peer.stats.get(name, 0)


def _late(peer: Peer) -> int:
    return peer.stats.get("get_late", 0) + peer.stats.get("get_errors", 0)


# The module's own counters, so that a guest cannot invent labels here either.
REASONS = (
    "nobuffer",
    "refused",
    "nomem",
    "stale",
    "lost",
    "gate",
    "notready",
    "nofile",
    "breaker",
    "held",
    "sequential",
)


def _drops(stats: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(reason, stats[f"drop_{reason}"]) for reason in REASONS if f"drop_{reason}" in stats]


def _cumulative(measured: Histogram) -> list[tuple[str, float]]:
    """Buckets with the same bounds for every guest and at all times, as Prometheus needs them."""
    buckets = [(bound, sum(n for limit, n in measured.buckets if limit <= bound)) for bound in BOUNDS_US]
    return [*((repr(bound / 1e6), float(count)) for bound, count in buckets), ("+Inf", float(measured.count))]


def _sum_seconds(measured: Histogram) -> float:
    last = BOUNDS_US[-1]
    return sum(min(limit, last) * count for limit, count in measured.buckets) / 1e6
