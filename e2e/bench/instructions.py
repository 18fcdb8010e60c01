"""Instructions that counted guests execute."""

from __future__ import annotations

from collections.abc import Callable

from bed.measure import INSTRUCTIONS_PER_SECOND, processor_seconds
from bench.machine import Machine


def spent(machine: Machine, work: Callable[[], object]) -> dict[str, float]:
    """Those of `borrower` and `lender` for some work."""
    guests = {"borrower": machine.borrower, "lender": machine.lender}
    before = {end: processor_seconds(guest) for end, guest in guests.items()}
    work()
    return {end: (processor_seconds(guest) - before[end]) * INSTRUCTIONS_PER_SECOND for end, guest in guests.items()}
