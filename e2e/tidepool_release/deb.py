"""Debian packages that depend on their contents alone."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidepool_release.archives import PROGRAM
from tidepool_release.source import Source

MAINTAINER = "The Tidepool authors <noreply@tidepool.dev>"
SCRIPTS = ("postinst", "prerm")
PROGRAMS = (".sh", ".so")  # Redis loads no module that may not be executed
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tidepool
Source: {home}

Files: *
Copyright: The Tidepool authors
License: {licence}
"""
NEEDED = re.compile(r"@GLIBC_(\d+)\.(\d+)")


@dataclass(frozen=True)
class Package:
    """What a package says of itself."""

    name: str
    architecture: str
    about: str
    """A line, and then what the package is, each line of it indented by a space."""
    licence: str
    """As a copyright file has it: a name, or a name and where the text is."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Whatever else its control file has, such as Depends."""
    control: Mapping[str, str] = field(default_factory=dict)
    """Scripts, and other files of the package manager's, by their names."""

    def build(self, folder: Path, root: Path, source: Source) -> Path:
        """Packs what is below `root`, to which is added what every package has."""
        papers = root / "usr/share/doc" / self.name
        papers.mkdir(parents=True, exist_ok=True)
        (papers / "copyright").write_text(COPYRIGHT.format(home=source.home, licence=self.licence))
        about = self._said(root, source)
        control = root / "DEBIAN"
        control.mkdir()
        for name, text in {"control": about, **self.control}.items():
            (control / name).write_text(text)
        _settle(root)
        target = folder / f"{self.name}_{version(source)}_{self.architecture}.deb"
        command: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, target]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **source.environment()})
        return target

    def _said(self, root: Path, source: Source) -> str:
        kib = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        said = {
            "Package": self.name,
            "Version": version(source),
            "Architecture": self.architecture,
            "Maintainer": MAINTAINER,
            **self.fields,
            "Priority": "optional",
            "Homepage": source.home,
            "Installed-Size": str(kib),
            "Description": self.about,
        }
        return "".join(f"{name}: {value}\n" for name, value in said.items())


def version(source: Source) -> str:
    """As Debian has it: a candidate is older than what it becomes."""
    return source.version.replace("-", "~")


def libc_of(*programs: Path) -> str:
    """The dependency on the oldest C library that has all that these programs call."""
    command: list[str | Path] = ["readelf", "--dyn-syms", "--wide", *programs]  # which reads those of any architecture
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    major, minor = max((int(major), int(minor)) for major, minor in NEEDED.findall(listed))
    return f"libc6 (>= {major}.{minor})"


def _settle(root: Path) -> None:
    """Rights that do not come from whoever builds it."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            may_run = path.is_dir() or path.suffix in PROGRAMS or path.name in SCRIPTS or path.parent.name == "bin"
            path.chmod(PROGRAM if may_run else 0o644)
