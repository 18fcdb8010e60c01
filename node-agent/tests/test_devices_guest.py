"""Block devices and swap in a real guest: device-mapper and file systems are its kernel's, rounds a real worker's.

Each test begins and ends with a guest that has none of a pool's devices.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE, wait_for
from daemon import Daemon, end
from objects import alter
from solo import Solo, said
from tiny import PATH, Kernel, boot_files

from tidepool_agent.devices import SwapOn
from tidepool_agent.errors import Frozen, Unreachable
from tidepool_agent.guest import Guest
from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_agent.store import Store
from tidepool_api import Swap

MIB = 1 << 20
DISKS = {"vda": 256, "vdb": 32, "vdc": 128, "vdd": 32}  # MiB
FORMATTED = ("vda", "vdd")  # with ext4
DEVICES, SWAP = "DevicesReady", "SwapReady"
FILE = {"backing": "File", "size": "96Mi"}
SWAP_FILE = "/var/lib/tidepool/swap"
SEED = "/run/seed"  # 8 MiB that nobody can guess
MAKE_FILE = "dd if=/dev/urandom of=/mnt/file bs=1M count=4; sync;"
# So much of what a cgroup has is swapped out, however much memory is free.
GROUP = (
    "mkdir -p /run/groups; mount -t cgroup2 groups /run/groups; echo +memory >/run/groups/cgroup.subtree_control; "
    "mkdir /run/groups/one"
)
OUT = "echo {} >/run/groups/one/memory.reclaim || :"
SLOW = 8 * MIB  # a second, of what is written to the disk of the swap file


class Bench:
    """A guest with disks, the agent that looks after it, and a second way in."""

    def __init__(self, daemon: Daemon, store: Path, boot: tuple[Path, Path], disks: dict[str, Path]) -> None:
        self.store = store
        self.domain = daemon.start("default_disks", "test.disks=1", boot=boot, disks=disks)
        self.way_in = Domain(daemon.uri, "default_disks")
        self.shell = GuestAgent(self.way_in.command)
        self.wait_until_booted()
        self.agent = Solo(daemon.uri, "default_disks", store)

    def wait_until_booted(self) -> None:
        wait_for(lambda: self.shell.blocked() == [])

    def sh(self, line: str) -> str:
        done = self.shell.run(["/bin/sh", "-ec", line], seconds=PATIENCE)
        assert done.code == 0, f"{line}: {done.err}"
        return done.out.strip()

    def table(self, name: str) -> str:
        """Which target a device has: `tidepool` with lenders, `linear` without."""
        return self.sh(f"dmsetup table {name}").split()[2]

    def swaps(self) -> dict[str, int]:
        """The priorities of all swap areas."""
        return {line.split()[0]: int(line.split()[4]) for line in self.sh("tail -n +2 /proc/swaps").splitlines()}

    def is_bare(self) -> bool:
        """Whether nothing of the pool's is left."""
        left = f"/dev/mapper/tidepool* /sys/module/tidepool* {SWAP_FILE}"
        return self.sh(f"ls {left} 2>/dev/null || :; cat /proc/swaps").startswith("Filename")

    def close(self) -> None:
        self.agent.close()
        self.way_in.close()
        end(self.domain)


def image(folder: Path, name: str) -> Path:
    """A disk, which the guest's process may use, too."""
    file = folder / name
    file.touch()
    os.truncate(file, DISKS[name] * MIB)
    file.chmod(0o666)
    if name in FORMATTED:
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", str(file)], env={**os.environ, "PATH": PATH}, check=True)
    return file


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, kernel: Kernel, module: Path) -> Path:
    """A module store with all modules."""
    folder = tmp_path_factory.mktemp("store") / kernel.release
    folder.mkdir()
    for name in ("tidepool.ko", "tidepool-block.ko", "tidepool-file.ko"):
        data = module.with_name(name).read_bytes()
        (folder / name).write_bytes(data)
        (folder / f"{name}.sha256").write_text(hashlib.sha256(data).hexdigest())
    return folder.parent


