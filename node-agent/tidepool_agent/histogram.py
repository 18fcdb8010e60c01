"""Durations as the module counts them: in buckets, each by the largest number of microseconds that is in it. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidepool_api.fields import MOST_COUNT

MAX_BUCKETS = 256
MAX_KINDS = 16  # of durations, in one file

_LINE = re.compile(r"([a-z]{1,16}) ([0-9]{1,20}|inf) ([0-9]{1,20})")
_PAIR = re.compile(r"([0-9]{1,20}|inf):([0-9]{1,20})")


@dataclass(frozen=True)
class Histogram:
    """Durations: counts by upper bound in microseconds, ascending, not cumulative; the last bound may be infinite."""

    buckets: tuple[tuple[float, int], ...] = ()

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(count for _, count in self.buckets)


def histograms(lines: Iterable[str]) -> dict[str, Histogram]:
    """Those of lines of `WHAT LE COUNT`, by what they are of."""
    buckets: dict[str, dict[float, int]] = defaultdict(dict)
    for match in filter(None, map(_LINE.fullmatch, lines)):
        is_another = match[1] not in buckets and len(buckets) == MAX_KINDS
        if not is_another and len(buckets[match[1]]) < MAX_BUCKETS:
            buckets[match[1]][float(match[2])] = min(int(match[3]), MOST_COUNT)
    return {name: _sorted(counts) for name, counts in buckets.items()}


def histogram(word: str) -> Histogram:
    """That of a word, LE:COUNT,LE:COUNT and so on; without any of something else."""
    matches = filter(None, map(_PAIR.fullmatch, word.split(",")[:MAX_BUCKETS]))
    return _sorted({float(match[1]): min(int(match[2]), MOST_COUNT) for match in matches})


def _sorted(counts: Mapping[float, int]) -> Histogram:
    return Histogram(tuple(sorted(counts.items())))
