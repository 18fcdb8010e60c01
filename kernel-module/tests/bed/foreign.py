"""Programs of Debian's in a guest: their packages, and of the libraries in these what they load."""

from __future__ import annotations

import fcntl
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from bed.guest import Guest
from bed.image import CACHE, TOOLS

LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "lib64/ld-linux-x86-64.so.2"


def install(guest: Guest, package: str, program: str, *, suite: str = "bookworm", folder: str = "/") -> None:
    """Put `program` (a path as in its package) on a guest's path, or into a folder for command()."""
    root = _fetch(package, suite)
    files = {f"bin/{Path(program).name}": root / program, LOADER: _library(root, Path(LOADER).name)}
    files |= {f"lib/{path.name}": path for path in _needed(root, root / program)}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", dereference=True) as tar:
        for name, path in files.items():
            tar.add(path, name)
    guest.start(f"mkdir -p {folder} && tar -xz -C {folder}", archive.getvalue()).wait(120)


def command(name: str, folder: str) -> str:
    """What runs a program of a folder, with the C library of its own release."""
    return f"{folder}/{LOADER} --library-path {folder}/lib --argv0 {name} {folder}/bin/{name}"


def _fetch(package: str, suite: str) -> Path:
    """The package and all that it depends on, unpacked into the cache."""
    folder = CACHE / "programs" / (package if suite == "bookworm" else f"{package}-{suite}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                subprocess.run([TOOLS / "debian", "programs", suite, work, package], check=True)
                shutil.copytree(work, folder, symlinks=True)
    return folder


def _library(root: Path, name: str) -> Path:
    return next(path for path in (root / folder / name for folder in LIBRARIES) if path.exists())


def _needed(root: Path, program: Path) -> set[Path]:
    """The libraries that it loads, and those that these load."""
    found: set[Path] = set()
    new = {program}
    while new:
        names = {name for path in new for name in _names_needed(path)}
        new = {_library(root, name) for name in names} - found
        found |= new
    return found


def _names_needed(path: Path) -> list[str]:
    listed = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", listed.stdout)
