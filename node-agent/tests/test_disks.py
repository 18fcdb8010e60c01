"""What the agent's script does to block devices and swap: on loop devices, with real file systems (see `playing`)."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playing import Bench, sh

from tidepool_agent.backing import SharedDisk
from tidepool_agent.devices import Attach, Detach, Map, SwapOff, SwapOn, Unmap
from tidepool_agent.errors import DeviceRefused
from tidepool_agent.guest import SCRIPT
from tidepool_api import Swap, SwapBacking, SwapWrite, mapped_name, swap_name

MIB = 1 << 20
IN_FILE = Swap(backing=SwapBacking.FILE, size="16Mi")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path)
    yield one
    one.close()


def on(device: str, size: str | None = None) -> Swap:
    return Swap(backing=SwapBacking.DEVICE, device=device, size=size)


def refused(bench: Bench, step: Map | SwapOn) -> tuple[str, str]:
    """The reason and the message with which a step is refused; nothing is left of it."""
    with pytest.raises(DeviceRefused) as caught:
        bench.do(step)
    assert dict(bench.look().mapped) == {}
    assert list((bench.folder / "mapper").iterdir()) == []
    return caught.value.reason, str(caught.value)


def divide(disk: str, kind: int = 0x83) -> str:
    """Writes a partition table with one partition of 32 MiB, and says which that is."""
    entry = struct.pack("<B3sB3sII", 0, b"", kind, b"", 2048, 65536)
    with Path(disk).open("r+b") as table:
        table.seek(446)
        table.write(entry.ljust(64, b"\0") + b"\x55\xaa")
    sh(f"partx -u {disk}")
    return f"{disk}p1"


# --- disks ------------------------------------------------------------------------------------------------------------


def test_a_disk_gets_lenders_loses_them_and_is_given_back(bench: Bench) -> None:
    """What lies on it stays; each step may come again, as after an agent that ended in the middle."""
    disk = bench.disk()
    name = mapped_name(disk)
    assert dict(bench.look().mapped) == {}
    for _ in range(2):
        one = bench.do(Map(disk, forced=False)).mapped[name]
        assert (one.size_bytes, one.is_lent, one.is_open, one.swapped_bytes) == (32 << 20, True, False, None)
        assert dict(one.stats) == {"hits": 5, "misses": 3, "fallbacks": 1, "puts": 8}
    number = Path(f"/sys/class/block/{Path(disk).name}/dev").read_text().strip()
    for step, lent, table in (
        (Detach(name), False, f"0 65536 linear {number} 0"),
        (Attach(name), True, f"0 65536 tidepool - {number} writethrough"),
    ):
        for _ in range(2):
            assert bench.do(step).mapped[name].is_lent is lent
            assert (bench.folder / "dm" / name / "table").read_text().strip() == table
    assert dict(bench.do(Unmap(name), Unmap(name)).mapped) == {}


def test_swap_is_written_when_the_pool_says(bench: Bench) -> None:
    """From the beginning, and by an edit while it is in use; with lenders gone for a while, too."""
    disk, behind = bench.disk(), {"write": SwapWrite.BEHIND}
    swap = on(disk)
    name, table = swap_name(swap), bench.folder / "dm" / swap_name(swap) / "table"
    one = bench.do(SwapOn(swap.model_copy(update=behind), forced=False)).mapped[name]
    assert (one.is_behind, one.swapped_bytes) == (True, 0)
    for step, is_behind, words in (
        (Attach(name, SwapWrite.BEHIND), True, "behind"),
        (Detach(name), False, "0"),
        (Attach(name, SwapWrite.BEHIND), True, "behind"),
        (Attach(name), False, "writethrough"),
    ):
        one = bench.do(step).mapped[name]
        assert (one.is_behind, one.swapped_bytes) == (is_behind, 0)
        assert table.read_text().split()[-1] == words
    bench.do(SwapOff(name))
    bench.mount("ext4", 64)
    assert bench.do(SwapOn(IN_FILE.model_copy(update=behind), forced=False)).mapped["tidepool.swap"].is_behind


@pytest.mark.parametrize("step", [Attach, Detach])
def test_a_log_that_the_disk_does_not_take_stays(bench: Bench, step: type[Attach | Detach]) -> None:
    """It goes with its table, and programs would read older memory; when the disk takes it the device is as asked."""
    swap = on(bench.disk()).model_copy(update={"write": SwapWrite.BEHIND})
    name = swap_name(swap)
    bench.do(SwapOn(swap, forced=False))
    node = bench.folder / "mapper" / name
    disk = node.readlink()
    node.unlink()
    node.symlink_to("/dev/full")  # cannot be flushed
    with pytest.raises(DeviceRefused, match=f"the disk below {name} does not take what was swapped out: ") as caught:
        bench.do(step(name))
    assert caught.value.reason == "DiskRefuses"
    assert bench.look().mapped[name].is_behind
    node.unlink()
    node.symlink_to(disk)
    assert not bench.do(step(name)).mapped[name].is_behind


def test_a_disk_is_there_before_the_target_that_puts_lenders_in_front(bench: Bench) -> None:
    """Who mounts it does not wait for a module, which the guest may never get."""
    disk = bench.disk()
    name = mapped_name(disk)
    (bench.folder / "target").rename(bench.folder / "loaded-later")
    one = bench.do(Map(disk, forced=False)).mapped[name]
    assert (one.size_bytes, one.is_lent, one.is_odd) == (32 << 20, False, False)
    (bench.folder / "loaded-later").rename(bench.folder / "target")
    assert bench.do(Attach(name)).mapped[name].is_lent
    assert list(bench.do(Attach("tidepool-that-could-not-be-made")).mapped) == [name]


def test_a_device_of_somebody_else_is_not_the_agents(bench: Bench) -> None:
    """By its UUID, whatever its name is: it is neither reported nor taken away."""
    disk = bench.disk()
    bench.do(Map(disk, forced=False))
    name = mapped_name(disk)
    bench.play(f"dm/{name}/uuid", "CRYPT-LUKS2-x\n")
    assert dict(bench.do(Unmap(name)).mapped) == {}
    assert (bench.folder / "dm" / name).exists()


@pytest.mark.parametrize("table", ["0 65536 error \n", "", "0 8 linear 7:0 0\n8 8 error\n", "8 8 linear 7:0 0\n"])
def test_a_device_with_a_table_of_somebody_else_hides_no_other(bench: Bench, table: str) -> None:
    """It is said to be odd, and made anew when whoever changed it has removed it."""
    disks = [bench.disk(), bench.disk()]
    odd, fine = (mapped_name(disk) for disk in disks)
    bench.do(*(Map(disk, forced=False) for disk in disks))
    bench.play(f"dm/{odd}/table", table)
    seen = bench.look().mapped
    assert (seen[odd].is_odd, seen[odd].is_lent, seen[fine].is_odd, seen[fine].is_lent) == (True, False, False, True)
    if table:
        with pytest.raises(DeviceRefused, match=f"dmsetup remove {odd}") as caught:
            bench.do(Map(disks[0], forced=False))
        assert caught.value.reason == "DeviceChanged"
        bench.do(Unmap(odd))
    assert bench.do(Map(disks[0], forced=False)).mapped[odd].is_lent


def test_a_device_that_goes_while_it_is_looked_at_is_no_error(bench: Bench) -> None:
    disk = bench.disk()
    bench.do(Map(disk, forced=False))
    bench.play("fleeting")
    assert dict(bench.look().mapped) == {}


def test_a_device_that_was_begun_and_has_no_table_yet_makes_way(bench: Bench) -> None:
    """Its creation was killed: there is no node of it, and its name and its UUID are taken."""
    disk = bench.disk()
    begun = bench.folder / "dm/of-another-name"
    begun.mkdir()
    (begun / "uuid").write_text(f"tidepool-agent-{mapped_name(disk)}\n")
    assert list(bench.do(Map(disk, forced=False)).mapped) == [mapped_name(disk)]
    assert not begun.exists()


def test_a_disk_that_is_taken_out_of_the_guest_is_noticed(bench: Bench) -> None:
    disk = bench.disk()
    name = mapped_name(disk)
    assert bench.do(Map(disk, forced=False)).mapped[name].disk_bytes == 32 << 20
    bench.play(f"dm/{name}/table", "0 65536 tidepool - 254:4095 writethrough\n")
    assert bench.look().mapped[name].is_gone
    assert dict(bench.do(Unmap(name)).mapped) == {}


def test_a_table_that_is_refused_leaves_the_one_that_there_is(bench: Bench) -> None:
    disk = bench.disk()
    name = mapped_name(disk)
    bench.do(Map(disk, forced=False))
    bench.play("refuse-resume")
    with pytest.raises(DeviceRefused, match="detach failed"):
        bench.do(Detach(name))
    assert bench.look().mapped[name].is_lent
    assert not (bench.folder / "dm" / name / "new").exists()


def test_a_disk_that_is_used_is_left_alone(bench: Bench) -> None:
    mounted = bench.mount("ext4", 32)
    device = sh(f"findmnt -n -o SOURCE {mounted}")
    assert refused(bench, Map(device, forced=True)) == (
        "DeviceInUse",
        f"{device} is mounted; unmount it, or name another device",
    )
    opened = bench.disk()
    with Path(opened).open("rb"):
        reason, message = refused(bench, Map(opened, forced=True))
    assert reason == "DeviceInUse"
    assert f"is open: process {os.getpid()} (" in message
    swap = bench.disk()
    bench.play("swaps", f"Filename Type Size Used Priority\n{swap} partition 1000 0 -2\n")
    assert "it is a swap area" in refused(bench, Map(swap, forced=True))[1]


@pytest.mark.parametrize(
    ("uuid", "reason"), [("tidepool-agent-tidepool-x", "DeviceTwice"), ("LVM-x", "DeviceInUse"), ("", "DeviceInUse")]
)
def test_a_disk_below_another_device_says_whose_that_is(bench: Bench, uuid: str, reason: str) -> None:
    user = bench.folder / "holders/dm-7"
    (user / "dm").mkdir(parents=True)
    bench.play("holders/dm-7/dm/uuid", uuid)
    found, message = refused(bench, Map(bench.disk(), forced=True))
    assert (found, "dm-7" in message) == (reason, True)


def test_a_guest_that_does_not_tell_what_is_open_is_not_waited_for(bench: Bench) -> None:
    bench.play("bin/ls", "#!/bin/sh\necho /proc/1/fd:\nexec sleep 60\n").chmod(0o755)
    bench.play("bin/timeout", '#!/bin/sh\nshift\nexec /usr/bin/timeout 1 "$@"\n').chmod(0o755)
    reason, message = refused(bench, Map(bench.disk(), forced=True))
    assert (reason, "does not tell" in message) == ("DeviceInUse", True)


def test_a_disk_of_which_a_partition_is_mounted_is_left_alone(bench: Bench) -> None:
    disk = bench.disk(64, "--partscan")
    sh(f"mkfs.ext4 {divide(disk)}")
    top = bench.folder / "part"
    top.mkdir()
    sh(f"mount {disk}p1 {top}")
    try:
        assert refused(bench, Map(disk, forced=True))[0] == "DeviceInUse"
    finally:
        sh(f"umount {top}")


def test_what_is_no_disk_or_none_to_write_to_is_refused(bench: Bench) -> None:
    assert refused(bench, Map("/dev/nothing", forced=False))[0] == "DeviceMissing"
    assert refused(bench, Map("/dev/null", forced=False))[0] == "DeviceMissing"
    assert refused(bench, Map(bench.disk(32, "-r"), forced=False))[0] == "DeviceReadOnly"
    reason, message = refused(bench, Map(bench.disk(15), forced=False))
    assert reason == "DeviceTooSmall"
    assert f"has {15 << 20} bytes, and {16 << 20} are needed" in message


def test_a_disk_that_other_guests_share_is_refused_by_whatever_path(bench: Bench) -> None:
    disk = bench.disk(64, "--partscan")
    divide(disk)
    link = bench.folder / "of-another-name"
    link.symlink_to(disk)
    shared = (SharedDisk("vdx", "x"), SharedDisk(Path(disk).name, ""))
    part = SwapOn(on(f"{disk}p1"), forced=True, shared=shared)
    for step in (*(Map(path, forced=True, shared=shared) for path in (str(link), f"{disk}p1")), part):
        reason, message = refused(bench, step)
        assert (reason, message.count("other guests share /")) == ("DeviceShared", 1)
    name = mapped_name(f"{disk}p1")
    assert (
        bench.do(Map(f"{disk}p1", forced=True, shared=shared[:1])).mapped[name].below[0].split()[0] == Path(disk).name
    )


@pytest.mark.parametrize(
    ("disk", "serial", "found"),
    [("vdc", "", True), ("vda", "data-0001", True), ("vda", "data-0002", False), ("", "", False), ("", "dat", False)],
)
def test_a_shared_disk_is_known_by_its_name_or_its_serial_number(disk: str, serial: str, *, found: bool) -> None:
    command = ["/bin/sh", "-c", SCRIPT, "tidepool", "is_among", disk, serial]
    said = "dm-0 LVM-x\nvdc data-0001 eui.1\n"
    assert (subprocess.run(command, input=said, text=True, check=False).returncode == 0) is found


def test_a_disk_with_something_on_it_takes_force_and_keeps_it(bench: Bench) -> None:
    disk = bench.disk()
    sh(f"mkfs.ext4 {disk}")
    reason, message = refused(bench, Map(disk, forced=False))
    assert (reason, "lies ext4" in message, "spec.borrowers.force" in message) == ("DeviceNotEmpty", True, True)
    bench.do(Map(disk, forced=True))
    assert "ext4" in sh(f"blkid -p {disk}")


def test_a_partition_table_is_something(bench: Bench) -> None:
    disk = bench.disk(64, "--partscan")
    divide(disk)
    assert "lies dos" in refused(bench, Map(disk, forced=False))[1]


@pytest.mark.parametrize(("kind", "found"), [(0x83, ""), (0x41, "lies what PReP boots")])
def test_a_partition_with_nothing_on_it_is_empty(bench: Bench, kind: int, found: str) -> None:
    """Its place in the table is nothing on it; what firmware boots from has no signature, and is something."""
    part = divide(bench.disk(64, "--partscan"), kind)
    if found:
        assert found in refused(bench, Map(part, forced=False))[1]
        return
    name = mapped_name(part)
    assert bench.do(Map(part, forced=False)).mapped[name].is_lent
    sh(f"mkfs.ext4 {part}")
    bench.do(Unmap(name), Map(part, forced=False))


def test_a_disk_with_a_serial_number_is_taken_again_whatever_its_size_is(bench: Bench) -> None:
    """And what was mapped by an agent that was ended before it could remember is remembered."""
    disk = bench.disk()
    name = mapped_name(disk)
    number = Path(f"/sys/class/block/{Path(disk).name}/dev").read_text().strip()
    bench.play(f"serial-{number}", "data-1\n")
    bench.do(Map(disk, forced=False))
    (bench.folder / "var/tidepool/devices" / name).unlink()
    sh(f"mkfs.ext4 {disk}")
    bench.do(Map(disk, forced=False), Unmap(name))
    sh(f"truncate -s 48M {bench.folder}/disk0; losetup -c {disk}")
    bench.do(Map(disk, forced=False), Unmap(name))
    bench.play(f"serial-{number}", "data-2\n")
    assert refused(bench, Map(disk, forced=False))[0] == "DeviceNotEmpty"


def test_a_disk_that_was_taken_empty_is_taken_again_after_a_reboot(bench: Bench) -> None:
    """What lies on it then has been written through the pool; another disk under its path is another matter."""
    disk = bench.disk()
    bench.do(Map(disk, forced=False))
    sh(f"mkfs.ext4 {disk}")
    bench.do(Unmap(mapped_name(disk)), Map(disk, forced=False), Unmap(mapped_name(disk)))
    sh(f"truncate -s 48M {bench.folder}/disk0; losetup -c {disk}")
    assert refused(bench, Map(disk, forced=False))[0] == "DeviceNotEmpty"


def test_a_guest_without_device_mapper_says_what_to_install(bench: Bench) -> None:
    bench.play("misc")
    assert refused(bench, Map(bench.disk(), forced=False))[0] == "NoDeviceMapper"


def test_what_device_mapper_refuses_is_told(bench: Bench) -> None:
    bench.play("refuse-create")
    reason, message = refused(bench, Map(bench.disk(), forced=False))
    assert (reason, message) == ("DeviceFailed", "map failed in the guest: Device or resource busy")


# --- swap -------------------------------------------------------------------------------------------------------------


def swaps(bench: Bench) -> list[str]:
    """The swap areas in use beside the one that there is, with their priorities."""
    return [line.split()[-1] for line in (bench.folder / "swaps").read_text().splitlines()[2:]]


def test_a_swap_file_lies_where_there_is_most_room_and_goes_without_a_trace(bench: Bench) -> None:
    small, large = bench.mount("ext4", 40, at="var"), bench.mount("ext4", 64)
    step = SwapOn(IN_FILE, forced=False)
    for _ in range(2):
        one = bench.do(step).mapped["tidepool.swap"]
        file = large / ".tidepool/swap"
        assert (one.size_bytes, one.is_lent, one.file, one.swapped_bytes) == (16 << 20, True, str(file), 0)
        assert swaps(bench) == ["101"]  # before the one of 100
    state = file.stat()
    assert (state.st_size, state.st_mode & 0o777, state.st_blocks * 512 >= 16 << 20) == (16 << 20, 0o600, True)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert dict(bench.do(SwapOff("tidepool.swap"), SwapOff("tidepool.swap")).mapped) == {}
    assert (swaps(bench), file.exists(), list(small.glob(".tid*"))) == ([], False, [])
    assert str(file) not in sh("losetup -a")


def test_a_swap_file_is_used_again_after_a_reboot_and_made_anew_if_it_is_not_whole(bench: Bench) -> None:
    file = bench.mount("ext4", 64) / ".tidepool/swap"
    bench.do(SwapOn(IN_FILE, forced=False))
    first = file.stat().st_ino
    for whole in (True, False):
        _reboot(bench)
        if not whole:
            os.truncate(file, 8 << 20)
            os.truncate(file, 16 << 20)
        assert bench.do(SwapOn(IN_FILE, forced=False)).mapped["tidepool.swap"].swapped_bytes == 0
        assert (file.stat().st_blocks * 512 >= 16 << 20, file.stat().st_ino == first or not whole) == (True, True)


def _reboot(bench: Bench) -> None:
    """What a reboot leaves: nothing but what is on disks."""
    bench.play("swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1000 0 100\n")
    sh(f"rm -rf {bench.folder}/dm/* {bench.folder}/mapper/*")


def test_a_swap_file_lies_on_xfs_too(bench: Bench) -> None:
    top = bench.mount("xfs", 320)
    assert bench.do(SwapOn(IN_FILE, forced=False)).mapped["tidepool.swap"].file == f"{top}/.tidepool/swap"


@pytest.mark.parametrize(("kind", "options"), [("ext4", "ro"), ("btrfs", "rw")])
def test_a_swap_file_lies_on_no_file_system_that_is_none_for_it(bench: Bench, kind: str, options: str) -> None:
    top = bench.mount(kind, 128, options)
    reason, message = refused(bench, SwapOn(IN_FILE, forced=False))
    assert (reason, "the most is 0Mi" in message) == ("NoRoom", True)
    assert not (top / ".tidepool").exists()


def test_a_swap_file_lies_on_no_file_system_of_small_blocks(bench: Bench) -> None:
    """A page would not be one piece of the disk; small disks are formatted so."""
    top = bench.mount("ext4", 64, block=1024)
    reason, message = refused(bench, SwapOn(IN_FILE, forced=False))
    assert (reason, "with blocks of 4 KiB" in message) == ("NoRoom", True)
    assert not (top / ".tidepool").exists()


def test_a_swap_file_leaves_room_and_says_how_much_there_is(bench: Bench) -> None:
    top = bench.mount("ext4", 64)
    reason, message = refused(bench, SwapOn(Swap(backing=SwapBacking.FILE, size="1Gi"), forced=False))
    assert reason == "NoRoom"
    assert "room for a swap file of 1024Mi" in message
    assert not (top / ".tidepool").exists()


def test_a_file_system_that_others_write_to_is_none_for_a_swap_file(bench: Bench) -> None:
    """Who may write there could have root write elsewhere, by a link."""
    top = bench.mount("ext4", 64)
    top.chmod(0o777)
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"
    top.chmod(0o755)
    (top / ".tidepool").symlink_to(bench.folder)
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"
    (top / ".tidepool").unlink()
    (top / ".tidepool").mkdir(0o700)
    (top / ".tidepool/swap").symlink_to(bench.play("precious", "x"))
    bench.do(SwapOn(IN_FILE, forced=False))
    assert (bench.folder / "precious").read_text() == "x"


@pytest.mark.parametrize("at", ["data", "var/kubelet/pods/1/volumes/data"])
def test_no_other_file_system_than_the_systems_is_one_for_a_swap_file(bench: Bench, at: str) -> None:
    """A container may have a folder of any other as its volume: it would read what is in others' memory."""
    top = bench.mount("ext4", 64, at=at)
    reason, message = refused(bench, SwapOn(IN_FILE, forced=False))
    assert (reason, "the most is 0Mi" in message) == ("NoRoom", True)
    assert not (top / ".tidepool").exists()


