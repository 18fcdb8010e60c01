"""The cache: a folder per thing, named by a digest of everything that it is made from.

An entry is built beside its final place and renamed, so that an interrupted build leaves nothing that looks finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidepool_lab import paths


def digest(*parts: str | bytes) -> str:
    """A short name for the sequence of parts; no two sequences share one."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def digest_files(files: Iterable[Path], base: Path) -> str:
    """A digest of names and contents."""
    parts: list[str | bytes] = []
    for file in sorted(files):
        parts += [str(file.relative_to(base)), file.read_bytes()]
    return digest(*parts)


def entry(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """The cached folder `kind/key`; `build` fills it the first time."""
    final = paths.cache() / kind / key
    if final.exists():
        return final
    with locked(kind, key):
        if not final.exists():
            _build(final, build)
    return final


@contextmanager
def locked(kind: str, key: str) -> Iterator[None]:
    """Holds the lock of one entry, against a second lab on the same cache."""
    folder = paths.cache() / kind
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(final: Path, build: Callable[[Path], None]) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    work.chmod(0o755)
    try:
        build(work)
        work.rename(final)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
