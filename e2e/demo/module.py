"""What the module says of itself in a guest: counters and latency histograms, read from configfs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

TREE = "/sys/kernel/config/tidepool"
READ = f"grep -sH '' {TREE}/stats {TREE}/*/*/stats {TREE}/*/*/latency; grep ' vdb ' /proc/diskstats; true"
PAGE = 4096
INFINITE = float("inf")
_LINE = re.compile(rf"{TREE}/(?P<path>[^:]+):(?P<name>\S+) (?P<rest>.+)")

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Reading:
    """Everything at one moment; the figures of several peers are summed."""

    module: Counts = field(default_factory=dict)
    """Of the guest as a whole."""
    borrowing: Counts = field(default_factory=dict)
    """Of its lenders."""
    lending: Counts = field(default_factory=dict)
    """Of its borrowers."""
    gets: Mapping[float, int] = field(default_factory=dict)
    """Latencies of gets: how many took at most so many microseconds (and more than the next lower bound)."""
    disk_reads: int = 0
    """Reads that the data disk has completed."""


def parse(text: str) -> Reading:
    """Reads what `READ` prints."""
    module: Counter[str] = Counter()
    sides: dict[str, Counter[str]] = {"lenders": Counter(), "borrowers": Counter()}
    gets: Counter[float] = Counter()
    disk_reads = 0
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            disk_reads = int(line.split()[3]) if " vdb " in line else disk_reads
            continue
        path, name, rest = found["path"], found["name"], found["rest"]
        if path == "stats":
            module[name] += int(rest)
        elif path.endswith("/stats"):
            sides[path.split("/")[0]][name] += int(rest)
        elif name == "get":
            bound, count = rest.split()
            gets[float(bound)] += int(count)
    return Reading(module, sides["lenders"], sides["borrowers"], gets, disk_reads)


def read(guest: Callable[[str], str]) -> Reading:
    """The present reading of a guest, which is a function that runs a command there."""
    return parse(guest(READ))


def difference(before: Reading, after: Reading) -> Reading:
    """What has happened between two readings."""
    return Reading(
        _minus(after.module, before.module),
        _minus(after.borrowing, before.borrowing),
        _minus(after.lending, before.lending),
        {bound: n for bound, count in after.gets.items() if (n := count - before.gets.get(bound, 0)) > 0},
        after.disk_reads - before.disk_reads,
    )


def _minus(after: Counts, before: Counts) -> Counts:
    return {name: value - before.get(name, 0) for name, value in after.items()}


def remote_hits(reading: Reading) -> int:
    """Pages that came from a lender."""
    return reading.borrowing.get("get_hits", 0)


def remote_misses(reading: Reading) -> int:
    """Pages of known files that were read from the disk, for whatever reason."""
    return reading.module.get("misses", 0)


def hit_ratio(reading: Reading) -> float:
    """Pages that came from a lender, among all that were not in the guest's own memory."""
    hits = remote_hits(reading)
    return hits / (hits + remote_misses(reading)) if hits else 0.0


def quantile_us(histogram: Mapping[float, int], quantile: float) -> float:
    """A quantile of a histogram with upper bounds, interpolated within its bucket."""
    total = sum(histogram.values())
    if total == 0:
        return 0.0
    wanted, passed, lower = quantile * total, 0, 0.0
    for bound, count in sorted(histogram.items()):
        lower = max(lower, _bucket_begin(bound))
        if passed + count >= wanted and bound != INFINITE:
            return lower + (bound - lower) * (wanted - passed) / count
        passed, lower = passed + count, bound if bound != INFINITE else lower
    return lower


def _bucket_begin(bound: float) -> float:
    """Where the bucket that ends at this bound begins: there are four to an octave (see ABI.md)."""
    if bound in (INFINITE, 0.0):
        return 0.0
    octave = int(bound).bit_length() - 1
    return bound - (1 << max(0, octave - 2))
