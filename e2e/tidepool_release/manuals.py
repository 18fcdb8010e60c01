"""The man pages of a release, made from the sources as `make docs` makes them."""

from __future__ import annotations

import functools
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tidepool_lab import paths

PARTS = ("docs/site", "crds", "kubectl-plugin")


def page(name: str) -> bytes:
    """A page by its name, such as `tidepool.4`, in troff."""
    return _pages()[name]


def install(name: str, root: Path) -> None:
    """Puts a page, compressed, where `man` looks for it below `root`."""
    folder = root / f"usr/share/man/man{name.rpartition('.')[2]}"
    folder.mkdir(parents=True)
    (folder / f"{name}.gz").write_bytes(gzip.compress(page(name), mtime=0))


@functools.cache
def _pages() -> Mapping[str, bytes]:
    environment = {**os.environ, "PYTHONPATH": ":".join(str(paths.ROOT / part) for part in PARTS)}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "tidepool_site.man", folder], check=True, env=environment)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
