"""The experiments, by name: those of the paper in its order, then those of others."""

from __future__ import annotations

from bench.experiments.balance import Balance
from bench.experiments.base import Experiment
from bench.experiments.blast import Blast
from bench.experiments.cost import Cost
from bench.experiments.donor import Donor
from bench.experiments.ghost import Ghost
from bench.experiments.host_memory import HostMemory
from bench.experiments.latency import Latency
from bench.experiments.latency_tpcc import LatencyTpcC
from bench.experiments.mail import Mail
from bench.experiments.migration import Migration
from bench.experiments.node_lender import NodeLender
from bench.experiments.postmark import Postmark
from bench.experiments.pressure import Pressure
from bench.experiments.random_reads import RandomReads
from bench.experiments.raw import Raw
from bench.experiments.sequential import Sequential
from bench.experiments.source import Source
from bench.experiments.swap import Swap
from bench.experiments.tpcc import TpcC
from bench.experiments.tpch import TpcH
from bench.experiments.values import Values

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        RandomReads(), Sequential(), Blast(), Postmark(), TpcH(), TpcC(), Mail(), Source(), Latency(),
        LatencyTpcC(), Balance(), Cost(), Ghost(), Migration(), Swap(), Values(), Raw(), NodeLender(), Pressure(),
        Donor(), HostMemory(),
    )
}  # fmt: skip
