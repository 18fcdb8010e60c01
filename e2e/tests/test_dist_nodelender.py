"""What a release has for hosts without Kubernetes that lend: a package with the daemon, its unit, and an example."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
from pathlib import Path

import pytest
from released import part
from test_dist import MACHINES

from tidepool_lab import rootfs
from tidepool_release import deb, nodelender
from tidepool_release.images import ARCHITECTURES
from tidepool_release.source import Source

PROGRAM = f"usr/bin/{nodelender.NAME}"
UNIT = f"usr/lib/systemd/system/{nodelender.NAME}.service"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(nodelender.build, tmp_path_factory.mktemp("node-lender"))


def package(made: Path, architecture: str) -> Path:
    """That of an architecture."""
    return made / f"{nodelender.NAME}_{deb.version(Source.here())}_{architecture}.deb"


def unpacked(made: Path, folder: Path, architecture: str = rootfs.NATIVE) -> Path:
    """What it puts below a host's root."""
    subprocess.run(["dpkg-deb", "-x", package(made, architecture), folder], check=True)
    return folder


def test_a_second_release_is_the_same_bytes(made: Path, tmp_path: Path) -> None:
    again = part(nodelender.build, tmp_path)
    sums = [{one.name: hashlib.sha256(one.read_bytes()).digest() for one in each.iterdir()} for each in (made, again)]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_package_has_a_program_of_its_architecture(made: Path, tmp_path: Path, architecture: str) -> None:
    """Which may be executed, and needs no newer C library than the package depends on."""
    program = unpacked(made, tmp_path, architecture) / PROGRAM
    assert program.stat().st_mode & 0o777 == 0o755
    assert struct.unpack_from("<H", program.read_bytes(), 18) == (MACHINES[architecture],)
    field = ["dpkg-deb", "-f", package(made, architecture), "Depends"]
    depends = subprocess.run(field, check=True, capture_output=True, text=True).stdout
    listed = subprocess.run(["readelf", "-sW", program], check=True, capture_output=True, text=True).stdout
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", listed))
    assert depends.strip() == f"libc6 (>= 2.{newest}), libgcc-s1"


def test_systemd_takes_the_unit(made: Path, tmp_path: Path) -> None:
    """It knows every word of it, and each program that it names is in the package or on any host."""
    root = unpacked(made, tmp_path)
    text = (root / UNIT).read_text()
    assert text.count(f"=/{PROGRAM} ") == 2
    moved = tmp_path / f"{nodelender.NAME}.service"
    moved.write_text(text.replace(f"/{PROGRAM}", str(root / PROGRAM)))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", moved], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_the_example_is_a_configuration(made: Path, tmp_path: Path) -> None:
    """Also with the borrower that is left to be filled in."""
    root = unpacked(made, tmp_path)
    example = root / f"usr/share/doc/{nodelender.NAME}/examples/node-lender.toml"
    named = example.read_text().replace("x25519:…", f"x25519:{'1' * 64}")
    filled = tmp_path / "filled.toml"
    filled.write_text(re.sub(r"^# (?=\[|\w+ = )", "", named, flags=re.MULTILINE))
    assert "\n[borrowers.web-1]" in filled.read_text()
    for file in (example, filled):
        said = subprocess.run(
            [root / PROGRAM, "--check", "--config", file], capture_output=True, text=True, check=False
        )
        assert (said.returncode, said.stderr) == (0, "")


def test_the_bill_has_every_package(made: Path) -> None:
    bill = json.loads((made / f"{nodelender.NAME}.cdx.json").read_text())
    listed = {one["name"]: one["hashes"][0]["content"] for one in bill["components"]}
    assert listed == {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in made.glob("*.deb")}
    assert len(listed) == len(ARCHITECTURES)
