"""Every test on every kernel, the long ones too: what `make test` has no time for; `make stress` calls it.

long [--kernels 6.1,6.12,7.2,debug] [--quick] [--published] [TEST_FILE...]
An interrupted run goes on: a file of tests that has passed is run again on the same kernel only when it, or the module,
has changed. With --quick nobody waits for the long ones. What was run is in build/long.jsonl, or, with --published, in
results.jsonl beside this file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from bed.image import TESTS, TOP
from bed.sources import digest, unloaded

KERNELS = ("6.1", "6.12", "7.2", "debug")
RECORD, PUBLISHED = TOP / "build" / "long.jsonl", TESTS / "results.jsonl"
LOT = 8  # files of tests in one run, two at a time
RAN = (0, 1, 5)  # pytest's exit codes: all passed, some did not, there was none


@dataclass(frozen=True)
class Outcome:
    """What became of one file's tests on one kernel, with its long ones or not; `sources`: the module's and its own."""

    kernel: str
    tests: str
    sources: str
    passed: int
    failed: int
    seconds: int
    quick: bool = False


def sources(tests: Path) -> str:
    """A digest of the modules that one file of tests loads, but for their comments, and of that file."""
    content = tests.read_bytes()
    return digest(content, unloaded(content))


def known(record: Path) -> list[Outcome]:
    """What was run; `keep` has each kernel and file once."""
    return [Outcome(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []


def keep(record: Path, outcome: Outcome) -> None:
    """In place of an earlier outcome of the same kernel and file."""
    others = [one for one in known(record) if (one.kernel, one.tests) != (outcome.kernel, outcome.tests)]
    rows = sorted((asdict(one) for one in [*others, outcome]), key=lambda row: (row["kernel"], row["tests"]))
    record.parent.mkdir(exist_ok=True)
    record.write_text("".join(json.dumps(row) + "\n" for row in rows))


def missing(record: Path, kernels: Iterable[str], files: Iterable[Path], *, quick: bool) -> list[tuple[str, Path]]:
    """What has not passed yet as it is now; who passed with its long tests has passed without them, too."""
    good = {(one.kernel, one.tests, one.sources) for one in known(record) if not one.failed and one.quick <= quick}
    wanted = [(kernel, file) for kernel in kernels for file in files]
    return [(kernel, file) for kernel, file in wanted if (kernel, file.name, sources(file)) not in good]


def lots(left: list[tuple[str, Path]]) -> Iterator[tuple[str, list[Path]]]:
    """What is run together: some files on one kernel."""
    for kernel in dict.fromkeys(kernel for kernel, _ in left):
        files = [file for on, file in left if on == kernel]
        for first in range(0, len(files), LOT):
            yield kernel, files[first : first + LOT]


def run(kernel: str, files: list[Path], *, quick: bool) -> list[Outcome]:
    """Runs files; on the debug kernel the tests that only it can run. In a run that was ended all have failed."""
    digests = {file: sources(file) for file in files}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = ["--kernel", kernel, "-q", "--junitxml", report.name]
        options += ["-n", "auto", "--maxprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
        options += [] if quick else ["--long"]
        options += ["-m", "debug"] if kernel == "debug" else []
        code = subprocess.run([str(TESTS / "run"), *options, *(file.name for file in files)], check=False).returncode
        found = counted(Path(report.name).read_text())
    ended = code not in RAN
    return [
        Outcome(kernel, file.name, digest, *_sums(found.get(file.stem, Counter()), ended=ended), quick=quick)
        for file, digest in digests.items()
    ]


def _sums(count: Counter[str], *, ended: bool) -> tuple[int, int, int]:
    return count["passed"], max(count["failed"], int(ended)), count["milliseconds"] // 1000


def counted(report: str) -> dict[str, Counter[str]]:
    """How many tests of each file passed and failed, and their milliseconds, of pytest's report in XML."""
    found: dict[str, Counter[str]] = {}
    for case in ElementTree.fromstring(report).iter("testcase") if report else ():
        file = (case.get("classname") or case.get("name") or "").partition(".")[0]  # what is not collected has no class
        count = found.setdefault(file, Counter())
        bad = case.find("failure") is not None or case.find("error") is not None
        count["failed" if bad else "skipped" if case.find("skipped") is not None else "passed"] += 1
        count["milliseconds"] += round(float(case.get("time", 0)) * 1000)
    return found


def main() -> int:
    """Everything that is missing; 1 if something has not passed."""
    parser = argparse.ArgumentParser(prog="long", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("files", nargs="*", type=Path, metavar="TEST_FILE")
    options = parser.parse_args()
    record = PUBLISHED if options.published else RECORD
    files = [TESTS / file.name for file in options.files] or sorted(TESTS.glob("test_*.py"))
    left = missing(record, options.kernels.split(","), files, quick=options.quick)
    for kernel, lot in lots(left):
        print(f"== {', '.join(file.name for file in lot)} on {kernel}", flush=True)
        for outcome in run(kernel, lot, quick=options.quick):
            keep(record, outcome)
            print(f"== {outcome.tests}: {outcome.passed} passed, {outcome.failed} failed", flush=True)
    return 1 if missing(record, options.kernels.split(","), files, quick=options.quick) else 0


if __name__ == "__main__":
    sys.exit(main())
