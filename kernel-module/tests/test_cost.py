"""What the module costs a guest that has no peer: work of the kernel's, with it and without it by turns."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bed.guest import Disk, Guest, Spec
from bed.image import TESTS, TOP, build_module, fetch_kernel
from bed.tidepool import Tidepool
from bed.workload import stress

TURNS = 9
MOST = 0.01
RECORD = TOP / "build" / "cost.json"


@pytest.fixture
def lone(kernel: str) -> Iterator[Guest]:
    """One guest whose clock goes by the instructions that it executes, so that a percent can be seen."""
    files = fetch_kernel(kernel)
    folder = Path(tempfile.mkdtemp(prefix="tidepool-bed-", dir="/var/tmp"))
    spec = Spec("lone", "1024M", 1, Disk("1G", "ext4"), append="nokaslr", counted=True)
    guest = Guest.boot(spec, files, build_module(files), folder)
    try:
        guest.wait_ready(120)
        guest.mount("ext4")
        yield guest
    finally:
        guest.close()
        shutil.rmtree(folder, ignore_errors=True)


def _seconds(guest: Guest) -> float:
    return float(stress(guest, "work /mnt/work rounds=6")["processor_seconds"])


def _lines() -> dict[str, int]:
    """Lines of the module by file."""
    sources = sorted(path for path in TESTS.parent.iterdir() if path.suffix in (".c", ".h"))
    return {source.name: len(source.read_text().splitlines()) for source in sources}


def _keep(kernel: str, figures: dict[str, object]) -> None:
    """Puts one kernel's figures into the record, beside those of the others."""
    kernels = json.loads(RECORD.read_text())["kernels"] if RECORD.exists() else {}
    lines = _lines()
    record = {"lines": {**lines, "all": sum(lines.values())}, "kernels": {**kernels, kernel: figures}}
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


@pytest.mark.long
def test_costs_nothing_without_a_peer(kernel: str, lone: Guest) -> None:
    """Loaded or not, and with ghost mode: processor time of the same work within a percent; build/cost.json."""
    tidepool = Tidepool(lone)
    times: dict[str, list[float]] = {"unloaded": [], "loaded": [], "ghost": []}
    _seconds(lone)
    for _ in range(TURNS):
        times["unloaded"].append(_seconds(lone))
        tidepool.load()
        times["loaded"].append(_seconds(lone))
        tidepool.set("ghost", "NonInclusive")
        times["ghost"].append(_seconds(lone))
        tidepool.unload()
    median = {name: statistics.median(values) for name, values in times.items()}
    cost = {name: median[name] / median["unloaded"] - 1 for name in ("loaded", "ghost")}
    _keep(kernel, {"seconds": median, "cost": cost, "runs": times})
    print(f"\n{kernel}: {cost}")
    assert cost["loaded"] < MOST
    assert cost["ghost"] < MOST
    lone.assert_clean()
