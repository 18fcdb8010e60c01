"""Reads whole files; fills a side before it is measured, in the same way for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.machine import Machine
from bench.programs import dd_seconds

MOST_PASSES = 8
STILL_BETTER = 0.02
WARM_IOPS = 320  # 20 MiB a second: no faster than what leaves the page cache can be sent on
READ_EVERYTHING = (
    "fio --name=warm --filename={path} --rw=randread --bs=64k --ioengine=psync --invalidate=0 --randrepeat=0"
    " --readonly --minimal --size={size} >/dev/null"
)


def warm_up(machine: Machine, path: str, size: int) -> float:
    """Reads everything of a file of `size` bytes again and again; see `fill`.

    The order is by chance, in pieces of 64 KiB, so that no filter takes it for a stream.
    """
    return fill(machine, lambda: read_everything(machine, [path]), size)


def fill(machine: Machine, once: Callable[[], object], size: int, passes: int = MOST_PASSES) -> float:
    """Does something again and again, until the disk is spared no more of it than in the pass before.

    The disk is faster meanwhile. Returns how much of the data, of `size` bytes, still came from the disk in the end.
    """
    machine.throttle(WARM_IOPS)
    missed = float("inf")
    for _ in range(passes):
        before, so_far = missed, machine.borrower.disk_read_bytes()
        once()
        missed = (machine.borrower.disk_read_bytes() - so_far) / size
        if missed < STILL_BETTER or before - missed < STILL_BETTER:
            break
    machine.hard_disk()
    return missed


def read_everything(machine: Machine, paths: Sequence[str], mib: int = 0) -> None:
    """Reads files, or their first MiB, in pieces of 64 KiB whose order is by chance."""
    size = f"{mib}m" if mib else "100%"
    machine.tool(machine.borrower, READ_EVERYTHING.format(path=":".join(paths), size=size))


def read_in_order(machine: Machine, path: str) -> float:
    """Reads a file from its beginning; how many seconds that took."""
    return dd_seconds(machine.tool(machine.borrower, f"dd if={path} of=/dev/null bs=1M 2>&1"))
