"""What guests are prepared with: user data for cloud-init, policies for guest agents, and recipes for images."""

from __future__ import annotations

from pathlib import Path

from tidepool_lab import paths
from tidepool_release.archives import Content, write_tgz
from tidepool_release.source import Source, tracked

FOLDER = paths.ROOT / "guests"
# What the recipe for container disks takes from here.
LIBRARY = ("__init__.py", "archives.py", "oci.py")


def pack(target: Path, source: Source) -> None:
    """As it is in the repository, with what the recipe for container disks takes from elsewhere there."""
    top = f"tidepool-guests-{source.version}"
    content: dict[str, Content] = {f"{top}/{name}": FOLDER / name for name in tracked(FOLDER)}
    here = Path(__file__).parent
    content |= {f"{top}/containerdisk/lib/tidepool_release/{name}": here / name for name in LIBRARY}
    write_tgz(target, content | {f"{top}/LICENSE": paths.ROOT / "LICENSE"}, source.when)
