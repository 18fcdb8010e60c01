"""What dm-log-writes has noted of a disk: in which order a volatile cache let it get there. Pure but for files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

SECTOR = 512
SUPER, ENTRY = struct.Struct("<3QI"), struct.Struct("<4Q")
MAGIC = 0x6A736677736872
DISCARD = 4


@dataclass(frozen=True)
class Entry:
    """One request: the sector where it begins, and what was written; nothing if it was a flush."""

    sector: int
    data: bytes


def entries(log: BinaryIO, start: int) -> Iterator[Entry]:
    """The requests that reached the disk for good, in order, from a log that begins at byte `start`.

    Of what was written between two flushes any part may have.
    """
    log.seek(start)
    magic, _, count, size = SUPER.unpack(log.read(SUPER.size))
    assert (magic, size) == (MAGIC, SECTOR)
    at = start + SECTOR
    for _ in range(count):
        log.seek(at)
        sector, sectors, flags, _ = ENTRY.unpack(log.read(ENTRY.size))
        stored = 0 if flags & DISCARD else sectors * SECTOR
        log.seek(at + SECTOR)
        yield Entry(sector, bytes(sectors * SECTOR) if flags & DISCARD else log.read(stored))
        at += SECTOR + stored


def replay(log: Path, start: int, disk: Path, size: int) -> Iterator[int]:
    """Makes a disk of zeros and gives it one request after the other; yields their number after each."""
    with log.open("rb") as source, disk.open("wb") as target:
        target.truncate(size)
        for number, entry in enumerate(entries(source, start), 1):
            target.seek(entry.sector * SECTOR)
            target.write(entry.data)
            target.flush()
            yield number
