"""Which instructions of its kernel modules a guest executes, and how often, as its emulator tells of a traced one.

The emulator translates what runs from one jump to the next as a piece: it says of what instructions each is made when
it translates it, and names the piece whenever it runs.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bed.guest import Guest

# A kernel that boots on one processor takes the prefix out of its locked instructions, unless it is told not to.
LOCKED_AS_BUILT = "noreplace-smp"
LOG = "exec,in_asm,nochain"
INSTRUCTION = re.compile(r"0x([0-9a-f]+):  (?:[0-9a-f]{2} )+ *([a-z]\w*.*)")
RUN = re.compile(r"Trace \d+: \S+ \[(\w+/(\w+)/\w+/\w+)\]")
SYMBOL = re.compile(r"^([0-9a-f]+) [tT] (\S+)\t\[(\w+)\]$", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """Of a function of our module: what it has, how many of those lock the bus, and how often it was executed."""

    function: str
    entry: bool
    instructions: int
    locked: int
    times: int


@contextmanager
def executed(guest: Guest) -> Iterator[list[Piece]]:
    """What the guest executes of our module meanwhile; the list is filled at the end."""
    pieces: list[Piece] = []
    symbols, log = _symbols(guest), guest.folder / "executed"
    begin = log.stat().st_size if log.exists() else 0
    _switch(guest, LOG)
    try:
        yield pieces
    finally:
        _switch(guest, "none")
    pieces += _pieces(log, begin, symbols)


def _switch(guest: Guest, items: str) -> None:
    guest.monitor("human-monitor-command", {"command-line": f"log {items}"})


def _symbols(guest: Guest) -> list[tuple[int, str, str]]:
    """Address, name and module of each function of a module, in order."""
    return sorted((int(at, 16), name, module) for at, name, module in SYMBOL.findall(guest.read("/proc/kallsyms")))


def _pieces(log: Path, begin: int, symbols: list[tuple[int, str, str]]) -> list[Piece]:
    """What has run since the log was `begin` bytes long; what it is made of may have been said before."""
    addresses = [address for address, _, _ in symbols]
    pieces = []
    for (address, instructions), times in _runs(log, begin).items():
        start, function, module = symbols[max(bisect_right(addresses, address) - 1, 0)]
        if module == "tidepool":
            locked = sum(map(_locks, instructions))
            pieces.append(Piece(function, start == address, len(instructions), locked, times))
    return pieces


def _runs(log: Path, begin: int) -> Counter[tuple[int, tuple[str, ...]]]:
    """How often which instructions have run from an address on; a piece runs as soon as it is translated."""
    runs: Counter[tuple[int, tuple[str, ...]]] = Counter()
    known: dict[str, tuple[int, tuple[str, ...]]] = {}
    block: list[tuple[int, str]] = []
    at = 0
    with log.open("rb") as lines:
        for raw in lines:
            line, at = raw.decode(errors="replace"), at + len(raw)
            if line.startswith("IN:"):
                block = []
            elif found := INSTRUCTION.match(line):
                block.append((int(found[1], 16), found[2]))
            elif found := RUN.match(line):
                if block and block[0][0] == int(found[2], 16):
                    known[found[1]] = block[0][0], tuple(instruction for _, instruction in block)
                    block = []
                if at > begin and found[1] in known:
                    runs[known[found[1]]] += 1
    return runs


def _locks(instruction: str) -> bool:
    """Whether it has a line of the cache for itself alone; an exchange with memory always has."""
    return instruction.startswith("lock") or (instruction.startswith("xchg") and "(" in instruction)
