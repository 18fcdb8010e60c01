"""A whole Debian guest from a disk, as users prepare it, and a real worker that looks after it without a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import libvirt
from cast import lab
from conftest import wait_for
from daemon import CHANNEL, DISK, Daemon, end
from solo import Solo, said
from tiny import PATH, TOP

from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_api import GuestStatus

BOOT_SECONDS, ROUND_SECONDS = 600, 240
DOMAIN = """<domain type='qemu'>
  <name>{name}</name><uuid>{uuid}</uuid>
  <memory unit='MiB'>512</memory><vcpu current='1'>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>{boot}</os>
  <features><acpi/>{features}<tcg><tb-cache unit='MiB'>128</tb-cache></tcg></features>
  <cpu mode='maximum'/>
  <on_reboot>restart</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{console}'/></serial>
    {channel}{disks}
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""
KERNEL = "<kernel>{folder}/vmlinuz</kernel><initrd>{folder}/initrd.img</initrd><cmdline>{options}</cmdline>"
OPTIONS = "root=/dev/vda rw console=ttyS0 quiet mitigations=off no_timer_check tsc=reliable"
FIRMWARE = "<loader readonly='yes' secure='{secure}' type='pflash'>{code}</loader><nvram>{variables}</nvram>"


@dataclass(frozen=True)
class Boot:
    """How a guest finds its kernel: from us, or by UEFI."""

    xml: str
    features: str = ""
    first: Mapping[str, Path] = field(default_factory=dict)
    """The disk that firmware starts from."""


class Folder:
    """The daemon's folder, with files that its user may use."""

    def __init__(self, daemon: Daemon) -> None:
        self.path = daemon.folder
        self._owner = daemon.folder.stat().st_uid

    def copy(self, source: Path, name: str = "") -> Path:
        """A copy of its own."""
        target = self.path / (name or source.name)
        subprocess.run(["cp", "--sparse=always", "--dereference", source, target], check=True)
        return self.given(target)

    def given(self, file: Path) -> Path:
        """A file that the daemon's user may write."""
        os.chown(file, self._owner, -1)
        file.chmod(0o644)
        return file

    def fat(self, name: str, label: str, content: Mapping[str, Path], mib: int = 8) -> Path:
        """A disk without partitions, of FAT."""
        disk = self.path / name
        disk.unlink(missing_ok=True)
        with disk.open("wb") as file:
            file.truncate(mib << 20)
        environment = {**os.environ, "PATH": PATH, "MTOOLS_SKIP_CHECK": "1"}
        subprocess.run(["mkfs.vfat", "-n", label, disk], check=True, env=environment, stdout=subprocess.DEVNULL)
        staged = self.path / f"{name}.content"
        for path, source in content.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, staged / path)
        copy = [lab("path", "mcopy"), "-s", "-i", disk, *sorted(staged.iterdir()), "::"]
        subprocess.run(copy, check=True, env=environment)
        shutil.rmtree(staged)
        return self.given(disk)


def _disk(disk: tuple[str, Path]) -> str:
    return DISK.format(name=disk[0], file=disk[1])


def _first(disk: tuple[str, Path]) -> str:
    return _disk(disk).replace("</disk>", "<boot order='1'/></disk>")


def image() -> Path:
    """The guest that is to be prepared: a folder with its disk, kernel and initramfs."""
    return Path(lab("path", "prepared-guest"))


def direct(folder: Folder, image: Path, options: str = "") -> Boot:
    """The kernel and its command line from us."""
    for name in ("vmlinuz", "initrd.img"):
        folder.copy(image / name)
    return Boot(KERNEL.format(folder=folder.path, options=f"{OPTIONS} {options}"))


def uefi(folder: Folder, disk: Path) -> Boot:
    """A firmware that believes any loader, and a disk in the daemon's folder that it starts from."""
    firmware = Path(lab("path", "firmware"))
    code = folder.copy(firmware / "OVMF_CODE.plain.fd")
    variables = folder.copy(firmware / "OVMF_VARS.plain.fd", f"{disk.stem}-variables.fd")
    return Boot(FIRMWARE.format(secure="no", code=code, variables=variables), first={"vda": folder.given(disk)})