def test_a_file_system_that_var_lib_is_a_link_to_is_none_for_a_swap_file(bench: Bench) -> None:
    """It has others' data, too."""
    top = bench.mount("ext4", 64, at="data")
    (bench.folder / "var").rename(bench.folder / "old")
    (top / "lib").mkdir()
    (bench.folder / "var").symlink_to(top / "lib")
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"


def test_the_systems_file_system_is_none_for_a_swap_file_where_a_container_has_all_of_it(bench: Bench) -> None:
    bench.bind(bench.mount("ext4", 64), "var/containerd/volume")
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"


@pytest.mark.parametrize("deep", [False, True])
def test_a_disk_that_is_a_file_is_none_for_a_swap_file(bench: Bench, *, deep: bool) -> None:
    """Nor is what lies on one, whatever is between: who has the file reads it."""
    number = bench.mount("ext4", 64).stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    if deep:
        for upper, lower in ((name, "200:1"), ("200:1", "200:2")):
            (bench.folder / f"slaves-{upper}" / "lower").mkdir(parents=True)
            bench.play(f"slaves-{upper}/lower/dev", f"{lower}\n")
    bench.play(f"loop-{'200:2' if deep else name}")
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"


def test_what_lies_on_a_device_of_a_pool_is_one(bench: Bench) -> None:
    """However much is between, such as encryption and a volume group."""
    top = bench.folder / "sys"
    for folder, uuid in (("top", "CRYPT-LUKS2-x"), ("top/slaves/mid", "LVM-x"), ("top/slaves/mid/slaves/low", "x")):
        (top / folder / "dm").mkdir(parents=True)
        (top / folder / "dm/uuid").write_text(f"{uuid}\n")
    (top / "top/part").mkdir()
    (top / "top/part/partition").write_text("1\n")
    assert not bench.does("is_pools", top / "top")
    assert not bench.does("is_pools", top / "top/part")
    (top / "top/slaves/mid/slaves/low/dm/uuid").write_text("tidepool-agent-tidepool-vdb\n")
    assert bench.does("is_pools", top / "top")
    assert bench.does("is_pools", top / "top/part")


