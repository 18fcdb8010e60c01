"""What a release has for programs and guests: packages and a wheel install, and say here that there is no device."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from released import part

import docs
from tidepool_lab import paths
from tidepool_release import clients, guests
from tidepool_release.archives import members
from tidepool_release.source import Source

LIBRARIES = clients.LIBRARIES
NO_DEVICE = "there is no such value, pool name, directory or /dev/tidepool"
SERVICES = ("redis-server", "redis-server@", "valkey-server", "valkey-server@")
# What of Debian's redis-server.service keeps a module from its device.
DEBIAN = """[Service]
Type=notify
ExecStart=/bin/true
Restart=always
PrivateDevices=true
ProtectClock=true
NoExecPaths=/
ExecPaths=/usr/bin/redis-server /usr/lib /lib
"""
SERVER = "/usr/bin/redis-check-rdb"  # in Debian the same program as redis-server, which goes by its name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(clients.build, tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def installed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of all packages, as they lie below a guest's root."""
    root = tmp_path_factory.mktemp("root")
    packages = sorted(made.glob("*.deb"))
    assert [one.name.partition("_")[0] for one in packages] == ["libtidepool-dev", "libtidepool1", "redis-tidepool"]
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def test_a_second_release_is_the_same_bytes(made: Path, tmp_path: Path) -> None:
    again = part(clients.build, tmp_path)
    sums = [{one.name: hashlib.sha256(one.read_bytes()).digest() for one in each.iterdir()} for each in (made, again)]
    assert sums[0] == sums[1]


