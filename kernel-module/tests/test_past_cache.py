"""What changes a file, or what a file is, past the page cache's tracepoints; and modules that come and go."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterator

import pytest

from bed.guest import Disk, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import start_stress, stress

INLINE = Disk("1G", "ext4", options=("-O", "inline_data", "-I", "256"))
VERITY = Disk("1G", "ext4", options=("-O", "verity", "-b", "4096"))
DAX = Disk("48M", "ext4", options=("-b", "4096"))
PERSISTENT = "memmap=48M!128M"  # some of the guest's memory is a disk to it, which DAX needs
FILES = 20
RELOADS = 2
LOST_WRITES = "I/O error|[Ww]rite error|EXT4-fs (error|warning)|Error while async write back"

# Files that live in their inode, written again while their page is in the pool; then they grow out of it.
SMALL = f"""
evict() {{ sync; echo 1 > /proc/sys/vm/drop_caches; sleep 1; }}
right() {{ for i in $(seq {FILES}); do head -c3 /mnt/g$i; echo; done | grep -c NEW || :; }}
for i in $(seq {FILES}); do echo "old$i-aaaaaaaaaaaaaaaaaaaaaaa" > /mnt/g$i; done
evict; cat /mnt/g* > /dev/null; evict
for i in $(seq {FILES}); do printf NEW | dd of=/mnt/g$i conv=notrunc 2> /dev/null; done
evict; right
for i in $(seq {FILES}); do head -c3000 /dev/zero | tr '\\0' z >> /mnt/g$i; done
evict; right
umount /mnt; mount -t ext4 /dev/vda /mnt; right
"""


@pytest.mark.parametrize("broken", ["", "FEATURES"], ids=["proper", "broken"])
def test_inline_data(kernel: str, broken: str) -> None:
    """ext4 writes a file inside its inode without a word to the page cache: such a file system keeps its pages.

    Read after writing, after growing out of the inode, and what is on the disk in the end.
    """
    with (pair := Pair(kernel, disk=INLINE, broken=broken)) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        right = [int(count) for count in borrower.sh(SMALL).split()]
        assert (right == [FILES] * 3) == (not broken), right
        assert (pair.borrowed()["puts"] == 0) == (not broken)
        assert borrower.log().count("tidepool: pages of ext4 on vda stay here: inline_data") == (0 if broken else 2)
        pair.assert_clean()


@pytest.fixture(scope="module", params=["", "EXCHANGE,WRITE_ERRORS,FLAGS"], ids=["proper", "broken"])
def connected(kernel: str, request: pytest.FixtureRequest) -> Iterator[tuple[Pair, bool]]:
    """A pair with a lender connected, and whether its module does what it should."""
    with (pair := Pair(kernel, disk=VERITY, broken=request.param, modules=("loop",))):
        pair.connect(size=128 * MIB, more=PATIENT)
        yield pair, not request.param
        pair.assert_clean(LOST_WRITES)


def _reads_as_on_disk(borrower: Guest, path: str) -> bool:
    buffered = borrower.sh(f"md5sum < {path}")
    return buffered == borrower.sh(f"dd if={path} iflag=direct bs=64k 2> /dev/null | md5sum")


@pytest.mark.parametrize("cached", [False, True], ids=["evicted", "cached"])
def test_exchanged_extents(connected: tuple[Pair, bool], cached: bool) -> None:
    """ext4's donor of extents has others then, of which the page cache is not told: its old pages are not read."""
    pair, proper = connected
    borrower, name = pair.borrower, f"/mnt/exchange{cached:d}"
    for file, version in (("a", 1), ("b", 2)):
        stress(borrower, f"fill {name}{file} mib=1 version={version}")
    pair.evict()
    stress(borrower, f"sequential {name}b version=2")
    if not cached:
        pair.evict()
    stress(borrower, f"exchange {name}a donor={name}b")
    if cached:  # until then the donor reads as before without us as well
        pair.evict()
    assert _reads_as_on_disk(borrower, f"{name}a")
    assert _reads_as_on_disk(borrower, f"{name}b") == proper


def _old_in_pool(pair: Pair, *files: tuple[str, int]) -> None:
    """Files of that version each, of which all is in the pool and nothing in the page cache."""
    for path, version in files:
        stress(pair.borrower, f"fill {path} mib=1 version={version}")

    def all_come() -> bool:
        pair.evict()
        before = pair.borrowed()["get_hits"]
        for path, version in files:
            stress(pair.borrower, f"sequential {path} version={version}")
        return pair.borrowed()["get_hits"] - before > len(files) * 250

    wait_until("all is in the pool", all_come)
    pair.evict()


def _ext4_blocks(pair: Pair) -> None:
    """The boot loader's inode has a file's first version, and gives it back when the pool has the second."""
    borrower, path = pair.borrower, "/mnt/boot"
    stress(borrower, f"fill {path} mib=1 version=1")
    borrower.sh(f"stress blocks {path} by=boot")
    _old_in_pool(pair, (path, 2))
    borrower.sh(f"stress blocks {path} by=boot")
    stress(borrower, f"sequential {path} version=1")


