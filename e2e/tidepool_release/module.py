"""The kernel module: built for the kernels that are supported, and as sources for DKMS in a Debian package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tidepool_lab import paths
from tidepool_release import deb, manuals
from tidepool_release.archives import tree, write_tgz
from tidepool_release.source import Source

TOOLS = paths.ROOT / "kernel-module/tools"
KERNELS = ("6.1", "6.12", "7.2")
ABOUT = """\
kernel module that lends unused memory to other virtual machines
 A virtual machine that lacks memory keeps what it cannot hold in the memory
 of another one, and reads it back over the network instead of from its disk.
 .
 This package has the sources. DKMS builds the module for each kernel."""
LICENCE = "GPL-2.0-only\n The whole text is in /usr/src/tidepool-{version}/LICENSE."
FIELDS = {"Depends": "dkms", "Recommends": "linux-headers-generic | linux-headers", "Section": "kernel"}
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


def files() -> frozenset[str]:
    """Names of the modules that are built for each kernel, such as `tidepool-app.ko`."""
    made = re.findall(r"^obj-m [:+]= (\S+)\.o$", (paths.ROOT / "kernel-module/Kbuild").read_text(), re.MULTILINE)
    return frozenset(f"{name}.ko" for name in made)


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
    papers = root / "usr/share/doc/tidepool-dkms"
    papers.mkdir(parents=True)
    shutil.copy(paths.ROOT / "kernel-module/ABI.md", papers)
    manuals.install("tidepool.4", root)
    scripts = {name: text.format(version=source.version) for name, text in (("postinst", AFTER), ("prerm", BEFORE))}
    licence = LICENCE.format(version=source.version)
    deb.Package("tidepool-dkms", "all", ABOUT, licence, FIELDS, scripts).build(folder, root, source)
