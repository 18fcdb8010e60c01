"""The node lender for hosts without Kubernetes: its program, its unit and an example of its configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidepool_lab import paths, rust, sbom
from tidepool_lab.sbom import File
from tidepool_release import deb
from tidepool_release.images import ARCHITECTURES
from tidepool_release.source import Source

FOLDER = paths.ROOT / "node-lender"
NAME = rust.NAME
ABOUT = """\
lends the free memory of a host to virtual machines
 A daemon that keeps pages of borrowers in memory that the host's kernel takes
 back under any pressure. It needs no kernel module and no privilege.
 .
 Nothing is lent before there is /etc/tidepool/node-lender.toml, and the unit
 is enabled."""
LICENCE = "Apache-2.0\n The whole text is in /usr/share/common-licenses/Apache-2.0."
AFTER = """\
#!/bin/sh
# Another program, or unit, is used at once by a lender that runs. Its borrowers read their disks meanwhile.
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart tidepool-node-lender.service
fi
"""
BEFORE = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now tidepool-node-lender.service
fi
"""


def build(folder: Path, bills: Path, work: Path, source: Source) -> None:
    """Writes a package for each architecture, and a bill of materials of them."""
    packages = [_package(folder, work / f"{NAME}-{each}", each, source) for each in ARCHITECTURES]
    files = [File(one.name, one.read_bytes(), deb.version(source), "Apache-2.0") for one in packages]
    (bills / f"{NAME}.cdx.json").write_text(sbom.of_files(NAME, source.version, files))


def _package(folder: Path, root: Path, architecture: str, source: Source) -> Path:
    program = rust.node_lender(architecture)
    content = {
        f"usr/bin/{NAME}": program,
        f"usr/lib/systemd/system/{NAME}.service": FOLDER / f"systemd/{NAME}.service",
        f"usr/share/doc/{NAME}/examples/node-lender.toml": FOLDER / "systemd/node-lender.toml",
        f"usr/share/doc/{NAME}/README.md": FOLDER / "README.md",
    }
    for name, file in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / name)
    fields = {"Depends": f"{deb.libc_of(program)}, libgcc-s1", "Section": "admin"}
    scripts = {"postinst": AFTER, "prerm": BEFORE}
    return deb.Package(NAME, architecture, ABOUT, LICENCE, fields, scripts).build(folder, root, source)