@pytest.fixture(scope="module")
def booted(daemon: Daemon, store: Path, kernel: Kernel) -> Iterator[Bench]:
    folder = Path(tempfile.mkdtemp(dir=daemon.folder))
    folder.chmod(0o755)
    one = Bench(daemon, store, boot_files(kernel, folder, disks=True), {name: image(folder, name) for name in DISKS})
    yield one
    one.close()
    shutil.rmtree(folder)


@pytest.fixture
def bench(booted: Bench) -> Iterator[Bench]:
    yield booted
    booted.agent.leave()
    booted.agent.until(lambda _: booted.is_bare())


# --- disks ------------------------------------------------------------------------------------------------------------


def test_a_disk_gets_lenders_and_is_given_back_when_nobody_uses_it(bench: Bench) -> None:
    """What is written through it is on the disk; with lenders, without, and afterwards."""
    status = bench.agent.want(devices=["/dev/vdb"])
    assert said(status, DEVICES) == ("True", "Mapped", "/dev/mapper/tidepool-vdb")
    (one,) = status.devices
    assert (one.name, one.below, one.size_bytes, one.lent) == ("tidepool-vdb", "/dev/vdb", 32 * MIB, True)
    bench.sh("mke2fs /dev/mapper/tidepool-vdb; mkdir -p /mnt; mount /dev/mapper/tidepool-vdb /mnt")
    digest = bench.sh(f"{MAKE_FILE} sha256sum /mnt/file")
    status = bench.agent.want()
    ready, reason, message = said(status, DEVICES)
    assert (ready, reason) == ("False", "StillInUse")
    assert message.startswith("tidepool-vdb is in use in the guest, and goes on without a lender: unmount it, or ")
    assert (status.devices[0].lent, bench.table("tidepool-vdb")) == (False, "linear")
    bench.sh("echo more >/mnt/more; umount /mnt")
    assert bench.agent.round().devices == ()
    assert bench.sh("mount /dev/vdb /mnt; sha256sum /mnt/file; cat /mnt/more; umount /mnt") == f"{digest}\nmore"


def test_a_disk_with_something_on_it_takes_force_and_one_in_use_is_refused(bench: Bench) -> None:
    """Who adds it to `force` need not wait until it is tried again."""
    refused = said(bench.agent.want(devices=["/dev/vdd"]), DEVICES)
    assert refused[:2] == ("False", "DeviceNotEmpty")
    assert refused[2].startswith("on /dev/vdd lies ext4; name it in spec.borrowers.force if a pool may have it; ")
    assert said(bench.agent.want(devices=["/dev/vdd"], force=["/dev/vdd"]), DEVICES)[1] == "Mapped"
    bench.sh("mkdir -p /mnt; mount /dev/mapper/tidepool-vdd /mnt; ls -d /mnt/lost+found; umount /mnt")
    refused = said(bench.agent.want(devices=["/dev/vda"], force=["/dev/vda"]), DEVICES)
    assert refused[:2] == ("False", "DeviceInUse")
    assert refused[2].startswith("/dev/vda is mounted; unmount it, or name another device; tried 1 ")
    bench.sh("sleep 60 </dev/vdb >/dev/null 2>&1 & echo $! >/run/sleeping")
    refused = said(bench.agent.want(devices=["/dev/vdb"], force=["/dev/vdb"]), DEVICES)
    pid = bench.sh("cat /run/sleeping; kill $(cat /run/sleeping)")
    assert refused[2].startswith(f"/dev/vdb is open: process {pid} (sleep); end what uses it, ")


