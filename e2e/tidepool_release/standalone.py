"""What guests without a cluster are set up with: tidepoolctl, its units, an example, and the Ansible role."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tidepool_lab import paths
from tidepool_release.archives import Content, write_tgz
from tidepool_release.source import Source

FOLDER = paths.ROOT / "standalone"


def pack(target: Path, source: Source) -> None:
    """As it is in the repository, but for the tests: the role finds tidepoolctl beside it."""
    listed = subprocess.run(["git", "ls-files", "."], cwd=FOLDER, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if not name.startswith("tests/")]
    top = f"tidepool-standalone-{source.version}"
    content: dict[str, Content] = {f"{top}/{name}": FOLDER / name for name in names}
    write_tgz(target, content | {f"{top}/LICENSE": paths.ROOT / "LICENSE"}, source.when)
