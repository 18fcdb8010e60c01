"""A node as lender beside a guest's kernel as lender: by turns in one guest, for the same clients and pages."""

from __future__ import annotations

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
WIRE, WIRE_OF_TWO, INSTRUCTIONS = "wire", "wire, two processors", "instructions"
LENDERS = (KERNEL, DAEMON)
MEMORY_MIB, LEND_MIB, QUOTA_MIB = 512, 256, 48
BORROWERS = 8
TURNS = 3
PAGES, SINGLE, EACH = 8192, 1500, 2048  # put and read in batches, got one by one, and put by each of eight
COUNTED_PAGES, COUNTED_SINGLE, IDLE_SECONDS = 4096, 1000, 3
MOST_LATENCY, AHEAD = 1.1, 1.0


class NodeLender(Experiment):
    """One lends, then the other, `TURNS` times each in one boot; instructions in a guest whose clock goes by them."""

    name = "node-lender"
    title = "A node as lender, beside a guest's kernel"

    def identity(self) -> str:
        return node.identity()

    def trials(self, repetitions: int) -> list[Trial]:
        parts = (WIRE, WIRE_OF_TWO, INSTRUCTIONS)
        return alternating([(BOTH, {"part": part}) for part in parts], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        part = trial.setting["part"]
        counted = part == INSTRUCTIONS
        with node.node(MEMORY_MIB, processors=2 if part == WIRE_OF_TWO else 1, counted=counted) as one:
            found = _by_turns(one, _instructions if counted else _wire)
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
        found = []
        for part in (WIRE, WIRE_OF_TWO):
            get, puts = _beside(rows, part, "get_p50_us"), _beside(rows, part, "eight_per_s")
            more = ", two processors" if part == WIRE_OF_TWO else ""
            what = f"a get, p50: at most {MOST_LATENCY} times the kernel's{more}"
            found.append((what, report.times(get), get.median <= MOST_LATENCY))
            what = f"puts a second with {BORROWERS} borrowers: ahead of the kernel{more}"
            found.append((what, report.times(puts), puts.median > AHEAD))
        return found


def _wire_lines(more: str) -> tuple[tuple[str, str], ...]:
    return (
        (f"a get of a page, p50, µs{more}", "get_p50_us"),
        (f"p99, µs{more}", "get_p99_us"),
        (f"pages in a second, one borrower{more}", "puts_per_s"),
        (f"pages out a second, one borrower{more}", "gets_per_s"),
        (f"pages in a second, {BORROWERS} borrowers{more}", "eight_per_s"),
    )


PARTS = (
    (WIRE, _wire_lines("")),
    (WIRE_OF_TWO, _wire_lines(", two processors")),
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


def _by_turns(one: Node, measure: Callable[[Node, str], Figures]) -> dict[str, Figures]:
    """Each lender's medians; whoever was first in a turn is second in the next."""
    turns: dict[str, list[Figures]] = {lender: [] for lender in LENDERS}
    for number in range(TURNS):
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
            figures = {"puts_per_s": _rate(client.fill, PAGES), **_single(client)}
            figures["gets_per_s"] = _rate(client.read, PAGES)
        with ExitStack() as sessions:
            clients = {name: sessions.enter_context(_session(one, point, own)) for name, own in others}
            figures["eight_per_s"] = together(clients, range(EACH))
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


def _single(client: Client) -> Figures:
    chosen = random.Random(PAGES).sample(range(PAGES), SINGLE)
    hundredths = statistics.quantiles(client.times(chosen), n=100)
    return {"get_p50_us": hundredths[49] * 1e6, "get_p99_us": hundredths[98] * 1e6}


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
