"""What a lender costs its host: with free page reporting, without, and where the host merges equal pages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from bed.guest import PAGE, Disk, Guest
from bed.pair import Pair
from bed.tidepool import MIB, wait_until
from bed.workload import stress
from bench import plots, report
from bench.experiments.base import Experiment, Rows
from bench.summary import Cell, Estimate, cells, estimate, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating

T = TypeVar("T")
NEITHER, REPORTS, SEALED, CLEAR = "neither", "free page reporting", "KSM", "KSM, pages in the clear"
SIDES = (NEITHER, REPORTS, SEALED, CLEAR)
BORROWER_MIB, LENDER_MIB, TOUCHED_MIB, FILE_MIB = 256, 384, 240, 96
# Few different pages, which is the best that KSM can find.
WRITE = f"yes tidepool | head -c {FILE_MIB * MIB} > /mnt/file && sync"
KSM = Path("/sys/kernel/mm/ksm")
SCAN = {"pages_to_scan": "20000", "sleep_millisecs": "20"}
SCANS = 2  # the first learns what a page has, the second merges those that still have it
PATIENCE_SECONDS, SETTLED_SECONDS, STILL_MIB = 300.0, 10, 1
BUFFERS, PIECE_MIB, MOST_PASSES = 4096, 12, 4  # what is evicted at once has to find buffers
FULL, MOST_OVER, MOST_LEFT, MOST_MERGED = 0.9, 1.25, 1.1, 0.01


class HostMemory(Experiment):
    """The lender's memory that its host has to hold: with nothing lent, while it lends, and when all is back."""

    name = "host-memory"
    title = "Memory of a lender's host"

    def trials(self, repetitions: int) -> list[Trial]:
        return alternating([(side, {}) for side in SIDES], self.name, repetitions)

    def measure(self, trial: Trial) -> list[Result]:
        pair = Pair(
            borrower_mem=f"{BORROWER_MIB}M", lender_mem=f"{LENDER_MIB}M", disk=Disk(f"{2 * FILE_MIB}M"),
            lender_reports=trial.side == REPORTS,
        )  # fmt: skip
        with pair:
            stress(pair.lender, f"anon {TOUCHED_MIB}")
            pair.borrower.sh(WRITE)
            merges = trial.side in (SEALED, CLEAR)
            before = {} if merges else {"before_mib": _settled(pair.lender)}
            _lend(pair, "None" if trial.side == CLEAR else "AES-GCM")
            with _merging() if merges else nullcontext():
                during = _held(pair) | ({"merged_mib": _merged(pair.lender)} if merges else {})
            pair.disconnect()
            after = {} if merges else {"after_mib": _settled(pair.lender)}
            pair.assert_clean()
            figures = before | during | after
        return [Result({}, figures)]

    def draw(self, rows: Rows, target: Path) -> None:
        found = estimates(rows)
        plots.sides(
            {what: {side: _of(found, side)[name] for side in (NEITHER, REPORTS)} for what, name in HELD}, target
        )

    def table(self, rows: Rows) -> str:
        found = estimates(rows)
        lines = [[what, *(_shown(_of(found, side), name) for side in SIDES)] for what, name in LINES]
        return report.table(["MiB", *SIDES], lines)

    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        known = cells(rows)
        reports, sealed = _of(known, REPORTS), _of(known, SEALED)
        rise = [lent - before for lent, before in zip(reports["during_mib"], reports["before_mib"], strict=True)]
        costs = ratio(rise, reports["lent_mib"])
        back = ratio(reports["after_mib"], reports["before_mib"])
        merged = estimate([one / lent for one, lent in zip(sealed["merged_mib"], sealed["lent_mib"], strict=True)])
        return [
            (f"{REPORTS}: lending costs the host at most {MOST_OVER} times what is lent", report.times(costs),
             costs.median <= MOST_OVER),
            (f"{REPORTS}: the host has it back, except a tenth of what it had to hold", report.times(back),
             back.median <= MOST_LEFT),
            ("KSM learns nothing of encrypted pages: parts of them that it merges", report.spread(merged),
             merged.median <= MOST_MERGED),
        ]  # fmt: skip


HELD = (
    ("held by the host, nothing lent", "before_mib"),
    ("held while it lends", "during_mib"),
    ("held when all is back", "after_mib"),
)
LINES = (
    *HELD,
    ("lent", "lent_mib"),
    ("merged by KSM while it lends", "merged_mib"),
)


def _of(found: Mapping[Cell, T], side: str) -> T:
    return found[Cell.of(side, {}, {})]


def _shown(figures: Mapping[str, Estimate], name: str) -> str:
    return report.interval(figures[name]) if name in figures else "-"


def _settled(guest: Guest) -> float:
    """MiB that the host holds, once that does not fall any more."""
    least, since = guest.resident(), time.monotonic()

    def is_still() -> bool:
        nonlocal least, since
        if (now := guest.resident()) < least - STILL_MIB * MIB:
            least, since = now, time.monotonic()
        return time.monotonic() - since >= SETTLED_SECONDS

    wait_until("the host has what the guest does not need", is_still, PATIENCE_SECONDS, every=1)
    return guest.resident() / MIB


def _lend(pair: Pair, encryption: str) -> None:
    """All of the file is lent, a piece at a time."""
    pair.b.load(f"put_buffers={BUFFERS}")
    pair.connect(size=2 * FILE_MIB * MIB, more={"encryption": encryption, "strategy": "NonInclusive"})
    for piece in [*range(0, FILE_MIB, PIECE_MIB)] * MOST_PASSES:
        pair.borrower.sh(f"dd if=/mnt/file of=/dev/null bs=1M skip={piece} count={PIECE_MIB} 2>/dev/null")
        pair.evict()
        if pair.lent()["lent_pages"] * PAGE >= FULL * FILE_MIB * MIB:
            return
    raise AssertionError(f"not all is lent: {pair.borrowed()}")


def _held(pair: Pair) -> Figures:
    return {
        "lent_mib": pair.lent()["lent_pages"] * PAGE / MIB,
        "during_mib": pair.lender.resident() / MIB,
    }


def _merged(guest: Guest) -> float:
    """MiB of a guest that KSM has as one page with others."""
    said = dict(line.split() for line in Path(f"/proc/{guest.pid}/ksm_stat").read_text().replace(":", "").splitlines())
    return int(said["ksm_merging_pages"]) * PAGE / MIB


@contextmanager
def _merging() -> Iterator[None]:
    """Once KSM has seen all; afterwards it is as before, and has merged nothing."""
    before = {name: (KSM / name).read_text() for name in ("run", *SCAN)}
    for name, value in SCAN.items():
        (KSM / name).write_text(value)
    (KSM / "run").write_text("1")
    first = int((KSM / "full_scans").read_text())

    def has_seen_all() -> bool:
        return int((KSM / "full_scans").read_text()) >= first + SCANS

    try:
        wait_until("KSM has seen all", has_seen_all, PATIENCE_SECONDS, every=0.5)
        yield
    finally:
        (KSM / "run").write_text("2")
        for name, value in before.items():
            (KSM / name).write_text(value)
