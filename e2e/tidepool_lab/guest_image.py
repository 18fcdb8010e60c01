"""The guests' disk image: Debian 12 with a stock cloud kernel and the QEMU guest agent; nothing of Tidepool inside.

Python and Redis are there for the examples of clients/.

The lab's own way into a guest is sshd on a second network interface, so that `exec` goes on working when a test stops
the guest agent or breaks the guest's pod network.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidepool_lab import paths, rootfs, store
from tidepool_lab.addresses import IPV4, IPV6
from tidepool_lab.progress import step

SIZE = "2G"
POD_MAC, LAB_MAC = "52:54:00:02:00:02", "52:54:00:03:00:02"
LAB_SIDE, LAB_INNER = "10.0.3.1", "10.0.3.2"

PACKAGES = (
    "systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "initramfs-tools", "zstd", "linux-base",
    "openssh-server", "qemu-guest-agent", "fio", "xfsprogs", "e2fsprogs", "util-linux-extra", "libpam-systemd",
    "stress-ng", "iputils-ping", "python3", "redis-server",
)  # fmt: skip
# The server is for those who start it.
QUIET = 'chroot "$1" systemctl disable redis-server.service'

# Units that wait for hardware, networks or users that these guests do not have, or that would disturb measurements.
# Under emulation every process at boot counts: these were half of it.
MASKED = (
    "systemd-networkd-wait-online.service", "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer",
    "e2scrub_all.timer", "e2scrub_reap.service", "dpkg-db-backup.timer", "fstrim.timer", "man-db.timer",
    "getty@tty1.service", "serial-getty@ttyS0.service", "systemd-logind.service", "systemd-user-sessions.service",
    "systemd-pstore.service", "systemd-machine-id-commit.service", "systemd-binfmt.service",
    "systemd-random-seed.service",
    "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "dev-mqueue.mount", "sys-fs-fuse-connections.mount",
    "modprobe@drm.service", "modprobe@dm_mod.service", "modprobe@loop.service", "modprobe@fuse.service",
    "modprobe@efi_pstore.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
    "systemd-sysusers.service", "systemd-network-generator.service", "systemd-tmpfiles-clean.timer", "ssh.socket",
)  # fmt: skip

# Devices that somebody waits for; the other five hundred need no event at boot.
COLDPLUG = """[Service]
ExecStart=
ExecStart=udevadm trigger --type=devices --action=add --subsystem-match=block --subsystem-match=net \\
    --subsystem-match=virtio-ports --subsystem-match=virtio
"""


def network(mac: str, address: str, more: str = "") -> str:
    """systemd's file for an interface whose address is fixed."""
    return f"""[Match]
MACAddress={mac}
[Network]
Address={address}
{more}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


POD_SIDE = "\n".join(
    [*(f"Gateway={each.pod_side}" for each in (IPV4, IPV6)), f"Address={IPV6.inner}/{IPV6.inner_bits}"]
)
FILES: Mapping[str, str] = {
    "etc/hostname": "guest\n",
    "etc/fstab": "/dev/vda / ext4 defaults,noatime 0 0\n",
    "etc/systemd/network/10-pod.network": network(POD_MAC, f"{IPV4.inner}/{IPV4.inner_bits}", POD_SIDE),
    "etc/systemd/network/20-lab.network": network(LAB_MAC, f"{LAB_INNER}/24"),
    "etc/initramfs-tools/conf.d/lab": "MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=3\n",
    "etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\n",
    "etc/modules-load.d/lab.conf": "virtio_net\nvirtio_console\n",
    "etc/systemd/system/systemd-udev-trigger.service.d/lab.conf": COLDPLUG,
    # Without PAM a command over ssh costs no logind session.
    "etc/ssh/sshd_config.d/lab.conf": (
        f"ListenAddress {LAB_INNER}\nUsePAM no\nUseDNS no\nMaxSessions 100\nPrintMotd no\n"
    ),
    # The address that sshd listens on is there a moment later than sshd.
    "etc/sysctl.d/lab.conf": "net.ipv4.ip_nonlocal_bind=1\n",
}


@dataclass(frozen=True)
class GuestImage:
    """What a guest boots from."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The root file system, raw; guests write to overlays of it."""
        return self.folder / "root.img"

    @property
    def key(self) -> Path:
        """The ssh key that the guests accept for root."""
        return self.folder / "ssh-key"

    @property
    def release(self) -> str:
        """The kernel's release."""
        return (self.folder / "release").read_text().strip()


def build(kernel: str) -> GuestImage:
    """The image with this kernel (`6.1`, `6.12`)."""
    stock = stock_kernel(kernel)
    release = (stock / "release").read_text().strip()
    recipe = rootfs.Recipe(
        f"guest-{release}",
        "bookworm",
        PACKAGES,
        hooks=(*hooks(stock, release), QUIET),
        inputs=(store.digest(*FILES, *FILES.values()), str((stock / "image.deb").stat().st_size)),
    )
    key = f"{recipe.key()}-{store.digest(SIZE)}"
    return GuestImage(store.entry("guest-image", key, lambda out: assemble(recipe, release, out)))


def stock_kernel(name: str) -> Path:
    """The stock kernel as the module's own build uses it, so that both are the same to the last byte."""
    tool = paths.ROOT / "kernel-module/tools/kernel"
    answer = subprocess.run([tool, "fetch", name], check=True, stdout=subprocess.PIPE, text=True)
    return Path(answer.stdout.strip().splitlines()[-1])


def hooks(stock: Path, release: str) -> tuple[str, ...]:
    """What mmdebstrap does to a guest's root file system: our files, the kernel, and no units that only cost time."""
    masks = " ".join(f'"$1"/etc/systemd/system/{unit}' for unit in MASKED)
    return (
        *(f'mkdir -p "$(dirname "$1"/{name})" && printf %s {shlex.quote(text)} > "$1"/{name}'
          for name, text in FILES.items()),
        f'cp {shlex.quote(str(stock / "image.deb"))} "$1"/tmp/kernel.deb',
        'chroot "$1" dpkg -i /tmp/kernel.deb && rm "$1"/tmp/kernel.deb',
        f"for unit in {masks}; do ln -sf /dev/null $unit; done",
        'chroot "$1" systemctl enable systemd-networkd.service ssh.service',
        'chroot "$1" passwd -d root',
        ': > "$1"/etc/machine-id',
        f'test -e "$1"/boot/initrd.img-{release}',
    )  # fmt: skip


def assemble(recipe: rootfs.Recipe, release: str, out: Path) -> None:
    """The disk of a recipe, with kernel, initramfs and key beside it."""
    archive = rootfs.build(recipe)
    root = out / "root"
    root.mkdir()
    with step(f"making the guest image with kernel {release}"):
        subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpf", archive], check=True)
        _authorize(root, out / "ssh-key")
        for name in ("vmlinuz", "initrd.img"):
            shutil.copy(root / f"boot/{name}-{release}", out / name)
        subprocess.run(
            [
                "mke2fs",
                "-q",
                "-t",
                "ext4",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0",
                "-d",
                root,
                out / "root.img",
                SIZE,
            ],
            check=True,
        )
    shutil.rmtree(root)
    (out / "release").write_text(release + "\n")


def _authorize(root: Path, key: Path) -> None:
    """A fresh key for root, from outside; the private half stays in the cache."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tidepool-lab", "-f", key], check=True)
    folder = root / "root/.ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(key.with_suffix(".pub"), folder / "authorized_keys")
