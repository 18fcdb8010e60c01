"""What guests without a cluster are set up with: tidepoolctl, its units, an example, and the Ansible role."""

from __future__ import annotations

from pathlib import Path

from tidepool_lab import paths
from tidepool_release.archives import Content, write_tgz
from tidepool_release.source import Source, tracked

FOLDER = paths.ROOT / "standalone"


def pack(target: Path, source: Source) -> None:
    """As it is in the repository, but for the tests: the role finds tidepoolctl beside it."""
    names = [name for name in tracked(FOLDER) if not name.startswith("tests/")]
    top = f"tidepool-standalone-{source.version}"
    content: dict[str, Content] = {f"{top}/{name}": FOLDER / name for name in names}
    write_tgz(target, content | {f"{top}/LICENSE": paths.ROOT / "LICENSE"}, source.when)
