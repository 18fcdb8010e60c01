"""Secure Boot as guests have it: OVMF, Debian's shim, GRUB and kernel, and our key among the machine owner's (MOK)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cast import lab
from daemon import Daemon
from prepared import FIRMWARE, OPTIONS, Boot, Folder, PreparedGuest, cloud_seed, image
from tiny import TOP, Kernel

OWNER = "605dab50-e046-4300-abb6-3dd810dd8b23"  # shim's own, under which it keeps such keys
REQUEST = (
    "openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=tidepool/",
)  # fmt: skip
GRUB = f"""set timeout=0
linux /vmlinuz {OPTIONS}
initrd /initrd.img
boot
"""


def key(folder: Path, name: str) -> tuple[Path, Path]:
    """A key and its certificate, as docs/how-to/secure-boot.md makes them."""
    files = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run([*REQUEST, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    return files


def signed(folder: Path, files: tuple[Path, Path]) -> Path:
    """A module store whose modules are signed."""
    store = folder / f"store-{files[0].stem}"
    command = [TOP / "kernel-module/tools/store", "--key", files[0], "--cert", files[1], store, "6.1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return store


class Stores:
    """The agent's store, which is another one from one moment to the next."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def become(self, store: Path) -> None:
        """As when the agent's image is another."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(store, self.place)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """One that the guest knows, and one that it does not."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: key(folder, name) for name in ("enrolled", "stranger")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("agent") / "modules")


@pytest.fixture(scope="module")
def guest(daemon: Daemon, keys: dict[str, tuple[Path, Path]], stores: Stores, store: Path) -> Iterator[PreparedGuest]:
    """A guest that firmware has started, which believes the enrolled key."""
    folder, source = Folder(daemon), image()
    stores.become(store)
    disks = {"vda": folder.copy(source / "root.img"), "vdb": cloud_seed(folder)}
    one = PreparedGuest(daemon, "default_secure", by_firmware(folder, source, keys["enrolled"][1]), disks, stores.place)
    with one:
        yield one


def by_firmware(folder: Folder, source: Path, certificate: Path) -> Boot:
    """OVMF with Secure Boot and a MOK, and a disk from which shim starts GRUB and that the kernel."""
    firmware = Path(lab("path", "firmware"))
    code, variables = folder.copy(firmware / "OVMF_CODE.fd"), folder.path / "variables.fd"
    enrol = [lab("path", "virt-fw-vars"), "--input", firmware / "OVMF_VARS.fd", "--output", variables]
    subprocess.run([*enrol, "--add-mok", OWNER, certificate], check=True, capture_output=True)
    folder.given(variables)
    config = folder.path / "grub.cfg"
    config.write_text(GRUB)
    files = {"EFI/BOOT/BOOTX64.EFI": firmware / "shimx64.efi", "EFI/BOOT/grubx64.efi": firmware / "grubx64.efi"}
    files |= {"EFI/debian/grub.cfg": config} | {name: source / name for name in ("vmlinuz", "initrd.img")}
    disk = folder.fat("esp.img", "ESP", files, mib=96)
    xml = FIRMWARE.format(secure="yes", code=code, variables=variables)
    return Boot(xml, features="<smm state='on'/>", first={"vdc": disk})


@pytest.mark.long
def test_a_guest_with_secure_boot_takes_what_an_enrolled_key_has_signed(
    guest: PreparedGuest, stores: Stores, keys: dict[str, tuple[Path, Path]], tmp_path: Path, kernel: Kernel
) -> None:
    """What is not signed is not tried, what a stranger has signed is refused, and both are named; ours is loaded."""
    assert guest.run("mokutil --sb-state").strip() == "SecureBoot enabled"
    assert "CN=tidepool" in guest.run("mokutil --list-enrolled")
    assert "[integrity]" in guest.run("cat /sys/kernel/security/lockdown")
    guest.agent.want()
    assert "mokutil --import" in guest.until_said("ModuleAvailable", "False", "SignatureRequired")
    assert refused(guest, stores.place / kernel.release / "tidepool.ko")
    stores.become(signed(tmp_path, keys["stranger"]))
    guest.agent.begin()
    assert "Key was rejected by service" in guest.until_said("ModuleLoaded", "False", "LoadFailed")
    assert not guest.loaded()
    stores.become(signed(tmp_path, keys["enrolled"]))
    guest.agent.begin()
    guest.take_in()
    guest.take_out()


def refused(guest: PreparedGuest, module: Path) -> bool:
    """Whether the guest's kernel does not take a module, whoever asks."""
    guest.shell.write("/run/unsigned.ko", module.read_bytes())
    tried = guest.shell.run(["/bin/sh", "-c", "modprobe libcrc32c; insmod /run/unsigned.ko"])
    return tried.code != 0 and "Unknown symbol" not in tried.err
