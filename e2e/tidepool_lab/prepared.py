"""What the tests of docs/how-to/prepare-guests.md boot: a guest that has yet to be prepared, and firmware.

The guest is as a cloud image is: cloud-init, AppArmor, and no QEMU guest agent. The packages that cloud-init installs
lie in the guest, for such guests have no network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tidepool_lab import debian, guest_image, paths, rootfs, store
from tidepool_lab.guest_image import GuestImage
from tidepool_lab.progress import step

LEFT_OUT = ("qemu-guest-agent", "fio", "stress-ng", "xfsprogs", "python3", "redis-server")
PACKAGES = (*(one for one in guest_image.PACKAGES if one not in LEFT_OUT), "cloud-init", "apparmor", "mokutil")
TO_INSTALL = ("qemu-guest-agent",)
CLOUD = r"""datasource_list: [NoCloud, None]
network: {config: disabled}
apt: {preserve_sources_list: true}
"""
# Downloaded by apt outside of the guest, which knows this machine's archives.
REPOSITORY = (
    'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q clean',
    f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -q -y --download-only install {" ".join(TO_INSTALL)}',
    'mkdir -p "$1"/srv/packages && mv "$1"/var/cache/apt/archives/*.deb "$1"/srv/packages',
    'cd "$1"/srv/packages && dpkg-scanpackages . > Packages 2>/dev/null',
    'rm -f "$1"/etc/apt/sources.list.d/* && echo "deb [trusted=yes] file:/srv/packages ./" > "$1"/etc/apt/sources.list',
    f"printf %s '{CLOUD}' > \"$1\"/etc/cloud/cloud.cfg.d/99-lab.cfg",
)
FIRMWARE = {
    "OVMF_CODE.fd": "usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
    "OVMF_VARS.fd": "usr/share/OVMF/OVMF_VARS_4M.ms.fd",
    "OVMF_CODE.plain.fd": "usr/share/OVMF/OVMF_CODE_4M.fd",
    "OVMF_VARS.plain.fd": "usr/share/OVMF/OVMF_VARS_4M.fd",
    "shimx64.efi": "usr/lib/shim/shimx64.efi.signed",
    "grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
}
# What a cloud image has: a partition for UEFI, and one for the root file system.
PARTITIONS = "label: gpt\nstart={esp}MiB, size={root}MiB, type=uefi\nstart={end}MiB, type=linux\n"
ESP_AT, ESP_MIB = 1, 96
ROOT = "/dev/vda2"
OPTIONS = f"root={ROOT} rw console=ttyS0 quiet mitigations=off no_timer_check tsc=reliable"
GRUB = f"set timeout=0\nlinux /vmlinuz {OPTIONS}\ninitrd /initrd.img\nboot\n"
FSTAB = f"{ROOT} / ext4 defaults,noatime 0 0\n"
PYTHON = ("python3-virt-firmware", "python3-importlib-resources", "python3-pefile")
VARIABLES = """#!/bin/sh
PYTHONPATH={packages} exec {python} -m virt.firmware.vars "$@"
"""


def guest(kernel: str = "6.1") -> Path:
    """A folder with `root.img`, `vmlinuz`, `initrd.img` and `release`."""
    stock = guest_image.stock_kernel(kernel)
    release = (stock / "release").read_text().strip()
    hooks = (*guest_image.hooks(stock, release), *REPOSITORY)
    inputs = (str((stock / "image.deb").stat().st_size),)
    recipe = rootfs.Recipe(f"prepared-{release}", "bookworm", PACKAGES, hooks, inputs)
    made = store.entry("guest-image", recipe.key(), lambda out: guest_image.assemble(recipe, release, out))
    return GuestImage(made).folder


def cloud_image(kernel: str = "6.1") -> Path:
    """A folder with `disk.img`, which boots by UEFI and has what the guest has: what clouds call an image."""
    source = guest(kernel)
    key = f"{source.name}-{store.digest(PARTITIONS, GRUB, FSTAB, str(ESP_MIB))}"
    return store.entry("cloud-image", key, lambda out: _partition(source, out))


def _partition(source: Path, out: Path) -> None:
    """Puts loader, kernel and root file system on one disk."""
    with step("making a cloud image"):
        disk, root = out / "disk.img", out / "root.img"
        subprocess.run(["cp", "--sparse=always", source / "root.img", root], check=True)
        (out / "fstab").write_text(FSTAB)
        for order in ("rm /etc/fstab", f"write {out / 'fstab'} /etc/fstab"):
            subprocess.run(["debugfs", "-w", "-R", order, root], check=True, capture_output=True)
        end = ESP_AT + ESP_MIB
        with disk.open("wb") as file:
            file.truncate((end << 20) + root.stat().st_size + (1 << 20))
        table = PARTITIONS.format(esp=ESP_AT, root=ESP_MIB, end=end)
        sfdisk = debian.program("fdisk", "sbin/sfdisk")
        subprocess.run([sfdisk, "--quiet", disk], input=table, text=True, check=True, stdout=subprocess.DEVNULL)
        for at, part in ((ESP_AT, _esp(source, out)), (end, root)):
            into = ["dd", f"if={part}", f"of={disk}", "bs=1M", f"seek={at}", "conv=notrunc,sparse", "status=none"]
            subprocess.run(into, check=True)
            part.unlink()


def _esp(source: Path, out: Path) -> Path:
    """The file system that firmware starts from."""
    esp, content, loaders = out / "esp.img", out / "esp", firmware()
    with esp.open("wb") as file:
        file.truncate(ESP_MIB << 20)
    subprocess.run(["mkfs.vfat", "-F", "32", esp], check=True, stdout=subprocess.DEVNULL)
    for folder in ("EFI/BOOT", "EFI/debian"):
        (content / folder).mkdir(parents=True)
    shutil.copy(loaders / "shimx64.efi", content / "EFI/BOOT/BOOTX64.EFI")
    shutil.copy(loaders / "grubx64.efi", content / "EFI/BOOT")
    (content / "EFI/debian/grub.cfg").write_text(GRUB)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(source / name, content)
    mcopy = debian.program("mtools", "usr/bin/mcopy")
    environment = {**os.environ, "MTOOLS_SKIP_CHECK": "1"}
    subprocess.run([mcopy, "-s", "-i", esp, *sorted(content.iterdir()), "::"], check=True, env=environment)
    shutil.rmtree(content)
    return esp


def firmware() -> Path:
    """A folder with OVMF, which believes Microsoft's keys, and with Debian's shim and GRUB, which those have signed."""
    return store.entry("firmware", store.digest(*FIRMWARE.values()), _copy_firmware)


def variables() -> Path:
    """virt-fw-vars, which writes into the variables of a firmware that does not run."""
    packages = debian.unpacked("trixie", *PYTHON) / "usr/lib/python3/dist-packages"
    python = (paths.BUILD / "venv/bin").resolve() / "python"
    script = VARIABLES.format(packages=packages, python=python)
    key = store.digest(script)
    return (
        store.entry("programs", f"virt-fw-vars-{key}", lambda out: _write(out / "virt-fw-vars", script))
        / "virt-fw-vars"
    )


def _copy_firmware(out: Path) -> None:
    packages = debian.unpacked("bookworm", "ovmf", "shim-signed", "grub-efi-amd64-signed")
    for name, source in FIRMWARE.items():
        shutil.copy(packages / source, out / name)


def _write(script: Path, text: str) -> None:
    script.write_text(text)
    script.chmod(0o755)
