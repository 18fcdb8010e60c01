"""A block device in front of the disk, without a file system of which the page cache's hooks would take the files."""

from __future__ import annotations

from pathlib import Path

from bed.device import DISK
from bed.tidepool import MIB
from bed.workload import stress
from bench import data
from bench.experiments.application import Run
from bench.experiments.comparison import Aim, Comparison, Place, Workload
from bench.experiments.tpcc import TpcC
from bench.machine import PATIENCE_SECONDS
from bench.sides import DmCache, Ideal
from bench.warm import fill, warm_up
from demo import fio

DATA_MIB = 256  # that is read at random
MIXED_MIB = 64
DEPTH, SECONDS = 16, 8
MIXED_SECONDS = 20


class RandomReads(Workload):
    """Blocks at random places, through the page cache of the device."""

    name = "random reads"
    operation = "blocks"

    def disk(self) -> Path:
        return data.empty(DATA_MIB)

    def start(self, place: Place) -> None:
        warm_up(place.machine, place.device, DATA_MIB * MIB)

    def run(self, place: Place) -> Run:
        reads = fio.parse(place.tool(fio.command(place.device, DEPTH, SECONDS)))
        return Run(reads.iops * SECONDS, SECONDS)


class Mixture(Workload):
    """Reads, and half as many writes, of all sizes, past the page cache; each sector is verified."""

    name = "mixture"
    operation = "requests"

    def disk(self) -> Path:
        return data.empty(DATA_MIB)

    def run(self, place: Place) -> Run:
        command = f"device {place.device} beside={DISK} mib={MIXED_MIB} seconds={MIXED_SECONDS}"
        report = stress(place.machine.borrower, command, PATIENCE_SECONDS)
        return Run(report["operations"], report["seconds"])


class OnExt2(TpcC):
    """TPC-C on a file system that the page cache's hooks leave alone, so that all it reads comes from the device."""

    filesystem = "ext2"


class Transactions(Workload):
    """TPC-C's kind, as in the experiment of that name."""

    name = "TPC-C"
    operation = "transactions"
    _database = OnExt2()

    def disk(self) -> Path:
        return self._database.disk()

    def start(self, place: Place) -> None:
        machine, database = place.machine, self._database
        machine.mount(place.device, filesystem=database.filesystem)
        database.start(machine)
        fill(machine, lambda: database.warm_up(machine), database.data_mib * MIB, database.warm_ups)

    def run(self, place: Place) -> Run:
        return self._database.run(place.machine)

    def finish(self, place: Place) -> None:
        self._database.finish(place.machine)


class Raw(Comparison):
    """The bare disk, Tidepool's target before it, and what one would put there today."""

    name = "raw"
    title = "A raw block device"
    strategy = "NonInclusive"
    workloads = (RandomReads(), Mixture(), Transactions())
    sides = (DmCache.name, Ideal.name)
    rivals = (DmCache.name,)
    aims = (Aim("TPC-C", 2.08, "REMOCA (table I, 512 MB)"),)