def test_a_swap_file_that_the_kernel_refuses_is_made_anew(bench: Bench) -> None:
    """It lies there since a reboot, and something has been done to it that nobody sees."""
    file = bench.mount("ext4", 64) / ".tidepool/swap"
    bench.do(SwapOn(IN_FILE, forced=False))
    _reboot(bench)
    bench.play("refuse-create")
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "DeviceFailed"
    assert not file.exists()
    (bench.folder / "refuse-create").unlink()
    bench.do(SwapOn(IN_FILE, forced=False))
    assert swaps(bench) == ["101"]


def test_a_swap_file_that_a_reboot_has_left_is_found(bench: Bench) -> None:
    """The pool may have ended meanwhile: nothing is mapped, and the guest still says that there is one."""
    file = bench.mount("ext4", 64) / ".tidepool/swap"
    assert not bench.look().has_swap_file
    bench.do(SwapOn(IN_FILE, forced=False))
    _reboot(bench)
    seen = bench.look()
    assert (seen.has_swap_file, dict(seen.mapped), file.exists()) == (True, {}, True)
    assert not bench.do(SwapOff("tidepool.swap")).has_swap_file
    assert not file.exists()


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_takes_long_goes_on_in_the_guest_and_says_later_how_it_ended(bench: Bench, *, is_refused: bool) -> None:
    """The agent has other things to do in the guest meanwhile."""
    bench.mount("ext4", 64)
    step = SwapOn(IN_FILE, forced=False)
    bench.play("bin/sleep", "#!/bin/sh\nexec /bin/sleep 1\n").chmod(0o755)
    bench.play("bin/dd", f'#!/bin/sh\n/bin/sleep 8\n{"exit 1" if is_refused else "exec /bin/dd "}"$@"\n').chmod(0o755)
    for _ in range(2):
        with pytest.raises(DeviceRefused) as caught:
            bench.do(step)
        assert (caught.value.reason, swaps(bench)) == ("SettingUp", [])
    with (bench.folder / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert swaps(bench) == ([] if is_refused else ["101"])
    (bench.folder / "bin/dd").unlink()
    if is_refused:
        with pytest.raises(DeviceRefused, match="could not be written") as caught:
            bench.do(step)
        assert caught.value.reason == "NoRoom"
    assert bench.do(step).mapped["tidepool.swap"].swapped_bytes == 0


def kill_while_it_writes(bench: Bench, file: Path, size: int) -> None:
    """Has the script killed when so much of a swap file is written, as one that takes too long."""
    dd = bench.play("bin/dd", f"#!/bin/sh\nhead -c {size} /dev/urandom >{file}; sync; kill -9 $PPID\n")
    dd.chmod(0o755)
    with pytest.raises(DeviceRefused):
        bench.do(SwapOn(IN_FILE, forced=False))
    dd.unlink()
    assert bench.look().has_swap_file


def test_a_swap_file_that_could_not_be_ended_in_time_is_gone_on_with(bench: Bench) -> None:
    file = bench.mount("ext4", 28) / ".tidepool/swap"
    kill_while_it_writes(bench, file, 9 * MIB + 17)
    half = file.read_bytes()[MIB : 9 * MIB]
    assert bench.do(SwapOn(IN_FILE, forced=False)).mapped["tidepool.swap"].file == str(file)
    assert file.read_bytes()[MIB : 9 * MIB] == half
    assert file.stat().st_size == 16 * MIB


@pytest.mark.parametrize("size", [20, 12])
def test_half_a_swap_file_that_is_of_no_use_takes_no_room(bench: Bench, size: int) -> None:
    """It is larger than what is wanted now, or lies where none may be any more."""
    top = bench.mount("ext4", 28)
    kill_while_it_writes(bench, top / ".tidepool/swap", size * MIB)
    if size < 16:
        top.chmod(0o777)
        assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoRoom"
        assert not (top / ".tidepool/swap").exists()
        return
    bench.do(SwapOn(IN_FILE, forced=False))
    assert (top / ".tidepool/swap").stat().st_size == 16 * MIB


def test_half_a_swap_file_goes_with_the_pool(bench: Bench) -> None:
    """Also when none may lie there any more."""
    file = bench.mount("ext4", 64) / ".tidepool/swap"
    kill_while_it_writes(bench, file, MIB)
    file.parent.parent.chmod(0o777)
    assert not bench.do(SwapOff("tidepool.swap")).has_swap_file
    assert not file.exists()


def test_two_agents_do_not_make_one_swap_area(bench: Bench) -> None:
    """What the first has begun goes on in the guest without it."""
    bench.mount("ext4", 64)
    with (bench.folder / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for step in (SwapOn(IN_FILE, forced=False), SwapOff("tidepool.swap")):
            with pytest.raises(DeviceRefused, match="is still going on") as caught:
                bench.do(step)
            assert caught.value.reason == "SettingUp"
    bench.do(SwapOn(IN_FILE, forced=False))


@pytest.mark.parametrize("failure", ["refuse-create", "refuse-swapon"])
def test_nothing_is_half_made(bench: Bench, failure: str) -> None:
    top = bench.mount("ext4", 64)
    bench.play(failure)
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "DeviceFailed"
    assert (list(top.glob(".tidepool/*")), swaps(bench), bench.look().has_swap_file) == ([], [], False)
    assert ".tidepool" not in sh("losetup -a")
    (bench.folder / failure).unlink()
    bench.do(SwapOn(IN_FILE, forced=False))
    assert swaps(bench) == ["101"]


def test_a_guest_without_dmsetup_says_what_to_install(bench: Bench) -> None:
    bench.lack("dmsetup")
    for step in (Map(bench.disk(), forced=False), SwapOn(IN_FILE, forced=False)):
        reason, message = refused(bench, step)
        assert (reason, "the package dmsetup" in message) == ("NoDmsetup", True)


def test_a_guest_without_flock_says_what_to_install(bench: Bench) -> None:
    bench.lack("flock")
    assert refused(bench, SwapOn(IN_FILE, forced=False)) == ("NoFlock", "the guest has no flock: install util-linux")


def test_a_kernel_without_swap_takes_disks_and_no_swap(bench: Bench) -> None:
    bench.mount("ext4", 64)
    (bench.folder / "swaps").unlink()
    assert refused(bench, SwapOn(IN_FILE, forced=False))[0] == "NoSwap"
    assert not [*bench.folder.rglob("*/swap")]
    disk = bench.disk()
    assert bench.do(Map(disk, forced=False)).mapped[mapped_name(disk)].swapped_bytes is None


def test_a_disk_becomes_swap_and_is_taken_again_as_that(bench: Bench) -> None:
    """Without force, as it says itself whose it is; one with anything else on it takes force."""
    disk = bench.disk(64)
    swap = on(disk, "32Mi")
    for _ in range(2):
        one = bench.do(SwapOn(swap, forced=False)).mapped[swap_name(swap)]
        assert (one.size_bytes, one.is_swap, one.file) == (32 << 20, True, "")
        bench.do(SwapOff(one.name))
    assert bench.do(SwapOn(on(disk), forced=False)).mapped[swap_name(swap)].size_bytes == 64 << 20
    bench.do(SwapOff(swap_name(swap)))
    sh(f"mkswap -L other {disk}")
    assert refused(bench, SwapOn(swap, forced=False))[0] == "DeviceNotEmpty"
    bench.do(SwapOn(swap, forced=True))
    assert 'LABEL="tidepool"' in sh(f"blkid -p {disk}")


def test_a_disk_that_is_smaller_than_the_swap_area_is_refused(bench: Bench) -> None:
    assert refused(bench, SwapOn(on(bench.disk(16), "32Mi"), forced=False))[0] == "DeviceTooSmall"


V2 = {"memory__max": 64 * MIB, "memory__current": 60 * MIB, "memory__stat": "inactive_file 1048576"}
V1 = {
    "memory__limit_in_bytes": 64 * MIB,
    "memory__usage_in_bytes": 60 * MIB,
    "memory__stat": "inactive_file 4096\ntotal_inactive_file 1048576",
}


@pytest.mark.parametrize(
    ("kind", "figures", "lack"),
    [
        ("cgroup2", V2 | {"memory__swap__current": 7 * MIB}, "2Mi"),
        ("cgroup2", V2 | {"memory__swap__current": 5 * MIB}, ""),
        ("cgroup2", V2 | {"memory__swap__current": 90 * MIB, "memory__max": "max"}, ""),
        ("cgroup2", V2 | {"memory__swap__current": 90 * MIB}, "3Mi"),  # no more comes back than is in the area
        ("cgroup", V1 | {"memory__memsw__usage_in_bytes": 67 * MIB}, "2Mi"),
        ("cgroup", V1 | {"memory__memsw__usage_in_bytes": 65 * MIB}, ""),
        ("cgroup", V1 | {"memory__limit_in_bytes": 9223372036854771712, "memory__memsw__usage_in_bytes": 99 * MIB}, ""),
    ],
)
def test_swap_is_not_emptied_into_a_cgroup_that_is_too_small_for_it(
    bench: Bench, kind: str, figures: dict[str, object], lack: str
) -> None:
    """The kernel would kill programs there, though the guest has memory enough."""
    swap = on(bench.disk(64))
    name = swap_name(swap)
    bench.do(SwapOn(swap, forced=False))
    bench.play("swaps", (bench.folder / "swaps").read_text().replace(" 1000 0 101", f" 65536 {8 << 10} 101"))
    bench.cgroup("kubepods/pod1", kind, **figures)
    if not lack:
        assert dict(bench.do(SwapOff(name)).mapped) == {}
        return
    with pytest.raises(DeviceRefused, match=f"{kind}/kubepods/pod1 has {lack} too little") as caught:
        bench.do(SwapOff(name))
    assert caught.value.reason == "SwapDoesNotFit"
    assert bench.look().mapped[name].swapped_bytes == 8 << 20


def test_where_the_kernel_does_not_count_the_swap_of_a_cgroup_its_processes_tell(bench: Bench) -> None:
    swap = on(bench.disk(64))
    bench.do(SwapOn(swap, forced=False))
    bench.play("swaps", (bench.folder / "swaps").read_text().replace(" 1000 0 101", f" 65536 {8 << 10} 101"))
    bench.cgroup("slice", "cgroup2", **V2)
    bench.cgroup("slice/unit", "cgroup2", cgroup__procs="4711\n4712\n4713")
    bench.play("status-4711", "Name:\tx\nVmSwap:\t    4096 kB\n")
    bench.play("status-4712", "VmSwap:\t    3072 kB\n")
    with pytest.raises(DeviceRefused, match="cgroup2/slice has 2Mi too little"):
        bench.do(SwapOff(swap_name(swap)))
