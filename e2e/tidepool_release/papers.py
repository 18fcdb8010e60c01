"""What goes with a release: notes, checksums, a signature, and how its images and chart get into a registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tidepool_lab import debian, paths
from tidepool_lab.progress import LabError
from tidepool_release.archives import PROGRAM, sha256
from tidepool_release.source import Source

SUMS = "SHA256SUMS"
PUSH = """\
#!/bin/sh
# Puts images and chart into a registry, with skopeo:  push PREFIX [OPTION OF skopeo copy]...
# PREFIX is the registry and what its names begin with, such as registry.example.org/tidepool.
set -eu
[ $# -ge 1 ] || {{ sed -n 2,3p "$0" >&2; exit 2; }}
prefix=${{1%/}}
shift
if ! command -v skopeo > /dev/null; then
    echo "push: there is no skopeo in PATH; on Debian: apt-get install skopeo" >&2
    exit 2
fi
cd "$(dirname "$(readlink -f "$0")")"
sha256sum --quiet --check {sums}
for image in tidepool-operator tidepool-agent tidepool-node-lender; do
    skopeo copy --all "$@" "oci-archive:images/$image.tar" "docker://$prefix/$image:{version}"
done
skopeo copy "$@" "oci-archive:chart/tidepool-{version}.oci.tar" "docker://$prefix/charts/tidepool:{version}"
echo "helm install tidepool oci://$prefix/charts/tidepool --version {version} -n tidepool-system --create-namespace" \\
    "--set image.repository=$prefix"
"""


def notes(changes: str, version: str) -> str:
    """The section of a version in CHANGELOG.md. Raises LabError where there is none."""
    found = re.search(rf"^## {re.escape(version)}(?:,[^\n]*)?\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise LabError(f"CHANGELOG.md says nothing of {version}: it needs a section `## {version}`")
    return f"# Tidepool {version}\n\n{found[1].strip()}\n"


def write_notes(folder: Path, source: Source) -> None:
    """Writes NOTES.md."""
    (folder / "NOTES.md").write_text(notes((paths.ROOT / "CHANGELOG.md").read_text(), source.version))


def write_push(folder: Path, source: Source) -> None:
    """Writes the program push."""
    program = folder / "push"
    program.write_text(PUSH.format(sums=SUMS, version=source.version))
    program.chmod(PROGRAM)


def write_sums(folder: Path) -> None:
    """Writes the checksums of all files, as sha256sum has them."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in files))


def sign(folder: Path, key: Path, source: Source) -> None:
    """Signs the checksums with a secret key of minisign's, whose password it asks for if it has one."""
    said = f"Tidepool {source.version}, {source.revision}"
    command: list[str | Path] = [
        debian.program("minisign"),
        "-S",
        "-s",
        key,
        "-t",
        said,
        "-c",
        said,
        "-m",
        folder / SUMS,
    ]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
        raise LabError(f"--key {key}: minisign does not sign with it; `minisign -G` makes one")
