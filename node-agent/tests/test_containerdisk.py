"""guests/containerdisk: an image for KubeVirt, made of a cloud image, whose guests need nothing more."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cast import lab
from daemon import Daemon
from prepared import Folder, PreparedGuest, uefi
from tiny import TOP, Kernel

BUILD = TOP / "guests/containerdisk/build.py"
PAGE = TOP / "docs/how-to/prepare-guests.md"
QEMU_USER = 107  # as whom KubeVirt runs QEMU
ROOT_AT = 97 << 20  # where the root file system begins on the disk


def made(archive: Path, store: Path) -> subprocess.CompletedProcess[str]:
    """The page's command on an image as clouds have it, which boots by UEFI; emulated, as all guests of these tests."""
    (line,) = re.findall(r"^guests/containerdisk/build.py .*$", PAGE.read_text(), re.MULTILINE)
    image, code = Path(lab("path", "cloud-image")) / "disk.img", Path(lab("path", "firmware")) / "OVMF_CODE.plain.fd"
    own = {"modules": store, "debian-12-genericcloud-amd64.qcow2": image, "guest.tar": archive}
    command = [own.get(word, word) for word in line.split()]
    options = ["--firmware", code, "--accelerator", "tcg"]
    return subprocess.run([*command, *options], cwd=TOP, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    """The container disk, as an OCI archive."""
    target = tmp_path_factory.mktemp("containerdisk") / "guest.tar"
    said = made(target, store)
    assert said.returncode == 0, said.stderr
    assert [one.name for one in target.parent.iterdir()] == [target.name]
    return target


@pytest.fixture(scope="module")
def guest(daemon: Daemon, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreparedGuest]:
    """A guest of that disk, without a seed, and an agent whose store is empty."""
    folder = Folder(daemon)
    taken = tmp_path_factory.mktemp("taken")
    packed = taken / "disk.qcow2"
    packed.write_bytes(disk_of(archive))
    raw = folder.path / "containerdisk.img"
    subprocess.run(["qemu-img", "convert", "-O", "raw", packed, raw], check=True)
    nothing = taken / "store"
    nothing.mkdir()
    with PreparedGuest(daemon, "default_containerdisk", uefi(folder, raw), {}, nothing) as one:
        yield one


def disk_of(archive: Path) -> bytes:
    """What KubeVirt takes out of the image: the one file below /disk, if its user may read it."""
    with tarfile.open(archive) as layout:

        def blob(descriptor: dict[str, Any]) -> Any:
            return layout.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")

        index = layout.extractfile("index.json")
        assert index is not None
        (root,) = json.load(index)["manifests"]
        (layer,) = json.load(blob(root))["layers"]
        with tarfile.open(fileobj=blob(layer)) as files:
            folder, disk = files.getmembers()
            assert (folder.name, folder.isdir(), disk.name) == ("disk", True, "disk/disk.qcow2")
            assert (disk.uid, disk.gid, disk.mode & 0o400) == (QEMU_USER, QEMU_USER, 0o400)
            content = files.extractfile(disk)
            assert content is not None
            return content.read()


@pytest.mark.long
def test_a_guest_of_a_container_disk_needs_no_user_data(guest: PreparedGuest, kernel: Kernel) -> None:
    """Its guest agent answers, and its module is loaded when a pool wants it, though the agent brings none."""
    guest.until_said("GuestAgentReady", "True", "Answering")
    assert guest.run("modinfo -n tidepool").strip() == f"/lib/modules/{kernel.release}/extra/tidepool.ko"
    guest.take_in()
    guest.take_out()


@pytest.mark.long
def test_no_two_guests_share_what_identifies_one(guest: PreparedGuest, archive: Path, tmp_path: Path) -> None:
    """The disk has no identity of the boot in which it was prepared: each guest makes its own."""
    raw = tmp_path / "disk.img"
    packed = tmp_path / "disk.qcow2"
    packed.write_bytes(disk_of(archive))
    subprocess.run(["qemu-img", "convert", "-O", "raw", packed, raw], check=True)

    def look(order: str) -> str:
        ask = ["debugfs", "-R", order, f"{raw}?offset={ROOT_AT}"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout

    assert look("cat /etc/machine-id") == ""
    assert "ssh_config" in look("ls -p /etc/ssh")
    assert "ssh_host_" not in look("ls -p /etc/ssh")
    assert guest.run("cat /etc/machine-id").strip()
    assert "ssh_host_" in guest.run("ls /etc/ssh")


@pytest.mark.long
def test_an_image_whose_kernel_has_no_module_is_not_made(tmp_path: Path) -> None:
    """And it is said which kernel that is."""
    other = tmp_path / "store/5.0.0-other"
    other.mkdir(parents=True)
    (other / "tidepool.ko").write_bytes(b"")
    said = made(tmp_path / "guest.tar", tmp_path / "store")
    assert said.returncode == 1
    assert "failed: no module for 6.1." in said.stderr
    assert not (tmp_path / "guest.tar").exists()


def test_a_store_without_modules_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"")
    command = [BUILD, "--modules", tmp_path, tmp_path / "image", tmp_path / "out.tar"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr == f"build.py: --modules {tmp_path}: there is no RELEASE/tidepool.ko in it\n"
