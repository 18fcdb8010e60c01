"""A guest that a libvirt of its own runs, so that a balloon takes and gives memory as it does on a host."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import libvirt

from bed.image import fetch_qemu, with_sbin

XML = """<domain type={type} xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{name}</name>
  <memory unit='MiB'>{mib}</memory>
  <vcpu current='{processors}'>{most}</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='virtio'><address type='pci' bus='0x00' slot='0x1f' function='0x0'/></memballoon>
  </devices>
  <qemu:commandline>{arguments}</qemu:commandline>
</domain>
"""
HOST = Path(__file__).parent / "libvirt-host"
MODULES = Path("/usr/lib/x86_64-linux-gnu/qemu")  # where any QEMU of Debian looks for its own
# The shell stays the first process, to reap what QEMU leaves.
INSIDE = 'mount --bind "$1" "$2" && "$3" & wait'
START_SECONDS = 120


class Domain:
    """A libvirtd and its only guest; both end with this process, or with `process`."""

    def __init__(self, name: str, mib: int, processors: int, *, kvm: bool, command: list[str], folder: Path) -> None:
        """Start them. `command` is QEMU's, but for the machine, its memory and its processors."""
        self._folder = folder
        self.process = self._libvirtd()
        arguments = "".join(f"<qemu:arg value={quoteattr(each)}/>" for each in command[1:])
        xml = XML.format(
            type=quoteattr("kvm" if kvm else "qemu"),
            name=escape(name),
            mib=mib,
            processors=processors,
            most=processors + 1,  # see _processors() in guest.py
            emulator=escape(command[0]),
            arguments=arguments,
        )
        try:
            self._domain = self._connect().createXML(xml)
        except BaseException:
            self.process.kill()
            raise

    def balloon(self, size: int, timeout: float) -> None:
        """Let it have `size` bytes, and wait until it has; TimeoutError says what it has instead."""
        self._domain.setMemoryFlags(size // 1024, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        end = time.monotonic() + timeout
        while (has := self._domain.memoryStats()["actual"] * 1024) != size:
            if time.monotonic() > end:
                raise TimeoutError(f"{has} bytes after {timeout} s, not {size}")
            time.sleep(0.02)

    @property
    def uri(self) -> str:
        """Where its libvirtd answers."""
        return f"qemu+unix:///system?socket={self._socket}"

    @property
    def _socket(self) -> Path:
        return Path(f"/proc/{self.process.pid}/root/run/libvirt/libvirt-sock")

    def _libvirtd(self) -> subprocess.Popen[bytes]:
        """On a host and in a process namespace of its own, with which its guest ends."""
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]
        alone += ["--pid", "--fork", "--kill-child", "--mount-proc"]
        alone += ["sh", "-c", INSIDE, "inside", str(fetch_qemu() / MODULES.relative_to("/")), str(MODULES), str(HOST)]
        with (self._folder / "libvirtd.log").open("wb") as log:
            return subprocess.Popen(alone, env=with_sbin(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _connect(self) -> libvirt.virConnect:
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(libvirt.libvirtError):  # bound, and perhaps not listening yet
                if self._socket.exists():
                    return libvirt.open(self.uri)
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError((self._folder / "libvirtd.log").read_text())
            time.sleep(0.1)
