"""`python -m tidepool_scale [NUMBER...]`: measures with so many guests, writes build/scale.json and build/scale.png.

The figures, one entry a number: seconds of one processor to plan all pools of the namespace (the mean of all passes),
the operator's resident memory when all is done, objects that it writes in a minute in which every guest reports once
and nothing of note happens, and seconds until all borrowers are served again after 1% of the guests were replaced by
new ones.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tidepool_api import names
from tidepool_api_testing import chart
from tidepool_api_testing.server import Server
from tidepool_scale import world
from tidepool_scale.agents import OURS, Agents
from tidepool_scale.api import Api, all_of
from tidepool_scale.operator import TOKEN, Operator
from tidepool_scale.plot import draw

BUILD = Path(__file__).resolve().parents[2] / "build"
NUMBERS = (100, 300, 1000, 3000, 10_000)
PATIENCE_SECONDS = 1800
STEADY_SECONDS = 60
USER = "operator"


@dataclass(frozen=True)
class Figures:
    """What was measured with one number of guests."""

    guests: int
    plan_seconds: float
    rss_mib: int
    api_writes_steady_per_min: int
    seconds_to_converge_after_1pct_churn: float


def say(text: str) -> None:
    """Tells how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def settled(api: Api, agents: Agents, guests: list[world.Guest]) -> None:
    """Waits until every borrower has a connected pairing, nobody else has one, and all pools are Ready."""
    borrowers, everybody = {one.name for one in guests if not one.lends}, {one.name for one in guests}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        pairs = list(agents.connected.values())
        served, known = {borrower for borrower, _ in pairs}, {name for pair in pairs for name in pair}
        if served == borrowers and known <= everybody and await _are_ready(api):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"{len(agents.connected)} pairings after {PATIENCE_SECONDS} s")


async def _are_ready(api: Api) -> bool:
    pools = (await api.call("GET", f"{OURS}/{names.POOLS}"))["items"]
    return all(one.get("status", {}).get("phase") == "Ready" for one in pools)


async def measure(count: int, steady_seconds: float = STEADY_SECONDS) -> Figures:
    """Everything with so many guests, on an API server of its own; the minute may be a shorter one."""
    say(f"{count} guests, {world.pools_of(count)} pools, {world.nodes_of(count)} nodes")
    with tempfile.TemporaryDirectory() as folder, Server({USER: TOKEN}) as server:
        server.install_crds()
        for name in (chart.NAMESPACE, world.NAMESPACE):
            server.kubectl("create", "namespace", name)
        server.create(*chart.for_user(chart.rendered("operator"), USER))
        async with Api(server) as api:
            agents = Agents(api, chart.NAMESPACE)
            try:
                return await _measured(count, steady_seconds, server, api, agents, Path(folder) / "operator.log")
            finally:
                await agents.stop()


async def _measured(count: int, steady_seconds: float, server: Server, api: Api, agents: Agents, log: Path) -> Figures:
    guests = list(world.guests(count))
    await all_of(api.call("POST", "/api/v1/nodes", one) for one in world.nodes(count))
    agents.spawn(agents.renew_for_ever(one["metadata"]["name"] for one in world.nodes(count)))
    agents.spawn(agents.serve_for_ever())
    await agents.publish(guests)
    with Operator(server, log) as operator:
        await all_of(api.call("POST", f"{OURS}/{names.POOLS}", one) for one in world.pools(count))
        begin = time.monotonic()
        await settled(api, agents, guests)
        say(f"  {len(agents.connected)} pairings connected after {time.monotonic() - begin:.0f} s")
        await agents.report_for(guests, steady_seconds)  # what is still under way comes to rest
        before = operator.writes()
        await agents.report_for(guests, steady_seconds)
        writes = (operator.writes() - before) * 60 / steady_seconds
        say(f"  {writes:.0f} writes in a minute")
        churned = await _churn(api, agents, guests)
        say(f"  settled again after {churned:.1f} s")
        return Figures(count, round(operator.plan_seconds(), 4), operator.rss_mib(), round(writes), round(churned, 1))


async def _churn(api: Api, agents: Agents, guests: list[world.Guest]) -> float:
    """Replaces every hundredth guest; returns the seconds until everybody is served again."""
    gone = guests[:: 100 if len(guests) > 100 else 50]
    new = [world.Guest(one.place, one.number + 1, one.pools, one.nodes) for one in gone]
    begin = time.monotonic()
    await agents.remove(gone)
    await agents.publish(new)
    left = [one for one in guests if one not in set(gone)]
    await settled(api, agents, left + new)
    return time.monotonic() - begin


def main(arguments: list[str]) -> None:
    """Measures, and keeps what is there even when a larger number fails."""
    BUILD.mkdir(exist_ok=True)
    found: list[Figures] = []
    for count in map(int, arguments or map(str, NUMBERS)):
        found.append(asyncio.run(measure(count)))
        (BUILD / "scale.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
        draw([asdict(one) for one in found], BUILD / "scale.png")
        say(f"  {found[-1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
