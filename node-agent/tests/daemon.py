"""A libvirt daemon of the tests' own, and guests in it: the real ones, in session mode as in a virt-launcher pod."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import libvirt
from tiny import PATH, Kernel, boot_files, emulator

DOMAIN = """<domain type='qemu'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  <metadata>{metadata}</metadata>
  <memory unit='MiB'>224</memory>
  <!-- One more could be plugged in: for a guest that never has but one TCG leaves out the barriers by which it and the
       threads of its virtio devices agree on interrupts. -->
  <vcpu current='1'>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{vmlinuz}</kernel><initrd>{initrd}</initrd>
    <cmdline>console=ttyS0 quiet mitigations=off panic=-1 no_timer_check tsc=reliable {options}</cmdline>
  </os>
  <features><acpi/><tcg><tb-cache unit='MiB'>64</tb-cache></tcg></features>
  <cpu mode='custom' match='exact' check='none'><model fallback='allow'>Nehalem</model></cpu>
  <on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{console}'/></serial>
    {channel}
    {disks}
    {interface}
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""
HOST = Path(__file__).resolve().parents[2] / "kernel-module/tests/bed/libvirt-host"
CHANNEL = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
DISK = """<disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='{file}'/><target dev='{name}' bus='virtio'/>
    </disk>"""
# Debian 12's own QEMU damages an emulated guest that it migrates. It clears the marks of written pages and does
# not tell the emulated TLB, by which such a page is written unmarked from then on; it arrives as it was before (mended
# in QEMU 9.0, commit 03bfc2188f). So hosts that migrate guests have a newer QEMU in place of this machine's.
QEMU = ("usr/bin/qemu-system-x86_64", "usr/lib/x86_64-linux-gnu/qemu", "usr/share/qemu", "usr/share/seabios")
# $0 is where that is, $1 the host's name: two of one name do not migrate guests to each other.
_OWN = (
    f'for part in {" ".join(QEMU)}; do mount --bind "$0/$part" "/$part" || exit; done; '
    f'hostname "$1" && shift && {{prepare}} && exec "$@"'
)
START_SECONDS = 30
# The disks' caches are this machine's, the same for both hosts: libvirt cannot know that.
FLAGS = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_UNSAFE


def end(domain: libvirt.virDomain) -> None:
    """Ends a guest, if it still runs; such a guest is forgotten once it has ended."""
    with contextlib.suppress(libvirt.libvirtError):
        domain.destroy()


class Daemon:
    """One libvirtd, run by a user without rights, with everything it writes in one folder."""

    def __init__(self, kernel: Kernel) -> None:
        # Not pytest's tmp_path: the path of a socket must be short, and another user has to get in.
        self.folder = Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
        self.kernel = kernel
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        self.socket = self.folder / "run/libvirt/libvirt-sock"

    def __enter__(self) -> Self:
        self.vmlinuz, self.initrd = boot_files(self.kernel, self.folder)
        config, run = self.folder / "libvirt", self.folder / "run"
        config.mkdir()
        run.mkdir()
        (config / "qemu.conf").write_text('stdio_handler = "file"\n')
        for path in (self.folder, run, config, config / "qemu.conf"):
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for domain in self.connection.listAllDomains():
            end(domain)
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)

    def uri(self) -> str:
        """As the agent would connect."""
        return f"qemu+unix:///session?socket={self.socket}"

    def start(
        self,
        name: str,
        options: str = "",
        *,
        channel: bool = True,
        metadata: str = "",
        identity: str = "",
        boot: tuple[Path, Path] | None = None,
        disks: Mapping[str, Path] | None = None,
        interface: str = "",
    ) -> libvirt.virDomain:
        """Starts a guest; options go to the kernel command line for its /init.

        `boot` is another kernel for it, `disks` are its disks by their names in the guest, `interface` is its device
        for a network.
        """
        vmlinuz, initrd = boot or (self.vmlinuz, self.initrd)
        xml = DOMAIN.format(
            name=name,
            uuid=identity or uuid.uuid4(),
            metadata=metadata,
            vmlinuz=vmlinuz,
            initrd=initrd,
            options=options,
            console=self.folder / f"{name}.console",
            channel=CHANNEL if channel else "",
            disks="".join(DISK.format(name=disk, file=file) for disk, file in (disks or {}).items()),
            interface=interface,
        )
        return self.connection.createXML(xml)

    def restart(self) -> None:
        """Ends the daemon and starts it again; guests go on."""
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        self._start()

    def _start(self) -> None:
        folder = str(self.folder)
        environment = {"PATH": PATH, "HOME": folder, "XDG_RUNTIME_DIR": f"{folder}/run"}
        environment |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_CACHE_HOME"), folder)
        log = (self.folder / "libvirtd.log").open("wb")
        command = ["libvirtd", "--timeout", "0", "-p", f"{folder}/libvirtd.pid"]
        user = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, **user)
        self.connection = self._connect()

    def _connect(self) -> libvirt.virConnect:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return libvirt.open(self.uri())
            except libvirt.libvirtError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "libvirtd.log").read_text()) from None
                time.sleep(0.1)


class SystemDaemon(Daemon):
    """The system's libvirtd, run by root on a host of its own: no file of this machine is touched."""

    apart: tuple[str, ...] = ()
    """What else the host has of its own, by the words of unshare."""
    prepare = "true"
    """What is done on it before its libvirtd begins, in the words of a shell."""

    def __init__(self, kernel: Kernel, auth: str = "none") -> None:
        super().__init__(kernel)
        self._auth = auth

    def __enter__(self) -> Self:
        self.vmlinuz, self.initrd = boot_files(self.kernel, self.folder)
        self._start()
        return self

    def uri(self) -> str:
        """As the agent would connect."""
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def root(self) -> Path:
        """The host's file system."""
        return Path(f"/proc/{self.process.pid}/root")

    @property
    def receives(self) -> str:
        """Where the memory of guests comes in."""
        return f"unix://{self.folder}/migration"

    def migrate(self, name: str, there: SystemDaemon, mib_per_second: int) -> None:
        """Migrates a guest, so fast that it comes to an end, or not. Raises libvirtError if it does not get there."""
        settings = {libvirt.VIR_MIGRATE_PARAM_URI: there.receives, libvirt.VIR_MIGRATE_PARAM_BANDWIDTH: mib_per_second}
        self.connection.lookupByName(name).migrate3(there.connection, settings, FLAGS)

    def begin_to_migrate(self, name: str, there: SystemDaemon, mib_per_second: int) -> threading.Thread:
        """The same in the background, where it may be cancelled. Returns what ends with it."""

        def run() -> None:
            with contextlib.suppress(libvirt.libvirtError):
                self.migrate(name, there, mib_per_second)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _start(self) -> None:
        log = (self.folder / "libvirtd.log").open("wb")
        unshare = ("unshare", "--mount", "--uts", *self.apart, "--propagation", "private")
        own = ("sh", "-c", _OWN.format(prepare=self.prepare), str(emulator()), f"host-{uuid.uuid4().hex}")
        command = [*unshare, *own, str(HOST), self._auth]
        environment = {**os.environ, "PATH": PATH}
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.socket = self.root / "run/libvirt/libvirt-sock"
        self.connection = self._connect()
