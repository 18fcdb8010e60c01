"""A lender that needs its memory: the paper's sections 4.7 and 5.1, figures 8 to 10 and table 1."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bed.guest import PAGE, Guest, GuestError
from bed.tidepool import MIB, ROOT, parse_stats
from bed.workload import finish_stress, start_stress
from bench import data, plots, report, tools
from bench.experiments.base import Experiment, Rows
from bench.machine import Machine, Size, booted, inside
from bench.sides import make_pool
from bench.summary import Cell, cells, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating

UNLENT, LENT, BALLOON = "no pool", "NonInclusive", "balloon"
SIDES = (UNLENT, LENT, BALLOON)
BORROWER_MIB, LENDER_MIB, LENT_MIB, FILE_MIB = 192, 384, 128, 192
REPOSITORY_MIB = 32
WANTED_MIB, CHUNK_KIB = 260, 256
BEFORE, GROWING, HOLDING, SHRINKING, AFTER = 4, 16, 5, 4, 6
SERIES = BEFORE + GROWING + HOLDING + SHRINKING + AFTER
REFILL_SECONDS, MOST_REFILLS, FULL = 8, 8, 0.9
BUFFERS = 4096  # with fewer the pool fills slowly while the disk is fast
PATH = "/mnt/file"
# With `thread` one process has read all of it.
READER = (
    "fio --name=reads --readonly --filename={path} --rw=randread --bs={block} --ioengine=psync --invalidate=0 --thread"
    " --norandommap --randrepeat=0 --time_based --numjobs={jobs} --runtime={seconds} --minimal > /dev/null"
)
CLONE = (
    "git config --global safe.directory '*'; rm -rf /tmp/clone;"
    " git -c pack.threads=1 clone --quiet --bare --no-local file:///mnt/repository.git /tmp/clone 2>&1"
)
READ_SO_FAR = "read name bytes < /proc/$(pidof fio | cut -d' ' -f1)/io; echo $bytes"  # by the program, from disk or not
STALLS = ("allocstall_normal", "allocstall_dma32", "allocstall_movable")
NO_SLOWER, MOST_CLONE, COMES_BACK = 1.0, 1.25, 0.8


class Balance(Experiment):
    """The lender serves a clone of a repository; then its program grows and goes while the borrower reads."""

    name = "balance"
    title = "A lender that needs its memory (figures 8 to 10)"

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([(side, {}) for side in SIDES], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        with booted(
            Size(BORROWER_MIB, LENDER_MIB), data.one_file(FILE_MIB), tools.disk(),
            balloon=trial.side == BALLOON, lender_data=data.repository(REPOSITORY_MIB),
        ) as machine:  # fmt: skip
            machine.mount()
            machine.mount(guest=machine.lender)
            machine.lender.write("/proc/sys/vm/overcommit_memory", "1")  # the balloon may give what is not there yet
            if trial.side == LENT:
                machine.borrower.sh(f"insmod /lib/tidepool.ko put_buffers={BUFFERS}")
                make_pool(LENT, LENT_MIB).connect(machine)
            with _host(machine, trial.side):
                _refill(machine, trial.side)
                found = [Result({"what": "clone"}, _clone(machine))]
                _refill(machine, trial.side)
                found += _series(machine, trial.side)
                _refill(machine, trial.side)
                found.append(Result({"what": "refilled"}, {"speed": _mean(_speeds(machine))}))
            machine.pair.assert_clean()
        return found

    def draw(self, rows: Rows, target: Path) -> None:
        plots.balance(estimates(rows), (BEFORE, BEFORE + GROWING, BEFORE + GROWING + HOLDING), target)

    def table(self, rows: Rows) -> str:
        found = estimates(rows)
        lines = [
            [what, *(report.interval(found[Cell.of(side, {}, {"what": kind})][name]) for side in SIDES)]
            for what, kind, name in LINES
        ]
        return report.table(["", "nothing lent", f"{LENT_MIB} MiB lent", f"{LENT_MIB} MiB in a balloon"], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        known = cells(rows)
        program, clone = (
            {side: known[Cell.of(side, {}, {"what": what})] for side in SIDES} for what in ("program", "clone")
        )
        found = []
        for what, name in (("a chunk, mean", "chunk_mean_us"), ("a page, p99", "page_p99_us")):
            one = ratio(program[LENT][name], program[BALLOON][name])
            found.append((f"{what}: no later than with a balloon", report.times(one), one.median <= NO_SLOWER))
        one = ratio(clone[LENT]["seconds"], clone[UNLENT]["seconds"])
        found.append((f"a clone: at most {MOST_CLONE} times as long", report.times(one), one.median <= MOST_CLONE))
        back = ratio(known[Cell.of(LENT, {}, {"what": "refilled"})]["speed"], program[LENT]["speed_before"])
        what = "the borrower's speed comes back when the pool has filled again"
        found.append((what, report.times(back), back.median >= COMES_BACK))
        return found


LINES = (
    ("256 KiB: mean, µs", "program", "chunk_mean_us"),
    ("deviation, µs", "program", "chunk_deviation_us"),
    ("p99, µs", "program", "chunk_p99_us"),
    ("longest, µs", "program", "chunk_max_us"),
    ("a page: mean, µs", "program", "page_mean_us"),
    ("deviation, µs", "program", "page_deviation_us"),
    ("p99, µs", "program", "page_p99_us"),
    ("times that the program had to reclaim", "program", "stalls"),
    ("git clone, s", "clone", "seconds"),
    ("the borrower's reads before, MiB/s", "program", "speed_before"),
    ("while the program has its memory, MiB/s", "program", "speed_held"),
    ("just after, MiB/s", "program", "speed_after"),
    ("when the pool has filled again, MiB/s", "refilled", "speed"),
)


@contextmanager
def _host(machine: Machine, side: str) -> Iterator[None]:
    """What the host does with the lender's memory meanwhile: nothing, unless there is a balloon."""
    if side != BALLOON:
        yield
        return
    with Host(machine.lender, (LENDER_MIB - LENT_MIB) * MIB, LENDER_MIB * MIB):
        yield


