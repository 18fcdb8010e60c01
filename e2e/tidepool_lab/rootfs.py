"""Debian root file systems as tar files, made by mmdebstrap and cached by everything that goes into them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tidepool_lab import debian, store
from tidepool_lab.progress import step

# Nothing in a lab reads documentation, and tests need no other language.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*")
CLEANUP = (
    'rm -rf "$1"/var/cache/apt "$1"/var/lib/apt/lists "$1"/var/cache/debconf "$1"/var/log/apt "$1"/var/log/dpkg.log'
)


@dataclass(frozen=True)
class Recipe:
    """What a root file system is made of. Hooks are mmdebstrap's: shell commands that get the root as `$1`."""

    name: str
    suite: str
    packages: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    inputs: tuple[str, ...] = field(default=())  # digests of files that the hooks read

    def key(self) -> str:
        """Names the result; the archive is not part of it, so a cached one stays until the recipe changes."""
        return f"{self.name}-{store.digest(self.suite, *self.packages, *LEFT_OUT, CLEANUP, *self.hooks, *self.inputs)}"


def build(recipe: Recipe) -> Path:
    """The tar file of a recipe."""
    return store.entry("rootfs", recipe.key(), lambda out: _bootstrap(recipe, out)) / "root.tar"


def _bootstrap(recipe: Recipe, out: Path) -> None:
    excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    hooks = [f"--customize-hook={hook}" for hook in (*recipe.hooks, CLEANUP)]
    with step(f"making the root file system {recipe.name} (Debian {recipe.suite}, about 1 min)"):
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                "--variant=minbase",
                f"--include={','.join(recipe.packages)}",
                *excludes,
                *hooks,
                recipe.suite,
                str(out / "root.tar"),
                *debian.sources(recipe.suite),
            ],
            env={**os.environ, "SOURCE_DATE_EPOCH": "0"},  # the same packages give the same bytes
            check=True,
        )
