"""Debian packages that are used without being installed: downloaded with apt and unpacked into the cache.

Which archive they come from is this machine's own apt configuration (kernel-module/tools/debian); only the suite is
chosen here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tidepool_lab import paths, store
from tidepool_lab.progress import LabError, step

HOST_SUITE = "bookworm"
TOOL = paths.ROOT / "kernel-module/tools/debian"
# Beside the usual folders one that a library looks for at a fixed place.
RUN = """#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
libraries=$root/usr/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries:$root/lib/x86_64-linux-gnu:$libraries/pulseaudio exec "$root/{within}" "$@"
"""


def sources(suite: str) -> list[str]:
    """The sources.list lines for a suite: with updates and security fixes where this machine has them."""
    return _tool("sources", suite).splitlines()


def unpacked(suite: str, *packages: str) -> Path:
    """A folder with the contents of these packages of a suite (not of what they depend on).

    A package may be of another architecture or of one version, as in `libc6:arm64=2.36-9`.
    """
    key = f"{suite}-{store.digest(*packages)}"
    return store.entry("debian", key, lambda out: _fetch(suite, packages, out))


def program(package: str, within: str = "", *more: str) -> Path:
    """A script that runs the program of a package of the host's suite, with all that it depends on in the cache.

    The program is called as the package is, in /usr/bin, or else is at the path `within`. `more` are packages that it
    does not depend on.
    """
    key = f"program-{package}-{store.digest(within, RUN, *more)}"
    path = within or f"usr/bin/{package}"
    entry = store.entry("debian", key, lambda out: _fetch_program((package, *more), path, out))
    return entry / "run" / package


def _fetch_program(packages: tuple[str, ...], within: str, out: Path) -> None:
    package = packages[0]
    with step(f"fetching {package} of Debian {HOST_SUITE}, and what it needs"):
        _tool("programs", HOST_SUITE, str(out), *packages)
    script = out / "run" / package
    if not (out / within).exists():
        raise LabError(f"{package}: Debian {HOST_SUITE} has no {within} in it")
    script.parent.mkdir(exist_ok=True)
    script.write_text(RUN.format(within=within))
    script.chmod(0o755)


def checkpatch() -> Path:
    """The kernel's style checker; Debian ships it only inside the kernel's whole source."""
    return store.entry("debian", "checkpatch-6.1", _extract_checkpatch) / "checkpatch.pl"


def _extract_checkpatch(out: Path) -> None:
    with step("taking checkpatch out of Debian's kernel source (about 2 min)"):
        work = out / "source"
        work.mkdir()
        _fetch(HOST_SUITE, ("linux-source-6.1",), work)
        members = [
            f"linux-source-6.1/scripts/{name}" for name in ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
        ]
        archive = work / "usr/src/linux-source-6.1.tar.xz"
        subprocess.run(["tar", "-C", out, "--strip-components=2", "-xJf", archive, *members], check=True)
        subprocess.run(["rm", "-r", work], check=True)


def _fetch(suite: str, packages: tuple[str, ...], out: Path) -> None:
    with step(f"fetching {', '.join(packages)} of Debian {suite}"):
        _tool("unpack", suite, str(out), *packages)


def _tool(*arguments: str) -> str:
    answer = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise LabError(f"{TOOL.name} {' '.join(arguments)}: {answer.stderr.strip()[-2000:]}")
    return answer.stdout
