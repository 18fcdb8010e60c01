"""The kernel module: built for the kernels that are supported, and as sources for DKMS in a Debian package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tidepool_lab import paths
from tidepool_release.archives import PROGRAM, tree, write_tgz
from tidepool_release.source import Source

TOOLS = paths.ROOT / "kernel-module/tools"
KERNELS = ("6.1", "6.12", "7.2")
CONTROL = """\
Package: tidepool-dkms
Version: {version}
Architecture: all
Maintainer: The Tidepool authors <noreply@tidepool.dev>
Depends: dkms
Recommends: linux-headers-generic | linux-headers
Section: kernel
Priority: optional
Homepage: {home}
Installed-Size: {size}
Description: kernel module that lends unused memory to other virtual machines
 A virtual machine that lacks memory keeps what it cannot hold in the memory
 of another one, and reads it back over the network instead of from its disk.
 .
 This package has the sources. DKMS builds the module for each kernel.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: tidepool
Source: {home}

Files: *
Copyright: The Tidepool authors
License: GPL-2.0-only
 The whole text is in /usr/src/tidepool-{version}/LICENSE.
"""
AFTER = """\
#!/bin/sh
# Builds the module for the kernels that are installed, as every package of Debian's with DKMS does.
set -e
[ "$1" != configure ] || /usr/lib/dkms/common.postinst tidepool {version} /usr/share/tidepool-dkms "" "$2"
"""
BEFORE = """\
#!/bin/sh
set -e
case $1 in
remove | upgrade | deconfigure)
    if [ -n "$(dkms status -m tidepool -v {version})" ]; then
        dkms remove -m tidepool -v {version} --all
    fi
    ;;
esac
"""


def build_store(folder: Path) -> None:
    """Fills a module store: the module for each kernel, and the sources."""
    subprocess.run([TOOLS / "store", folder, *KERNELS], check=True, stdout=subprocess.DEVNULL)


def pack_store(target: Path, modules: Path, source: Source) -> None:
    """The store as an archive."""
    write_tgz(target, tree(modules, "modules/"), source.when)


def build_package(folder: Path, work: Path, source: Source) -> None:
    """Writes tidepool-dkms_VERSION_all.deb."""
    root = work / "package"
    subprocess.run([TOOLS / "dkms-tree", root / "usr/src"], check=True, stdout=subprocess.DEVNULL)
    said = {"version": source.version, "home": source.home}
    papers = root / "usr/share/doc/tidepool-dkms"
    papers.mkdir(parents=True)
    (papers / "copyright").write_text(COPYRIGHT.format_map(said))
    shutil.copy(paths.ROOT / "kernel-module/ABI.md", papers)
    control = root / "DEBIAN"
    control.mkdir()
    version = source.version.replace("-", "~")  # a candidate is older than what it becomes
    kib = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    (control / "control").write_text(CONTROL.format(version=version, home=source.home, size=kib))
    for name, script in (("postinst", AFTER), ("prerm", BEFORE)):
        (control / name).write_text(script.format_map(said))
    _settle(root)
    for name in ("postinst", "prerm"):
        (control / name).chmod(PROGRAM)
    command: list[str | Path] = [
        "dpkg-deb",
        "--root-owner-group",
        "-Zxz",
        "--build",
        root,
        folder / f"tidepool-dkms_{version}_all.deb",
    ]
    environment = {**os.environ, **source.environment()}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def _settle(root: Path) -> None:
    """Rights that do not come from whoever builds it."""
    for path in [root, *root.rglob("*")]:
        path.chmod(PROGRAM if path.is_dir() or path.suffix == ".sh" else 0o644)
