"""What guests are prepared with: user data for cloud-init, and policies for those that confine their guest agent."""

from __future__ import annotations

from pathlib import Path

from tidepool_lab import paths
from tidepool_release.archives import Content, write_tgz
from tidepool_release.source import Source, tracked

FOLDER = paths.ROOT / "guests"


def pack(target: Path, source: Source) -> None:
    """As it is in the repository."""
    top = f"tidepool-guests-{source.version}"
    content: dict[str, Content] = {f"{top}/{name}": FOLDER / name for name in tracked(FOLDER)}
    write_tgz(target, content | {f"{top}/LICENSE": paths.ROOT / "LICENSE"}, source.when)
