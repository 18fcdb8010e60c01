"""Data disks, made before any guest boots, cached by what is in them."""

from __future__ import annotations

import random
from pathlib import Path

from bench.tools import make_image
from tidepool_lab import store
from tidepool_lab.progress import step

PIECE = 1 << 20


def empty(mib: int) -> Path:
    """A disk with an empty file system."""

    def make(out: Path) -> None:
        (out / "content").mkdir()
        make_image(out / "disk", out / "content", mib)

    return store.entry("bench-data", f"empty-{mib}", make) / "disk"


def one_file(mib: int) -> Path:
    """A disk with one file of so many MiB that no compression makes smaller: /file."""
    return store.entry("bench-data", f"file-{mib}", lambda out: _one_file(mib, out)) / "disk"


def _one_file(mib: int, out: Path) -> None:
    with step(f"making a disk with a file of {mib} MiB"):
        content, chance = out / "content", random.Random(mib)
        content.mkdir()
        with (content / "file").open("wb") as file:
            for _ in range(mib):
                file.write(chance.randbytes(PIECE))
        make_image(out / "disk", content, mib * 9 // 8 + 64)
        (content / "file").unlink()
        content.rmdir()
