"""Debian packages that are used without being installed: downloaded with apt and unpacked into the cache.

Which archive they come from is this machine's own apt configuration; only the suite is chosen here.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from tidepool_lab import store
from tidepool_lab.progress import LabError, step

HOST_SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


@cache
def mirror() -> str:
    """The address of the Debian archive that this machine uses."""
    for site, suite in _archives():
        if suite == HOST_SUITE:
            return site
    raise LabError(f"apt on this machine has no Debian {HOST_SUITE} in its sources; run `apt-get update` first")


def sources(suite: str) -> list[str]:
    """The sources.list lines for a suite: with updates and security fixes where this machine has them."""
    if suite != HOST_SUITE:
        return [_line(mirror(), suite)]
    return [_line(site, name) for site, name in _archives() if name.split("-")[0] == suite]


def _archives() -> list[tuple[str, str]]:
    """Address and suite of each Debian archive in this machine's apt configuration."""
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(ORIGIN)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in answer.stdout.splitlines() if line.endswith(" Debian")]
    return list(dict.fromkeys((site, suite) for site, suite, _ in found))


def _line(site: str, suite: str) -> str:
    return f"deb [signed-by={KEYRING}] {site} {suite} main"


def unpacked(suite: str, *packages: str) -> Path:
    """A folder with the contents of these packages of a suite (not of what they depend on)."""
    key = f"{suite}-{store.digest(*packages)}"
    return store.entry("debian", key, lambda out: _fetch(suite, packages, out))


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
        env = dict(os.environ, APT_CONFIG=str(_configuration(suite, out / "apt")))
        apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
        subprocess.run([*apt, "update"], env=env, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*apt, "download", *packages], env=env, check=True, cwd=out, stdout=subprocess.DEVNULL)
        for package in out.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, out], check=True)
            package.unlink()
        subprocess.run(["rm", "-r", out / "apt"], check=True)


def _configuration(suite: str, folder: Path) -> Path:
    """An apt configuration of its own, so that another suite never gets near this machine's packages."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    listing = folder / "sources.list"
    listing.write_text("\n".join(sources(suite)) + "\n")
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::Etc::SourceList "{listing}";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{folder}/lists";\nDir::Cache "{folder}/cache";\nDir::State::status "/dev/null";\n'
    )
    return config
