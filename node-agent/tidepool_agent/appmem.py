"""Parses what the probe prints about memory for programs: whose the device is, and what they keep there.

As everywhere, the text comes from the guest and is believed only as far as it fits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidepool_agent.histogram import Histogram, histogram, histograms
from tidepool_api.applications import ROOT, is_group
from tidepool_api.fields import MOST_BYTES, MOST_COUNT

LOADED = "/sys/module/tidepool_app/srcversion"
_OPENED = "/sys/module/tidepool_app/refcnt"
_SIZE = "/sys/module/tidepool_app/parameters/size_bytes"
_STATS = "/sys/class/misc/tidepool/stats"
_LATENCY = "/sys/class/misc/tidepool/latency"
_POOLS = "application/pool"

_NUMBER = re.compile(r"[0-9]{1,20}")
_DEVICE = re.compile(r"([0-7]{1,4}) ([0-9]{1,10})")
_GROUP = re.compile(r"([a-z0-9_-]{1,32}) ([0-9]{1,10})")
_STAT = re.compile(r"([a-z_]{1,32}) ([0-9]{1,20})")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}")

# What the device says of a pool behind its name, its owner's number and its mode, and before how long calls took.
_COLUMNS = (
    *("quota", "bytes", "values", "value_bytes", "hits", "misses", "lost", "puts"),
    *("local", "front_bytes", "spilled"),
)


@dataclass(frozen=True)
class AppPool:
    """A pool of programs that has a name."""

    stats: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """How long its gets and puts took."""


@dataclass(frozen=True)
class AppMemory:
    """The module for programs' memory, as it is loaded in a guest."""

    size_bytes: int = 0
    """What programs may keep."""
    mode: str = ""
    """That of the device, as a pool writes it; empty if there is no device."""
    group: str = ""
    """Whose group it is: a name if the agent has given it to that, else a number."""
    opened: int = 0
    """How many times programs have it open."""
    stats: Mapping[str, int] = field(default_factory=dict)
    """What the module counts."""
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """How long gets and puts of all pools took."""
    pools: Mapping[str, AppPool] = field(default_factory=dict)
    """Those with a plain name that hold most, by it."""

    @property
    def is_held(self) -> bool:
        """Whether the module cannot go: a program has the device open."""
        return self.opened > 0


def appmem(files: Mapping[str, list[str]]) -> AppMemory | None:
    """It by the lines of each file that the probe has named; None where it is not loaded."""
    if LOADED not in files:
        return None
    device = _DEVICE.fullmatch(_first(files, "application/device"))
    return AppMemory(
        size_bytes=min(_number(files, _SIZE), MOST_BYTES),
        mode=device[1].rjust(4, "0") if device else "",
        group=_group(files, device[2]) if device else "",
        opened=min(_number(files, _OPENED), MOST_COUNT),
        stats={name: min(int(count), MOST_COUNT) for name, count in _counts(files)},
        latency=histograms(files.get(_LATENCY, [])),
        pools=dict(filter(None, map(_pool, files.get(_POOLS, [])))),
    )


def _pool(line: str) -> tuple[str, AppPool] | None:
    """Its name and what is said of it; None of what an older module says, or of a name that is not plain."""
    name, *words = line.split(" ")
    counts, times = words[2 : 2 + len(_COLUMNS)], words[2 + len(_COLUMNS) :]
    if len(times) < 2 or not _POOL.fullmatch(name) or not all(map(_NUMBER.fullmatch, counts)):
        return None
    stats = {column: min(int(count), MOST_COUNT) for column, count in zip(_COLUMNS, counts, strict=True)}
    return name, AppPool(stats, {"get": histogram(times[0]), "put": histogram(times[1])})


def _group(files: Mapping[str, list[str]], number: str) -> str:
    """The group of that number, if the agent has named it."""
    noted = _GROUP.fullmatch(_first(files, "application/group"))
    if noted and noted[2] == number and is_group(noted[1]):
        return noted[1]
    return ROOT if number == "0" else number


def _counts(files: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    matches = filter(None, map(_STAT.fullmatch, files.get(_STATS, [])))
    return [(match[1], match[2]) for match in matches]


def _number(files: Mapping[str, list[str]], path: str) -> int:
    text = _first(files, path)
    return int(text) if _NUMBER.fullmatch(text) else 0


def _first(files: Mapping[str, list[str]], path: str) -> str:
    return next(iter(files.get(path, [])), "")
