"""What a get and a put cost in time, processor and memory, and what lending costs a lender that works."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from bed.measure import catalog_bytes, counted_guest, idle_costs, idle_times
from bed.pair import LENDER_ADDRESS, NAME
from bed.tidepool import wait_until
from bed.workload import stress
from bench import data, plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.instructions import spent
from bench.machine import Machine, Size, booted
from bench.programs import bogo_per_second, dd_seconds
from bench.sides import make_pool
from bench.summary import Cell, Estimate, cells, estimate
from bench.trial import Figures, Result, Trial, alternating

SIDES = ("NonInclusive", "NonInclusive encrypted")
WIRE, WIRE_OF_TWO, INSTRUCTIONS, IDLE = "wire", "wire, two processors", "instructions", "idle"
KERNEL = "6.1"
GUESTS = Size(256, 320)
FILE_MIB, DISK_MIB, POOL_MIB = 48, 128, 96
PAGES = FILE_MIB * 256
PATH = "/mnt/own"
FILL = f"fill {PATH} mib={FILE_MIB}"
READ = f"dd if={PATH} of=/dev/null bs=1M 2>&1"
PORT = 7471
READS = 1000
TURNS = 3
MOST_PASSES = 6
WHOLE = 0.99
BUFFERS = PAGES + 2048  # whatever is evicted at once finds one
PATIENCE_US = 3_000_000
GIB_IN_MIB = 1024
WORK = "stress-ng --temp-path /tmp --matrix 1 --timeout {seconds} --metrics-brief 2>&1"
WORK_SECONDS = 2
IDLE_TURNS = 2
MOST_LATENCY, LEAST_BANDWIDTH, MOST_METADATA_MIB, MOST_IDLE, MOST_LENT = 1.25, 0.8, 2.25, 0.01, 0.02


class Cost(Experiment):
    """Gets beside the raw network by turns in one boot; instructions in guests whose clocks go by them."""

    name = "cost"
    title = "What a get, a put and lending cost"

    def trials(self, repetitions: int) -> list[Trial]:
        pairs = [(side, {"part": part}) for part in (WIRE, WIRE_OF_TWO, INSTRUCTIONS) for side in SIDES]
        return alternating([*pairs, ("loaded", {"part": IDLE})], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        if trial.setting["part"] == IDLE:
            return [Result({}, _idle_module())]
        counted = trial.setting["part"] == INSTRUCTIONS
        processors = 2 if trial.setting["part"] == WIRE_OF_TWO else 1
        with booted(
            GUESTS, data.empty(DISK_MIB), tools.disk(), counted=counted, processors=processors, fast_disk=True
        ) as machine:
            machine.mount()
            stress(machine.borrower, FILL)
            machine.borrower.sh(f"insmod /lib/tidepool.ko put_buffers={BUFFERS}")
            machine.lender.start(f"stress server {PORT}")
            figures = (_instructions if counted else _wire)(machine, trial.side)
            machine.pair.assert_clean()
        return [Result({}, figures)]

    def draw(self, rows: Rows, target: Path) -> None:
        plots.cost(
            {side: {**_figures(rows, side, WIRE), **_figures(rows, side, INSTRUCTIONS)} for side in SIDES}, target
        )

    def table(self, rows: Rows) -> str:
        parts = ((WIRE, WIRE_LINES), (WIRE_OF_TWO, WIRE_OF_TWO_LINES), (INSTRUCTIONS, INSTRUCTION_LINES))
        lines = [
            [what, *(_shown(_figures(rows, side, part), name) for side in SIDES)]
            for part, shown in parts
            for what, name in shown
        ]
        return report.table(["", *SIDES], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        found = []
        for side in SIDES:
            wire, two, spent = (_figures(rows, side, part) for part in (WIRE, WIRE_OF_TWO, INSTRUCTIONS))
            for what, values, good in (
                (f"a get takes at most {MOST_LATENCY} round trips", wire["get_of_tcp"], _at_most(MOST_LATENCY)),
                ("the same with two processors", two["get_of_tcp"], _at_most(MOST_LATENCY)),
                (f"reading ahead: at least {LEAST_BANDWIDTH} of TCP", wire["bulk_of_tcp"], _at_least(LEAST_BANDWIDTH)),
                ("the same with two processors", two["bulk_of_tcp"], _at_least(LEAST_BANDWIDTH)),
                ("catalog: at most 2.25 MiB a GiB", wire["catalog_mib_per_gib"], _at_most(MOST_METADATA_MIB)),
                ("lent and left alone, the lender loses at most 2 %", spent["loss_lent"], _at_most(MOST_LENT)),
            ):
                one = estimate(values)
                found.append((f"{side}: {what}", report.spread(one), good(one)))
        idle = estimate(_figures(rows, "loaded", IDLE)["loaded"])
        found.append(("loaded without a peer: at most 1 %", report.spread(idle), _at_most(MOST_IDLE)(idle)))
        return found


WIRE_LINES = (
    ("get of a page, p50, µs", "get_p50_us"),
    ("round trip of a page over TCP, p50, µs", "tcp_p50_us"),
    ("get, p99, µs", "get_p99_us"),
    ("round trip, p99, µs", "tcp_p99_us"),
    ("reading in order from the pool, MiB/s", "bulk_mib_per_s"),
    ("TCP, MiB/s", "tcp_mib_per_s"),
    ("catalog, MiB to a GiB of pages", "catalog_mib_per_gib"),
)
WIRE_OF_TWO_LINES = (
    ("with two processors: get, p50, µs", "get_p50_us"),
    ("… round trip, p50, µs", "tcp_p50_us"),
    ("… reading in order from the pool, MiB/s", "bulk_mib_per_s"),
    ("… TCP, MiB/s", "tcp_mib_per_s"),
)
INSTRUCTION_LINES = (
    ("instructions of a get of one page: borrower", "get_borrower"),
    ("… lender", "get_lender"),
    ("of a page that is read ahead from the pool: borrower", "ahead_borrower"),
    ("… lender", "ahead_lender"),
    ("of a page that is put, beside one that is only evicted: borrower", "put_borrower"),
    ("… lender", "put_lender"),
    ("of a read of one page from the own disk: borrower", "disk_borrower"),
    ("of a page that is read ahead from it: borrower", "disk_ahead_borrower"),
    ("of a round trip over TCP: borrower", "tcp_borrower"),
    ("… lender", "tcp_lender"),
    ("of a page of a long answer over TCP: borrower", "tcp_bulk_borrower"),
    ("… lender", "tcp_bulk_lender"),
    ("what the lender's own work loses: lent, left alone", "loss_lent"),
    ("… while the borrower reads as fast as it can", "loss_busy"),
    ("… gets a second meanwhile", "busy_gets_per_s"),
)


def _figures(rows: Rows, side: str, part: str) -> dict[str, list[float]]:
    return cells(rows).get(Cell.of(side, {"part": part}, {}), {})


def _shown(figures: dict[str, list[float]], name: str) -> str:
    if name not in figures:
        return ""
    one = estimate(figures[name])
    return report.spread(one) if abs(one.median) < 1 else report.interval(one)


def _at_most(most: float) -> Callable[[Estimate], bool]:
    return lambda one: one.median <= most


def _at_least(least: float) -> Callable[[Estimate], bool]:
    return lambda one: one.median >= least


# Time and memory


def _wire(machine: Machine, side: str) -> Figures:
    _connect(machine, side)
    _fill_pool(machine)
    turns = [{**_get(machine), **_tcp(machine), **_bulk(machine), **_tcp_bulk(machine)} for _ in range(TURNS)]
    found = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    return {
        **found,
        "get_of_tcp": found["get_p50_us"] / found["tcp_p50_us"],
        "bulk_of_tcp": found["bulk_mib_per_s"] / found["tcp_mib_per_s"],
        "catalog_mib_per_gib": _catalog(machine),
    }


def _connect(machine: Machine, side: str) -> None:
    make_pool(side, POOL_MIB, deadline_us=PATIENCE_US).connect(machine)


def _fill_pool(machine: Machine) -> None:
    """Until the lender has the whole file, and the borrower has forgotten it."""
    for _ in range(MOST_PASSES):
        machine.tool(machine.borrower, READ)
        _evict(machine)
        if machine.pair.lent()["lent_pages"] >= PAGES * WHOLE:
            return
    raise AssertionError(f"the pool does not fill: {machine.pair.borrowed()}")


def _evict(machine: Machine) -> None:
    machine.borrower.drop_caches(1)
    wait_until("what is put has arrived", lambda: _buffers_free(machine), timeout=60, every=0.3)


def _buffers_free(machine: Machine) -> bool:
    stats = machine.pair.b.stats()
    return stats["buffers_free"] == stats["buffers_total"]


def _get(machine: Machine) -> Figures:
    """What is read is not looked at, as the TCP client does not look at its answers."""
    _evict(machine)
    found = stress(machine.borrower, f"random {PATH} reads={READS} verify=0")
    return {"get_p50_us": found["p50_us"], "get_p99_us": found["p99_us"]}


def _tcp(machine: Machine) -> Figures:
    found = stress(machine.borrower, f"client {LENDER_ADDRESS} port={PORT} requests={READS}")
    return {"tcp_p50_us": found["p50_us"], "tcp_p99_us": found["p99_us"]}


def _bulk(machine: Machine) -> Figures:
    _evict(machine)
    return {"bulk_mib_per_s": FILE_MIB / dd_seconds(machine.tool(machine.borrower, READ))}


def _tcp_bulk(machine: Machine) -> Figures:
    found = stress(machine.borrower, f"client {LENDER_ADDRESS} port={PORT} requests=1 pages={PAGES}")
    return {"tcp_mib_per_s": FILE_MIB / (found["mean_us"] / 1e6)}


def _catalog(machine: Machine) -> float:
    """MiB to a GiB: what goes when the lender is forgotten."""
    pages, full = machine.pair.borrowed()["catalog_pages"], catalog_bytes(machine.borrower)
    machine.pair.b.set(f"lenders/{NAME}/enabled", 0)
    return (full - catalog_bytes(machine.borrower)) / (pages * 4096) * GIB_IN_MIB


# Instructions


def _spent(machine: Machine, work: Callable[[], object], name: str, count: int = 1) -> Figures:
    """Instructions of both guests for some work, each of `count` times that it does something."""
    return {f"{name}_{end}": instructions / count for end, instructions in spent(machine, work).items()}


def _instructions(machine: Machine, side: str) -> Figures:
    borrower = machine.borrower
    machine.tool(machine.lender, WORK.format(seconds=1))  # its program and its pages are there now
    client = f"client {LENDER_ADDRESS} port={PORT}"
    figures = {
        **_spent(machine, lambda: stress(borrower, f"{client} requests={READS}"), "tcp", READS),
        **_spent(machine, lambda: stress(borrower, f"{client} requests=1 pages={PAGES}"), "tcp_bulk", PAGES),
        **_reads(machine, "disk"),
        **_spent(machine, lambda: _evict_quietly(machine), "evict", PAGES),
    }
    unlent = _work(machine)
    _connect(machine, side)
    machine.tool(borrower, READ)
    put = _spent(machine, lambda: _evict_quietly(machine), "put", PAGES)
    _fill_pool(machine)
    figures |= {name: value - figures[name.replace("put", "evict")] for name, value in put.items()}
    figures |= _reads(machine, "get")
    figures |= {"loss_lent": 1 - _work(machine) / unlent, **_busy(machine, unlent)}
    return figures


def _evict_quietly(machine: Machine) -> None:
    """Puts are over after it; nothing asks meanwhile."""
    machine.borrower.sh("echo 1 > /proc/sys/vm/drop_caches; sleep 3")


def _reads(machine: Machine, what: str) -> Figures:
    """Single pages by chance, then all in order; each is in the pool, or on the disk where there is none."""
    ahead = "ahead" if what == "get" else f"{what}_ahead"
    _evict_quietly(machine)
    single = _spent(machine, lambda: stress(machine.borrower, f"random {PATH} reads={READS} verify=0"), what, READS)
    _evict_quietly(machine)
    return {**single, **_spent(machine, lambda: machine.tool(machine.borrower, READ), ahead, PAGES)}


def _work(machine: Machine) -> float:
    return bogo_per_second(machine.tool(machine.lender, WORK.format(seconds=WORK_SECONDS)))


def _busy(machine: Machine, unlent: float) -> Figures:
    """The lender works while its borrower reads and forgets, as fast as it can."""
    reading = machine.borrower.start(
        f"while :; do stress random {PATH} reads={READS} verify=0; echo 1 > /proc/sys/vm/drop_caches; done"
    )
    before, since = machine.pair.lent()["get_hits"], _uptime(machine)
    work = _work(machine)
    gets, seconds = machine.pair.lent()["get_hits"] - before, _uptime(machine) - since
    reading.kill()
    reading.result()
    return {"loss_busy": 1 - work / unlent, "busy_gets_per_s": gets / seconds}


def _uptime(machine: Machine) -> float:
    return float(machine.lender.read("/proc/uptime").split()[0])


def _idle_module() -> Figures:
    """Processor time of the kernel's own work with the module, beside that without it."""
    with counted_guest(KERNEL) as guest:
        times = idle_times(guest, IDLE_TURNS)
        guest.assert_clean()
    return idle_costs(times)
