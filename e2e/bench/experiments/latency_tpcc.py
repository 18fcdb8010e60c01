"""A network that is slow, and transactions: TPC-C in the paper's figure 7."""

from __future__ import annotations

from pathlib import Path

from bed.tidepool import MIB
from bench import postgres
from bench.experiments.latency import SETTLE_SECONDS, WARM_UPS, Latency, Workloads, watched
from bench.experiments.tpcc import TpcC, transactions
from bench.machine import Machine
from bench.sides import Side
from bench.trial import Figures
from bench.warm import fill, read_everything

TPCC = TpcC()


class LatencyTpcC(Latency):
    """Fewer delays than for what takes less time, with the breaker that chooses by itself and without one."""

    name = "latency-tpcc"
    title = "Transactions over a slow network (figure 7)"
    delays_ms = (0.5, 2, 5)
    breakers = ("Off", "Automatic")

    def disk(self) -> Path:
        return TPCC.disk()

    def fill(self, machine: Machine) -> None:
        TPCC.start(machine)
        fill(machine, lambda: read_everything(machine, postgres.files(machine)), TPCC.data_mib * MIB, WARM_UPS)

    def workloads(self) -> Workloads:
        return {"TPC-C": _tpcc}


def _tpcc(machine: Machine, side: Side) -> Figures:
    transactions(machine, SETTLE_SECONDS)
    figures = watched(machine, side, lambda: TPCC.run(machine))
    with machine.fast_disk():
        TPCC.finish(machine)
    return figures
