"""The programs that the guests run: a Debian root file system on a disk of its own, which is only read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tidepool_lab import rootfs, store
from tidepool_lab.progress import step

PACKAGES = (
    "fio",
    "iproute2",
    "procps",
    "dmsetup",
    "nbd-client",
    "nbd-server",
    "bcache-tools",
    "ncbi-blast+",
    "postmark",
    "postgresql",
    "git",
    "stress-ng",
    "redis-server",
    "dbench",
    "e2fsprogs",
    "gcc",
    "libc6-dev",
)
SLACK_MIB = 64
# Blocks as in a file system of a usual size, and nothing that the kernel writes later, while something is measured.
EXT4 = ("-q", "-F", "-m", "0", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0")


def disk() -> Path:
    """The image of the disk: ext4, label `tools`."""
    base = rootfs.build(rootfs.Recipe("bench-tools", "bookworm", PACKAGES))
    key = store.digest(str(base), str(SLACK_MIB))
    return store.entry("bench-tools", key, lambda out: _make(base, out)) / "disk"


def tree() -> Path:
    """The same programs as a folder, for what is made before a guest boots (the BLAST database)."""
    base = rootfs.build(rootfs.Recipe("bench-tools", "bookworm", PACKAGES))
    return (
        store.entry("bench-tools", f"tree-{store.digest(str(base))}", lambda out: _unpack(base, out / "root")) / "root"
    )


def _unpack(archive: Path, root: Path) -> None:
    root.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", root, "--numeric-owner", "--exclude=./dev/*"], check=True)


def _make(archive: Path, out: Path) -> None:
    with step("making the disk with the benchmarks' programs"):
        root = out / "root"
        _unpack(archive, root)
        used = int(subprocess.run(["du", "-sm", root], check=True, capture_output=True, text=True).stdout.split()[0])
        make_image(out / "disk", root, used * 5 // 4 + SLACK_MIB)
        shutil.rmtree(root)


def make_image(image: Path, content: Path, mib: int, filesystem: str = "ext4") -> None:
    """A file system, ext4 or one that its program makes as well, that holds what is in a folder."""
    subprocess.run(["truncate", "-s", f"{mib}M", image], check=True)
    subprocess.run([f"/usr/sbin/mkfs.{filesystem}", *EXT4, "-d", content, image], check=True)
