"""What a lender costs its host: with free page reporting, without, and where the host merges equal pages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bed.guest import PAGE, Disk, Guest
from bed.pair import Pair
from bed.tidepool import MIB, wait_until
from bed.workload import stress
from bench import plots, report
from bench.experiments.base import Experiment, Rows
from bench.summary import Cell, Estimate, cells, estimates, ratio
from bench.trial import Figures, Result, Trial, alternating

T = TypeVar("T")
NEITHER, REPORTS, SEALED, CLEAR = "neither", "free page reporting", "KSM", "KSM, pages in the clear"
SIDES = (NEITHER, REPORTS, SEALED, CLEAR)
BORROWER_MIB, LENDER_MIB, TOUCHED_MIB, FILE_MIB = 256, 384, 240, 96
# Few different pages, which is the best that KSM can find.
WRITE = f"yes tidepool | head -c {FILE_MIB * MIB} > /mnt/file && sync"
KSM = Path("/sys/kernel/mm/ksm")
# Hard, and without passing over pages that it could not merge before, which Linux 6.7 and later do.
SCAN = {"pages_to_scan": "20000", "sleep_millisecs": "20", "smart_scan": "0"}
SCANS = 3  # the rest of one, one that learns what a page has, and one that merges those that still have it
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
            encryption = "None" if trial.side == CLEAR else "AES-GCM"
            figures = (_merged if trial.side in (SEALED, CLEAR) else _given_back)(pair, encryption)
            pair.assert_clean()
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
        costs = ratio(_rise(reports, "before_mib", "during_mib"), reports["lent_mib"])
        back = ratio(reports["after_mib"], reports["before_mib"])
        merged = ratio(_rise(sealed, "merged_before_mib", "merged_mib"), sealed["lent_mib"])
        return [
            (f"{REPORTS}: lending costs the host at most {MOST_OVER} times what is lent", report.times(costs),
             costs.median <= MOST_OVER),
            (f"{REPORTS}: the host has it back, except a tenth of what it had to hold", report.times(back),
             back.median <= MOST_LEFT),
            ("KSM learns nothing of encrypted pages: what it merges more than before, of what is lent",
             report.spread(merged), merged.median <= MOST_MERGED),
        ]  # fmt: skip


HELD = (
    ("held by the host, nothing lent", "before_mib"),
    ("held while it lends", "during_mib"),
    ("held when all is back", "after_mib"),
)
LINES = (
    *HELD,
    ("lent", "lent_mib"),
    ("merged by KSM, nothing lent", "merged_before_mib"),
    ("merged by KSM while it lends", "merged_mib"),
)


def _of(found: Mapping[Cell, T], side: str) -> T:
    return found[Cell.of(side, {}, {})]


def _rise(figures: Mapping[str, list[float]], before: str, during: str) -> list[float]:
    """By how much a figure is higher while it lends, repetition by repetition."""
    return [now - then for then, now in zip(figures[before], figures[during], strict=True)]


def _shown(figures: Mapping[str, Estimate], name: str) -> str:
    return report.interval(figures[name]) if name in figures else "-"


def _given_back(pair: Pair, encryption: str) -> Figures:
    """What the host has to hold before the lender lends, while it does, and afterwards."""
    before = _settled(pair.lender)
    _lend(pair, encryption)
    during = _held(pair)
    pair.disconnect()
    return {"before_mib": before, **during, "after_mib": _settled(pair.lender)}


def _merged(pair: Pair, encryption: str) -> Figures:
    """What KSM merges before the lender lends, and while it does."""
    with _ksm():
        before = _seen_by_ksm(pair.lender)
        _lend(pair, encryption)
        during = _seen_by_ksm(pair.lender)
        held = _held(pair)
    pair.disconnect()
    return {"merged_before_mib": before, "merged_mib": during, **held}


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


@contextmanager
def _ksm() -> Iterator[None]:
    """KSM looks when it is told to, and hard; afterwards it is as before, and has merged nothing."""
    before = {name: (KSM / name).read_text() for name in ("run", *SCAN) if (KSM / name).exists()}
    _set_ksm(SCAN)
    try:
        yield
    finally:
        _set_ksm({"run": "2"})
        _set_ksm(before)


def _seen_by_ksm(guest: Guest) -> float:
    """MiB of a guest that KSM has as one page with others, once it has seen all; then it stands still."""
    first = _scans()
    _set_ksm({"run": "1"})
    wait_until("KSM has seen all", lambda: _scans() >= first + SCANS, PATIENCE_SECONDS, every=0.5)
    _set_ksm({"run": "0"})
    said = dict(line.split() for line in Path(f"/proc/{guest.pid}/ksm_stat").read_text().replace(":", "").splitlines())
    return int(said["ksm_merging_pages"]) * PAGE / MIB


def _scans() -> int:
    return int((KSM / "full_scans").read_text())


def _set_ksm(values: Mapping[str, str]) -> None:
    """Those that this kernel has."""
    for name, value in values.items():
        if (KSM / name).exists():
            (KSM / name).write_text(value)
