"""Data disks, made before any guest boots, cached by what is in them."""

from __future__ import annotations

import os
import random
import subprocess
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


def repository(mib: int) -> Path:
    """A disk with a bare git repository of so many MiB: /repository.git."""
    return store.entry("bench-data", key("repository", mib), lambda out: _repository(mib, out)) / "disk"


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


BLOB = 1 << 16
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
COMMIT = "commit refs/heads/main\ncommitter Bench <bench@example.org> {when} +0000\ndata 4\nmore\n"


def _repository(mib: int, out: Path) -> None:
    """A commit for each MiB, of files that no compression makes smaller."""
    with step(f"making a disk with a git repository of {mib} MiB"):
        bare = out / "content" / "repository.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], check=True, env={**os.environ, **GIT})
        command = ["git", "--git-dir", str(bare), "-c", "core.compression=0", "fast-import", "--quiet"]
        subprocess.run(command, check=True, input=_history(mib), env={**os.environ, **GIT})
        make_image(out / "disk", out / "content", mib * 9 // 8 + 64)


def _history(mib: int) -> bytes:
    """What `git fast-import` reads."""
    chance, parts = random.Random(mib), []
    for commit in range(mib):
        parts.append(COMMIT.format(when=1_000_000_000 + commit).encode())
        for number in range(PIECE // BLOB):
            blob = chance.randbytes(BLOB)
            parts.append(f"M 100644 inline {commit}/{number}\ndata {BLOB}\n".encode() + blob + b"\n")
    return b"".join(parts)
