"""What the module costs a guest that has no peer: work of the kernel's, with it and without it by turns."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest

from bed.guest import Guest
from bed.image import TOP
from bed.measure import counted_guest, idle_costs, idle_times
from bed.sources import MODULE, sources

TURNS = 15
MOST = 0.01
RECORD = TOP / "build" / "cost.json"


@pytest.fixture
def lone(kernel: str) -> Iterator[Guest]:
    """A guest without a peer."""
    with counted_guest(kernel) as guest:
        yield guest


def _lines() -> dict[str, int]:
    """Lines of the module by file."""
    return {str(file.relative_to(MODULE)): len(file.read_text().splitlines()) for file in sources()}


def _keep(kernel: str, figures: dict[str, object]) -> None:
    """Puts one kernel's figures into the record, beside those of the others."""
    kernels = json.loads(RECORD.read_text())["kernels"] if RECORD.exists() else {}
    lines = _lines()
    record = {"lines": {**lines, "all": sum(lines.values())}, "kernels": {**kernels, kernel: figures}}
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


@pytest.mark.long
def test_costs_nothing_without_a_peer(kernel: str, lone: Guest) -> None:
    """Loaded or not, and with ghost mode: processor time of the same work within a percent; build/cost.json."""
    times = idle_times(lone, TURNS)
    median = {name: statistics.median(values) for name, values in times.items()}
    cost = idle_costs(times)
    _keep(kernel, {"seconds": median, "cost": cost, "runs": times})
    print(f"\n{kernel}: {cost}")
    assert cost["loaded"] < MOST
    assert cost["ghost"] < MOST
    lone.assert_clean()