def _xfs_blocks(pair: Pair) -> None:
    """Two files exchange their blocks, as when one is defragmented; a third shares those of a fourth."""
    borrower = pair.borrower
    _old_in_pool(pair, ("/mnt/a", 1), ("/mnt/b", 2))
    borrower.sh("stress blocks /mnt/a by=extents donor=/mnt/b")
    for path in ("/mnt/a", "/mnt/b"):
        assert _reads_as_on_disk(borrower, path)
    assert borrower.run("cmp /mnt/a /mnt/b").code != 0
    _shared_blocks(pair)


def _shared_blocks(pair: Pair) -> None:
    borrower = pair.borrower
    borrower.sh("cp /mnt/a /mnt/c; sync")
    pair.evict()
    borrower.sh("cat /mnt/c > /dev/null")
    pair.evict()
    assert '"shared": 1048576' in borrower.sh("stress blocks /mnt/a by=dedupe donor=/mnt/c")
    borrower.sh("cmp /mnt/a /mnt/c")


def _btrfs_blocks(pair: Pair) -> None:
    """Compressed data are written as they are; files share blocks; blocks are moved and put together."""
    borrower, new = pair.borrower, random.Random(1).randbytes(1 << 10) * 128
    _old_in_pool(pair, ("/mnt/a", 1))
    borrower.start("cat > /tmp/encoded", zlib.compress(new)).wait()
    borrower.sh("stress blocks /mnt/a by=encoded from=/tmp/encoded")
    assert borrower.sh(f"head -c {len(new)} /mnt/a | md5sum").split()[0] == hashlib.md5(new).hexdigest()
    _old_in_pool(pair, ("/mnt/a", 3))
    _shared_blocks(pair)
    for by in ("defragment", "balance"):
        _old_in_pool(pair, ("/mnt/a", 4))
        borrower.sh(f"stress blocks /mnt/a by={by}; sync")
        stress(borrower, "sequential /mnt/a version=4")
        assert _reads_as_on_disk(borrower, "/mnt/a")


BLOCKS = {"ext4": _ext4_blocks, "xfs": _xfs_blocks, "btrfs": _btrfs_blocks}


@pytest.mark.parametrize("filesystem", list(BLOCKS))
def test_other_blocks(kernel: str, filesystem: str) -> None:
    """What gives a file other blocks by a call of its file system is read as it is on the disk then."""
    with (pair := Pair(kernel, disk=filesystem)):
        pair.connect(size=64 * MIB, more=PATIENT)
        BLOCKS[filesystem](pair)
        assert pair.borrowed()["get_corrupt"] == 0
        pair.assert_clean()


def test_lost_writes(connected: tuple[Pair, bool]) -> None:
    """A page whose write failed is clean and not on the disk: it is not put."""
    pair, proper = connected
    borrower = pair.borrower
    borrower.sh("mkdir -p /small /loop; mount -t tmpfs -o size=16M small /small; truncate -s 48M /small/image")
    borrower.sh("mke2fs -F -b 4096 /small/image; mount -t ext4 -o loop /small/image /loop")
    stress(borrower, "fill /loop/other mib=1")
    pair.evict()  # the file system is known by now
    borrower.sh("truncate -s 2M /loop/file; sync; dd if=/dev/zero of=/small/ballast bs=64k || :")
    borrower.sh("dd if=/dev/urandom of=/loop/file bs=4k count=512 conv=notrunc; sync || :; rm /small/ballast")
    pair.evict()
    before = pair.borrowed()["get_hits"]
    borrower.sh("cat /loop/file > /dev/null")
    assert (pair.borrowed()["get_hits"] == before) == proper
    borrower.sh("umount /loop; umount /small")


def _hits_while(pair: Pair, path: str, change: str, back: str = "true") -> int:
    """Pages that come from the pool once a file that was wholly there has been changed in kind."""
    borrower = pair.borrower
    stress(borrower, f"fill {path} mib=2")
    pair.evict()
    borrower.sh(change.format(path))
    before = pair.borrowed()["get_hits"]
    borrower.sh(f"cat {path} > /dev/null")
    pair.evict()
    borrower.sh(f"cat {path} > /dev/null; {back.format(path)}; cat {path} > /dev/null")
    return pair.borrowed()["get_hits"] - before


def test_verity(connected: tuple[Pair, bool]) -> None:
    """What verity is switched on for is read from the disk, where each page is checked."""
    pair, proper = connected
    assert (_hits_while(pair, "/mnt/verity", "stress verity {}") == 0) == proper


def test_swap_file(connected: tuple[Pair, bool]) -> None:
    """What is swapped to goes past the page cache."""
    pair, proper = connected
    hits = _hits_while(pair, "/mnt/swap", "mkswap {0}; sync; swapon {0}", "swapoff {0}")
    assert (hits == 0) == proper


