"""What the tests of docs/how-to/prepare-guests.md boot: a guest that has yet to be prepared, and firmware.

The guest is as a cloud image is: cloud-init, AppArmor, and no QEMU guest agent. The packages that cloud-init installs
lie in the guest, for such guests have no network.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tidepool_lab import debian, guest_image, paths, rootfs, store
from tidepool_lab.guest_image import GuestImage

LEFT_OUT = ("qemu-guest-agent", "fio", "stress-ng", "xfsprogs")
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
    "shimx64.efi": "usr/lib/shim/shimx64.efi.signed",
    "grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
}
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