def test_what_the_page_says_installs_them(made: Path, tmp_path: Path) -> None:
    """Each command: packages as the package manager sees them, Python's in a virtual environment, and from sources."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist/clients").symlink_to(made)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "VENV"], check=True)
    instead = {
        "apt-get install": "apt-get --simulate install",
        "PREFIX=/usr/local": f"PREFIX=/usr/local DESTDIR={tmp_path}/root BUILD={tmp_path}/build",
        " clients/": f" {clients.FOLDER}/",
    }
    for line in docs.commands("clients"):
        for written, here in instead.items():
            line = line.replace(written, here)
        done = subprocess.run(["bash", "-ec", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"`{line}` ended with {done.returncode}: {done.stdout}{done.stderr}"
    placed = {str(path.relative_to(tmp_path / "root/usr/local")) for path in (tmp_path / "root").rglob("*.so*")}
    assert {"lib/libtidepool.so.1", "lib/redis/modules/tidepool.so"} <= placed
    subprocess.run([tmp_path / "VENV/bin/python", "-c", "import tidepool"], check=True)


def test_a_program_builds_with_the_packages(installed: Path, tmp_path: Path) -> None:
    """By pkg-config, with the shared library; its parts belong to one version, and name what they need."""
    environment = {
        **os.environ,
        "PKG_CONFIG_PATH": f"{installed}/{LIBRARIES}/pkgconfig",
        "PKG_CONFIG_SYSROOT_DIR": str(installed),
        "LD_LIBRARY_PATH": f"{installed}/{LIBRARIES}",
    }
    source, program = clients.FOLDER / "c/examples/words.c", tmp_path / "words"
    line = f"cc {source} $(pkg-config --cflags --libs 'tidepool = {paths.VERSION}') -o {program}"
    subprocess.run(["bash", "-ec", line], check=True, env=environment)
    needed = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
    assert "libtidepool.so.1" in needed
    said = subprocess.run([program, "pool"], env=environment, input="a", capture_output=True, text=True, check=False)
    assert NO_DEVICE in said.stderr


def test_a_package_names_the_c_library_that_it_needs(made: Path, installed: Path) -> None:
    """No symbol in it is newer than what it depends on."""
    for package, program in (
        ("libtidepool1", f"{LIBRARIES}/libtidepool.so.1"),
        ("redis-tidepool", "usr/lib/redis/modules/tidepool.so"),
    ):
        (archive,) = made.glob(f"{package}_*.deb")
        field = ["dpkg-deb", "-f", archive, "Depends"]
        depends = subprocess.run(field, check=True, capture_output=True, text=True).stdout
        listed = ["objdump", "-T", installed / program]
        symbols = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
        wanted = {(2, int(one)) for one in re.findall(r"GLIBC_2\.(\d+)", symbols)}
        assert depends.strip() == "libc6 (>= {}.{})".format(*max(wanted))


def test_redis_takes_the_module_of_the_package(installed: Path, tmp_path: Path) -> None:
    """Redis runs no module that may not be executed; the module ends the server, for here is no device."""
    options = [
        "--port",
        "0",
        "--unixsocket",
        tmp_path / "socket",
        "--loadmodule",
        installed / "usr/lib/redis/modules/tidepool.so",
    ]
    server: list[str | Path] = ["redis-server", *options]
    said = subprocess.run(server, executable=SERVER, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"<tidepool> pool '': {NO_DEVICE}" in said.stdout
    assert said.returncode == 1


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_open_the_device(installed: Path, tmp_path: Path, service: str) -> None:
    """Debian's with what the package adds, by systemd's own word; the device may come long after the service."""
    name = f"{service}.service"
    shutil.copytree(installed / f"usr/lib/systemd/system/{name}.d", tmp_path / f"{name}.d")
    (tmp_path / name).write_text(DEBIAN)
    instance = tmp_path / name.replace("@", "@one")
    said = subprocess.run(["systemd-analyze", "verify", instance], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    looked = ["systemd-analyze", "security", "--offline=true", "--json=short", tmp_path / name]
    found = json.loads(subprocess.run(looked, capture_output=True, text=True, check=True).stdout)
    says = {one["json_field"]: one["description"] for one in found}
    assert says["DeviceAllow"].endswith(": char-rtc:r /dev/tidepool:rw")
    assert says["PrivateDevices"] == "Service potentially has access to hardware devices"
    added = (tmp_path / f"{name}.d/tidepool.conf").read_text()
    assert {"StartLimitIntervalSec=0", "RestartSec=5", "ExecPaths=-/usr/lib/redis/modules"} < set(added.splitlines())
    page = (clients.FOLDER / "README.md").read_text()
    assert [line for line in added.splitlines() if line and line[0] != "#"] == [
        line for line in page.partition("```ini\n")[2].partition("```")[0].splitlines() if line
    ]


def test_the_wheel_is_a_package(made: Path, tmp_path: Path) -> None:
    """It installs without anything else, and says what is missing."""
    (wheel,) = made.glob("*.whl")
    assert wheel.name == f"tidepool-{paths.VERSION}-py3-none-any.whl"
    pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-index", "--target", str(tmp_path), str(wheel)]
    subprocess.run(pip, check=True)
    code = "import tidepool\ntry:\n    tidepool.Pool('x')\nexcept tidepool.NoDeviceError as error:\n    print(error)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert "/dev/tidepool" in said.stdout


def test_the_bill_has_every_file(made: Path) -> None:
    bill = json.loads((made / "tidepool-clients.cdx.json").read_text())
    listed = {one["name"]: one["hashes"][0]["content"] for one in bill["components"]}
    files = [one for one in made.iterdir() if one.suffix in (".deb", ".whl")]
    assert listed == {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}
    assert {one["licenses"][0]["license"]["id"] for one in bill["components"]} == {"Apache-2.0"}


def test_guests_get_what_the_page_names(tmp_path: Path) -> None:
    """Each file that docs/how-to/prepare-guests.md links to, and what a recipe among these brings along."""
    archive = tmp_path / "guests.tar.gz"
    guests.pack(archive, Source.here())
    page = (paths.ROOT / "docs/how-to/prepare-guests.md").read_text()
    named = set(re.findall(r"\(\.\./\.\./guests/([^)#]+)\)", page))
    packed = {name.partition("/")[2] for name, _ in members(archive)}
    assert named
    assert named < packed
    recipes = {name.partition("/")[0] for name in named if name.endswith((".py", "mkosi.conf"))}
    assert {name.partition("/")[0] for name in packed - named - {"LICENSE"}} == recipes
