"""A block device above and below what else there is of block devices, and on a disk that fails at times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from bed.device import DISK, MODULES, NAME, PATH, Device, dmsetup, until_used
from bed.guest import Disk
from bed.image import fetch_kernel, has_module, tools_disk, with_tools
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import end_stress, finish_stress, start_stress, stress, wrong_pages

RAW = Disk("128M", None)
HALF = 65536  # sectors
SECONDS = 4
FIO = (
    "--name=verified --rw=randrw --size=12M --loops=3 --direct=1 --ioengine=libaio --iodepth=8 --thread --fsync=64"
    " --verify=crc32c --verify_fatal=1 --verify_backlog=128"
)
IO_ERRORS = "I/O error|Buffer I/O|device-mapper"
CIPHER = f"crypt aes-xts-plain64 {'5a' * 32}{'c3' * 32} 0"  # what LUKS makes when it is opened
RAID_MODULES = ("raid1", "dm-crypt", "dm-flakey", "xts")
# MD's RAID 1 of two disks, without metadata and in step from the beginning, as `mdadm --build --assume-clean` makes it.
RAID = """
echo md_test > /sys/module/md_mod/parameters/new_array
cd /sys/block/md_test/md
echo none > metadata_version; echo raid1 > level; echo 2 > raid_disks; echo {kib} > component_size
for disk in {disks}; do dmsetup info -c --noheadings -o major,minor --separator : $disk > new_dev; done
n=0; for disk in dev-*; do echo $n > $disk/slot; n=$((n + 1)); done
echo none > resync_start; echo active > array_state
"""

pytestmark = pytest.mark.long

Make = Callable[[Pair, str, str], str]
"""Makes a mapping of that name on another device; returns its path."""


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """Two guests with what can be stacked, and a lender for all devices."""
    there = tuple(name for name in RAID_MODULES if has_module(fetch_kernel(kernel), name))
    with (pair := Pair(kernel, disk=RAW, modules=(*MODULES, *there))):
        pair.connect(size=64 * MIB, more=PATIENT)
        yield pair
        pair.assert_clean(IO_ERRORS)


def _map(pair: Pair, name: str, *targets: str) -> str:
    """A mapping, with one line of its table each."""
    table = "\n".join(targets)
    pair.borrower.sh(dmsetup(f'create {name} --table "{table}"'))
    return f"/dev/mapper/{name}"


def _volume(pair: Pair, name: str, below: str) -> str:
    """As a logical volume of LVM: two segments that lie the other way round."""
    part = HALF // 2
    return _map(pair, name, f"0 {part} linear {below} {part}", f"{part} {part} linear {below} 0")


def _encrypted(pair: Pair, name: str, below: str) -> str:
    """As LUKS when it is open."""
    return _map(pair, name, f"0 {HALF} {CIPHER} {below} 0")


KINDS = pytest.mark.parametrize("make", [_volume, _encrypted])
POLICIES = pytest.mark.parametrize("policy", ["writethrough", "behind 1"])


def _mixture(pair: Pair, path: str, beside: str) -> None:
    stress(pair.borrower, f"device {path} beside={beside} mib=8 seconds={SECONDS}")


@POLICIES
@KINDS
def test_below(connected: Pair, make: Make, policy: str) -> None:
    """What is read above is what the disk has, read in the same way without the device."""
    with Device(connected, policy=policy) as fast:
        above, past = make(connected, "above", PATH), make(connected, "past", DISK)
        _mixture(connected, above, past)
        assert fast.status()["hits"] > 0
        fast.dmsetup("remove above past")


@POLICIES
@KINDS
def test_above(connected: Pair, make: Make, policy: str) -> None:
    """What is read is what a volume below has."""
    below = make(connected, "below", DISK)
    with Device(connected, below, policy=policy) as fast:
        _mixture(connected, PATH, below)
        assert fast.status()["hits"] > 0
    fast.dmsetup("remove below")


def _raid(pair: Pair, *disks: str) -> None:
    pair.borrower.sh("set -e" + RAID.format(kib=HALF // 2, disks=" ".join(disks)))


def _end_raid(pair: Pair) -> None:
    pair.borrower.sh("echo clear > /sys/block/md_test/md/array_state; sleep 1")


def _halves(pair: Pair) -> list[str]:
    return [_map(pair, f"leg{n}", f"0 {HALF} linear {DISK} {n * HALF}") for n in range(2)]


@POLICIES
def test_below_raid(connected: Pair, policy: str) -> None:
    """One half of a RAID 1 of MD: both halves have the same, and what is read is that."""
    legs = _halves(connected)
    connected.borrower.sh(f"dd if=/dev/zero of={DISK} bs=64k oflag=direct || :")
    with Device(connected, legs[0], policy=policy) as fast:
        _raid(connected, PATH, legs[1])
        for leg in legs:
            _mixture(connected, "/dev/md_test", leg)
        assert fast.status()["puts"] > 0
        _end_raid(connected)
    fast.dmsetup("remove leg0 leg1")


@POLICIES
def test_above_raid(connected: Pair, policy: str) -> None:
    """On a RAID 1 of MD."""
    legs = _halves(connected)
    connected.borrower.sh(f"dd if=/dev/zero of={DISK} bs=64k oflag=direct || :")
    _raid(connected, *legs)
    with Device(connected, "/dev/md_test", policy=policy) as fast:
        for leg in legs:
            _mixture(connected, PATH, leg)
        assert fast.status()["hits"] > 0
    _end_raid(connected)
    fast.dmsetup("remove leg0 leg1")


@POLICIES
def test_disk_that_fails_every_second(connected: Pair, policy: str) -> None:
    """Of dm-flakey, for a second and for another one not: errors reach who writes, and nothing is older than that."""
    sectors = connected.borrower.sh(f"blockdev --getsz {DISK}")
    below = _map(connected, "below", f"0 {sectors} linear {DISK} 0")
    with Device(connected, below, policy=policy) as fast:
        job = start_stress(connected.borrower, f"device {PATH} beside={below} mib=8 seconds=300 errors=1")
        until_used(connected, fast, 0)
        for table in (f"0 {sectors} flakey {DISK} 0 1 1 1 error_writes", f"0 {sectors} linear {DISK} 0"):
            fast.exchange("below", table)
            time.sleep(6)
        assert end_stress(job)["refused"] > 0
    fast.dmsetup("remove below")


@POLICIES
def test_resized_under_load(connected: Pair, policy: str) -> None:
    """It grows and shrinks while what is in both sizes is read and written."""
    with Device(connected, sectors=HALF, policy=policy) as fast:
        job = start_stress(connected.borrower, f"device {PATH} beside={DISK} mib=8 seconds=8")
        for sectors in (2 * HALF, HALF, 2 * HALF):
            time.sleep(2)
            fast.exchange(NAME, f"0 {sectors} tidepool - {DISK} {policy}")
        assert finish_stress(job)["wrong_pages"] == 0


@POLICIES
def test_fio_verifies(kernel: str, policy: str) -> None:
    """What fio writes, in blocks, in many at a time and in parts, it finds again."""
    with (pair := Pair(kernel, disk=RAW, modules=MODULES, tools=tools_disk("fio"))) as (borrower, _):
        pair.connect(size=64 * MIB, more=PATIENT)
        borrower.sh("mkdir /tools && mount -o ro /dev/vdb /tools")
        with Device(pair, policy=policy) as fast:
            for size in ("4k", "64k", "1536"):
                borrower.sh(f"{with_tools('fio')} {FIO} --filename={PATH} --bs={size}", timeout=600)
            assert fast.status()["hits"] > 0
        pair.assert_clean()


@POLICIES
def test_one_on_the_other(connected: Pair, policy: str) -> None:
    """A device on a device: both put, none gives what is older."""
    inner = Device(connected, policy=policy)
    inner.create()
    sectors = connected.borrower.sh(f"blockdev --getsz {PATH}")
    outer = _map(connected, "outer", f"0 {sectors} tidepool - {PATH} behind 1")
    assert wrong_pages(connected.borrower, f"device {outer} beside={DISK} mib=8 seconds={SECONDS}") == 0
    inner.dmsetup("remove outer && dmsetup remove fast")
