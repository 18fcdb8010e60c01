"""The experiments, by name, in the order of the paper."""

from __future__ import annotations

from bench.experiments.balance import Balance
from bench.experiments.base import Experiment
from bench.experiments.cost import Cost
from bench.experiments.ghost import Ghost
from bench.experiments.random_reads import RandomReads
from bench.experiments.sequential import Sequential

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (RandomReads(), Sequential(), Cost(), Balance(), Ghost())
}
