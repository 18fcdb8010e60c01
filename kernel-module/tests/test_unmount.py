"""No page outlives its mount: what is on the disk may be another file system by then."""

from __future__ import annotations

import shutil

import pytest

from bed.guest import Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress


@pytest.mark.parametrize(
    "filesystem",
    [
        "ext4",
        pytest.param("xfs", marks=pytest.mark.long),
        pytest.param("btrfs", marks=pytest.mark.long),
    ],
)
def test_made_anew(kernel: str, filesystem: str) -> None:
    """Unmount, a new file system with the same file of other contents, mount: only the new contents are read."""
    with (pair := Pair(kernel, disk=filesystem)) as (borrower, _):
        pair.connect(size=200 * MIB, more=PATIENT)
        for version in (1, 2, 3):
            stress(borrower, f"fill /mnt/file mib=30 version={version}")
            for _ in range(3):
                borrower.drop_caches(1)
                stress(borrower, f"sequential /mnt/file version={version}")
            borrower.umount()
            pair.remake_disk(filesystem)
            borrower.mount(filesystem)
        assert pair.borrowed()["get_hits"] > 500
        pair.assert_clean()


def _prune_inodes(borrower: Guest) -> None:
    """Inodes leave memory: only then do they outlive their pages. The kernel spares dirty ones, and each one once."""
    borrower.sh("sync")
    for _ in range(4):
        borrower.drop_caches(2)


def known_after_unmount(pair: Pair) -> int:
    """Files that the catalog knows once the only file system is unmounted; the inode has left memory before."""
    borrower = pair.borrower
    stress(borrower, "fill /mnt/file mib=10 version=1")
    borrower.sh("sync")
    borrower.drop_caches(1)
    _prune_inodes(borrower)
    assert pair.b.stats()["files"] > 0, "nothing was evicted: the test shows nothing"
    borrower.umount()
    return pair.b.stats()["files"]


def test_nothing_is_known(kernel: str) -> None:
    """The catalog is empty, also of files whose inodes were not in memory when the file system went."""
    with (pair := Pair(kernel, disk="ext4")):
        pair.connect(size=100 * MIB, more=PATIENT)
        assert known_after_unmount(pair) == 0
        assert pair.borrowed()["catalog_pages"] == 0
        pair.assert_clean()


@pytest.mark.parametrize(
    "filesystem",
    [pytest.param("ext4", marks=pytest.mark.long), "xfs", pytest.param("btrfs", marks=pytest.mark.long)],
)
def test_rolled_back(kernel: str, filesystem: str) -> None:
    """The disk goes back to a snapshot while unmounted: same inodes, same generations, older contents."""
    with (pair := Pair(kernel, disk=filesystem)) as (borrower, _):
        assert _roll_back_and_count_hits(pair, filesystem) > 500
        stress(borrower, "sequential /mnt/file version=1")
        pair.assert_clean()


def _roll_back_and_count_hits(pair: Pair, filesystem: str) -> int:
    """Leaves the disk as it was with version 1 of the file while the pool was full of version 2."""
    borrower, image = pair.borrower, pair.borrower.folder / "disk"
    stress(borrower, "fill /mnt/file mib=30 version=1")
    borrower.umount()
    shutil.copyfile(image, pair.folder / "snapshot")
    borrower.mount(filesystem)
    pair.connect(size=200 * MIB, more=PATIENT)
    stress(borrower, "fill /mnt/file mib=30 version=2")
    for _ in range(3):
        borrower.drop_caches(1)
        stress(borrower, "sequential /mnt/file version=2")
    _prune_inodes(borrower)
    hits = pair.borrowed()["get_hits"]
    borrower.umount()
    with (pair.folder / "snapshot").open("rb") as snapshot, image.open("r+b") as disk:
        shutil.copyfileobj(snapshot, disk, 1 << 20)
    borrower.mount(filesystem)
    return hits
