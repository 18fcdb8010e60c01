"""The module as an administrator builds it, by the commands of docs/how-to/add-a-kernel.md."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bed.documented import Page
from bed.guest import Guest
from bed.image import TOOLS, TOP, Kernel, fetch_kernel
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB
from bed.workload import stress

VERSION = (TOP / "VERSION").read_text().strip()
PAGE = Page("docs/how-to/add-a-kernel.md")
COMPILED_HERE = ("6.1", "6.12")  # by this machine's compiler, which is the one that dkms takes


def by_dkms(kernel: Kernel, folder: Path) -> Path:
    """From the tree that is laid out for it; it builds and installs below the folder."""
    tree, install = PAGE.commands("kernel-module/tools/dkms-tree")
    trees = {name: folder / name for name in ("source", "dkms", "install")}
    for one in (*trees.values(), trees["install"] / kernel.release):
        one.mkdir()
    subprocess.run(["sh", "-ec", tree.replace("FOLDER", str(trees["source"]))], cwd=TOP, check=True)
    fetched = subprocess.run([TOOLS / "dkms", "fetch"], check=True, stdout=subprocess.PIPE, text=True)
    places = " ".join(f"--{name}tree {one}" for name, one in trees.items())
    chosen = f"{places} -k {kernel.release} --kernelsourcedir {kernel.folder / 'build'} --no-depmod"
    dkms = f'dkms() {{ unshare --map-root-user {fetched.stdout.strip()} "$@" {chosen}; }}\n'
    subprocess.run(["sh", "-ec", dkms + install.replace("VERSION", VERSION)], check=True)
    installed = trees["install"] / kernel.release / "updates/dkms"
    assert all((installed / f"tidepool-{name}.ko").exists() for name in ("app", "block", "file"))
    return installed / "tidepool.ko"


def by_make(kernel: Kernel, folder: Path) -> Path:
    """In a copy of the sources, with the kernel's headers, into a store."""
    sources = folder / "kernel-module"
    shutil.copytree(TOP / "kernel-module", sources, ignore=shutil.ignore_patterns("tests", "tools"))
    shutil.copy(TOP / "VERSION", folder)
    script = "\n".join(PAGE.commands("make -C")).replace("/lib/modules/RELEASE/build", str(kernel.folder / "build"))
    subprocess.run(["sh", "-ec", script.replace("RELEASE", kernel.release)], cwd=folder, check=True)
    subprocess.run(["sha256sum", "--check", "tidepool.ko.sha256"], cwd=folder / "STORE" / kernel.release, check=True)
    return folder / "STORE" / kernel.release / "tidepool.ko"


@pytest.mark.long
@pytest.mark.parametrize("way", [by_dkms, by_make])
def test_built_by_hand(kernel: str, way: Callable[[Kernel, Path], Path], tmp_path: Path) -> None:
    """What comes of it loads in a guest and takes pages to a lender."""
    if kernel not in COMPILED_HERE:
        kernel = COMPILED_HERE[0]
    module = way(fetch_kernel(kernel), tmp_path)
    with (pair := Pair(kernel)) as (borrower, _):
        _replace_module(borrower, module)
        pair.connect(size=64 * MIB, more=PATIENT)
        assert borrower.read("/sys/module/tidepool/version") == VERSION
        stress(borrower, "fill /mnt/file mib=30")
        for _ in range(2):
            borrower.drop_caches(1)
            stress(borrower, "sequential /mnt/file")
        assert pair.borrowed()["get_hits"] > 100
        pair.assert_clean()


def _replace_module(guest: Guest, module: Path) -> None:
    guest.start("cat > /lib/tidepool.ko", module.read_bytes()).wait()
