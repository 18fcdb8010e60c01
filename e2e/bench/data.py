"""Data disks, made before any guest boots, cached by what is in them."""

from __future__ import annotations

import random
from pathlib import Path

from bench.tools import EXT4, make_image
from tidepool_lab import store
from tidepool_lab.progress import step

PIECE = 1 << 20


def key(what: str, *made_of: object) -> str:
    """The name of a disk in the cache."""
    return f"{what}-{store.digest(*map(str, made_of), *EXT4)}"


def empty(mib: int) -> Path:
    """A disk with an empty file system."""

    def make(out: Path) -> None:
        (out / "content").mkdir()
        make_image(out / "disk", out / "content", mib)

    return store.entry("bench-data", key("empty", mib), make) / "disk"


def one_file(mib: int, room: int = 0) -> Path:
    """A disk with one file of so many MiB that no compression makes smaller: /file, and room for others."""
    return store.entry("bench-data", key("file", mib, room), lambda out: _one_file(mib, room, out)) / "disk"


def _one_file(mib: int, room: int, out: Path) -> None:
    with step(f"making a disk with a file of {mib} MiB"):
        content, chance = out / "content", random.Random(mib)
        content.mkdir()
        with (content / "file").open("wb") as file:
            for _ in range(mib):
                file.write(chance.randbytes(PIECE))
        make_image(out / "disk", content, mib * 9 // 8 + 64 + room)
        (content / "file").unlink()
        content.rmdir()
