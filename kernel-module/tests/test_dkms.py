"""The module as an administrator builds it who has only the sources in /usr/src and Debian's dkms."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bed.guest import Guest
from bed.image import TOOLS, TOP, Kernel, fetch_kernel
from bed.pair import Pair
from bed.tidepool import MIB
from bed.workload import stress

PACKAGE = f"tidepool/{(TOP / 'VERSION').read_text().strip()}"
COMPILED_HERE = ("6.1", "6.12")  # by this machine's compiler, which is the one that dkms takes


@pytest.mark.long
def test_built_by_dkms(kernel: str, tmp_path: Path) -> None:
    """`dkms install` from the packaged tree; what it installs loads in a guest and takes pages to a lender."""
    if kernel not in COMPILED_HERE:
        kernel = COMPILED_HERE[0]
    module = _install(fetch_kernel(kernel), tmp_path)
    with (pair := Pair(kernel)) as (borrower, _):
        _replace_module(borrower, module)
        pair.connect(size=64 * MIB)
        assert borrower.read("/sys/module/tidepool/version") == PACKAGE.partition("/")[2]
        stress(borrower, "fill /mnt/file mib=30")
        for _ in range(2):
            borrower.drop_caches(1)
            stress(borrower, "sequential /mnt/file")
        assert pair.borrowed()["get_hits"] > 100
        pair.assert_clean()


def _install(kernel: Kernel, folder: Path) -> Path:
    """The module that dkms builds and installs below the folder."""
    trees = {name: folder / name for name in ("source", "dkms", "install")}
    for tree in (*trees.values(), trees["install"] / kernel.release):
        tree.mkdir()
    subprocess.run([TOOLS / "dkms-tree", trees["source"]], check=True)
    fetched = subprocess.run([TOOLS / "dkms", "fetch"], check=True, stdout=subprocess.PIPE, text=True)
    places = [argument for name, tree in trees.items() for argument in (f"--{name}tree", str(tree))]
    chosen = ["-k", kernel.release, "--kernelsourcedir", str(kernel.folder / "build"), "--no-depmod"]
    subprocess.run(
        ["unshare", "--map-root-user", fetched.stdout.strip(), "install", PACKAGE, *places, *chosen], check=True
    )
    return trees["install"] / kernel.release / "updates/dkms/tidepool.ko"


def _replace_module(guest: Guest, module: Path) -> None:
    guest.start("cat > /lib/tidepool.ko", module.read_bytes()).wait()
