"""Whether guests run on KVM: where a kernel boots on it, which the presence of /dev/kvm does not say."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from pathlib import Path

from bed.image import CACHE, Kernel, fetch_qemu

KVM, TCG = "kvm", "tcg"
CHOICE = "TIDEPOOL_ACCELERATOR"
PROBE_SECONDS = 20
BOOTED = b"Unable to mount root fs"  # as far as a kernel gets that has none


@functools.cache
def accelerator(kernel: Kernel) -> str:
    """What runs guests on this machine: `kvm` or `tcg`. It is tried once after each boot; TIDEPOOL_ACCELERATOR wins."""
    chosen = os.environ.get(CHOICE, "")
    if chosen not in ("", KVM, TCG):
        raise ValueError(f"{CHOICE}={chosen}: it is {KVM}, {TCG} or not set")
    return chosen or _tried(kernel)


def _tried(kernel: Kernel) -> str:
    note = CACHE / "accelerator" / Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        found = KVM if os.access("/dev/kvm", os.R_OK | os.W_OK) and _boots(kernel) else TCG
        fresh = note.with_suffix(f".{os.getpid()}")
        fresh.write_text(found)
        fresh.rename(note)
    return note.read_text()


def _boots(kernel: Kernel) -> bool:
    qemu = fetch_qemu()
    command: list[str | Path] = [qemu / "usr/bin/qemu-system-x86_64", "-machine", "pc", "-accel", KVM]
    command += ["-cpu", "host", "-m", "256M"]
    command += ["-L", qemu / "usr/share/qemu", "-L", qemu / "usr/share/seabios", "-nodefaults", "-display", "none"]
    command += ["-no-reboot", "-kernel", kernel.vmlinuz, "-append", "console=ttyS0 panic=-1"]
    with tempfile.NamedTemporaryFile() as console:
        command += ["-serial", f"file:{console.name}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=PROBE_SECONDS, capture_output=True, check=False)
        return BOOTED in Path(console.name).read_bytes()
