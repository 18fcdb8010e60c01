"""What programs call: libraries for C and Python and the module for Redis, as sources, packages and a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tidepool_lab import paths, rootfs, sbom
from tidepool_lab.sbom import File
from tidepool_release import deb, plugin
from tidepool_release.archives import Content, write_tgz
from tidepool_release.source import Source, tracked

FOLDER = paths.ROOT / "clients"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LICENCE = "Apache-2.0\n The whole text is in /usr/share/common-licenses/Apache-2.0."
LIBRARY = """\
values by key in the unused memory of other machines
 Programs keep values under keys, and get them back, from memory that lenders
 have for their virtual machine, by /dev/tidepool of the kernel module."""
DEVELOPMENT = f"""{LIBRARY}
 .
 This package has what building such programs takes."""
REDIS = """\
values of Redis and Valkey in the unused memory of other machines
 A module for the server. Values that nobody has asked for go to lenders, and
 come back when a command needs them."""
LDCONFIG = "activate-noawait ldconfig\n"
# As Debian builds its own packages, without what is for debuggers.
FLAGS = ("CFLAGS=-O2 -fstack-protector-strong", "CPPFLAGS=-D_FORTIFY_SOURCE=2", "LDFLAGS=-Wl,-z,relro,-z,now,-s")


def build(folder: Path, bills: Path, work: Path, source: Source) -> None:
    """Writes all of it, and a bill of materials of what is compiled or installed."""
    pack(folder / f"tidepool-clients-{source.version}.tar.gz", source)
    installed = _installed(work / "clients", source)
    packages = [_library(folder, installed, work, source), _development(folder, installed, work, source)]
    packages.append(_redis(folder, installed, work, source))
    packages.append(plugin.wheel("clients/python", folder, work, source))
    files = [File(one.name, one.read_bytes(), deb.version(source), "Apache-2.0") for one in packages]
    bill = sbom.of_files("tidepool-clients", source.version, files)
    (bills / "tidepool-clients.cdx.json").write_text(bill)


def pack(target: Path, source: Source) -> None:
    """The sources, as their Makefiles want them to lie: with the version two folders above."""
    top = f"tidepool-clients-{source.version}"
    names = [name for name in tracked(FOLDER) if "/tests/" not in name]
    content: dict[str, Content] = {f"{top}/clients/{name}": FOLDER / name for name in names}
    for name in ("LICENSE", "VERSION"):
        content[f"{top}/{name}"] = paths.ROOT / name
    write_tgz(target, content, source.when)


def _installed(work: Path, source: Source) -> Path:
    """What `make install` of a copy of the sources puts below a folder."""
    archive, root = work / "sources.tar.gz", work / "root"
    work.mkdir()
    pack(archive, source)
    subprocess.run(["tar", "-xzf", archive, "-C", work], check=True)
    sources = work / f"tidepool-clients-{source.version}/clients"
    places = [f"DESTDIR={root}", "PREFIX=/usr", f"LIBDIR=/{LIBRARIES}"]
    for part in ("c", "redis"):
        make: list[str | Path] = ["make", "-s", "-C", sources / part, "install", *places, *FLAGS]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **source.environment()})
    return root


def _library(folder: Path, installed: Path, work: Path, source: Source) -> Path:
    root = work / "libtidepool1"
    _move(installed, root, f"{LIBRARIES}/libtidepool.so.1")
    fields = {"Depends": deb.libc_of(root / LIBRARIES / "libtidepool.so.1"), "Section": "libs", "Multi-Arch": "same"}
    package = deb.Package("libtidepool1", rootfs.NATIVE, LIBRARY, LICENCE, fields, {"triggers": LDCONFIG})
    return package.build(folder, root, source)


def _development(folder: Path, installed: Path, work: Path, source: Source) -> Path:
    root = work / "libtidepool-dev"
    names = ("libtidepool.so", "libtidepool.a", "pkgconfig")
    _move(installed, root, "usr/include", "usr/share/man", *(f"{LIBRARIES}/{name}" for name in names))
    fields = {"Depends": f"libtidepool1 (= {deb.version(source)}), libc6-dev, linux-libc-dev", "Section": "libdevel"}
    return deb.Package("libtidepool-dev", rootfs.NATIVE, DEVELOPMENT, LICENCE, fields).build(folder, root, source)


def _redis(folder: Path, installed: Path, work: Path, source: Source) -> Path:
    root = work / "redis-tidepool"
    _move(installed, root, "usr/lib/redis", "usr/lib/systemd")
    needed = deb.libc_of(root / "usr/lib/redis/modules/tidepool.so")
    fields = {"Depends": needed, "Enhances": "redis-server, valkey-server", "Section": "database"}
    return deb.Package("redis-tidepool", rootfs.NATIVE, REDIS, LICENCE, fields).build(folder, root, source)


def _move(installed: Path, root: Path, *names: str) -> None:
    """Into the folder of one package."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(installed / name, root / name)
