"""Random reads with fio: its command line, and what it reports. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Reads:
    """What fio measured."""

    iops: float
    p50_us: float
    p99_us: float
    errors: int


def command(path: str, depth: int, seconds: int) -> str:
    """Random 4 KiB reads through the page cache, `depth` at a time.

    Buffered reads are synchronous in Linux, so depth is threads. Nothing is dropped from the cache before
    (`invalidate=0`) and nothing is read ahead (`fadvise_hint=random`): each read that finds no page is one page.
    """
    options = {
        "name": "reads", "filename": path, "rw": "randread", "bs": "4k", "ioengine": "psync", "direct": 0,
        "invalidate": 0, "fadvise_hint": "random", "norandommap": 1, "randrepeat": 0, "thread": 1, "numjobs": depth,
        "group_reporting": 1, "time_based": 1, "runtime": seconds, "output-format": "json",
    }  # fmt: skip
    return " ".join(["fio", "--readonly", *(f"--{name}={value}" for name, value in options.items())])


def parse(text: str) -> Reads:
    """Reads fio's JSON; it may print remarks before it."""
    job = json.loads(text[text.index("{") :])["jobs"][0]
    latency = job["read"]["clat_ns"].get("percentile", {})
    return Reads(
        iops=job["read"]["iops"],
        p50_us=latency.get("50.000000", 0) / 1000,
        p99_us=latency.get("99.000000", 0) / 1000,
        errors=job["error"] + job.get("total_err", 0),
    )
