"""The kubectl plugin: wheels for pip, and for each platform one program that krew installs.

The program has all libraries in it, for each Python that a machine may have; it needs nothing but that Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tidepool_lab import paths, store
from tidepool_lab.progress import LabError, step
from tidepool_release import manuals
from tidepool_release.archives import PROGRAM, Content, sha256, write_tgz
from tidepool_release.source import Source

PARTS = ("crds", "kubectl-plugin")
LOCK = paths.ROOT / "kubectl-plugin/requirements.lock"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
COMPILED = ("pydantic-core==", "pyyaml==")
PROGRAM_NAME = "kubectl-tidepool"
MANUAL = f"{PROGRAM_NAME}.1"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
ABOUT = """\
The plugin only reads. `top` shows what each pairing of a lender and a borrower is worth, `explain` what is in a
guest's way, `plan` what memory is worth at other sizes, `who` who lends to whom, and `check` whether all is well.
"""
CAVEATS = "It needs Python 3.11 or newer, as python3.\n"


@dataclass(frozen=True)
class Platform:
    """A kind of machine, as krew names it, and the wheels that fit it."""

    system: str
    machine: str
    wheels: tuple[str, ...]

    @property
    def name(self) -> str:
        """What stands in the names of files."""
        return f"{self.system}-{self.machine}"


def _linux(machine: str, its_name: str) -> Platform:
    tags = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    return Platform("linux", machine, tuple(f"{tag}_{its_name}" for tag in tags))


PLATFORMS = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    Platform("darwin", "amd64", ("macosx_11_0_x86_64",)),
    Platform("darwin", "arm64", ("macosx_11_0_arm64",)),
)


def build(folder: Path, work: Path, source: Source) -> None:
    """Writes the wheels, an archive for each platform, and krew's manifest tidepool.yaml."""
    wheels = [wheel(part, folder, work, source) for part in PARTS]
    sums = {}
    for platform in PLATFORMS:
        archive = folder / f"{PROGRAM_NAME}-{source.version}-{platform.name}.tar.gz"
        program = _program(platform, wheels, work / platform.name, source)
        content: dict[str, Content] = {
            PROGRAM_NAME: program,
            MANUAL: manuals.page(MANUAL),
            "LICENSE": paths.ROOT / "LICENSE",
        }
        write_tgz(archive, content, source.when)
        sums[platform] = sha256(archive)
    (folder / "tidepool.yaml").write_text(manifest(sums, source))


def manifest(sums: Mapping[Platform, str], source: Source) -> str:
    """What krew installs from: where the archives will be found, and their digests."""
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tidepool"},
        "spec": {
            "version": f"v{source.version}",
            "homepage": source.home,
            "shortDescription": "Look at pools of unused memory of VMs",
            "description": ABOUT,
            "caveats": CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": one.system, "arch": one.machine}},
                    "uri": f"{source.downloads}/{PROGRAM_NAME}-{source.version}-{one.name}.tar.gz",
                    "sha256": digest,
                    "bin": PROGRAM_NAME,
                }
                for one, digest in sums.items()
            ],
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def wheel(part: str, folder: Path, work: Path, source: Source) -> Path:
    """The wheel of a folder of the sources. Built of a copy, for setuptools leaves things where it builds."""
    copy = work / "wheels" / part
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
    shutil.copytree(paths.ROOT / part, copy, ignore=leave)
    before = set(folder.glob("*.whl"))
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(folder)]
    _run([*PIP, "wheel", *options, copy], source)
    (made,) = set(folder.glob("*.whl")) - before
    return made


def _program(platform: Platform, wheels: list[Path], work: Path, source: Source) -> Path:
    """A zip file that Python runs, with everything in it."""
    site, program = work / "site", work / PROGRAM_NAME
    shutil.copytree(_libraries(platform), site)
    ours = ["install", "--no-deps", "--no-compile", "--no-index", "--target", str(site)]
    _run([*PIP, *ours, *wheels], source)
    _forget_the_builder(site)
    shiv = [
        "--reproducible",
        "--compressed",
        "--python",
        "/usr/bin/env python3",
        "--entry-point",
        "tidepool_kubectl.cli:app",
    ]
    _run([sys.executable, "-m", "shiv.cli", "--site-packages", site, *shiv, "--output-file", program], source)
    program.chmod(PROGRAM)
    return program


def _libraries(platform: Platform) -> Path:
    key = f"plugin-{platform.name}-{store.digest(LOCK.read_bytes(), *PYTHONS, *platform.wheels)}"
    return store.entry("layer", key, lambda out: _install_libraries(platform, out)) / "site"


def _install_libraries(platform: Platform, out: Path) -> None:
    """What the lock file pins; what is compiled for every Python, whose version is in the names of such files."""
    compiled = out / "compiled.lock"
    compiled.write_text("".join(one for one in _pinned(LOCK.read_text()) if one.startswith(COMPILED)))
    with step(f"fetching the plugin's libraries for {platform.name}"):
        for python in PYTHONS:
            one = out / python
            tags = [f"--platform={tag}" for tag in platform.wheels]
            fitting = [f"--python-version={python}", "--only-binary=:all:", *tags]
            options = ["--no-deps", "--no-compile", "--require-hashes", *fitting, "--target", str(one)]
            lock = LOCK if python == PYTHONS[0] else compiled
            subprocess.run([*PIP, "install", *options, "-r", lock], check=True)
            shutil.copytree(one, out / "site", dirs_exist_ok=True)
            shutil.rmtree(one)
    _forget_the_builder(out / "site")
    if scarce := _scarce(out / "site"):
        raise LabError(f"{', '.join(scarce)}: compiled for {PYTHONS[0]} alone; COMPILED must have what it belongs to")


def _scarce(site: Path) -> list[str]:
    """Compiled parts that are not there for every Python."""
    found = Counter(path.name.partition(".")[0] for path in site.rglob("*.so"))
    return sorted(name for name, count in found.items() if count < len(PYTHONS))


def _pinned(lock: str) -> list[str]:
    """Each package of a lock file, with its digests."""
    return [one for one in re.split(r"^(?=\w)", lock, flags=re.MULTILINE) if one.strip()]


def _run(command: list[str | Path], source: Source) -> None:
    done = subprocess.run(
        command, env={**os.environ, **source.environment()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")


def _forget_the_builder(site: Path) -> None:
    """What installing leaves that depends on where and how it was done, and scripts that nobody starts."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for about in site.glob("*.dist-info"):
        for name in ("RECORD", "direct_url.json", "INSTALLER", "REQUESTED"):
            (about / name).unlink(missing_ok=True)
    for cache in list(site.rglob("__pycache__")):
        shutil.rmtree(cache)
