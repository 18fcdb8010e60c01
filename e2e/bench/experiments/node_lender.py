"""A node as lender beside a guest's kernel as lender: by turns in one guest, for the same clients and pages."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from bed.guest import Guest
from bed.measure import INSTRUCTIONS_PER_SECOND, processor_seconds
from bed.protocol import KeyPair
from bed.tidepool import MIB
from bench import node, plots, report
from bench.experiments.base import Experiment, Rows
from bench.load import Client, somebodies, together
from bench.node import DAEMON, KERNEL, Node, Terms, uptime
from bench.summary import Cell, Estimate, cells, estimate, ratio
from bench.trial import Figures, Result, Trial, alternating

BOTH = "by turns"
WIRE, INSTRUCTIONS = "wire", "instructions"
LENDERS = (KERNEL, DAEMON)
MEMORY_MIB, LEND_MIB, QUOTA_MIB = 512, 256, 48
BORROWERS = 8
TURNS = {WIRE: 5, INSTRUCTIONS: 3}
PAGES, SINGLE, EACH = 4096, 1000, 1024  # put and read in batches, got one by one, and put by each of eight
COUNTED_PAGES, COUNTED_SINGLE, IDLE_SECONDS = 4096, 1000, 3
MOST_LATENCY, AHEAD = 1.1, 1.0


class NodeLender(Experiment):
    """One lends, then the other, some times each in one boot; instructions in a guest whose clock goes by them."""

    name = "node-lender"
    title = "A node as lender, beside a guest's kernel"

    def sources(self) -> list[Path]:
        return node.sources()

    def trials(self, repetitions: int) -> list[Trial]:
        parts = (WIRE, INSTRUCTIONS)
        return alternating([(BOTH, {"part": part}) for part in parts], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        part = trial.setting["part"]
        counted = part == INSTRUCTIONS
        with node.node(MEMORY_MIB, counted=counted) as one:
            found = _by_turns(one, _instructions if counted else _wire, TURNS[part])
            one.guest.assert_clean()
        return [Result({"lender": lender}, figures) for lender, figures in found.items()]

    def draw(self, rows: Rows, target: Path) -> None:
        names = [(part, what, name) for part, lines in PARTS for what, name in lines]
        plots.pairs(
            {what: _beside(rows, part, name) for part, what, name in names}, target,
            f"{DAEMON} beside the {KERNEL}",
        )  # fmt: skip

    def table(self, rows: Rows) -> str:
        lines = [
            [what, *(report.interval(estimate(_figures(rows, part, lender)[name])) for lender in LENDERS),
             report.times(_beside(rows, part, name))]
            for part, shown in PARTS
            for what, name in shown
        ]  # fmt: skip
        return report.table(["", *LENDERS, "the node lender's beside the kernel's"], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        get, puts = _beside(rows, WIRE, "get_p50_us"), _beside(rows, WIRE, "eight_per_s")
        what = f"puts a second with {BORROWERS} borrowers: ahead of the kernel"
        return [
            (f"a get, p50: at most {MOST_LATENCY} times the kernel's", report.times(get), get.median <= MOST_LATENCY),
            (what, report.times(puts), puts.median > AHEAD),
        ]


PARTS = (
    (WIRE, (
        ("a get of a page, p50, µs", "get_p50_us"),
        ("p99, µs", "get_p99_us"),
        ("pages in a second, one borrower", "puts_per_s"),
        ("pages out a second, one borrower", "gets_per_s"),
        (f"pages in a second, {BORROWERS} borrowers", "eight_per_s"),
        ("the emulator's processor time: of a get, µs", "get_busy_us"),
        (f"of a page that one of {BORROWERS} borrowers puts, µs", "eight_busy_us"),
    )),
    (INSTRUCTIONS, (
        ("instructions of the whole guest for a get of one page", "get"),
        ("for a page that is put", "put"),
        ("for one of those that are read 32 at a time", "ahead"),
        ("in a second in which nobody asks", "idle"),
    )),
)  # fmt: skip


def _figures(rows: Rows, part: str, lender: str) -> dict[str, list[float]]:
    return cells(rows)[Cell.of(BOTH, {"part": part}, {"lender": lender})]


def _beside(rows: Rows, part: str, name: str) -> Estimate:
    """How many times the kernel's the daemon's is."""
    kernel, daemon = (_figures(rows, part, lender)[name] for lender in LENDERS)
    return ratio(daemon, kernel)


def _by_turns(one: Node, measure: Callable[[Node, str], Figures], times: int) -> dict[str, Figures]:
    """Each lender's medians; whoever was first in a turn is second in the next."""
    turns: dict[str, list[Figures]] = {lender: [] for lender in LENDERS}
    for number in range(times):
        for lender in LENDERS if number % 2 == 0 else reversed(LENDERS):
            turns[lender].append(measure(one, lender))
    return {
        lender: {name: statistics.median(each[name] for each in found) for name in found[0]}
        for lender, found in turns.items()
    }


