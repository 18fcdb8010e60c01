"""Fills a side before it is measured, in the same way for each."""

from __future__ import annotations

from bench.machine import DISK_IOPS, Machine
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
    machine.borrower.throttle(0)
    before = -1.0
    for number in range(MOST_PASSES):
        machine.tool(machine.borrower, READ_EVERYTHING.format(path=path))
        held = side.held(machine) / bytes_of
        if number and held - before < STILL_GROWING:
            break
        before = held
    machine.borrower.throttle(DISK_IOPS)
    return side.held(machine) / bytes_of
