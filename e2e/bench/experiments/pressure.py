"""A node that needs what it has lent: a program takes memory at full speed, and others on the node work on."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bed.guest import PAGE, Disk, Guest
from bed.protocol import KeyPair
from bed.tidepool import MIB, parse_stats, wait_until
from bed.workload import start_stress
from bench import data, node, plots, report
from bench.experiments.base import Experiment, Rows
from bench.load import Client
from bench.node import DAEMON, Node, Terms
from bench.summary import Cell, cells, estimate, ratio
from bench.trial import Figures, Result, Trial, alternating

UNLENT, AT_ONCE, IN_STEPS = "nothing lent", "PSI, all at once", "PSI, 32 MiB a time"
SIDES = (UNLENT, DAEMON, AT_ONCE, IN_STEPS)
# Programs have huge pages where the kernel has them, or pages of 4 KiB alone.
HUGE: Mapping[str, Any] = {}
SMALL: Mapping[str, Any] = {"huge_pages": "never"}
WITH_SMALL = (UNLENT, DAEMON, AT_ONCE)
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
WATCHERS = {AT_ONCE: 0, IN_STEPS: 32}
NODE_MIB, LENT_MIB, FILE_MIB, WANTED_MIB = 704, 256, 64, 400
LENT = range(LENT_MIB * 256)
PATIENCE_SECONDS = 300.0
OWN_MIB = 64  # of the daemon, beside what it lends
GROUPS = "/sys/fs/cgroup"
LENDER, PROGRAM, NEIGHBOUR = (f"{GROUPS}/{name}" for name in ("lender", "program", "neighbour"))
WORKS = "while :; do cat /mnt/file > /dev/null; sleep 0.2; done"
SETTLED_SECONDS = 3  # in which the neighbour reads all of its file again
OUT_OF_MEMORY = "oom-kill|Out of memory|Call Trace|RIP:"
MOST_TIME, MOST_REFAULTS = 1.1, 0.01


class Pressure(Experiment):
    """A program wants more than is free, while a neighbour goes through its file in the page cache."""

    name = "pressure"
    title = "A node that needs what it has lent"

    def sources(self) -> list[Path]:
        return node.sources()

    def trials(self, repetitions: int) -> list[Trial]:
        small = [(side, SMALL) for side in WITH_SMALL]
        return alternating([*((side, HUGE) for side in SIDES), *small], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        disk = Disk(filesystem=None, image=data.one_file(FILE_MIB))
        with node.node(NODE_MIB, counted=True, disk=disk) as one:
            _prepare(one.guest)
            if trial.setting == SMALL:
                one.guest.write(HUGE_PAGES, "never")
            with _held(one, trial.side) as left, _neighbour(one.guest):
                figures = _program(one.guest)
                figures["left_mib"] = left()
            one.guest.assert_clean(OUT_OF_MEMORY if trial.side in WATCHERS else None)
        return [Result({}, figures)]

    def draw(self, rows: Rows, target: Path) -> None:
        found = cells(rows)
        panels = {
            what: {side: estimate(_values(found, side, name) or [0]) for side in SIDES}
            for what, name in (*LINES[:2], LINES[3], LINES[6])
        }
        plots.sides(panels, target)

    def table(self, rows: Rows) -> str:
        found = cells(rows)
        lines = [[what, *(_shown(found, side, name) for side in SIDES)] for what, name in LINES]
        lines += [
            [f"with small pages: {what}", *(_small(found, side, name) for side in SIDES)] for what, name in LINES[:2]
        ]
        return report.table(["", *SIDES], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        known = cells(rows)
        ours = {name: _values(known, DAEMON, name) for _, name in LINES}
        found = []
        for setting, more in ((HUGE, ""), (SMALL, ", small pages")):
            seconds = ratio(*(_values(known, side, "seconds", setting) for side in (DAEMON, UNLENT)))
            what = f"the program: at most {MOST_TIME} times as long as with nothing lent{more}"
            found.append((what, report.times(seconds), seconds.median <= MOST_TIME))
        found += [(f"its worst page: sooner than with {side}", *_sooner(rows, side)) for side in WATCHERS]
        refaults = estimate(value / (FILE_MIB * MIB / PAGE) for value in ours["refaults"])
        what = f"the neighbour reads at most {MOST_REFAULTS:.0%} of its file again"
        found.append((what, report.spread(refaults), refaults.high <= MOST_REFAULTS))
        for what, name in (("nothing is killed", "killed"), ("nothing is swapped", "swapped")):
            found.append((what, report.number(max(ours[name])), not any(ours[name])))
        return found


Known = Mapping[Cell, Mapping[str, list[float]]]


def _values(known: Known, side: str, name: str, setting: Mapping[str, Any] = HUGE) -> list[float]:
    """A figure's repetitions; a program that was killed has none of its own."""
    return known[Cell.of(side, setting, {})].get(name, [])


def _small(known: Known, side: str, name: str) -> str:
    return report.interval(estimate(_values(known, side, name, SMALL))) if side in WITH_SMALL else ""


def _shown(known: Known, side: str, name: str) -> str:
    values, all_of_them = _values(known, side, name), len(_values(known, side, "killed"))
    killed = f"killed {all_of_them - len(values)} of {all_of_them} times" if len(values) < all_of_them else ""
    return "; ".join(filter(None, [report.interval(estimate(values)) if values else "", killed]))


