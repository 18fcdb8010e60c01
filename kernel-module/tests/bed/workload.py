"""What guests have to do: the stress program (tests/stress), its report as a dictionary; and other commands beside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bed.channel import Result
from bed.guest import Guest, GuestError, Job
from bed.image import stress_program

Report = dict[str, Any]


@contextmanager
def running(guest: Guest, command: str, times: int) -> Iterator[None]:
    """The command, several times at once; none may end before it is killed here."""
    jobs = [guest.start(command) for _ in range(times)]
    try:
        yield
        assert all(job.running for job in jobs)
    finally:
        for job in jobs:
            job.kill()


def start_stress(guest: Guest, arguments: str, before: str = "true") -> Job:
    """Start it, after a command in the same shell, and go on; give the job to `finish_stress` later."""
    return guest.start(f"{before} && exec stress {arguments}")


def finish_stress(job: Job, timeout: float = 300.0, *, wrong: bool = False) -> Report:
    """Its report; a failed system call raises, and a wrong page where none is expected."""
    result = job.result(timeout)
    if result.code not in ((0, 1) if wrong else (0,)):
        raise GuestError(f"{job.guest.name}: `{job.command}` ended with {result.code}\n{result.output}")
    return _report(result)


def end_stress(job: Job, *, wrong: bool = False) -> Report:
    """The report of one that would go on."""
    job.guest.sh("kill -TERM $(pidof stress)")
    return finish_stress(job, wrong=wrong)


def stress(guest: Guest, arguments: str, timeout: float = 300.0) -> Report:
    """Run it: no wrong page, no failed call."""
    return finish_stress(start_stress(guest, arguments), timeout)


def wrong_pages(guest: Guest, arguments: str, timeout: float = 300.0) -> int:
    """Run it where wrong pages are expected; how many it saw."""
    return int(finish_stress(start_stress(guest, arguments), timeout, wrong=True)["wrong_pages"])


def lost_blocks(image: Path, notes: int) -> int:
    """How many blocks of a disk are older than what its notes, which begin at that byte, say was acknowledged."""
    command: list[str | Path] = [stress_program(), "endured", image, f"notes={notes}"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    report = _report(Result(run.returncode, run.stdout))
    if not report or report["errors"]:
        raise GuestError(f"{image}: {run.stdout}{run.stderr}")
    assert report["acknowledged"] > 0, "so early a cut shows nothing"
    return int(report["wrong_pages"])


def _report(result: Result) -> Report:
    lines = result.output.splitlines()
    report: Report = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return report
