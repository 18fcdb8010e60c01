"""A guest that boots in seconds: a stock Debian kernel, busybox and the real QEMU guest agent in an initramfs."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
# What the guest needs to talk to the host, and what tidepool.ko needs of the kernel.
DRIVERS = ("virtio_pci", "virtio_console", "virtio_balloon")
PROVIDED = ("configfs", "curve25519_x86_64", "gcm", "ctr", "ghash_generic", "crc32c")
# What a guest with disks has beside: modules that it loads when it needs them, and programs of this machine.
ON_DEMAND = ("virtio_blk", "virtio_net", "ext4", "dm_mod", "dm_flakey")
PROGRAMS = ("dash", "dmsetup", "blkid", "flock", "mkswap", "swapon", "swapoff")

INIT = """#!/bin/sh
export PATH=/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /run
for module in $(cat /lib/order); do insmod "$module"; done
option() { sed -n "s/.*test\\.$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }
sleep "$(option late | grep . || echo 0)"
if [ -n "$(option touched)" ]; then # MiB, so that the host has them behind it
    dd if=/dev/zero of=/run/touched bs=1M count="$(option touched)" && rm /run/touched
fi
if [ -n "$(option disks)" ]; then
    modprobe -a virtio_blk ext4
    mount -t ext4 /dev/vda /var/lib
fi
if [ -n "$(option address)" ]; then
    modprobe virtio_net
    ip link set eth0 up
    ip address add "$(option address)" dev eth0
fi
for port in /dev/vport*p1; do :; done
case "$(option hostile)" in
garbage) while :; do echo '{"return": {"pid": []}}]'; done >"$port" ;;
megabytes) tr '\\0' x </dev/zero >"$port" ;;
silence) exec sleep 1000000 0<>"$port" ;;
esac
[ ! -e /prepare ] || . /prepare
exec qemu-ga -m virtio-serial -p "$port" -t /run -b "$(option blocked)"
"""


class Kernel:
    """The kernel that the lab's guests have, too."""

    def __init__(self, name: str = "6.1") -> None:
        self.folder = Path(_output(str(TOP / "kernel-module/tools/kernel"), "fetch", name))
        self.release = (self.folder / "release").read_text().strip()
        self.vmlinuz = self.folder / "vmlinuz"

    def modules(self, *names: str) -> list[Path]:
        """The files of modules and of what they need, in the order in which they can be loaded."""
        root, found = str(self.folder / "root"), {}
        for name in names:
            for line in _output("modprobe", "-d", root, "-S", self.release, "--show-depends", name).splitlines():
                action, _, path = line.strip().partition(" ")
                if action == "insmod":
                    found[Path(path.strip())] = None
        return list(found)


def tidepool(kernel: str = "6.1") -> Path:
    """Our module, built for that kernel."""
    return Path(_output(str(TOP / "kernel-module/tools/build"), kernel))


def emulator() -> Path:
    """The folder of a newer QEMU than Debian 12 has."""
    return Path(_output(str(TOP / "kernel-module/tools/qemu"), "fetch"))


def boot_files(kernel: Kernel, folder: Path, *, disks: bool = False) -> tuple[Path, Path]:
    """Puts vmlinuz and initramfs into a folder that any user can read; `disks` says that the guest has some.

    On the first of those is its /var/lib, an ext4, when it is started with `test.disks=1`.
    """
    vmlinuz, initrd = folder / "vmlinuz", folder / "initrd"
    shutil.copy(kernel.vmlinuz, vmlinuz)
    root = folder / "root"
    _fill(root, kernel)
    if disks:
        _fill_for_disks(root, kernel)
    initrd.write_bytes(archive(root))
    shutil.rmtree(root)
    return vmlinuz, initrd


def archive(root: Path) -> bytes:
    """A folder as part of an initramfs; several behind each other are one. What is called /prepare is run there."""
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    command = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
    return subprocess.run(command, cwd=root, input=names.encode(), stdout=subprocess.PIPE, check=True).stdout


def _fill(root: Path, kernel: Kernel) -> None:
    for name in ("bin", "proc", "sys", "dev", "run", "tmp", "etc", "lib", "var/lib"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox", path=PATH) or "busybox"
    shutil.copy(busybox, root / "bin/busybox")
    for applet in _output(busybox, "--list").split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "sbin").symlink_to("bin")
    copy_program("qemu-ga", root)
    _write(root / "init", INIT)
    order = [f"/{path.relative_to(root)}" for path in unpack(kernel.modules(*DRIVERS, *PROVIDED), root / "lib")]
    _write(root / "lib/order", "\n".join(order))


def _fill_for_disks(root: Path, kernel: Kernel) -> None:
    """What `modprobe` finds in the guest, and programs in place of busybox's own, which do less."""
    for name in PROGRAMS:
        copy_program(name, root)
    (root / "bin/sh").unlink()
    (root / "bin/sh").symlink_to("dash")  # busybox's own would prefer its own programs
    folder = root / "lib/modules" / kernel.release
    folder.mkdir(parents=True)
    unpack(kernel.modules(*ON_DEMAND), folder)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(kernel.folder / f"root/lib/modules/{kernel.release}" / name, folder)
    _output("depmod", "-b", str(root), kernel.release)


def copy_program(name: str, root: Path) -> None:
    """Takes a program of this machine, and the libraries that it needs."""
    program = Path(shutil.which(name, path=PATH) or f"/usr/sbin/{name}")
    target = root / "bin" / name
    target.unlink(missing_ok=True)
    shutil.copy(program, target)
    for library in _libraries(program):
        target = root / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def unpack(modules: list[Path], folder: Path) -> list[Path]:
    """Where they are then, in the same order."""
    return [_unpack_one(file, folder / file.name.removesuffix(".xz")) for file in modules]


def _unpack_one(file: Path, target: Path) -> Path:
    data = file.read_bytes()
    target.write_bytes(lzma.decompress(data) if file.suffix == ".xz" else data)
    return target


def _libraries(program: Path) -> list[Path]:
    return [Path(path) for path in re.findall(r"(/\S+\.so\S*)", _output("ldd", str(program)))]


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def _output(*command: str) -> str:
    run = subprocess.run(command, env={**os.environ, "PATH": PATH}, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.strip()