def test_the_module_is_upgraded_and_taken_out_while_a_device_is_open(bench: Bench) -> None:
    """The device goes on as its disk alone for that time, with what it has."""
    wanted = {"devices": ["/dev/vdb"], "force": ["/dev/vdb"]}
    bench.agent.want(**wanted)
    bench.sh("mke2fs /dev/mapper/tidepool-vdb; mkdir -p /mnt; mount /dev/mapper/tidepool-vdb /mnt")
    digest = bench.sh(f"{MAKE_FILE} sha256sum /mnt/file")
    loaded = bench.sh("cat /sys/module/tidepool/srcversion")
    alter(bench.store, loaded.encode(), b"0" * len(loaded))
    status = bench.agent.round()
    assert bench.sh("cat /sys/module/tidepool/srcversion") == "0" * len(loaded)
    assert (status.devices[0].lent, bench.table("tidepool-vdb")) == (False, "linear")
    status = bench.agent.round()
    assert (status.devices[0].lent, bench.table("tidepool-vdb")) == (True, "tidepool")
    assert said(status, DEVICES)[1] == "Mapped"
    again = "echo 3 >/proc/sys/vm/drop_caches; sha256sum /mnt/file"
    assert bench.sh(again) == digest
    status = bench.agent.leave()
    assert said(status, DEVICES)[1] == "StillInUse"
    assert bench.sh("ls -d /sys/module/tidepool* 2>/dev/null || :") == ""
    assert bench.sh(f"{again}; umount /mnt") == digest


# --- swap -------------------------------------------------------------------------------------------------------------


def test_a_disk_becomes_swap_and_is_known_again(bench: Bench) -> None:
    """With something on it by force; once it is the pool's own without."""
    bench.sh("mkswap -L other /dev/vdc")
    device = {"backing": "Device", "device": "/dev/vdc"}
    assert said(bench.agent.want(swap=device), SWAP)[1] == "DeviceNotEmpty"
    status = bench.agent.want(swap=device, force=["/dev/vdc"])
    assert said(status, SWAP) == ("True", "InUse", "/dev/mapper/tidepool.swap-vdc")
    assert status.swap is not None
    assert (status.swap.below, status.swap.size_bytes, status.swap.swapped_bytes) == ("/dev/vdc", 128 * MIB, 0)
    bench.agent.want()
    bench.agent.until(lambda status: status.swap is None)
    assert said(bench.agent.want(swap=device | {"size": "32Mi"}), SWAP)[1] == "InUse"
    assert len(bench.swaps()) == 1


def test_a_swap_file_is_used_first_and_goes_without_a_trace(bench: Bench) -> None:
    """Before an area that the guest has of its own, which stays."""
    bench.sh("mkswap /dev/vdc; swapon -p 20 /dev/vdc")
    status = bench.agent.want(swap=FILE)
    assert said(status, SWAP) == ("True", "InUse", "/dev/mapper/tidepool.swap")
    assert status.swap is not None
    assert (status.swap.below, status.swap.size_bytes, status.swap.lent) == (SWAP_FILE, 96 * MIB, True)
    assert bench.swaps() == {"/dev/vdc": 20, "/dev/mapper/tidepool.swap": 21}
    bench.agent.want()
    bench.agent.until(lambda status: status.swap is None)
    assert bench.swaps() == {"/dev/vdc": 20}
    assert bench.sh(f"swapoff /dev/vdc; ls {SWAP_FILE} 2>/dev/null || :") == ""


def test_swap_that_does_not_fit_into_memory_goes_on_without_lenders(bench: Bench) -> None:
    """The guest says how much is too much; it is emptied when it fits, and nothing of it is lost."""
    device = {"backing": "Device", "device": "/dev/vdc"}
    assert said(bench.agent.want(swap=device, force=["/dev/vdc"]), SWAP)[1] == "InUse"
    bench.sh(f"mkdir -p /mnt; mount -t tmpfs -o size=300M tmp /mnt; dd if=/dev/urandom of={SEED} bs=1M count=8")
    bench.sh(f"for i in $(seq 28); do cat {SEED}; done >/mnt/file")
    bench.agent.want()
    status, reason, message = said(bench.agent.round(), SWAP)
    assert (status, reason) == ("False", "SwapDoesNotFit")
    assert " of what is swapped out to tidepool.swap-vdc do not fit into memory: " in message
    assert message.endswith(" in the guest, or give it more memory; until then it goes on without a lender")
    assert bench.table("tidepool.swap-vdc") == "linear"
    bench.sh("truncate -s 64M /mnt/file")
    bench.agent.until(lambda status: status.swap is None)
    bench.sh(f"for i in $(seq 8); do cat {SEED}; done | cmp - /mnt/file; rm {SEED}; umount /mnt")


