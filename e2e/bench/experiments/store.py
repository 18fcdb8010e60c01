"""Redis as a store of values, on each side: how it is run, filled and asked, and what that takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bed.device import DISK, load_target
from bed.guest import PAGE
from bed.pair import LENDER_ADDRESS
from bed.tidepool import MIB, wait_until
from bed.workload import stress
from bench import devices, redis
from bench.experiments.application import Run, measured
from bench.experiments.comparison import FREE_MIB, POOL_MIB
from bench.instructions import spent
from bench.machine import PATIENCE_SECONDS, ROOT, Machine
from bench.sides import Pool, Settings, Side
from bench.trial import Figures

TIDE, TRANSPARENT = "TIDE.GET", "transparent"
OURS = (TIDE, TRANSPARENT)
STRATEGY = "NonInclusive"  # of the block device's front end, as in the swap experiment
CLIENTS = 4
SECONDS = 10  # asked before it is measured, and then about as long again
LEAST_REQUESTS = 200
SAMPLE = 4 * MIB  # of values, by which it is known what one takes

# The transparent mode has values go away before the server is as large as this. It takes a seventh more, for what it
# frees and does not give back. The guest remembers what is away, which is 9 MiB at 150 %, and has up to 16 MiB of what
# is read often. With three quarters of what is free a tenth of all requests and more wait for swap, which is measured.
MOST_MEMORY = FREE_MIB * MIB * 3 // 5
LEAST_AWAY = 4096  # it takes no value that is smaller
ROOM = MOST_MEMORY * 9 // 10  # when the server has no more than this,
PORTION = 2 * MIB  # so much is filled at once: with it no key is evicted, and a value takes up to a quarter more there

PORT = 7471
FEW_VALUES = 8 * MIB  # all fit everywhere
WARM, REQUESTS = 100, 1000
FRONT = "/sys/module/tidepool_app/parameters/front_bytes"

Tool = Callable[[str], str]  # runs a shell command among the borrower's programs


@dataclass(frozen=True)
class Way:
    """How a server is run, filled and asked, and where it counts the values that are not there."""

    options: str = ""
    put: str = "SET"
    get: str = "GET"
    steps: bool = False
    """Filled in portions, each when there is room for it."""

    def missed(self, tool: Tool) -> int:
        """How many values that were asked for were not there, so far."""
        if self.get == "GET":
            return redis.figure(tool(f"{redis.CLI} info stats"), "keyspace_misses")
        return redis.pool_figure(tool(f"{redis.CLI} tide.stats"), "misses")


WAYS = {
    TIDE: Way(f"--loadmodule {redis.MODULE}", "TIDE.SET", "TIDE.GET"),
    TRANSPARENT: Way(
        f"--maxmemory {MOST_MEMORY} --maxmemory-policy allkeys-lru"
        f" --loadmodule {redis.MODULE} TRANSPARENT yes ABOVE {LEAST_AWAY}",
        steps=True,
    ),
}


class Device(Pool):
    """The server has Tidepool's module, and its guest /dev/tidepool; swap is on the disk."""

    def device(self, machine: Machine) -> str:
        self.connect(machine)
        load_target(machine.borrower, "app")
        file = f"{ROOT}{redis.MODULE}"
        machine.borrower.start(f"cat > {file} && chmod 0755 {file}", redis.module().read_bytes()).wait()
        return DISK


def make(name: str) -> Side:
    """The side of that name."""
    if name in OURS:
        return Device(POOL_MIB, name, Settings(more={"breaker": "Off"}))
    return devices.make(name, POOL_MIB, STRATEGY)


def pressure(machine: Machine, side: Side, size: int, percent: int) -> Figures:
    """A server with so much data from its start to its end."""
    way, tool = WAYS.get(side.name, Way()), _tool(machine)
    free = machine.borrower.meminfo("MemAvailable") / MIB
    tool(redis.serve(way.options))
    values = percent * FREE_MIB * MIB // 100 // _cost(tool, size)
    _fill(tool, way, range(values), size)
    requests = _expected(tool, way, values)
    figures = measured(machine, side, lambda: _asked(tool, way, requests, values))
    with machine.fast_disk():
        tool(redis.END)
    return {**figures, "free_mib": free, "values": values}


def _tool(machine: Machine) -> Tool:
    return lambda command: machine.tool(machine.borrower, command)


