"""A guest whose node gathers memory from it: what its programs lose, and how long they wait for memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bed.guest import PAGE, Guest
from bed.protocol import KeyPair
from bed.tidepool import MIB, wait_until
from bed.workload import stress
from bench import node, plots, report, tools
from bench.experiments.balance import STALLS, Host
from bench.experiments.base import Experiment, Rows
from bench.load import Client
from bench.machine import inside
from bench.node import KERNEL, Node, Terms
from bench.programs import bogo_per_second
from bench.summary import Cell, cells, estimate, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating

if TYPE_CHECKING:
    from bench.gathering import Gatherer

T = TypeVar("T")
ALONE, POOL, AGENT, TIMER = "left alone", "a pool", "the agent", "a timer"
WAITS = (ALONE, POOL, AGENT, TIMER)
WORK, MEMORY = "work", "memory"
# As in the experiment in which a lender needs its memory (balance.py).
GUEST_MIB, LENT_MIB, WANTED_MIB, GROWING, HOLDING = 384, 128, 260, 16, 5
RESERVE_MIB = 64  # stays available; the program takes 33 MiB between two looks of the agent
TOUCHED_MIB = 280  # before, so that the node has them behind the guest
HASTENED = 6  # times as fast as the agent, until all is gathered that will be
# A guest whose clock goes by instructions is slower than its host, and its driver tells figures by its own clock.
HASTENED_BY_COUNT = 3
MOST_SECONDS, SETTLED_SECONDS = 150, 6
PATIENCE_SECONDS = 300.0
MATRIX = "stress-ng --temp-path /tmp --matrix 1 --timeout {seconds} --metrics-brief 2>&1"
WORK_SECONDS = 5
MOST_LOST, NO_LATER = 0.02, 1.0


class Donor(Experiment):
    """Work in a guest whose clock goes by instructions; memory for a program, while it is gathered or lent."""

    name = "donor"
    title = "A guest whose memory is gathered"

    def trials(self, repetitions: int) -> list[Trial]:
        pairs = [(AGENT, {"part": WORK}), *((side, {"part": MEMORY}) for side in WAITS)]
        return alternating(pairs, self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        counted = trial.setting["part"] == WORK
        balloon = trial.side in (AGENT, TIMER)
        with node.node(GUEST_MIB, counted=counted, balloon=balloon, tools=tools.disk()) as one:
            figures = _work(one.guest) if counted else _memory(one, trial.side)
            one.guest.assert_clean()
        return [Result({}, figures)]

    def draw(self, rows: Rows, target: Path) -> None:
        found = estimates(rows)
        plots.sides({what: {side: _of(found, side)[name] for side in WAITS} for what, name in WAIT_LINES[:4]}, target)

    def table(self, rows: Rows) -> str:
        found = estimates(rows)
        work = found[Cell.of(AGENT, {"part": WORK}, {})]
        waits = [[what, *(report.interval(_of(found, side)[name]) for side in WAITS)] for what, name in WAIT_LINES]
        lost = [[what, report.spread(work[name])] for what, name in WORK_LINES]
        return "\n\n".join(
            [
                report.table(["a program takes memory", *WAITS], waits),
                report.table(["a program computes", "the agent"], lost),
            ]
        )

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        known = cells(rows)
        work = known[Cell.of(AGENT, {"part": WORK}, {})]
        found = []
        for what, name in WORK_LINES[:2]:
            one = estimate(work[name])
            found.append((f"{what}: at most {MOST_LOST:.0%}", report.spread(one), one.median <= MOST_LOST))
        for side in (POOL, TIMER):
            for what, name in WAIT_LINES[:3]:
                one = ratio(_of(known, AGENT)[name], _of(known, side)[name])
                found.append((f"{what}: no later than with {side}", report.times(one), one.median <= NO_LATER))
        return found


WAIT_LINES = (
    ("256 KiB: mean, µs", "chunk_mean_us"),
    ("256 KiB: p99, µs", "chunk_p99_us"),
    ("256 KiB: longest, µs", "chunk_max_us"),
    ("a page: p99, µs", "page_p99_us"),
    ("a page: longest, µs", "page_max_us"),
    ("MiB gathered or lent before", "held_mib"),
    ("times that the program had to reclaim", "stalls"),
)
WORK_LINES = (
    ("lost while memory is gathered", "loss_gathering"),
    ("lost while it is held", "loss_held"),
    ("MiB gathered in a second of its clock meanwhile", "mib_per_s"),
    ("MiB held then", "held_mib"),
)


def _of(found: Mapping[Cell, T], side: str) -> T:
    return found[Cell.of(side, {"part": MEMORY}, {})]


# A program that computes


def _work(guest: Guest) -> Figures:
    """Bogus operations a second of the guest's clock: with nothing gathered, meanwhile, and once all is."""
    _touch(guest)
    _rate(guest)  # its program and its pages are there now
    before = _rate(guest)
    with _gathering(guest, HASTENED_BY_COUNT) as gatherer:
        _wait_for(lambda: gatherer.gathered > 0)
        gathered = gatherer.gathered
        meanwhile = _rate(guest)
        gathered = gatherer.gathered - gathered
        _until_settled(gatherer)
        held = _rate(guest)
        assert gatherer.reason == "Gathering", gatherer.reason
    return {
        "loss_gathering": 1 - meanwhile / before,
        "loss_held": 1 - held / before,
        "mib_per_s": gathered / MIB / WORK_SECONDS,
        "held_mib": gatherer.gathered / MIB,
    }


