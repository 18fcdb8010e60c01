"""Archives that depend on names and contents alone."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

Content = bytes | Path
PROGRAM, FILE = 0o755, 0o644


def write_tar(target: Path, content: Mapping[str, Content]) -> None:
    """A plain tar file."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        _fill(archive, content)


def write_tgz(target: Path, content: Mapping[str, Content], when: int = 0) -> None:
    """A compressed one; `when` is what its files say of when they were changed, in seconds since 1970."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        _fill(archive, content, when)
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def tree(folder: Path, prefix: str = "") -> dict[str, Content]:
    """The files below a folder, by their names in an archive."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}{path.relative_to(folder)}": path for path in files}


def sha256(content: Content) -> str:
    """In hexadecimal digits."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def members(path: Path) -> Iterable[tuple[str, bytes]]:
    """The files of a tar file, compressed or not."""
    with tarfile.open(path) as archive:
        for member in archive:
            if file := archive.extractfile(member):
                yield member.name, file.read()


def _fill(archive: tarfile.TarFile, content: Mapping[str, Content], when: int = 0) -> None:
    for name in sorted(content):
        _add(archive, name, content[name], when)


def _add(archive: tarfile.TarFile, name: str, content: Content, when: int) -> None:
    member = tarfile.TarInfo(name)
    member.mtime, member.mode = when, FILE
    if isinstance(content, bytes):
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        return
    about = content.stat()
    member.size, member.mode = about.st_size, PROGRAM if about.st_mode & 0o100 else FILE
    with content.open("rb") as file:
        archive.addfile(member, file)
