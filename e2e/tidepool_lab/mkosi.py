"""mkosi of Debian 13, which makes images of guests; what it runs is in a root file system of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tidepool_lab import debian, rootfs, store

PACKAGES = (
    "mkosi", "apt", "cpio", "debian-archive-keyring", "dosfstools", "e2fsprogs", "kmod", "mtools", "reprepro",
    "systemd-repart", "systemd-ukify", "udev", "zstd",
)  # fmt: skip
SCRIPT = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH="$here/tools/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 -m mkosi --tools-tree="$here/tools" --sandbox-tree="$here/archives:/etc/apt/sources.list.d" "$@"
"""


def program() -> Path:
    """A script that runs it, for images of this machine's suite out of this machine's archives."""
    recipe = rootfs.Recipe("mkosi", "trixie", PACKAGES)
    sources = "".join(f"{line}\n" for line in debian.sources(debian.HOST_SUITE))
    key = f"{recipe.key()}-{store.digest(SCRIPT, sources)}"
    return store.entry("mkosi", key, lambda out: _assemble(recipe, sources, out)) / "mkosi"


def _assemble(recipe: rootfs.Recipe, sources: str, out: Path) -> None:
    tools, archives, script = out / "tools", out / "archives", out / "mkosi"
    for folder in (tools, archives):
        folder.mkdir()
    archive = rootfs.build(recipe)
    subprocess.run(["tar", "-C", tools, "--numeric-owner", "--exclude=./dev/*", "-xpf", archive], check=True)
    (archives / "machine.list").write_text(sources)
    (archives / "mkosi.sources").touch()  # mkosi writes one that names Debian's own where there is none
    script.write_text(SCRIPT)
    script.chmod(0o755)
