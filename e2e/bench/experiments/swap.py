"""Programs that need more memory than the guest has: REMOCA's scan, sort and compiler, and values in a store."""

from __future__ import annotations

import functools
import time
from pathlib import Path

from bed.tidepool import MIB
from bed.workload import stress
from bench import compiling, data, redis
from bench.devices import Nbd, Zram, Zswap, swap_on
from bench.experiments.application import Run
from bench.experiments.comparison import NO_POOL, Aim, Comparison, Place, Workload
from bench.machine import ROOT, Machine
from bench.sides import Ideal, Side

ENCRYPTED = ("write-through encrypted", "behind encrypted")
DISK_MIB = 512  # more than anything here needs; swap is less than half full
# More than FREE_MIB, which is what the guest has free. Tidepool's buffers and log take up to 24 MiB of that.
SCAN_MIB = 192
SORT_MIB = 128
ANALYSIS_MIB = 160
FUNCTIONS = 1200  # of a source: its compiler has up to 170 MiB at a time
UNITS = tuple(compiling.Unit(number, FUNCTIONS) for number in range(1, 4))
VALUES_MIB = 160
SCAN_PASSES, SCAN_SECONDS = 1, 30  # a pass that settles what is where, and as long as the disk needs for another
SECONDS = 10
PATIENCE_SECONDS = 400.0  # a guest that has not got through by then will not
VALUE_BYTES = 4000  # with what Redis adds a page of memory
VALUES = VALUES_MIB * MIB // VALUE_BYTES
CLIENTS = 4


class Scan(Workload):
    """All of the set again and again; every fourth page changes."""

    name = "scan"
    operation = "pages"

    def run(self, place: Place) -> Run:
        command = f"scan {SCAN_MIB} passes={SCAN_PASSES} seconds={SCAN_SECONDS}"
        report = stress(place.machine.borrower, command, PATIENCE_SECONDS)
        return Run(report["visits"], report["seconds"])


class Sort(Workload):
    """Records of 64 bytes, in place."""

    name = "sort"
    operation = "records"

    def run(self, place: Place) -> Run:
        report = stress(place.machine.borrower, f"sort {SORT_MIB}", PATIENCE_SECONDS)
        return Run(report["records"], report["seconds"])


class Analysis(Workload):
    """Values are added up by their keys: rows one after the other, and their sums anywhere."""

    name = "analysis"
    operation = "rows"

    def run(self, place: Place) -> Run:
        report = stress(place.machine.borrower, f"group {ANALYSIS_MIB}", PATIENCE_SECONDS)
        return Run(report["rows"], report["seconds"])


class Redis(Workload):
    """Values of more than what the guest has free, any of which is asked for at any time."""

    name = "Redis"
    operation = "values"

    def start(self, place: Place) -> None:
        place.tool(redis.serve())
        place.tool(redis.fill(range(VALUES), VALUE_BYTES))

    def run(self, place: Place) -> Run:
        place.tool(f"{redis.CLI} config resetstat")
        place.tool(redis.ask_for(SECONDS, VALUES, CLIENTS))
        said = place.tool(f"{redis.CLI} info stats")
        found, missing = (redis.figure(said, f"keyspace_{what}") for what in ("hits", "misses"))
        assert missing == 0, f"{missing} of the values are not there"
        return Run(found, SECONDS)

    def finish(self, place: Place) -> None:
        place.tool(redis.END)


class Compilation(Workload):
    """Sources, one after the other. What a compiler remembers of a source compresses well."""

    name = "compiling"
    operation = "lines"
    unheld = (Zram.name,)

    def start(self, place: Place) -> None:
        place.tool(f"mkdir {compiling.FOLDER}")
        for name, text in _sources().items():
            place.machine.borrower.write(f"{ROOT}{compiling.FOLDER}/{name}", text)

    def run(self, place: Place) -> Run:
        begin = time.monotonic()
        place.tool(compiling.build())
        return Run(sum(text.count("\n") for text in _sources().values()), time.monotonic() - begin)

    def finish(self, place: Place) -> None:
        printed = int(place.tool(f"{compiling.FOLDER}/{compiling.PROGRAM} && rm -r {compiling.FOLDER}"))
        assert printed == compiling.printed(UNITS), f"what was compiled prints {printed}"


@functools.cache
def _sources() -> dict[str, str]:
    return compiling.sources(UNITS)


class Swap(Comparison):
    """The disk's swap, Tidepool's target before it, and what else there is for memory that is no file."""

    name = "swap"
    title = "Swap"
    processors = 1  # as many as the host has for it beside the lender's
    strategy = "NonInclusive"  # a page that was not written since it was read back leaves memory without being written
    workloads = (Scan(), Sort(), Analysis(), Redis(), Compilation())
    sides = (NO_POOL, "write-through", "behind", Nbd.name, Zram.name, Zswap.name, Ideal.name, *ENCRYPTED)
    rivals = (Nbd.name, Zram.name)
    aims = (Aim("scan", 3, "REMOCA (perlbench with 256 MB)"), Aim("analysis", 1.17, "TCC 2022"))

    def disk(self) -> Path:
        return data.empty(DISK_MIB)

    def prepare(self, machine: Machine, side: Side) -> str:
        device = side.device(machine)
        swap_on(machine, device)
        return device