def _wire(one: Node, lender: str) -> Figures:
    lone, *others = somebodies(1 + BORROWERS).items()
    with node.lending(one.guest, lender, Terms(dict([lone, *others]), LEND_MIB, QUOTA_MIB)) as point:
        with _session(one, point, lone[1]) as client:
            figures = {"puts_per_s": _rate(client.fill, PAGES), **_single(one.guest, client)}
            figures["gets_per_s"] = _rate(client.read, PAGES)
        with ExitStack() as sessions:
            clients = {name: sessions.enter_context(_session(one, point, own)) for name, own in others}
            busy = _emulator_seconds(one.guest)
            figures["eight_per_s"] = together(clients, range(EACH))
            figures["eight_busy_us"] = (_emulator_seconds(one.guest) - busy) / (EACH * BORROWERS) * 1e6
    return figures


def _session(one: Node, point: bytes, own: KeyPair) -> closing[Client]:
    return closing(Client(one.address, own, point, QUOTA_MIB * MIB))


def _rate(work: Callable[[range], int], pages: int) -> float:
    """Pages in a second; all of them are kept, or there."""
    begin = time.perf_counter()
    done = work(range(pages))
    seconds = time.perf_counter() - begin
    assert done == pages, f"{done} of {pages} pages"
    return pages / seconds


def _single(guest: Guest, client: Client) -> Figures:
    chosen = random.Random(PAGES).sample(range(PAGES), SINGLE)
    busy = _emulator_seconds(guest)
    hundredths = statistics.quantiles(client.times(chosen), n=100)
    busy = _emulator_seconds(guest) - busy
    return {
        "get_p50_us": hundredths[49] * 1e6,
        "get_p99_us": hundredths[98] * 1e6,
        "get_busy_us": busy / SINGLE * 1e6,
    }


def _emulator_seconds(guest: Guest) -> float:
    """Processor time that the guest's emulator has had, of this machine, which others may use as well."""
    fields = Path(f"/proc/{guest.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _instructions(one: Node, lender: str) -> Figures:
    """Of the whole guest, less what it does in that time while nobody asks for anything."""
    ((name, own),) = somebodies(1).items()
    terms = Terms({name: own}, LEND_MIB, QUOTA_MIB)
    with node.lending(one.guest, lender, terms) as point, _session(one, point, own) as client:
        idle = _rate_of(one.guest, lambda: one.guest.sh(f"sleep {IDLE_SECONDS}"))

        def spent(work: Callable[[range], object], pages: int) -> float:
            begin, busy = uptime(one.guest), processor_seconds(one.guest)
            work(range(pages))
            busy, seconds = processor_seconds(one.guest) - busy, uptime(one.guest) - begin
            return float((busy - idle * seconds) * INSTRUCTIONS_PER_SECOND / pages)

        return {
            "idle": idle * INSTRUCTIONS_PER_SECOND,
            "put": spent(client.fill, COUNTED_PAGES),
            "ahead": spent(client.read, COUNTED_PAGES),
            "get": spent(client.times, COUNTED_SINGLE),
        }


def _rate_of(guest: Guest, work: Callable[[], object]) -> float:
    """Which part of the time its processor is busy meanwhile."""
    begin, busy = uptime(guest), processor_seconds(guest)
    work()
    return (processor_seconds(guest) - busy) / (uptime(guest) - begin)