def test_swap_is_written_behind_or_at_once_while_it_is_in_use(bench: Bench) -> None:
    """An edit of the pool changes the target under what is swapped out; nothing of that is lost."""
    device = {"backing": "Device", "device": "/dev/vdc"}
    assert said(bench.agent.want(swap=device | {"write": "Behind"}, force=["/dev/vdc"]), SWAP)[1] == "InUse"
    bench.sh(f"mkdir -p /mnt; mount -t tmpfs -o size=300M tmp /mnt; dd if=/dev/urandom of={SEED} bs=1M count=8")
    bench.sh(f"for i in $(seq 24); do cat {SEED}; done >/mnt/file")
    for part, (write, is_behind) in enumerate([("Behind", True), ("Through", False)] * 2):
        status = bench.agent.want(swap=device | {"write": write})
        assert said(status, SWAP)[1] == "InUse", status
        assert ("behind" in bench.sh("dmsetup table tidepool.swap-vdc").split()) == is_behind
        assert len(bench.swaps()) == 1
        for place in range(part, 24, 4):
            bench.sh(f"dd if=/mnt/file bs=8M skip={place} count=1 | cmp - {SEED}")
    assert status.swap is not None
    assert status.swap.swapped_bytes > 16 * MIB
    bench.sh(f"rm {SEED} /mnt/file; umount /mnt")


def test_swap_that_the_disk_does_not_take_stays_in_its_log(bench: Bench) -> None:
    """An edit and an end of the pool wait for the disk, and say so; nothing of what was swapped out is lost."""
    bench.sh('dmsetup create ails --verifyudev --table "0 $(blockdev --getsz /dev/vdc) linear /dev/vdc 0"')
    device = {"backing": "Device", "device": "/dev/mapper/ails"}
    asked = {"swap": device | {"write": "Behind"}, "force": ["/dev/mapper/ails"]}
    status = bench.agent.want(**asked)
    assert said(status, SWAP)[1] == "InUse"
    assert status.swap is not None
    name = status.swap.name
    bench.sh(f"mkdir -p /mnt; mount -t tmpfs -o size=300M tmp /mnt; dd if=/dev/urandom of={SEED} bs=1M count=8")
    bench.sh(f"{GROUP}; echo $$ >/run/groups/one/cgroup.procs; for i in $(seq 12); do cat {SEED}; done >/mnt/file")
    bench.sh(OUT.format("48M"))
    sound = bench.sh("dmsetup table ails")
    refusing = f"{sound.replace('linear', 'flakey')} 0 60 1 error_writes"
    bench.sh(f"dmsetup load ails --table '{refusing}'; dmsetup resume --verifyudev ails; {OUT.format('8M')}")
    bench.agent.until(lambda status: said(status, SWAP)[1] == "DiskRefuses")
    for wanted in ({"swap": device | {"write": "Through"}, "force": ["/dev/mapper/ails"]}, {}):
        assert said(bench.agent.want(**wanted), SWAP)[:2] == ("False", "DiskRefuses")
        assert "behind" in bench.sh(f"dmsetup table {name}").split()
    bench.sh(f"dmsetup load ails --table '{sound}'; dmsetup resume --verifyudev ails")
    bench.agent.want(swap=device, force=["/dev/mapper/ails"])
    bench.agent.until(lambda status: said(status, SWAP)[1] == "InUse")
    assert "writethrough" in bench.sh(f"dmsetup table {name}").split()
    bench.sh(f"for i in $(seq 12); do cat {SEED}; done | cmp - /mnt/file; rm {SEED} /mnt/file; umount /mnt")
    bench.sh("rmdir /run/groups/one; umount /run/groups")
    bench.agent.want()
    bench.agent.until(lambda status: status.swap is None)
    bench.sh("dmsetup remove ails")