def cloud_seed(folder: Folder) -> Path:
    """A disk by which cloud-init is given our user-data; the guest has no locales, which somebody else is to say."""
    named, other = folder.path / "meta-data", folder.path / "vendor-data"
    named.write_text("instance-id: prepared\nlocal-hostname: prepared\n")
    other.write_text("#cloud-config\nlocale: false\n")
    files = {"user-data": TOP / "guests/cloud-init.yaml", "meta-data": named, "vendor-data": other}
    return folder.fat("seed.img", "CIDATA", files)


class PreparedGuest:
    """One, from its start to its end."""

    def __init__(self, daemon: Daemon, name: str, boot: Boot, disks: Mapping[str, Path], store: Path) -> None:
        self._daemon, self._name, self._boot, self._disks = daemon, name, boot, disks
        self._transport = Domain(daemon.uri, name)
        self.shell = GuestAgent(self._transport.command)
        self.agent = Solo(daemon.uri, name, store)
        self._domain: libvirt.virDomain | None = None

    @property
    def console(self) -> Path:
        """What it has said."""
        return self._daemon.folder / f"{self._name}.console"

    def start(self) -> None:
        """Boots it, and waits until its guest agent can be told everything."""
        xml = DOMAIN.format(
            name=self._name,
            uuid=uuid.uuid4(),
            boot=self._boot.xml,
            features=self._boot.features,
            console=self.console,
            channel=CHANNEL,
            disks="".join([*map(_disk, self._disks.items()), *map(_first, self._boot.first.items())]),
        )
        self._domain = self._daemon.connection.createXML(xml)
        wait_for(lambda: self.shell.blocked() == [], BOOT_SECONDS)

    def run(self, line: str, seconds: float = 60) -> str:
        """A command line in it, as its guest agent has it."""
        done = self.shell.run(["/bin/sh", "-c", line], seconds=seconds)
        assert done.code == 0, f"{line}: {done.out}{done.err}"
        return done.out

    def until(self, holds: Callable[[GuestStatus], bool], seconds: float = ROUND_SECONDS) -> GuestStatus:
        """How its MemoryGuest is once something holds."""
        found: list[GuestStatus] = []

        def look() -> bool:
            found.append(self.agent.round())
            return holds(found[-1])

        try:
            wait_for(look, seconds)
        except TimeoutError:
            raise AssertionError(
                [(one.type, one.status, one.reason, one.message) for one in found[-1].conditions]
            ) from None
        return found[-1]

    def until_said(self, kind: str, status: str, reason: str) -> str:
        """The message of a condition, once it says so."""
        found = self.until(lambda one: said(one, kind)[:2] == (status, reason))
        return said(found, kind)[2]

    def loaded(self) -> bool:
        """Whether its kernel has the module, by its own word."""
        return bool(self.run("grep -c '^tidepool ' /proc/modules || true").strip() == "1")

    def take_in(self) -> None:
        """A pool wants it: the module is loaded."""
        self.agent.want()
        self.until_said("ModuleLoaded", "True", "Loaded")
        assert self.loaded()

    def take_out(self) -> None:
        """The pool is gone: so is the module."""
        self.agent.leave()
        self.until_said("ModuleLoaded", "False", "NotNeeded")
        assert not self.loaded()

    def cloud_init_errors(self) -> list[str]:
        """What went wrong by cloud-init's own word, once it is through."""
        said = self.run("cloud-init status --wait >/dev/null || :; cat /run/cloud-init/result.json", seconds=300)
        found: list[str] = json.loads(said)["v1"]["errors"]
        return found

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        print(self.console.read_text(errors="replace")[-4000:] if self.console.exists() else "it has said nothing")
        self.agent.close()
        self._transport.close()
        if self._domain:
            end(self._domain)