def test_swap_file_that_never_left_memory(connected: tuple[Pair, bool]) -> None:
    """Its page cache outlives the swapping, and what is there then is as it was before."""
    pair, proper = connected
    borrower, path = pair.borrower, "/mnt/cached"
    stress(borrower, f"fill {path} mib=2")
    borrower.sh(f"mkswap {path}; sync; swapon {path}; swapoff {path}")
    pair.evict()
    before = pair.borrowed()["get_hits"]
    borrower.sh(f"cat {path} > /dev/null")
    assert (pair.borrowed()["get_hits"] == before) == proper


def test_dax(kernel: str) -> None:
    """A file that is in the pool is written past the page cache from now on, and later through it again."""
    with (pair := Pair(kernel, disk=DAX, append=PERSISTENT, modules=("nd_e820", "nd_pmem"))) as (borrower, _):
        borrower.umount()
        borrower.sh("dd if=/dev/vda of=/dev/pmem0 bs=1M; mount -t ext4 -o dax=inode /dev/pmem0 /mnt")
        pair.connect(size=64 * MIB, more=PATIENT)
        _old_in_pool(pair, ("/mnt/file", 1))
        before = pair.borrowed()["get_hits"]
        borrower.sh("stress dax /mnt/file set=1")
        assert '"dax": 1' in borrower.sh("stress dax /mnt/file")
        stress(borrower, "overwrite /mnt/file version=2")
        stress(borrower, "sequential /mnt/file version=2")
        borrower.sh("stress dax /mnt/file set=0")
        assert '"dax": 0' in borrower.sh("stress dax /mnt/file")
        stress(borrower, "sequential /mnt/file version=2")
        assert pair.borrowed()["get_hits"] == before
        pair.assert_clean()


@pytest.mark.parametrize("connected", [""], ids=["proper"], indirect=True)
def test_journal_switched(connected: tuple[Pair, bool]) -> None:
    """ext4 exchanges a file's operations while we put ours in front of them; data in the journal are seen as well."""
    pair, _ = connected
    borrower = pair.borrower
    stress(borrower, "fill /mnt/journal mib=8")
    switching = start_stress(borrower, "journal /mnt/journal changes=301")
    while not switching.future.done():
        borrower.drop_caches(1)
        stress(borrower, "sequential /mnt/journal")
    assert '"journalled": 1' in switching.future.result().output
    stress(borrower, "overwrite /mnt/journal version=2")
    borrower.sh("mount -o remount,ro /mnt && mount -o remount,rw /mnt")  # the journal is emptied
    for _ in range(2):
        pair.evict()
        stress(borrower, "sequential /mnt/journal version=2")
    pair.evict()
    before = pair.borrowed()["get_hits"]
    stress(borrower, "sequential /mnt/journal version=2")
    assert pair.borrowed()["get_hits"] > before


def test_wrapper_that_stays(kernel: str) -> None:
    """What ftrace does not let go holds the module, which goes on to work; nobody jumps to where it was."""
    with (pair := Pair(kernel, broken="UNWRAP")) as (borrower, _):
        borrower.run(pair.b.insmod())
        assert "cannot unwrap truncate_inode_pages_range()" in borrower.log()
        assert borrower.run("rmmod tidepool").code != 0
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, "fill /mnt/file mib=4")
        stress(borrower, "sequential /mnt/file")
        borrower.sh("rm /mnt/file")
        pair.disconnect()
        pair.assert_clean()


def test_file_system_unloaded(kernel: str) -> None:
    """A file system's module goes and comes back, again and again, with and without a lender; then ours goes."""
    with (pair := Pair(kernel, disk="xfs")) as (borrower, _):
        borrower.umount()
        pair.connect(size=64 * MIB, more=PATIENT)
        for turn in range(RELOADS):
            borrower.mount("xfs")
            if not turn:
                stress(borrower, "fill /mnt/file mib=4")
            pair.evict()
            stress(borrower, "sequential /mnt/file")
            pair.evict()
            before = pair.borrowed()["get_hits"]
            stress(borrower, "sequential /mnt/file")
            assert pair.borrowed()["get_hits"] > before, f"turn {turn}"
            borrower.umount()
            if turn == RELOADS - 1:
                pair.disconnect()
            borrower.sh("rmmod xfs")
            if turn < RELOADS - 1:
                borrower.sh("insmod /lib/modules/xfs.ko")
        pair.b.unload()
        pair.assert_clean()


def test_file_system_unloaded_unnoticed(kernel: str) -> None:
    """A module that does not hear that a file system's goes looks for its operations later, where nothing is."""
    with (pair := Pair(kernel, disk="xfs", broken="GOING")) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        stress(borrower, "fill /mnt/file mib=4")
        pair.evict()
        stress(borrower, "sequential /mnt/file")
        borrower.umount()
        pair.disconnect()
        borrower.sh("rmmod xfs")
        borrower.start("rmmod tidepool")
        wait_until("it has crashed", lambda: "tide_mapping_retire" in borrower.console())
