"""The sources of an earlier commit, in a folder of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tidepool_lab import paths


def named(commit: str) -> str:
    """The commit's whole name."""
    return git("rev-parse", "--verify", f"{commit}^{{commit}}")


def unpacked(of: str, kind: str, change: Callable[[Path], object] = lambda _: None) -> Path:
    """Its sources with this tree's programs of Python, in build/KIND; what was built of them is kept.

    `change` is made to them before anybody sees them.
    """
    folder = paths.BUILD / kind / of[:12]
    if not folder.exists():
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        (fresh / "build").mkdir(parents=True)
        archive = subprocess.run(["git", "archive", of], cwd=paths.ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", fresh], input=archive.stdout, check=True)
        (fresh / "build/venv").symlink_to((paths.BUILD / "venv").resolve())
        change(fresh)
        fresh.rename(folder)
    return folder


def git(*arguments: str) -> str:
    """What git says of this repository."""
    done = subprocess.run(["git", *arguments], cwd=paths.ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
