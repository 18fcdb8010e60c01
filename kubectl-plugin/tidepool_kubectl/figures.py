"""What the agents export, by pairing and by guest, and what two readings say about the time between. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tidepool_api import GuestKey, Metric, ObjectKey

PAGE = 4096
Buckets = tuple[tuple[float, float], ...]  # upper bound in seconds, how many are not above it


@dataclass(frozen=True)
class Pairing:
    """The figures of a pairing since its session was set up."""

    hits: float = 0
    missed: float = 0
    used_bytes: float = 0
    is_stopped: bool = False
    """Whether the breaker is open."""
    get: Buckets = ()
    ping: Buckets = ()

    @property
    def hit_ratio(self) -> float | None:
        """Hits among all reads of pages that the lender was believed to have; None without any."""
        return self.hits / (self.hits + self.missed) if self.hits + self.missed else None


@dataclass(frozen=True)
class Programs:
    """What programs of a guest keep, or in one pool of theirs, and what has become of their calls since it was made."""

    limit_bytes: float = 0
    """All pools of a guest together have one."""
    used_bytes: float = 0
    values: float = 0
    hits: float = 0
    misses: float = 0
    puts: float = 0
    local_hits: float = 0
    """Of the hits, those that needed no lender."""
    disk_reads: float = 0
    """Reads of kept pools that the guest's disk had to answer."""
    get: Buckets = ()
    put: Buckets = ()

    @property
    def hit_ratio(self) -> float | None:
        """Gets that brought the value among all; None without any."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None

    @property
    def local_ratio(self) -> float | None:
        """Hits that needed no lender among all; None without any."""
        return self.local_hits / self.hits if self.hits else None


@dataclass(frozen=True)
class Figures:
    """Those of all pairings that were read, and of guests whose programs have memory."""

    pairings: Mapping[ObjectKey, Pairing] = field(default_factory=dict)
    programs: Mapping[GuestKey, Programs] = field(default_factory=dict)
    pools: Mapping[tuple[GuestKey, str], Programs] = field(default_factory=dict)
    """Those of pools that programs have named."""


_MISSED = (Metric.GUEST_GETS_MISSED, Metric.GUEST_GETS_LATE, Metric.GUEST_GETS_CORRUPT, Metric.GUEST_GETS_SKIPPED)


def parse(text: str) -> Figures:
    """The figures in one or more expositions put together; raises ValueError for what is none."""
    return figures_of(samples(text))


def figures_of(found: Iterable[Sample]) -> Figures:
    """The figures of all pairings that these samples are of."""
    values: dict[ObjectKey, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    buckets: dict[ObjectKey, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    programs: dict[GuestKey, list[Sample]] = defaultdict(list)
    pools: dict[tuple[GuestKey, str], list[Sample]] = defaultdict(list)
    for sample in found:
        if sample.name in _ALL_OF_PROGRAMS:
            guest = GuestKey(sample.labels["namespace"], sample.labels["guest"])
            if name := sample.labels.get("value_pool"):
                pools[guest, name].append(sample)
            else:
                programs[guest].append(sample)
            continue
        key = ObjectKey(sample.labels["namespace"], sample.labels["pairing"])
        if "le" in sample.labels:
            buckets[key][sample.name][float(sample.labels["le"])] = sample.value
        else:
            values[key][sample.name] += sample.value
    return Figures(
        {key: _pairing(values[key], buckets[key]) for key in values},
        {key: _programs(found) for key, found in programs.items()},
        {key: _programs(found) for key, found in pools.items()},
    )


def samples(text: str) -> list[Sample]:
    """Those of an exposition that are of a pairing, or of programs' memory; raises ValueError for what is none."""
    each = [one for family in text_string_to_metric_families(text) for one in family.samples]
    named = [one for one in each if one.labels.get("namespace")]
    return [one for one in named if one.labels.get("guest" if one.name in _ALL_OF_PROGRAMS else "pairing")]


