"""The last collected figures as Prometheus metrics. A scrape reads memory only; it never waits for a guest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidepool_agent.guestfs import Histogram, Observation, Peer, Side
from tidepool_agent.provider import Key
from tidepool_agent.report import lent, used
from tidepool_api import Metric as Name

GUEST = ("namespace", "guest")
PAIRING = (*GUEST, "pairing")
BOUNDS_US = tuple(1 << power for power in range(4, 25))
CONNECTED = "Connected"

Value = Callable[[Peer], float]


@dataclass(frozen=True)
class Sample:
    """The figures of one guest and what belongs to them."""

    seen: Observation
    provider: str
    pairings: Mapping[str, str] = field(default_factory=dict)
    """Name of the pairing by the name of its directory."""
    stale: bool = False


Samples = list[tuple[Key, Sample]]


class Figures(Collector):
    """Holds one sample per guest and turns them into metrics."""

    def __init__(self) -> None:
        self._samples: dict[Key, Sample] = {}

    def put(self, key: Key, sample: Sample) -> None:
        """The newest figures of a guest."""
        self._samples[key] = sample

    def drop(self, key: Key) -> None:
        """Forgets a guest that is gone."""
        self._samples.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        samples = list(self._samples.items())
        yield from _guests(samples)
        yield from _both_ends(samples)
        yield from _lending(samples)
        yield from _borrowing(samples)
        yield from _breaker(samples)
        yield from _latency(samples)
        yield _dropped(samples)


def _guests(samples: Samples) -> Iterator[Metric]:
    total = GaugeMetricFamily(Name.GUEST_MEMORY_BYTES, "Memory of the guest.", labels=GUEST)
    available = GaugeMetricFamily(Name.GUEST_AVAILABLE_BYTES, "MemAvailable of the guest.", labels=GUEST)
    stale = GaugeMetricFamily(
        Name.GUEST_STALE, "1 while the guest does not answer and its figures are old.", labels=GUEST
    )
    labels = (*GUEST, "provider", "kernel", "module_version")
    info = GaugeMetricFamily(Name.GUEST_INFO, "Always 1; what the guest is.", labels=labels)
    disk = CounterMetricFamily(Name.GUEST_DISK_READS, "Pages of known files that were read from disk.", labels=GUEST)
    warnings = CounterMetricFamily(Name.GUEST_WARNINGS, "Broken invariants in the module: must stay 0.", labels=GUEST)
    for key, sample in samples:
        seen, module = sample.seen, sample.seen.module
        total.add_metric(key, seen.total_bytes)
        available.add_metric(key, seen.available_bytes)
        stale.add_metric(key, sample.stale)
        info.add_metric((*key, sample.provider, seen.release, module.version if module else ""), 1)
        if module:
            disk.add_metric(key, module.stats.get("misses", 0))
            warnings.add_metric(key, module.stats.get("warnings", 0))
    yield from (total, available, stale, info, disk, warnings)


def _both_ends(samples: Samples) -> Iterator[Metric]:
    labels = (*PAIRING, "side")
    connected = GaugeMetricFamily(Name.GUEST_CONNECTED, "1 if this end of the pairing is connected.", labels=labels)
    granted = GaugeMetricFamily(Name.GUEST_GRANTED_BYTES, "Memory that the lender has granted.", labels=labels)
    for side, word in ((Side.BORROWERS, "lender"), (Side.LENDERS, "borrower")):
        for key, peer in _peers(samples, side):
            connected.add_metric((*key, word), peer.state == CONNECTED)
            granted.add_metric((*key, word), peer.stats.get("granted_bytes", 0))
    yield from (connected, granted)


def _lending(samples: Samples) -> Iterator[Metric]:
    side = Side.BORROWERS
    yield _gauge(samples, side, Name.GUEST_LENT_BYTES, "Memory that holds the borrower's pages.", lent)
    yield _counter(samples, side, Name.GUEST_RECLAIMED, "Pages that the guest's kernel took back.", _stat("reclaimed"))
    yield _counter(samples, side, Name.GUEST_RECYCLED, "Oldest pages dropped for newer ones.", _stat("recycled"))


def _borrowing(samples: Samples) -> Iterator[Metric]:
    side = Side.LENDERS
    yield _gauge(samples, side, Name.GUEST_USED_BYTES, "Memory in use at the lender.", used)
    yield _counter(samples, side, Name.GUEST_GETS_HIT, "Pages read back from the lender.", _stat("get_hits"))
    yield _counter(samples, side, Name.GUEST_GETS_MISSED, "Pages that the lender had dropped.", _stat("get_misses"))
    yield _counter(samples, side, Name.GUEST_GETS_LATE, "Pages that came too late or not at all.", _late)
    corrupt = "Pages that came back and were not what was put: must stay 0."
    yield _counter(samples, side, Name.GUEST_GETS_CORRUPT, corrupt, _stat("get_corrupt"))
    yield _counter(samples, side, Name.GUEST_PUTS, "Pages handed over to the lender.", _stat("puts"))


def _breaker(samples: Samples) -> Iterator[Metric]:
    side = Side.LENDERS
    opened = "Times that the borrower left the lender alone because it was slow."
    yield _gauge(samples, side, Name.GUEST_BREAKER_OPEN, "1 while it does so.", _stat("breaker_open"))
    yield _counter(samples, side, Name.GUEST_BREAKER_OPENED, opened, _stat("breaker_opened"))
    text = "Pages that the lender has and that were read from disk all the same."
    skipped = CounterMetricFamily(Name.GUEST_GETS_SKIPPED, text, labels=(*PAIRING, "reason"))
    for key, peer in _peers(samples, side):
        skipped.add_metric((*key, "breaker"), peer.stats.get("get_skipped", 0))
        skipped.add_metric((*key, "sequential"), peer.stats.get("get_skipped_sequential", 0))
    yield skipped


_LATENCIES = {
    "get": (Name.GUEST_GET_SECONDS, "Time from the request to the page"),
    "put": (Name.GUEST_PUT_SECONDS, "Time from sending a batch of pages to its acknowledgement"),
    "ping": (Name.GUEST_PING_SECONDS, "Round trip without payload"),
}
_INEXACT = "the sum is exact to a bucket's width only."


def _latency(samples: Samples) -> Iterator[Metric]:
    for word, (name, text) in _LATENCIES.items():
        family = HistogramMetricFamily(name, f"{text}; {_INEXACT}", labels=PAIRING)
        for key, peer in _peers(samples, Side.LENDERS):
            _add(family, key, peer.latency.get(word, Histogram()))
        yield family
    text = "Time of the guest's own reads from disk"
    disk = HistogramMetricFamily(Name.GUEST_DISK_READ_SECONDS, f"{text}, sampled; {_INEXACT}", labels=GUEST)
    for guest, sample in samples:
        if sample.seen.module:
            _add(disk, guest, sample.seen.module.latency.get("disk", Histogram()))
    yield disk


def _add(family: HistogramMetricFamily, key: tuple[str, ...], measured: Histogram) -> None:
    family.add_metric(key, _cumulative(measured), _sum_seconds(measured))


def _dropped(samples: Samples) -> Metric:
    """Dropped puts by reason; those that happen before a lender is chosen have no pairing."""
    labels = (*PAIRING, "reason")
    family = CounterMetricFamily(Name.GUEST_PUTS_DROPPED, "Evicted pages that were not handed over.", labels=labels)
    for key, peer in _peers(samples, Side.LENDERS):
        for reason, count in _drops(peer.stats):
            family.add_metric((*key, reason), count)
    for guest, sample in samples:
        for reason, count in _drops(sample.seen.module.stats if sample.seen.module else {}):
            family.add_metric((*guest, "", reason), count)
    return family


def _peers(samples: Samples, side: Side) -> Iterator[tuple[tuple[str, str, str], Peer]]:
    """The peers that belong to a pairing we know: a guest cannot invent labels."""
    for (namespace, guest), sample in samples:
        for name, peer in sample.seen.side(side).items():
            if name in sample.pairings:
                yield (namespace, guest, sample.pairings[name]), peer


def _gauge(samples: Samples, side: Side, name: str, text: str, value: Value) -> Metric:
    family = GaugeMetricFamily(name, text, labels=PAIRING)
    for key, peer in _peers(samples, side):
        family.add_metric(key, value(peer))
    return family


def _counter(samples: Samples, side: Side, name: str, text: str, value: Value) -> Metric:
    family = CounterMetricFamily(name, text, labels=PAIRING)
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
    "sequential",
    "other",
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
