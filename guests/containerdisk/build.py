#!/usr/bin/env python3
"""Makes a container disk for KubeVirt of a cloud image, with the QEMU guest agent and if you like Tidepool's modules.

The image boots once in QEMU, with guests/cloud-init.yaml as its user data. What comes out is an OCI archive with
/disk/disk.qcow2, which skopeo and podman read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "lib"), str(HERE.parents[1] / "e2e")]  # of a release, of the sources

from tidepool_release import oci  # noqa: E402

USER_DATA = HERE.parent / "cloud-init.yaml"
PREPARED = "tidepool: prepared"
QEMU_USER = 107  # as whom KubeVirt runs QEMU
LABEL = "CIDATA"  # by which cloud-init knows its seed
MINUTES = 15


class BuildError(Exception):
    """It did not work; the message says why."""


def main() -> int:
    """Returns an exit code."""
    text = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="build.py", description=__doc__, formatter_class=text)
    parser.add_argument("image", type=Path, help="a cloud image, such as Debian's genericcloud: qcow2 or raw")
    parser.add_argument("archive", type=Path, help="the OCI archive to write")
    parser.add_argument("--modules", type=Path, help="a module store, as a release has it: FOLDER/RELEASE/tidepool.ko")
    parser.add_argument("--firmware", type=Path, help="OVMF's code, for an image that boots by UEFI only")
    parser.add_argument("--tag", default="latest", help="the image's tag in the archive")
    parser.add_argument("--accelerator", default="kvm:tcg", help="QEMU's; `tcg` where KVM is there and does not work")
    parser.add_argument("--qemu", default="qemu-system-x86_64", help="the program, where it is another")
    options = parser.parse_args()
    try:
        build(options)
    except (BuildError, OSError, subprocess.CalledProcessError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


def build(options: argparse.Namespace) -> None:
    """From the image to the archive; nothing is left of what is between."""
    with tempfile.TemporaryDirectory(prefix="containerdisk-", dir=options.archive.resolve().parent) as scratch:
        work = Path(scratch)
        disk = work / "work.qcow2"
        seed(work / "seed", options.modules)
        _qemu_img("convert", "-O", "qcow2", options.image, disk)
        boot(disk, work, options)
        _qemu_img("convert", "-c", "-O", "qcow2", disk, work / "disk.qcow2")
        pack(work, options.archive, options.tag)


def seed(folder: Path, modules: Path | None) -> None:
    """What cloud-init finds: our user data, what ends the boot, and the modules of each kernel."""
    folder.mkdir()
    (folder / "meta-data").write_text("instance-id: tidepool-prepare\n")
    (folder / "user-data").write_text(user_data())
    (folder / "vendor-data").write_text("#cloud-config\nlocale: false\n")  # of each guest's own user data
    if modules is None:
        return
    found = sorted(modules.glob("*/tidepool*.ko"))
    if not found:
        raise BuildError(f"--modules {modules}: there is no RELEASE/tidepool.ko in it")
    for module in found:
        (folder / "modules" / module.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(module, folder / "modules" / module.parent.name)


def user_data() -> str:
    """The user data that guests are prepared with anyway, and a script behind it."""
    message = MIMEMultipart()
    message.attach(MIMEText(USER_DATA.read_text(), "cloud-config", "utf-8"))
    message.attach(MIMEText((HERE / "prepare.sh").read_text(), "x-shellscript", "utf-8"))
    return message.as_string()


def boot(disk: Path, work: Path, options: argparse.Namespace) -> None:
    """Boots the disk until the guest powers off; raises BuildError where it did not say that all went well."""
    console = work / "console"
    command: list[str | Path] = [
        options.qemu, "-machine", f"q35,accel={options.accelerator}", "-cpu", "max", "-m", "1024", "-smp", "2",
        "-no-reboot", "-display", "none", "-serial", f"file:{console}",
        "-nic", "user,model=virtio-net-pci", "-device", "virtio-rng-pci",
        "-drive", f"if=none,id=disk,format=qcow2,file={disk},discard=unmap",
        "-device", "virtio-blk-pci,drive=disk,bootindex=1",
        "-blockdev", json.dumps({"driver": "vvfat", "node-name": "seed", "dir": str(work / "seed"), "label": LABEL,
                                 "read-only": True}),
        "-device", "virtio-blk-pci,drive=seed",
        # Without its port the guest agent does not start, which the user data asks for.
        "-device", "virtio-serial-pci", "-chardev", "null,id=agent",
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
    ]  # fmt: skip
    if options.firmware:
        command += ["-drive", f"if=pflash,format=raw,readonly=on,file={options.firmware}"]
    try:
        subprocess.run(command, check=True, timeout=MINUTES * 60)
    except subprocess.TimeoutExpired:
        raise BuildError(f"the guest did not power off within {MINUTES} minutes:\n{_last(console)}") from None
    if PREPARED not in console.read_text(errors="replace"):
        raise BuildError(f"the guest was not prepared:\n{_last(console)}")


def _last(console: Path) -> str:
    return console.read_text(errors="replace")[-2000:] if console.exists() else ""


def pack(work: Path, archive: Path, tag: str) -> None:
    """The archive: one layer with one file, which QEMU's user owns, as KubeVirt wants it."""
    layer = work / "layer.tar"
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as files:
        for path, name in ((work, "disk"), (work / "disk.qcow2", "disk/disk.qcow2")):
            files.add(path, name, recursive=False, filter=_of_qemu)
    packed = work / "layer.tar.gz"
    with layer.open("rb") as plain, _compressed(packed) as target:
        shutil.copyfileobj(plain, target, 1 << 20)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [oci.Blob(oci.LAYER, layer).digest]},
    }
    blobs = oci.Blob(oci.CONFIG, json.dumps(config).encode()), [oci.Blob(oci.LAYER, packed)]
    oci.write(archive, oci.manifest(*blobs, {}), tag)


@contextmanager
def _compressed(target: Path) -> Iterator[gzip.GzipFile]:
    """A file that says nothing of when it was made."""
    with target.open("wb") as file, gzip.GzipFile("", "wb", 1, file, mtime=0) as packed:  # qcow2 is compressed already
        yield packed


def _of_qemu(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = QEMU_USER
    member.uname = member.gname = ""
    member.mtime, member.mode = 0, 0o755 if member.isdir() else 0o440
    return member


def _qemu_img(*arguments: str | Path) -> None:
    subprocess.run(["qemu-img", *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