_OF_PROGRAMS: dict[str, str] = {
    Metric.GUEST_VALUES_LIMIT_BYTES: "limit_bytes",
    Metric.GUEST_VALUES_BYTES: "used_bytes",
    Metric.GUEST_VALUES: "values",
    Metric.GUEST_VALUE_HITS: "hits",
    Metric.GUEST_VALUE_MISSES: "misses",
    Metric.GUEST_VALUE_PUTS: "puts",
    Metric.GUEST_VALUE_LOCAL_HITS: "local_hits",
    Metric.GUEST_VALUE_DISK_READS: "disk_reads",
    Metric.VALUE_POOL_BYTES: "used_bytes",
    Metric.VALUE_POOL_HITS: "hits",
    Metric.VALUE_POOL_MISSES: "misses",
    Metric.VALUE_POOL_PUTS: "puts",
    Metric.VALUE_POOL_LOCAL_HITS: "local_hits",
    Metric.VALUE_POOL_DISK_READS: "disk_reads",
}
_TIMES_OF_PROGRAMS: dict[str, str] = {
    f"{Metric.GUEST_VALUE_GET_SECONDS}_bucket": "get",
    f"{Metric.GUEST_VALUE_PUT_SECONDS}_bucket": "put",
    f"{Metric.VALUE_POOL_GET_SECONDS}_bucket": "get",
    f"{Metric.VALUE_POOL_PUT_SECONDS}_bucket": "put",
}
_ALL_OF_PROGRAMS = _OF_PROGRAMS.keys() | _TIMES_OF_PROGRAMS.keys()


def _programs(found: Iterable[Sample]) -> Programs:
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {"get": {}, "put": {}}
    for sample in found:
        if times := _TIMES_OF_PROGRAMS.get(sample.name):
            buckets[times][float(sample.labels["le"])] = sample.value
        else:
            values[_OF_PROGRAMS[sample.name]] = sample.value
    return Programs(**values, get=_sorted(buckets["get"]), put=_sorted(buckets["put"]))


def _pairing(values: Mapping[str, float], buckets: Mapping[str, dict[float, float]]) -> Pairing:
    return Pairing(
        hits=values.get(Metric.GUEST_GETS_HIT, 0),
        missed=sum(values.get(name, 0) for name in _MISSED),
        used_bytes=values.get(Metric.GUEST_USED_BYTES, 0),
        is_stopped=values.get(Metric.GUEST_BREAKER_OPEN, 0) > 0,
        get=_sorted(buckets.get(f"{Metric.GUEST_GET_SECONDS}_bucket", {})),
        ping=_sorted(buckets.get(f"{Metric.GUEST_PING_SECONDS}_bucket", {})),
    )


def _sorted(buckets: Mapping[float, float]) -> Buckets:
    return tuple(sorted(buckets.items()))


def between(before: Pairing | None, after: Pairing) -> Pairing:
    """What was counted between two readings; all of the second where the counters began anew."""
    if before is None or _total(after.get) < _total(before.get) or after.hits < before.hits:
        return after
    return Pairing(
        hits=after.hits - before.hits,
        missed=max(0.0, after.missed - before.missed),
        used_bytes=after.used_bytes,
        is_stopped=after.is_stopped,
        get=_difference(before.get, after.get),
        ping=_difference(before.ping, after.ping),
    )


def between_calls(before: Programs | None, after: Programs) -> Programs:
    """What programs did between two readings; all of the second where the counters began anew."""
    if before is None or after.hits < before.hits or after.misses < before.misses or after.puts < before.puts:
        return after
    return replace(
        after,
        hits=after.hits - before.hits,
        misses=after.misses - before.misses,
        puts=after.puts - before.puts,
        local_hits=max(0.0, after.local_hits - before.local_hits),
        disk_reads=max(0.0, after.disk_reads - before.disk_reads),
        get=_difference(before.get, after.get),
        put=_difference(before.put, after.put),
    )


def hits_per_second(before: Figures, after: Figures, seconds: float) -> dict[ObjectKey, float]:
    """The reads that each pairing answered between two readings, for those that are in both."""
    both = after.pairings.keys() & before.pairings.keys() if seconds > 0 else set[ObjectKey]()
    return {key: between(before.pairings[key], after.pairings[key]).hits / seconds for key in both}


def _difference(before: Buckets, after: Buckets) -> Buckets:
    known = dict(before)
    return tuple((bound, max(0.0, count - known.get(bound, 0))) for bound, count in after)


def _total(buckets: Buckets) -> float:
    return buckets[-1][1] if buckets else 0


def quantile(buckets: Buckets, part: float) -> float | None:
    """The time in seconds that this part of all took at most, between the bounds of its bucket; None without any."""
    rank = part * _total(buckets)
    if not rank:
        return None
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            is_open = bound == float("inf")
            return lower if is_open else lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower
