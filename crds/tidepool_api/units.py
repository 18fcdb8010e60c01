"""Kubernetes quantities and durations, as bytes and microseconds.

The API server has checked them with the same rules (see `schema`), so that an error here means an object that came
from elsewhere: a file, a test, an older CRD.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR = 1, 1_000, 1_000_000, 60_000_000, 3_600_000_000

_BINARY = {unit: 1 << (10 * (power + 1)) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL = {unit: 1000 ** (power + 1) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"))}
_FACTORS = {"": 1} | _BINARY | _DECIMAL
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTPE]i|[kMGTPE])?")

_DURATION_UNITS = {"us": MICROSECOND, "µs": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|µs|ms|s|m|h)")


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> int:
    """The number of whole bytes that a quantity such as `512Mi`, `1.5Gi` or `2G` stands for."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write a number with Ki, Mi, Gi or Ti, such as 512Mi")
    number, unit = match.groups()
    return int(Decimal(number) * _FACTORS[unit or ""])


def format_quantity(size: int) -> str:
    """The shortest exact quantity for a number of bytes: `512Mi` rather than `536870912`."""
    if size < 0:
        raise ValueError(f"{size} is negative; an amount of memory is not")
    for unit, factor in reversed(_BINARY.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def to_mib(size: int) -> int:
    """Bytes, rounded to whole MiB: what a status shows, so that it changes only when a person would care."""
    return round(size / MIB) * MIB


def parse_duration(text: str) -> int:
    """The number of microseconds that a duration such as `200ms` or `1m30s` stands for."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration; write a number with us, ms, s, m or h, such as 200ms")
    return int(sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts))
