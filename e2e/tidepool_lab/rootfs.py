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
NATIVE = "amd64"
# Packages of another architecture are unpacked only: nothing of it can run here. This does what their scripts would.
UNPACKED = ("base-files", "base-passwd")
SCRIPTS = (
    'cp "$1"/usr/share/base-passwd/passwd.master "$1"/etc/passwd',
    'cp "$1"/usr/share/base-passwd/group.master "$1"/etc/group',
    (
        '[ ! -d "$1"/usr/share/ca-certificates ] || '
        'cat "$1"/usr/share/ca-certificates/mozilla/*.crt > "$1"/etc/ssl/certs/ca-certificates.crt'
    ),
    (
        'for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -f "$deb"; '
        'echo "Status: install ok installed"; echo; done > "$1"/var/lib/dpkg/status'
    ),
    f'cd "$1" && rm -rf {" ".join(pattern.strip("/*") for pattern in LEFT_OUT)}',
)


@dataclass(frozen=True)
class Recipe:
    """What a root file system is made of. Hooks are mmdebstrap's: shell commands that get the root as `$1`."""

    name: str
    suite: str
    packages: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    inputs: tuple[str, ...] = field(default=())  # digests of files that the hooks read
    architecture: str = NATIVE

    def key(self) -> str:
        """Names the result; the archive is not part of it, so a cached one stays until the recipe changes."""
        made_of = (self.suite, *self.packages, *LEFT_OUT, CLEANUP, *self.hooks, *self.inputs)
        foreign = () if self.is_native else (self.architecture, *UNPACKED, *SCRIPTS)
        return f"{self.name}-{store.digest(*made_of, *foreign)}"

    @property
    def is_native(self) -> bool:
        """Whether its programs run here."""
        return self.architecture == NATIVE

    @property
    def way(self) -> list[str]:
        """How mmdebstrap makes it."""
        if self.is_native:
            hooks = [f"--customize-hook={hook}" for hook in (*self.hooks, CLEANUP)]
            return ["--variant=minbase", f"--include={','.join(self.packages)}", *hooks]
        hooks = [f"--extract-hook={hook}" for hook in (*SCRIPTS, *self.hooks, CLEANUP)]
        packages = ",".join((*UNPACKED, *self.packages))
        return ["--variant=extract", f"--architectures={self.architecture}", f"--include={packages}", *hooks]


def build(recipe: Recipe) -> Path:
    """The tar file of a recipe."""
    return store.entry("rootfs", recipe.key(), lambda out: _bootstrap(recipe, out)) / "root.tar"


def _bootstrap(recipe: Recipe, out: Path) -> None:
    excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    with step(f"making the root file system {recipe.name} (Debian {recipe.suite} {recipe.architecture}, about 1 min)"):
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--mode=root",
                *recipe.way,
                *excludes,
                recipe.suite,
                str(out / "root.tar"),
                *debian.sources(recipe.suite),
            ],
            env={**os.environ, "SOURCE_DATE_EPOCH": "0"},  # the same packages give the same bytes
            check=True,
        )
