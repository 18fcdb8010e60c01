"""How long planning takes when there is much to plan (issue 4, item 6: Scale)."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import pytest
from world import LONG_AGO, carried_out, guest

from tidepool_api import MemoryPool
from tidepool_operator.inventory import Inventory, Node
from tidepool_operator.planner import plan

if TYPE_CHECKING:
    from tidepool_api import MemoryGuest, MemoryPairing

GUESTS, NODES = 10_000, 1_000
WHERE = {f"n{at}": Node(zone=f"z{at % 10}") for at in range(NODES)}
KINDS = {
    "fixed": {"size": "512Mi"},
    "planned": {"minimum": "64Mi", "maximum": "2Gi"},
    "auto": {"size": "512Mi"},
}


@functools.cache
def everybody(pools: int) -> list[MemoryGuest]:
    """Guests of so many teams, half of each with memory to spare and half short of it."""
    return [
        guest(
            f"g{at:05d}",
            {"team": f"t{at % pools}", "lends": str(at // pools % 2)},
            node=f"n{at % NODES}",
            available=1800 if at // pools % 2 else 300,
            misses=0 if at // pools % 2 else 400,
            curve={512: 0.5, 1024: 0.8},
        )
        for at in range(GUESTS)
    ]


def pool_of(team: int, kind: str) -> MemoryPool:
    """The pool of one team."""
    lenders, borrowers = ({"matchLabels": {"team": f"t{team}", "lends": role}} for role in "10")
    spec: dict[str, object] = {
        "lenders": {"maxLend": "1Gi"} | ({} if kind == "auto" else {"selector": lenders}),
        "borrowers": KINDS[kind] | ({} if kind == "auto" else {"selector": borrowers}),
    }
    if kind == "auto":
        spec |= {"role": "Auto", "selector": {"matchLabels": {"team": f"t{team}"}}}
    return MemoryPool.parse({"metadata": {"name": f"p{team}", "namespace": "ns"}, "spec": spec})


@pytest.mark.parametrize(("pools", "kind"), [(200, kind) for kind in KINDS] + [(1, "fixed")])
def test_ten_thousand_guests_are_planned_in_a_second(pools: int, kind: str) -> None:
    """All pools of one namespace, from nothing and then again when all pairings are there: a second of CPU each."""
    guests, teams = everybody(pools), [pool_of(team, kind) for team in range(pools)]
    pairings: list[MemoryPairing] = []
    for _ in range(2):
        start = time.process_time()
        inventory = Inventory(guests, pairings, nodes=WHERE)
        plans = [(one, plan(one, inventory, at=LONG_AGO)) for one in teams]
        assert time.process_time() - start < 1
        pairings = [one for of, made in plans for one in carried_out(made, of.name)]
        assert len({one.spec.borrower.guest for one in pairings}) == GUESTS // 2
