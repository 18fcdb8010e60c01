"""What the runner of xfstests makes of what `check` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from xfstests import record
from xfstests.outcome import Outcome, findings, judge

HEAD = "FSTYP         -- ext4\nPLATFORM      -- Linux/x86_64 (none) 6.1.0\n\n"
PASSED = f"{HEAD}generic/075 29s ...  31s\nRan: generic/075\nPassed all 1 tests\n"
NOT_RUN = f"{HEAD}generic/068 [not run] needs a freezer\nNot run: generic/068\nPassed all 1 tests\n"
FAILED = (
    f"{HEAD}generic/263 [failed, exit status 1]- output mismatch (see /tmp/results/generic/263.out.bad)\n"
    "    --- tests/generic/263.out\n    +++ /tmp/results/generic/263.out.bad\n"
    "Ran: generic/263\nFailures: generic/263\nFailed 1 of 1 tests\n"
)
DAMAGED = (
    f"{HEAD}generic/013       _check_generic_filesystem: filesystem on /dev/vda1 is inconsistent\n"
    "Ran: generic/013\nFailures: generic/013\nFailed 1 of 1 tests\n"
)


@pytest.mark.parametrize(
    ("printed", "verdict", "why"),
    [
        (PASSED, "passed", ""),
        (NOT_RUN, "not run", "needs a freezer"),
        (FAILED, "failed", "[failed, exit status 1]"),
        (DAMAGED, "failed", "_check_generic_filesystem: filesystem on /dev/vda1 is inconsistent"),
        (f"{HEAD}generic/075 29s ... \n", "failed", "check did not get to its end: generic/075 29s ... "),
        ("", "failed", "check did not get to its end: nothing printed"),
    ],
)
def test_verdict(printed: str, verdict: str, why: str) -> None:
    """Nothing passes but what `check` says has passed."""
    assert judge(printed) == (verdict, why)


def test_finding_is_what_the_pool_brings() -> None:
    """A test that fails without a pool as well is none, whether or not it fails on another kernel or file system."""
    failed = Outcome("6.1", "ext4", True, "generic/263", "failed")
    for other in (
        replace(failed, pool=False, verdict="passed"),
        replace(failed, pool=False, kernel="6.12"),
        replace(failed, pool=False, filesystem="xfs"),
        replace(failed, pool=False, test="generic/075"),
    ):
        assert findings([failed, other]) == [failed]
    assert findings([failed, replace(failed, pool=False)]) == []
    assert findings([replace(failed, verdict="too slow")]) == []


def test_latest_run_is_kept(tmp_path: Path) -> None:
    """Of each kernel, file system and test, with a pool and without."""
    file = tmp_path / "xfstests.json"
    first = Outcome("6.1", "ext4", True, "generic/075", "failed", "[failed]", 31, 5, 3)
    others = [replace(first, pool=False), replace(first, kernel="6.12"), replace(first, verdict="passed", why="")]
    for outcome in (first, *others):
        record.keep(outcome, file)
    assert sorted(record.known(file), key=str) == sorted(others, key=str)
