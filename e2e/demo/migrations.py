"""Guests that are live-migrated while the borrower reads: the reads that go on meanwhile, and when all has followed."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from demo import lab, module

TREE = module.TREE
FOLDER = "/run/reads"  # in the borrower's memory; the lab's own way into a guest ends when that moves
SAMPLE = f"date '+at %s.%N'; grep -sH '' {TREE}/stats {TREE}/lenders/*/stats; sleep 1"
SCRIPT = (
    "cd {folder}; ({reading}) > reports 2>&1 & "
    "until [ -e enough ]; do {sample}; done > samples; wait"
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """What the borrower's module had counted at a time of the host's clock."""

    at: float
    reading: module.Reading

    @property
    def pages(self) -> int:
        """Those that the lender is believed to have."""
        return self.reading.borrowing.get("catalog_pages", 0)


@dataclass(frozen=True)
class Seen:
    """What reads brought, and what was counted meanwhile."""

    reports: Sequence[Any]
    moments: Sequence[Moment]

    def assert_right(self) -> None:
        """No read has failed, and none brought a wrong byte."""
        assert self.reports
        for one in self.reports:
            assert one["wrong_pages"] == one["errors"] == 0, one

    def ratios(self) -> list[tuple[float, float]]:
        """The hit ratio between one look and the next, by the time of the latter."""
        return [(after.at, module.hit_ratio(module.difference(before.reading, after.reading)))
                for before, after in pairwise(self.moments)]  # fmt: skip

    def within(self, begin: float, end: float) -> Seen:
        """What was counted between two times."""
        return Seen(self.reports, [one for one in self.moments if begin <= one.at <= end])

    def ratio(self, begin: float, end: float) -> float:
        """The hit ratio between two times."""
        looks = [one.reading for one in self.within(begin, end).moments]
        return module.hit_ratio(module.difference(looks[0], looks[-1])) if looks else 0.0

    def longest_without(self) -> float:
        """The longest time, in seconds, in which no page came from the lender."""
        hits = [after.at for before, after in pairwise(self.moments)
                if module.remote_hits(after.reading) > module.remote_hits(before.reading)]  # fmt: skip
        return max((after - before for before, after in pairwise(hits)), default=float("inf"))


class Reads:
    """Reads of a borrower that go on by themselves, wherever it is; each page is compared with what was written."""

    def __init__(self, borrower: str, command: str) -> None:
        """`command` reads for some seconds, and prints a line of JSON; it is repeated."""
        self._borrower = borrower
        reading = f"until [ -e enough ]; do {command} || exit; done"
        script = SCRIPT.format(folder=FOLDER, reading=reading, sample=SAMPLE)
        run = f"systemd-run -q --collect --unit=reads bash -c {shlex.quote(script)}"
        self._ask(
            f"systemctl stop reads 2>/dev/null; rm -rf {FOLDER}; mkdir {FOLDER}; {run}"
        )  # of a failed test, if any
        self._clock = self._clocks()

    def end(self) -> Seen:
        """Ends them; what they brought."""
        clocks = self._clock, self._clocks()
        self._ask(f"touch {FOLDER}/enough; while systemctl -q is-active reads; do sleep 0.5; done")
        reports = [json.loads(line) for line in self._ask(f"cat {FOLDER}/reports").splitlines()]
        return Seen(reports, _moments(self._ask(f"cat {FOLDER}/samples"), *clocks))

    def _ask(self, command: str) -> str:
        return lab.guest(self._borrower, command)

    def _clocks(self) -> tuple[float, float]:
        """What the guest's clock says, and the host's: an emulated guest's may run at another speed."""
        before = time.time()
        guests = float(self._ask("date +%s.%N"))
        return guests, (before + time.time()) / 2


def _moments(text: str, begin: tuple[float, float], end: tuple[float, float]) -> list[Moment]:
    """Reads what SAMPLE prints; `begin` and `end` are what both clocks said."""
    speed = (end[1] - begin[1]) / (end[0] - begin[0])
    found = []
    for sample in text.split("at ")[1:]:
        at, _, counts = sample.partition("\n")
        found.append(Moment(begin[1] + (float(at) - begin[0]) * speed, module.parse(counts)))
    return [one for one in found if one.reading.borrowing]


def has_followed(guest: str, role: str, node: str) -> bool:
    """Whether agents and operator know a guest on its new node, and its pairing is connected there.

    `role` is its end of the pairing: `lender` or `borrower`.
    """
    found = lab.get("memoryguest", guest)
    pairing = next((one for one in lab.items("memorypairings") if one["spec"][role]["guest"] == guest), None)
    return bool(
        found
        and found["spec"]["nodeName"] == node
        and pairing
        and pairing["spec"][role]["nodeName"] == node
        and pairing["status"].get("phase") in ("Connected", "Unstable")  # it counts how often a connection was lost
    )
