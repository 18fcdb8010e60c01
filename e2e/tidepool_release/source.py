"""What is released: version, revision, time, and where it will be found."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import yaml

from tidepool_lab import paths
from tidepool_lab.progress import LabError


@dataclass(frozen=True)
class Source:
    """The sources of a release."""

    version: str
    revision: str
    """The commit; with a `+` where the work tree has more."""
    when: int
    """When that was made, in seconds since 1970: everything in a release says this time."""
    home: str
    """The address under which releases will be found."""

    @classmethod
    def here(cls) -> Self:
        """Those of this work tree."""
        chart = yaml.safe_load((paths.ROOT / "charts/tidepool/Chart.yaml").read_text())
        mark = "+" if changes() else ""
        return cls(
            paths.VERSION, _git("rev-parse", "HEAD") + mark, int(_git("log", "-1", "--format=%ct")), chart["home"]
        )

    @property
    def created(self) -> str:
        """The time as RFC 3339 has it."""
        return datetime.fromtimestamp(self.when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def downloads(self) -> str:
        """Where the files of this release will be found."""
        return f"{self.home}/releases/v{self.version}"

    def environment(self) -> dict[str, str]:
        """What tools are told that write times down."""
        return {"SOURCE_DATE_EPOCH": str(self.when), "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def changes() -> str:
    """What the work tree has beside its commit."""
    return _git("status", "--porcelain")


def tracked(folder: Path) -> list[str]:
    """The files of a folder that git knows, by their names there."""
    return _git("-C", str(folder), "ls-files", ".").splitlines()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"git {' '.join(arguments)}: {done.stderr.strip()}; a release is made from a git repository")
    return done.stdout.strip()