def _rate(guest: Guest) -> float:
    return bogo_per_second(guest.sh(inside(MATRIX.format(seconds=WORK_SECONDS)), PATIENCE_SECONDS))


def _touch(guest: Guest) -> None:
    """The node has memory behind the guest that it does not use."""
    stress(guest, f"anon {TOUCHED_MIB}")


# A program that takes memory


def _memory(one: Node, side: str) -> Figures:
    one.guest.write("/proc/sys/vm/overcommit_memory", "1")  # the balloon may give what is not there yet
    _touch(one.guest)
    with _taken(one, side) as held_mib:
        stalls = sum(map(one.guest.vmstat, STALLS))
        found = stress(one.guest, f"grow {WANTED_MIB} seconds={GROWING} hold={HOLDING}")
        stalls = sum(map(one.guest.vmstat, STALLS)) - stalls
    return {
        **{f"chunk_{name}": float(found["chunks"][name]) for name in ("mean_us", "p99_us", "max_us")},
        **{f"page_{name}": float(found["pages"][name]) for name in ("p99_us", "max_us")},
        "held_mib": held_mib,
        "stalls": stalls,
    }


@contextmanager
def _taken(one: Node, side: str) -> Iterator[float]:
    """Somebody has what the guest does not need; so many MiB."""
    if side == ALONE:
        yield 0.0
    elif side == POOL:
        with _lent(one):
            yield LENT_MIB
    elif side == TIMER:
        with Host(one.guest, least=(GUEST_MIB - LENT_MIB) * MIB, most=GUEST_MIB * MIB):
            yield LENT_MIB
    else:
        with _gathering(one.guest, HASTENED) as gatherer:
            _wait_for(lambda: gatherer.gathered > 0)
            _until_settled(gatherer)
        with _gathering(one.guest):
            yield gatherer.gathered / MIB


@contextmanager
def _lent(one: Node) -> Iterator[None]:
    own = KeyPair()
    terms = Terms({"borrower": own}, 2 * LENT_MIB, 2 * LENT_MIB, RESERVE_MIB)
    with (
        node.lending(one.guest, KERNEL, terms) as point,
        closing(Client(one.address, own, point, 2 * LENT_MIB * MIB)) as client,
    ):
        pages = range(LENT_MIB * MIB // PAGE)
        assert client.fill(pages) == len(pages), "the guest lends less than it should"
        yield


@contextmanager
def _gathering(guest: Guest, hastened: float = 1.0) -> Iterator[Gatherer]:
    from bench.gathering import Gatherer  # noqa: PLC0415 - the agent's code, without which the rest can do

    assert guest.domain
    gatherer = Gatherer(guest.domain, guest.name, RESERVE_MIB * MIB, hastened)
    with gatherer.running():
        yield gatherer


def _until_settled(gatherer: Gatherer) -> None:
    """Nothing more has been gathered for some of the agent's steps."""
    known, since, begin = gatherer.gathered, time.monotonic(), time.monotonic()
    while time.monotonic() - since < SETTLED_SECONDS:
        assert time.monotonic() - begin < MOST_SECONDS, "the balloon goes on and on"
        time.sleep(0.1)
        if gatherer.gathered != known:
            known, since = gatherer.gathered, time.monotonic()


def _wait_for(condition: Callable[[], bool]) -> None:
    wait_until("memory is gathered", condition, MOST_SECONDS)
