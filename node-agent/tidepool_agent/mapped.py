"""Parses what the probe prints about the block devices that the agent has put lenders in front of.

As everywhere, the text comes from the guest and is believed only as far as it fits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidepool_api import SWAP_NAME
from tidepool_api.fields import MOST_BYTES, MOST_COUNT

SECTOR = 512
LENT, PLAIN = "tidepool", "linear"
MAX_MAPPED = 64
MAX_BELOW = 16

_NAME = r"tidepool(?:[.]swap)?(?:-[A-Za-z0-9_.:+-]{1,113})?"
_LINE = re.compile(rf"mapped/({_NAME})/(table|status|open|file|swapped|disk|below)")
_TABLE = re.compile(r"0 ([0-9]{1,15}) (tidepool|linear) [^ ]+ [^ ]+(?: (behind)\b)?.*")
_COUNT = re.compile(r"\b(hits|misses|fallbacks|puts|log_refused) ([0-9]{1,20})\b")
_NUMBER = re.compile(r"[0-9]{1,15}")
_FILE = re.compile(r"/[A-Za-z0-9_./+-]{1,126}")


@dataclass(frozen=True)
class Mapped:
    """One device of device-mapper's that the agent has made."""

    name: str
    size_bytes: int
    is_lent: bool
    """Whether lenders are in front of its disk, rather than nothing."""
    is_odd: bool = False
    """Whether it has no table, or one that the agent has not made; what it lies on is not known then."""
    disk_bytes: int | None = 0
    """The size of the disk that it lies on; None if that is there no more."""
    below: tuple[str, ...] = ()
    """The disks that it lies on, each as its name in the guest and its serial numbers."""
    is_open: bool = False
    """Whether somebody uses it."""
    file: str = ""
    """The file that it lies on; empty if it lies on a device."""
    is_behind: bool = False
    """Whether a log in the guest's memory has what is written before the disk does."""
    swapped_bytes: int | None = None
    """How much is swapped out to it; None while it is not in use as swap."""
    stats: Mapping[str, int] = field(default_factory=dict)
    """The target's counters, in blocks of 4 KiB; none without lenders."""

    @property
    def is_refused(self) -> bool:
        """Whether its disk does not take what is in its log; nothing is lost while the log stays."""
        return self.stats.get("log_refused", 0) > 0

    @property
    def is_gone(self) -> bool:
        """Whether the disk that it lies on was taken out of the guest."""
        return self.disk_bytes is None and not self.is_odd

    @property
    def is_swap(self) -> bool:
        """Whether it is a swap area."""
        return self.name.startswith(SWAP_NAME)


def mapped(files: Mapping[str, list[str]]) -> dict[str, Mapped]:
    """The devices by name, of the lines of each file that the probe has named."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for path, lines in files.items():
        match = _LINE.fullmatch(path)
        if match and lines:
            found[match[1]][match[2]] = lines
    each = (_one(name, said) for name, said in sorted(found.items())[:MAX_MAPPED])
    return {one.name: one for one in each}


def _one(name: str, lines: Mapping[str, list[str]]) -> Mapped:
    """One device; one without a table of ours is odd."""
    said = {what: each[0] for what, each in lines.items()}
    table = _TABLE.fullmatch(said.get("table", ""))
    disk, swapped = _number(said.get("disk")), _number(said.get("swapped"))
    file = said.get("file", "")
    return Mapped(
        name,
        min(int(table[1]) * SECTOR, MOST_BYTES) if table else 0,
        table is not None and table[2] == LENT,
        is_odd=table is None,
        disk_bytes=None if disk is None else min(disk * SECTOR, MOST_BYTES),
        below=tuple(line[:256] for line in lines.get("below", [])[:MAX_BELOW]),
        is_open=said.get("open") != "0",
        file=file if _FILE.fullmatch(file) else "",
        is_behind=table is not None and table[3] is not None,
        swapped_bytes=None if swapped is None else min(swapped * 1024, MOST_BYTES),
        stats={name: min(int(count), MOST_COUNT) for name, count in _COUNT.findall(said.get("status", ""))},
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
