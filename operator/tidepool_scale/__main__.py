"""`python -m tidepool_scale [NUMBER...]`: measures with so many guests, writes build/scale.json and build/scale.png.

`--page` instead of numbers takes these figures over into docs/testing.md. Of numbers that are not measured now,
build/scale.json keeps what it has.

The guests are in teams with a namespace each, some of which borrow from others by grants. The figures, one entry a
number, each with a goal; a goal that is missed makes the command fail:

- seconds of one processor to plan all pools of all namespaces, by the mean of all passes;
- the operator's resident memory when all is done;
- writes a minute while nothing moves, and writes a second while all figures of all guests and pairings move, by
  operator and agents together, but for Leases, and what the operator has of a processor meanwhile;
- seconds until all borrowers are served again after 1% of the guests were replaced by new ones, while figures move:
  the median of several churns, and the worst.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidepool_api import names
from tidepool_api.kube import ours
from tidepool_api.kube.resources import NODES
from tidepool_api_testing import chart
from tidepool_api_testing.server import Server
from tidepool_scale import churn, world
from tidepool_scale.agents import Agents
from tidepool_scale.api import Api, all_of
from tidepool_scale.operator import TOKEN, Operator
from tidepool_scale.page import publish
from tidepool_scale.plot import draw

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from tidepool_scale.api import Body

BUILD = Path(__file__).resolve().parents[2] / "build"
TABLE = BUILD / "scale.json"
NUMBERS = (100, 300, 1000, 3000, 10_000)
STEADY_SECONDS = 60
USER = "operator"
GOALS = {
    "plan_seconds": 1,
    "rss_mib": 500,
    "writes_per_minute_idle": 0,
    "writes_per_second_moving": 50,
    "seconds_to_converge_after_1pct_churn": 10,
    "seconds_to_converge_at_worst": 10,
}


@dataclass(frozen=True)
class Figures:
    """What was measured with one number of guests."""

    guests: int
    namespaces: int
    plan_seconds: float
    rss_mib: int
    writes_per_minute_idle: int
    writes_per_second_moving: float
    processor_moving: float
    """The operator's part of one processor meanwhile."""
    seconds_to_converge_after_1pct_churn: float
    """The median of several churns."""
    seconds_to_converge_at_worst: float
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    load: float = field(default_factory=lambda: round(os.getloadavg()[-1], 1))
    """Processes that ran or waited for a processor or a disk, in the last quarter of an hour, others' included."""

    def missed(self) -> list[str]:
        """The goals that are missed, each with what it is."""
        found = asdict(self)
        return [f"{name} is {found[name]}, not at most {most}" for name, most in GOALS.items() if found[name] > most]


def say(text: str) -> None:
    """Tells how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def measure(count: int, steady_seconds: float = STEADY_SECONDS) -> Figures:
    """Everything with so many guests, on an API server of its own; the minutes may be shorter ones."""
    teams = world.teams_of(count)
    say(f"{count} guests, {teams} namespaces, {world.nodes_of(count)} nodes")
    with tempfile.TemporaryDirectory() as folder, Server({USER: TOKEN}) as server:
        server.install_crds()
        everywhere = (chart.NAMESPACE, *map(world.namespace, range(teams)))
        server.create(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": one}} for one in everywhere))
        server.create(*chart.for_user(chart.rendered("operator"), USER))
        async with Api(server) as api:
            agents = Agents(api, chart.NAMESPACE)
            try:
                return await _measured(count, steady_seconds, server, api, agents, Path(folder) / "operator.log")
            finally:
                await agents.stop()


async def _measured(count: int, steady_seconds: float, server: Server, api: Api, agents: Agents, log: Path) -> Figures:
    guests, teams = list(world.guests(count)), world.teams_of(count)
    await all_of(api.call("POST", NODES.path(), one) for one in world.nodes(count))
    agents.spawn(agents.renew_for_ever(one["metadata"]["name"] for one in world.nodes(count)))
    agents.spawn(agents.serve_for_ever())
    agents.spawn(agents.see_pools_for_ever())
    await agents.publish(guests)
    with Operator(server, log) as operator:
        await _create(api, names.GRANTS, world.grants(count))
        await _create(api, names.POOLS, world.pools(count))
        begin = time.monotonic()
        await churn.settled(agents, guests, begin)
        say(f"  {len(agents.connected)} pairings connected after {time.monotonic() - begin:.0f} s")
        await asyncio.sleep(steady_seconds)  # what is still under way comes to rest
        idle, load = await _during(operator, agents, asyncio.sleep(steady_seconds))
        say(f"  {idle:.0f} writes while nothing moves; the operator has {load:.0%} of a processor")
        moving, busy = await _during(operator, agents, agents.move_all(guests, steady_seconds))
        say(f"  {moving / steady_seconds:.1f} writes a second while all figures move; {busy:.0%} of a processor")
        churns = await churn.several(operator, agents, guests, steady_seconds / 6)
        for one in churns:
            say(f"  {one}")
        return Figures(
            guests=count,
            namespaces=teams,
            plan_seconds=round(operator.plan_seconds() * teams, 4),
            rss_mib=operator.rss_mib(),
            writes_per_minute_idle=round(idle * 60 / steady_seconds),
            writes_per_second_moving=round(moving / steady_seconds, 1),
            processor_moving=round(busy, 3),
            seconds_to_converge_after_1pct_churn=churn.median(churns),
            seconds_to_converge_at_worst=churn.worst(churns),
        )


async def _create(api: Api, kind: str, objects: Iterable[Body]) -> None:
    await all_of(api.call("POST", ours(kind).path(one["metadata"]["namespace"]), one) for one in objects)


async def _during(operator: Operator, agents: Agents, meanwhile: Coroutine[Any, Any, None]) -> tuple[float, float]:
    """While something goes on: the objects that operator and agents write, and the operator's part of a processor."""
    begin, writes, seconds = time.monotonic(), operator.writes() + agents.writes, operator.processor_seconds()
    await meanwhile
    passed = time.monotonic() - begin
    return operator.writes() + agents.writes - writes, (operator.processor_seconds() - seconds) / passed


def main(arguments: list[str]) -> None:
    """Measures, and keeps what is there even when a larger number fails."""
    if arguments == ["--page"]:
        publish(TABLE, GOALS)
        return
    BUILD.mkdir(exist_ok=True)
    found: list[Figures] = []
    for count in map(int, arguments or map(str, NUMBERS)):
        found.append(asyncio.run(measure(count)))
        draw(_keep(found[-1]), GOALS, TABLE.with_suffix(".png"))
        say(f"  {found[-1]}")
    if missed := [f"{one.guests} guests: {text}" for one in found for text in one.missed()]:
        sys.exit("\n".join(missed))


def _keep(fresh: Figures) -> list[dict[str, Any]]:
    """Puts what was measured into build/scale.json, in place of what is known of as many guests; returns all."""
    known = json.loads(TABLE.read_text()) if TABLE.exists() else []
    every = [one for one in known if one["guests"] != fresh.guests] + [asdict(fresh)]
    every.sort(key=lambda one: one["guests"])
    TABLE.write_text(json.dumps(every, indent=1) + "\n")
    return every


if __name__ == "__main__":
    main(sys.argv[1:])
