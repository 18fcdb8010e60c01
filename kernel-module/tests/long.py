"""Every test on every kernel, the long ones too: what `make test` has no time for; `make stress` calls it.

long [--kernels 6.1,6.12,7.2,debug] [--published] [TEST_FILE...]
An interrupted run goes on: a file of tests that has passed is run again on the same kernel only when it, or the module,
has changed. What was run is in build/long.jsonl, or, with --published, in results.jsonl beside this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from bed.image import TESTS, TOP
from bed.sources import digest

KERNELS = ("6.1", "6.12", "7.2", "debug")
RECORD, PUBLISHED = TOP / "build" / "long.jsonl", TESTS / "results.jsonl"
NOTHING_CHOSEN = 5  # pytest's exit code


@dataclass(frozen=True)
class Outcome:
    """What became of one file's tests on one kernel; `sources` are those of the module and of the tests."""

    kernel: str
    tests: str
    sources: str
    passed: int
    failed: int
    seconds: int


def sources(tests: Path) -> str:
    """A digest of the module, but for its comments, and of one file of tests."""
    return digest(tests.read_bytes())


def known(record: Path) -> list[Outcome]:
    """What was run; `keep` has each kernel and file once."""
    return [Outcome(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []


def keep(record: Path, outcome: Outcome) -> None:
    """In place of an earlier outcome of the same kernel and file."""
    others = [one for one in known(record) if (one.kernel, one.tests) != (outcome.kernel, outcome.tests)]
    rows = sorted((asdict(one) for one in [*others, outcome]), key=lambda row: (row["kernel"], row["tests"]))
    record.parent.mkdir(exist_ok=True)
    record.write_text("".join(json.dumps(row) + "\n" for row in rows))


def missing(record: Path, kernels: Iterable[str], files: Iterable[Path]) -> list[tuple[str, Path]]:
    """What has not passed yet as it is now."""
    good = {(one.kernel, one.tests, one.sources) for one in known(record) if not one.failed}
    wanted = [(kernel, file) for kernel in kernels for file in files]
    return [(kernel, file) for kernel, file in wanted if (kernel, file.name, sources(file)) not in good]


def run(kernel: str, file: Path) -> Outcome:
    """Runs one file; on the debug kernel the tests that only it can run. A run that was ended has failed."""
    begin, digest = time.monotonic(), sources(file)
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = ["--kernel", kernel, "--long", "-q", "--junitxml", report.name]
        options += ["-m", "debug"] if kernel == "debug" else []
        code = subprocess.run([str(TESTS / "run"), *options, file.name], check=False).returncode
        passed, failed = counted(Path(report.name).read_text())
    if code not in (0, NOTHING_CHOSEN):
        failed = max(failed, 1)
    return Outcome(kernel, file.name, digest, passed, failed, round(time.monotonic() - begin))


def counted(report: str) -> tuple[int, int]:
    """How many tests passed and how many did not, of pytest's report in XML; who was ended has written none."""
    suite = ElementTree.fromstring(report).find("testsuite") if report else None
    if suite is None:
        return 0, 0
    count = {name: int(suite.attrib[name]) for name in ("tests", "errors", "failures", "skipped")}
    failed = count["errors"] + count["failures"]
    return count["tests"] - count["skipped"] - failed, failed


def main() -> int:
    """Everything that is missing; 1 if something has not passed."""
    parser = argparse.ArgumentParser(prog="long", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--published", action="store_true")
    parser.add_argument("files", nargs="*", type=Path, metavar="TEST_FILE")
    options = parser.parse_args()
    record = PUBLISHED if options.published else RECORD
    files = [TESTS / file.name for file in options.files] or sorted(TESTS.glob("test_*.py"))
    left = missing(record, options.kernels.split(","), files)
    for number, (kernel, file) in enumerate(left):
        print(f"== {number + 1} of {len(left)}: {file.name} on {kernel}", flush=True)
        outcome = run(kernel, file)
        keep(record, outcome)
        print(f"== {outcome.passed} passed, {outcome.failed} failed in {outcome.seconds} s", flush=True)
    return 1 if missing(record, options.kernels.split(","), files) else 0


if __name__ == "__main__":
    sys.exit(main())
