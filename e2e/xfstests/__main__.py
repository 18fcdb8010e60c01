"""Runs tests of xfstests in a guest whose file systems are in a pool.

A test that fails with the pool is a finding, unless it is known to fail without: run it `--without`, too. What ran is
in build/xfstests.json, and what failed prints in build/xfstests/. Exits with 1 if there is a finding, or if no page
has come from the pool.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from pathlib import Path

from bed.guest import GuestError
from tidepool_lab.progress import say
from xfstests import programs, record
from xfstests.machine import Machine, booted
from xfstests.outcome import Outcome, Verdict, findings, judge

LIMIT_SECONDS = 600


def main() -> int:
    """The tests one after the other, in one borrower."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    archive = programs.archive(options.checkout)
    ran: list[Outcome] = []
    with booted(options.kernel, options.filesystem, archive, pool=not options.without) as machine:
        for test in options.test:
            ran.append(_run(machine, test, options))
            record.keep(ran[-1])
        complaint = machine.complaint()
    return _summary(ran, complaint, pool=not options.without)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="xfstests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="6.1", choices=["6.1", "6.12", "7.2", "debug"])
    parser.add_argument("--filesystem", default="ext4", choices=["ext4", "xfs", "btrfs"])
    parser.add_argument("--without", action="store_true", help="the same guest without the module")
    parser.add_argument("--limit", type=int, default=LIMIT_SECONDS, help=f"seconds a test, default {LIMIT_SECONDS}")
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="a git checkout of xfstests")
    parser.add_argument("test", nargs="+", metavar="TEST", help="generic/075, or 075")
    options = parser.parse_args()
    if not (options.checkout / "tests/generic").is_dir() or not (options.checkout / ".git").exists():
        parser.error(f"CHECKOUT {options.checkout}: it is no git checkout of xfstests")
    options.test = [_named(parser, options.checkout, each) for each in options.test]
    return options


def _named(parser: argparse.ArgumentParser, checkout: Path, test: str) -> str:
    name = f"generic/{test}" if re.fullmatch(r"\d{3}", test) else test
    if not re.fullmatch(r"generic/\d{3}", name) or not (checkout / "tests" / name).is_file():
        parser.error(f"TEST {test}: {checkout} has no such test of the generic group")
    return name


def _run(machine: Machine, test: str, options: argparse.Namespace) -> Outcome:
    before, begun = machine.flowed(), time.monotonic()
    printed, late = machine.check(test, options.limit)
    seconds = round(time.monotonic() - begun)
    verdict: Verdict
    verdict, why = ("too slow", f"more than {options.limit} s") if late else judge(printed)
    if complaint := machine.complaint():
        verdict, why = "failed", complaint.splitlines()[0]
    puts, hits = (after - earlier for after, earlier in zip(machine.flowed(), before, strict=True))
    pool = not options.without
    outcome = Outcome(options.kernel, options.filesystem, pool, test, verdict, why, seconds, puts, hits)
    say(f"{test} {verdict} {why} ({seconds} s, {puts:,} puts, {hits:,} hits)")
    if verdict in ("failed", "too slow"):
        log = record.keep_log(outcome, "\n\n".join([printed, machine.notes(test), complaint]))
        say(f"  see {log}")
    return outcome


def _summary(ran: list[Outcome], complaint: str, *, pool: bool) -> int:
    for verdict in ("passed", "failed", "not run", "too slow"):
        if tests := [one.test for one in ran if one.verdict == verdict]:
            say(f"{verdict}: {len(tests)}: {' '.join(tests)}")
    if not pool:
        return 0
    puts, hits = sum(one.puts for one in ran), sum(one.hits for one in ran)
    say(f"{puts:,} pages were put, {hits:,} came from the pool")
    now = {one.key for one in ran}
    found = [one for one in findings(record.known()) if one.key in now]
    for one in found:
        say(f"{one.test} failed with the pool; nothing says that it does without")
    if complaint:
        say(complaint)
    return 1 if found or complaint or not puts or not hits else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GuestError as error:
        sys.exit(str(error))
