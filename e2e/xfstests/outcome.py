"""What became of a test, from what xfstests' `check` prints of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["passed", "failed", "not run", "too slow"]


@dataclass(frozen=True)
class Outcome:
    """One test, once: an entry of build/xfstests.json."""

    kernel: str
    filesystem: str
    pool: bool
    test: str
    verdict: Verdict
    why: str = ""
    seconds: int = 0
    puts: int = 0
    hits: int = 0

    @property
    def key(self) -> tuple[str, str, bool, str]:
        return self.kernel, self.filesystem, self.pool, self.test


def judge(printed: str) -> tuple[Verdict, str]:
    """The verdict on the one test that `check` ran, and why, if it is not the best."""
    if re.search(r"^Not run:", printed, re.MULTILINE):
        return "not run", _after(r"\[not run\] ?(.*)", printed)
    if re.search(r"^Failures:", printed, re.MULTILINE):
        return "failed", _after(r"(\[failed, .*\]|- output mismatch|_check_\S+: .*)", printed)
    if re.search(r"^Passed all 1 tests$", printed, re.MULTILINE):
        return "passed", ""
    lines = printed.split("\n")
    return "failed", f"check did not get to its end: {next(filter(str.strip, reversed(lines)), 'nothing printed')}"


def _after(pattern: str, printed: str) -> str:
    found = re.search(pattern, printed)
    return found[1].strip("- ") if found else ""


def findings(outcomes: list[Outcome]) -> list[Outcome]:
    """What failed with a pool and is not known to fail without."""
    bad = {one.key for one in outcomes if not one.pool and one.verdict in ("failed", "too slow")}
    return [one for one in outcomes if one.pool and one.verdict == "failed" and _without(one) not in bad]


def _without(one: Outcome) -> tuple[str, str, bool, str]:
    return one.kernel, one.filesystem, False, one.test
