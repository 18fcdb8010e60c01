"""A block device in front of the disk, without a file system of which the page cache's hooks would take the files."""

from __future__ import annotations

import re
from pathlib import Path

from bed.device import DISK
from bed.tidepool import MIB
from bed.workload import stress
from bench import postgres
from bench.experiments.application import Run
from bench.experiments.comparison import BORROWER_MIB, NO_POOL, Aim, Comparison, Place, Workload
from bench.experiments.tpcc import TpcC
from bench.machine import FOLDER, PATIENCE_SECONDS
from bench.sides import DmCache, Ideal
from bench.warm import fill, read_everything
from demo import fio

READ_MIB = BORROWER_MIB  # at random
MIXED_MIB = 48
DEPTH, SECONDS = 16, 8
MIXED_SECONDS = 15
CLIENTS, CLIENTS_SECONDS = 8, 30
THROUGHPUT = re.compile(r"^Throughput ([0-9.]+) MB/sec", re.MULTILINE)  # dbench's are of 2^20 bytes


class OnExt2(TpcC):
    """TPC-C on a file system that the page cache's hooks leave alone, so that all it reads comes from the device."""

    filesystem = "ext2"


DATABASE = OnExt2()


class Transactions(Workload):
    """TPC-C's kind, as in the experiment of that name, on the file system of the disk."""

    name = "TPC-C"
    operation = "transactions"

    def start(self, place: Place) -> None:
        machine = place.machine
        machine.mount(place.device, filesystem=DATABASE.filesystem)
        DATABASE.start(machine)
        fill(machine, lambda: DATABASE.warm_up(machine), DATABASE.data_mib * MIB, DATABASE.warm_ups)

    def run(self, place: Place) -> Run:
        return DATABASE.run(place.machine)

    def finish(self, place: Place) -> None:
        DATABASE.finish(place.machine)
        postgres.stop(place.machine)
        place.machine.unmount()


class RandomReads(Workload):
    """Blocks at random places of the device's first part, through its page cache."""

    name = "random reads"
    operation = "blocks"

    def start(self, place: Place) -> None:
        fill(place.machine, lambda: read_everything(place.machine, [place.device], READ_MIB), READ_MIB * MIB)

    def run(self, place: Place) -> Run:
        reads = fio.parse(place.tool(f"{fio.command(place.device, DEPTH, SECONDS)} --size={READ_MIB}m"))
        return Run(reads.iops * SECONDS, SECONDS)


class Mixture(Workload):
    """Reads, and half as many writes, of all sizes, past the page cache; each sector is verified."""

    name = "mixture"
    operation = "requests"

    def run(self, place: Place) -> Run:
        command = f"device {place.device} beside={DISK} mib={MIXED_MIB} seconds={MIXED_SECONDS}"
        report = stress(place.machine.borrower, command, PATIENCE_SECONDS)
        return Run(report["operations"], report["seconds"])


class FileServer(Workload):
    """dbench: what clients had a file server do, on a new file system of the kind that the database has."""

    name = "dbench"
    operation = "MiB"

    def start(self, place: Place) -> None:
        with place.machine.fast_disk():
            place.tool(f"mkfs.{DATABASE.filesystem} -q -F {place.device}")
        place.machine.mount(place.device, filesystem=DATABASE.filesystem)

    def run(self, place: Place) -> Run:
        said = place.tool(f"dbench -D {FOLDER} -t {CLIENTS_SECONDS} {CLIENTS}")
        return Run(throughput(said) * CLIENTS_SECONDS, CLIENTS_SECONDS)

    def finish(self, place: Place) -> None:
        place.machine.unmount()


def throughput(said: str) -> float:
    """In MiB a second, of what dbench prints."""
    found = THROUGHPUT.search(said)
    if not found:
        raise ValueError(f"dbench says no throughput: {said[-500:]}")
    return float(found[1])


class Raw(Comparison):
    """The bare disk, Tidepool's target before it, and what one would put there today."""

    name = "raw"
    title = "A raw block device"
    strategy = "NonInclusive"
    # The last two write where the others have their data.
    workloads = (Transactions(), RandomReads(), Mixture(), FileServer())
    sides = (NO_POOL, "write-through", DmCache.name, Ideal.name, "write-through encrypted")  # `behind` is for swap
    rivals = (DmCache.name,)
    aims = (Aim("TPC-C", 2.08, "REMOCA (table I, 512 MB)"),)

    def disk(self) -> Path:
        return DATABASE.disk()