def _sooner(rows: Rows, side: str) -> tuple[str, bool]:
    """The worst page of the node lender's side beside another's, of those repetitions in which that lived."""
    huge = [row for row in rows if row["setting"] == HUGE]
    by = {(row["side"], row["repetition"]): row["results"][0]["figures"] for row in huge}
    numbers = [number for one, number in by if one == side]
    lived = [number for number in numbers if "max_us" in by[side, number]]
    if 2 * len(lived) < len(numbers):
        return f"killed there {len(numbers) - len(lived)} of {len(numbers)} times", True
    worst = [[by[one, number]["max_us"] for number in lived] for one in (DAEMON, side)]
    beside = ratio(*worst)
    return report.times(beside), beside.median < 1


LINES = (
    (f"{WANTED_MIB} MiB for the program, s", "seconds"),
    ("its worst page, µs", "max_us"),
    ("a page, p99, µs", "p99_us"),
    ("the neighbour's pages that came from the disk again", "refaults"),
    ("programs waited for memory, ms (PSI, some)", "waited_ms"),
    ("still lent afterwards, MiB", "left_mib"),
    ("programs killed for memory", "killed"),
    ("pages swapped out", "swapped"),
)


def _prepare(guest: Guest) -> None:
    """Control groups, and the neighbour's file, which it has read more than once."""
    guest.sh(f"mount -t cgroup2 none {GROUPS} && echo +memory > {GROUPS}/cgroup.subtree_control")
    for group in (LENDER, PROGRAM, NEIGHBOUR):
        guest.sh(f"mkdir {group}")
    guest.sh("mount -t ext4 -o ro,noatime /dev/vda /mnt")


@contextmanager
def _neighbour(guest: Guest) -> Iterator[None]:
    job = guest.start(f"echo $$ > {NEIGHBOUR}/cgroup.procs && {WORKS}")
    guest.sh(f"sleep {SETTLED_SECONDS}")
    yield
    job.kill()
    job.result()


@contextmanager
def _held(one: Node, side: str) -> Iterator[Callable[[], float]]:
    """Somebody holds memory for others; what is left of it afterwards, in MiB, is to be asked once."""
    if side == DAEMON:
        with _lent(one) as left:
            yield left
    elif side in WATCHERS:
        yield _watched(one.guest, WATCHERS[side])
    else:
        yield lambda: 0.0


@contextmanager
def _lent(one: Node) -> Iterator[Callable[[], float]]:
    own, most = KeyPair(), LENT_MIB + OWN_MIB
    one.guest.write(f"{LENDER}/memory.max", f"{most + OWN_MIB}M")
    terms = Terms({"borrower": own}, most, most, group=LENDER)
    with node.lending(one.guest, DAEMON, terms) as point:
        with closing(Client(one.address, own, point, most * MIB)) as client:
            assert client.fill(LENT) == len(LENT), "the node lends less than it should"

        def left() -> float:
            """By the session of before, which has lingered."""
            same = Client(one.address, own, point, most * MIB, resume=client.session, version=len(LENT))
            with closing(same) as again:
                assert again.resumed
                return again.read(LENT) * PAGE / MIB

        yield left


def _watched(guest: Guest, step: int) -> Callable[[], float]:
    """By a program that drops what it holds when the kernel tells of pressure."""
    guest.write("/tmp/spare", "")
    job = start_stress(guest, f"spare {LENT_MIB} step={step} > /tmp/spare", f"echo $$ > {LENDER}/cgroup.procs")
    wait_until("it holds its memory", lambda: "holds" in guest.read("/tmp/spare"))

    def left() -> float:
        guest.sh("kill -TERM $(pidof stress)")
        job.result()
        lines = guest.read("/tmp/spare").splitlines()
        return float(json.loads(lines[-1])["held_mib"]) if len(lines) > 1 else 0.0  # else it was killed

    return left


def _program(guest: Guest) -> Figures:
    """A program takes its memory as fast as it can; figures of it, if it lives, and of all until shortly after."""
    before = _counted(guest)
    ended = guest.run(f"echo $$ > {PROGRAM}/cgroup.procs && exec stress anon {WANTED_MIB}", PATIENCE_SECONDS)
    guest.sh(f"sleep {SETTLED_SECONDS}")
    after = _counted(guest)
    figures = {name: after[name] - before[name] for name in before}
    if ended.code == -signal.SIGKILL:
        return figures
    assert ended.code == 0, ended.output
    found = json.loads(ended.output.splitlines()[-1])
    return {**{name: float(found[name]) for name in ("seconds", "max_us", "p99_us")}, **figures}


def _counted(guest: Guest) -> Figures:
    neighbour = parse_stats(guest.read(f"{NEIGHBOUR}/memory.stat"))
    waited = re.search(r"^some .*total=(\d+)", guest.read("/proc/pressure/memory"), re.MULTILINE)
    assert waited
    return {
        "refaults": float(neighbour["workingset_refault_file"]),
        "waited_ms": int(waited[1]) / 1000,
        "killed": float(guest.vmstat("oom_kill")),
        "swapped": float(guest.vmstat("pswpout")),
    }
