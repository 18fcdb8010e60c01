"""Reads whole files; fills a side before it is measured, in the same way for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.machine import Machine
from bench.sides import Side

MOST_PASSES = 8
STILL_GROWING = 0.02
READ_EVERYTHING = (
    "fio --name=warm --filename={path} --rw=randread --bs=64k --ioengine=psync --invalidate=0 --randrepeat=0"
    " --readonly --minimal >/dev/null"
)


def warm_up(machine: Machine, side: Side, path: str, bytes_of: int) -> float:
    """Reads everything of a file again and again, the disk being fast meanwhile, until the side holds no more of it.

    The order is by chance, in pieces of 64 KiB, so that no filter takes it for a stream. Returns the part of the file
    that the side holds in the end.
    """
    fill(machine, side, lambda: read_everything(machine, [path]), bytes_of)
    return side.held(machine) / bytes_of


def read_everything(machine: Machine, paths: Sequence[str]) -> None:
    """Reads files in pieces of 64 KiB whose order is by chance."""
    machine.tool(machine.borrower, READ_EVERYTHING.format(path=":".join(paths)))


def fill(machine: Machine, side: Side, once: Callable[[], object], bytes_of: int, passes: int = MOST_PASSES) -> None:
    """Does something again and again, the disk being fast meanwhile, until the side holds no more of the data."""
    before = 0.0
    with machine.fast_disk():
        for _ in range(passes):
            once()
            held = side.held(machine) / bytes_of
            if held - before < STILL_GROWING:
                break
            before = held


def read_in_order(machine: Machine, path: str) -> float:
    """Reads a file from its beginning; how many seconds that took."""
    said = machine.tool(machine.borrower, f"dd if={path} of=/dev/null bs=1M 2>&1")
    # its last line is such as `268435456 bytes (268 MB, 256 MiB) copied, 3.1 s, 86 MB/s`
    return float(said.splitlines()[-1].split(" copied, ")[1].split()[0])
