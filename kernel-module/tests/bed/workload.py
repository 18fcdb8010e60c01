"""The stress program in a guest (tests/stress), its report as a dictionary."""

from __future__ import annotations

import json
from typing import Any

from bed.channel import Result
from bed.guest import Guest, GuestError, Job

Report = dict[str, Any]


def start_stress(guest: Guest, arguments: str, before: str = "true") -> Job:
    """Start it, after a command in the same shell, and go on; give the job to `finish_stress` later."""
    return guest.start(f"{before} && exec stress {arguments}")


def finish_stress(job: Job, timeout: float = 300.0) -> Report:
    """Its report; a wrong page or a failed system call raises."""
    result = job.result(timeout)
    if result.code != 0:
        raise GuestError(f"{job.guest.name}: `{job.command}` ended with {result.code}\n{result.output}")
    return _report(result)


def stress(guest: Guest, arguments: str, timeout: float = 300.0) -> Report:
    """Run it: no wrong page, no failed call."""
    return finish_stress(start_stress(guest, arguments), timeout)


def wrong_pages(guest: Guest, arguments: str, timeout: float = 300.0) -> int:
    """Run it where wrong pages are expected; how many it saw."""
    result = start_stress(guest, arguments).result(timeout)
    if result.code not in (0, 1):
        raise GuestError(f"{guest.name}: stress {arguments} ended with {result.code}\n{result.output}")
    return int(_report(result)["wrong_pages"])


def _report(result: Result) -> Report:
    lines = result.output.splitlines()
    report: Report = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return report