def _cost(tool: Tool, size: int) -> int:
    """Bytes of memory that a server takes for a value of that size, and for its key: the same for all sides.

    As the kernel counts it: the server rounds up what it allocates, and need not touch all of that.
    """
    few, count = 16, 16 + SAMPLE // size
    tool(redis.fill(range(few), size))
    before = _resident(tool)
    tool(redis.fill(range(few, count), size))
    cost = (_resident(tool) - before) // (count - few)
    tool(f"{redis.CLI} flushall")
    return cost


def _resident(tool: Tool) -> int:
    """Bytes of memory that a server has touched."""
    return int(tool("awk '/^Rss:/ { print $2 }' /proc/$(pidof redis-server)/smaps_rollup")) * 1024


def _fill(tool: Tool, way: Way, values: range, size: int) -> None:
    step = max(1, PORTION // size) if way.steps else len(values)
    for first in range(0, len(values), step):
        tool(redis.fill(values[first : first + step], size, way.put))
        if way.steps:
            wait_until("values go away", lambda: _used(tool) <= ROOM, PATIENCE_SECONDS)


def _used(tool: Tool) -> int:
    """Bytes of the server's memory."""
    return redis.figure(tool(f"{redis.CLI} info memory"), "used_memory")


def _expected(tool: Tool, way: Way, values: int) -> int:
    """How many requests take about SECONDS; it is asked for so long, until what is used is where it stays."""
    tool(f"{redis.CLI} config resetstat")
    tool(redis.ask_for(SECONDS, values, CLIENTS, way.get))
    asked = redis.figure(tool(f"{redis.CLI} info stats"), "total_commands_processed")
    return max(asked, LEAST_REQUESTS)


def _asked(tool: Tool, way: Way, requests: int, values: int) -> Run:
    before = way.missed(tool)
    found = redis.times(tool(redis.ask(requests, values, CLIENTS, way.get)))
    missing = (way.missed(tool) - before) / requests
    latency = {name: found[f"{name}_latency_ms"] for name in ("p50", "p99", "max")}
    more = {**{f"{name}_ms": value for name, value in latency.items()}, "missing": missing}
    return Run(requests, requests / found["rps"], more)


def instructions(machine: Machine, side: Side, size: int) -> Figures:
    """Of a request by one client at a time, while nothing is short of memory, and of a round trip as large."""
    way, tool, values, pages = WAYS.get(side.name, Way()), _tool(machine), FEW_VALUES // size, size // PAGE
    machine.lender.start(f"stress server {PORT}")
    parts = _parts(machine, size) if side.name == TIDE else {}
    if side.name in OURS:
        machine.borrower.write(FRONT, "0")  # each get is a round trip
    tool(redis.serve(way.options))
    _fill(tool, way, range(values), size)
    before = side.counters(machine).get("get_hits", 0)
    request = _each(machine, lambda requests: tool(redis.ask(requests, values, 1, way.get)))
    came = side.counters(machine).get("get_hits", 0) - before
    tool(redis.END)
    client = f"client {LENDER_ADDRESS} port={PORT} pages={pages}"
    trip = _each(machine, lambda requests: stress(machine.borrower, f"{client} requests={requests}"))
    return {**request, **parts, "trip": trip["borrower"], "trips": came / pages / (WARM + WARM + REQUESTS)}


def _parts(machine: Machine, size: int) -> Figures:
    """Of calls that a program makes: of what is near, and of what a lender has. Gets are a round trip from now on."""

    def spent_by(what: str, keys: int) -> Figures:
        command = f"repeat - what={what} size={size} keys={keys}"
        return _each(machine, lambda requests: stress(machine.borrower, f"{command} requests={requests}"))

    near = {name: spent_by(what, 1)["borrower"] for name, what in (("look", "exists"), ("near", "get"))}
    machine.borrower.write(FRONT, "0")
    put, get = (spent_by(what, FEW_VALUES // size) for what in ("put", "get"))
    both = {"put": put["borrower"], "put_lender": put["lender"], "get": get["borrower"], "get_lender": get["lender"]}
    return {**near, **both}


def _each(machine: Machine, work: Callable[[int], object]) -> Figures:
    """Instructions of both guests for one of many requests, without those for beginning and ending."""
    work(WARM)
    few, many = spent(machine, lambda: work(WARM)), spent(machine, lambda: work(REQUESTS))
    return {end: (many[end] - few[end]) / (REQUESTS - WARM) for end in few}
