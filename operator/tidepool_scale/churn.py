"""Guests that are replaced by new ones while figures move, and how long it takes until everybody is served again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_scale import world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidepool_scale.agents import Agents
    from tidepool_scale.operator import Operator

CHURNS = 5
MOVING_SECONDS = 300.0  # longer than any churn: what moves ends with it
PATIENCE_SECONDS = 1800
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Churn:
    """What one of them took; seconds count from the first guest that goes."""

    replaced_seconds: float
    """Until the API server had the new guests."""
    served_seconds: float
    """Until every borrower had a connected pairing."""
    settled_seconds: float
    """Until moreover nobody who has gone was in a pairing, and all pools were Ready."""
    writes: int
    """Of the operator."""
    processor_seconds: float
    """Of the operator."""
    passes: int
    """Over namespaces."""


def median(churns: Sequence[Churn]) -> float:
    """Seconds until everything was settled."""
    return statistics.median(one.settled_seconds for one in churns)


def worst(churns: Sequence[Churn]) -> float:
    """Seconds until everything was settled."""
    return max(one.settled_seconds for one in churns)


async def settled(agents: Agents, guests: Sequence[world.Guest], begin: float) -> tuple[float, float]:
    """Waits until everybody is served, then until all is settled; returns the seconds of both since the beginning."""
    borrowers = {one.key for one in guests if one.borrows}
    everybody = {one.key for one in guests}
    served: float | None = None
    while time.monotonic() - begin < PATIENCE_SECONDS:
        pairs = list(agents.connected.values())
        found = {borrower for _, borrower in pairs}
        if borrowers <= found:
            served = time.monotonic() - begin if served is None else served
            is_clean = found == borrowers and {lender for lender, _ in pairs} <= everybody
            if is_clean and set(agents.phases.values()) == {"Ready"}:
                return served, time.monotonic() - begin
        await asyncio.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{len(agents.connected)} pairings after {PATIENCE_SECONDS} s")


async def several(operator: Operator, agents: Agents, guests: list[world.Guest], rest_seconds: float) -> list[Churn]:
    """So many churns of 1% of the guests, each of others, with a rest before each in which figures move already."""
    chance, found = random.Random(4), []
    for _ in range(CHURNS):
        gone = set(chance.sample(guests, max(1, len(guests) // 100)))
        new = [world.Guest(one.place, one.number + 1, one.teams, one.nodes) for one in gone]
        left = [one for one in guests if one not in gone]
        with _moving(agents, left):
            await asyncio.sleep(rest_seconds)
            found.append(await _one(operator, agents, list(gone), new, left))
        guests = left + new
    return found


@contextlib.contextmanager
def _moving(agents: Agents, guests: list[world.Guest]) -> Iterator[None]:
    """All figures move meanwhile."""
    task = asyncio.create_task(agents.move_all(guests, MOVING_SECONDS))
    try:
        yield
    finally:
        task.cancel()


async def _one(
    operator: Operator, agents: Agents, gone: list[world.Guest], new: list[world.Guest], left: list[world.Guest]
) -> Churn:
    writes, passes, processor = operator.writes(), operator.passes(), operator.processor_seconds()
    begin = time.monotonic()
    await agents.remove(gone)
    await agents.publish(new)
    replaced = time.monotonic() - begin
    served, all_settled = await settled(agents, left + new, begin)
    return Churn(
        replaced_seconds=round(replaced, 1),
        served_seconds=round(served, 1),
        settled_seconds=round(all_settled, 1),
        writes=round(operator.writes() - writes),
        processor_seconds=round(operator.processor_seconds() - processor, 1),
        passes=round(operator.passes() - passes),
    )