def test_an_agent_that_ends_in_the_middle_leaves_its_work_to_the_next(bench: Bench) -> None:
    """What it has begun in the guest goes on; the next one neither disturbs it nor begins it anew."""
    bench.agent.want()  # the module is there
    bench.domain.setBlockIoTune("vda", {"write_bytes_sec": SLOW})

    def dies(text: str, seconds: int) -> str:
        if "guest-exec-status" in text:
            raise Unreachable("the agent has ended")
        return bench.way_in.command(text, seconds)

    bench.agent.want(devices=["/dev/vdb"], force=["/dev/vdb"])  # the target, too
    with pytest.raises(Unreachable):
        Guest(GuestAgent(dies), Store(bench.store)).carry_out(SwapOn(Swap.model_validate(FILE), forced=False), "")
    bench.agent.begin()
    status = bench.agent.want(devices=["/dev/vdb"], force=["/dev/vdb"], swap=FILE)
    assert said(status, SWAP)[:2] == ("False", "SettingUp")
    bench.domain.setBlockIoTune("vda", {"write_bytes_sec": 0})
    bench.agent.until(lambda status: said(status, SWAP)[1] == "InUse")
    names = ("tidepool-vdb", "tidepool.swap", "tidepool_file")
    assert bench.sh("ls /dev/mapper/tidepool*").split() == [f"/dev/mapper/{name}" for name in names]


def test_a_guest_that_is_rebooted_has_everything_again(bench: Bench) -> None:
    """A disk that was taken empty with what has been put on it since, and the same swap file."""
    bench.sh("dd if=/dev/zero of=/dev/vdb bs=64k count=16")
    wanted = {"devices": ["/dev/vdb"], "swap": FILE}
    bench.agent.want(**wanted)
    bench.sh("mke2fs /dev/mapper/tidepool-vdb")
    inode = bench.sh(f"sync; stat -c %i {SWAP_FILE}")
    bench.domain.reset()
    bench.wait_until_booted()
    status = bench.agent.until(lambda status: bool(status.devices and status.swap))
    assert (said(status, DEVICES)[1], said(status, SWAP)[1]) == ("Mapped", "InUse")
    left = bench.sh(f"stat -c %i {SWAP_FILE}; blkid -o value -s TYPE /dev/mapper/tidepool-vdb")
    assert left.split() == [inode, "ext2"]


# --- a backup ---------------------------------------------------------------------------------------------------------


def test_a_guest_that_a_backup_freezes_is_waited_for(bench: Bench) -> None:
    """Issue 28, fault 9: as `virsh domfsfreeze` does it; nothing is blocked, and what is due is done afterwards."""
    both = ["/dev/vdb", "/dev/vdc"]
    bench.sh("for disk in vdb vdc; do dd if=/dev/zero of=/dev/$disk bs=64k count=16; done")
    bench.agent.want(devices=both[:1])
    assert bench.domain.fsFreeze() == 1
    try:
        for call in (bench.shell.blocked, lambda: bench.shell.run(["/bin/true"])):
            with pytest.raises(Frozen, match="waiting until its file systems are thawed"):
                call()
        bench.agent.until(lambda status: said(status, "GuestAgentReady")[1] == "Frozen")
        status = bench.agent.want(devices=both)
        assert said(status, "GuestAgentReady")[:2] == ("True", "Frozen")
        assert said(status, "Ready")[0] == "True"
        assert [one.below for one in status.devices] == both[:1]
    finally:
        bench.domain.fsThaw()
    status = bench.agent.until(lambda status: len(status.devices) == len(both))
    assert said(status, "GuestAgentReady")[:2] == ("True", "Answering")
    assert said(status, DEVICES)[:2] == ("True", "Mapped")