class Host:
    """Takes what a lender does not need, step by step, and gives it back when it is short, all the time."""

    LOW, HIGH, STEP = 64 * MIB, 160 * MIB, 32 * MIB
    EVERY_SECONDS = 0.1

    def __init__(self, guest: Guest, least: int, most: int) -> None:
        self._guest, self._least, self._most = guest, least, most
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._balance)
        self._failed: Exception | None = None

    def __enter__(self) -> None:
        self._guest.balloon(self._least)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failed:
            raise self._failed

    def _balance(self) -> None:
        has = self._least
        try:
            while not self._ended.wait(self.EVERY_SECONDS):
                available = self._guest.meminfo("MemAvailable")
                step = self.STEP * ((available < self.LOW) - (available > self.HIGH))
                if wanted := min(self._most, max(self._least, has + step)) - has:
                    has += wanted
                    self._guest.balloon(has)
        except (GuestError, TimeoutError) as error:
            self._failed = error


def _refill(machine: Machine, side: str) -> None:
    """Everybody's caches as they are after a long time: the borrower reads, and its disk is fast meanwhile."""
    with machine.fast_disk():
        for _ in range(MOST_REFILLS):
            machine.tool(machine.borrower, READER.format(path=PATH, block="64k", jobs=4, seconds=REFILL_SECONDS))
            if side != LENT or machine.pair.lent()["lent_pages"] * PAGE >= LENT_MIB * MIB * FULL:
                break
        else:
            raise AssertionError(f"the pool does not fill: {machine.pair.borrowed()}")


def _clone(machine: Machine) -> Figures:
    """The borrower is quiet: two guests that compute would share the processors of this host."""
    start = time.monotonic()
    machine.tool(machine.lender, CLONE)
    seconds = time.monotonic() - start
    machine.tool(machine.lender, "rm -rf /tmp/clone")
    return {"seconds": seconds}


@contextmanager
def _reader(machine: Machine) -> Iterator[None]:
    """The borrower reads at random meanwhile; it has begun."""
    reader = machine.borrower.start(inside(READER.format(path=PATH, block="4k", jobs=1, seconds=SERIES + 60)))
    machine.borrower.sh(f"until pidof fio > /dev/null && [ $({READ_SO_FAR}) -gt {MIB} ]; do sleep 0.2; done")
    yield
    reader.kill()
    reader.result()


def _series(machine: Machine, side: str) -> list[Result]:
    """Every second of it, and the program's own report."""
    stalls = sum(machine.lender.vmstat(name) for name in STALLS)
    grow = f"grow {WANTED_MIB} chunk={CHUNK_KIB} seconds={GROWING} hold={HOLDING}"
    with _reader(machine):
        program = start_stress(machine.lender, grow, f"sleep {BEFORE}")
        samples = _samples(machine, side)
    found = finish_stress(program)
    speed = [figures["mib_per_s"] for figures in samples]
    held = BEFORE + GROWING
    figures = {
        **{f"chunk_{name}": found["chunks"][name] for name in ("mean_us", "deviation_us", "p99_us", "max_us")},
        **{f"page_{name}": found["pages"][name] for name in ("mean_us", "deviation_us", "p99_us")},
        "stalls": sum(machine.lender.vmstat(name) for name in STALLS) - stalls,
        "speed_before": _mean(speed[:BEFORE]),
        "speed_held": _mean(speed[held : held + HOLDING]),
        "speed_after": _mean(speed[-3:]),
    }
    return [Result({"what": "program"}, figures), *(Result({"second": at}, one) for at, one in enumerate(samples, 1))]


def _samples(machine: Machine, side: str) -> list[Figures]:
    """The lender's memory at each second, and the borrower's speed since the one before."""
    return [{**_memory(machine, side), "mib_per_s": speed} for speed in _each_second(machine, SERIES)]


def _speeds(machine: Machine) -> list[float]:
    with _reader(machine):
        return list(_each_second(machine, BEFORE))


def _each_second(machine: Machine, seconds: int) -> Iterator[float]:
    """The borrower's speed in each of so many seconds, in MiB a second."""
    begin = time.monotonic()
    last_at, last = begin, int(machine.borrower.sh(READ_SO_FAR))
    for number in range(1, seconds + 1):
        time.sleep(max(0.0, begin + number - time.monotonic()))
        at, total = time.monotonic(), int(machine.borrower.sh(READ_SO_FAR))
        yield (total - last) / MIB / (at - last_at)
        last_at, last = at, total


def _memory(machine: Machine, side: str) -> Figures:
    """The lender's memory, in MiB."""
    lent = f"cat {ROOT}/stats" if side == LENT else "echo lent_pages 0"
    shown = machine.lender.sh(
        f"{lent}; sed -n 's/^\\(MemTotal\\|MemFree\\|AnonPages\\): *\\([0-9]*\\) kB/\\1 \\2/p' /proc/meminfo"
    )
    figures = parse_stats(shown)
    kib = {"total": "MemTotal", "free": "MemFree", "program": "AnonPages"}
    return {"lent": figures["lent_pages"] * PAGE / MIB, **{name: figures[each] / 1024 for name, each in kib.items()}}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
