"""What a guest boots: a stock kernel and an initramfs of busybox, kernel modules and our own small programs.

The large part of the initramfs depends on the kernel only and is cached by content; our programs are appended as a
second archive, which the kernel unpacks on top. The module under test is given to the guest once it is up.
"""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
TOP = TESTS.parent.parent
TOOLS = TESTS.parent / "tools"
CACHE = Path(
    os.environ.get("TIDEPOOL_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidepool"
)
BUILD = TOP / "build" / "kernel-tests"
VALUES = TESTS.parent / "uapi" / "tidepool.h"  # what a program includes

GUEST_MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "crc32c",
    "ext4",
    "configfs",
    "gcm",
    "ctr",
    "dm-mod",
    "loop",
)
# What only some kernels have as a module: on a stock x86 guest AES-GCM is the processor's own.
GUEST_MODULES_IF_THERE = ("ghash_generic", "aesni_intel", "virtio_balloon")
# Loaded only in guests with such a disk: emulated, xfs takes up to four seconds, a third of a guest's start, and btrfs
# measures its checksums.
FILESYSTEM_MODULES = {
    "btrfs": ("btrfs",),
    "vfat": ("vfat", "nls_ascii", "nls_cp437", "nls_iso8859-1", "nls_utf8"),
    "xfs": ("xfs",),
}
PROGRAMS = ("dmsetup",)  # what guests can call, taken from this machine with its libraries
TOOLS_SIZE = "128M"
CFLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread")


@dataclass(frozen=True)
class Kernel:
    """A kernel from the cache, see `kernel-module/tools/kernel`."""

    name: str
    folder: Path

    @property
    def release(self) -> str:
        return (self.folder / "release").read_text().strip()

    @property
    def vmlinuz(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def root(self) -> Path:
        return self.folder / "root"


def fetch_kernel(name: str) -> Kernel:
    """The kernel of that name, fetched on first use."""
    return Kernel(name, Path(_output([str(TOOLS / "kernel"), "fetch", name])))


@functools.cache
def fetch_qemu() -> Path:
    """The folder of the emulator, fetched on first use, see `kernel-module/tools/qemu`."""
    return Path(_output([str(TOOLS / "qemu"), "fetch"]))


@functools.cache
def build_module(kernel: Kernel, *, breakable: bool = False) -> Path:
    """`tidepool.ko` for the kernel, built now unless the sources are those of the last time; once a run.

    Of a breakable one mechanisms can be broken when it is loaded (base/broken.h).
    """
    env = {**os.environ, "BREAKABLE": "y" if breakable else ""}
    return Path(_output([str(TOOLS / "build"), kernel.name], env=env))


def build_program(name: str, sources: Iterable[Path], flags: Sequence[str] = CFLAGS) -> Path:
    """A program (static unless `flags` say otherwise), compiled now unless its sources are those of the last time."""
    sources = sorted(sources)
    version = digest([*flags, *(source.read_bytes() for source in sources)])
    program = BUILD / "programs" / f"{name}-{version}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f".{program.name}.{os.getpid()}")
        units = [str(source) for source in sources if source.suffix == ".c"]
        subprocess.run(["gcc", *flags, "-o", str(partial), *units, "-lm"], check=True)
        partial.rename(program)
    return program


def stress_program() -> Path:
    """What guests have to do, and what looks at their disks here."""
    stress = TESTS / "stress"
    return build_program("stress", [*stress.glob("*.c"), *stress.glob("*.h"), VALUES])


@functools.cache
def initramfs(kernel: Kernel, module: Path | None, filesystem: str | None = None, more: tuple[str, ...] = ()) -> bytes:
    """The whole initramfs: cached base for the disk's file system and for what the module needs, our programs.

    `more` are kernel modules that the guest loads as well.
    """
    guest = TESTS / "guest"
    overlay: dict[str, Path | bytes] = {
        "init": guest / "init",
        "bin/guestd": build_program("guestd", [guest / "guestd.c"]),
        "bin/reseed": build_program("reseed", [guest / "reseed.c"]),
        "bin/stress": stress_program(),
    }
    return _base(kernel, FILESYSTEM_MODULES.get(filesystem or "", ()) + _needed(module) + more) + _cpio(overlay)


def _needed(module: Path | None) -> tuple[str, ...]:
    """The kernel's modules that have to be there before ours."""
    named = _output(["modinfo", "-F", "depends", str(module)]) if module else ""
    return tuple(filter(None, named.split(",")))


def _base(kernel: Kernel, more: tuple[str, ...]) -> bytes:
    """Busybox, its links, and the kernel modules every guest loads, and `more`, as one archive."""
    busybox = Path("/usr/bin/busybox") if Path("/usr/bin/busybox").exists() else Path("/bin/busybox")
    there = tuple(name for name in GUEST_MODULES_IF_THERE if has_module(kernel, name))
    modules = _module_files(kernel, GUEST_MODULES + there + more)
    programs = {name: file for program in PROGRAMS for name, file in _program(program)}
    contents = [busybox.read_bytes(), *(file.read_bytes() for file in programs.values())]
    version = digest([*contents, kernel.release, *map(str, modules), _own_source()])
    cached = CACHE / "initramfs" / f"{version}.cpio"
    if not cached.exists():
        names = [module.name.removesuffix(".xz") for module in modules]
        files: dict[str, Path | bytes] = {
            "bin/busybox": busybox,
            "lib/modules/order": "".join(f"{n}\n" for n in names).encode(),
            **programs,
        }
        for name, module in zip(names, modules, strict=True):
            files[f"lib/modules/{name}"] = lzma.decompress(module.read_bytes()) if module.suffix == ".xz" else module
        applets = _output([str(busybox), "--list"]).split()
        links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_name(f".{cached.name}.{os.getpid()}")
        partial.write_bytes(_cpio(files, links))
        partial.rename(cached)
    return cached.read_bytes()


def _program(name: str) -> Iterator[tuple[str, Path]]:
    """Where it and its shared libraries go in a guest, and where they are here."""
    program = shutil.which(name, path=with_sbin()["PATH"])
    if not program:
        raise FileNotFoundError(f"'{name}' is not installed here")
    yield f"bin/{Path(name).name}", Path(program)
    yield from libraries(Path(program))


def libraries(binary: Path) -> Iterator[tuple[str, Path]]:
    """The shared libraries that a program or library needs: where they go on such a disk, and where they are here."""
    for library in re.findall(r"(/\S+) \(0x", _output(["ldd", str(binary)])):
        yield library.lstrip("/"), Path(library)


def tools_disk(*programs: str, more: Mapping[str, Path] | None = None) -> Path:
    """A disk with programs of this machine, their libraries, and `more` files: the image for a guest's `tools`."""
    files = {name: file for program in programs for name, file in _program(program)} | dict(more or {})
    image = BUILD / "programs" / f"{Path(programs[0]).name}-{digest(file.read_bytes() for file in files.values())}.disk"
    if not image.exists():
        image.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            for name, file in files.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, Path(folder) / name)
            partial = image.with_name(f".{image.name}.{os.getpid()}")
            subprocess.run(["truncate", "-s", TOOLS_SIZE, partial], check=True)
            subprocess.run(["mkfs.ext4", "-q", "-d", folder, partial], check=True, env=with_sbin())
            partial.rename(image)
    return image


def with_tools(program: str) -> str:
    """A shell command's beginning that runs a program of a guest's disk of tools, which is mounted on /tools."""
    folders = {f"/tools/{Path(name).parent}" for name, _ in _program(program)}
    return f"LD_LIBRARY_PATH={':'.join(sorted(folders))} /tools/bin/{Path(program).name}"


def has_module(kernel: Kernel, name: str) -> bool:
    """Whether it comes with the kernel as a file, not built in and not left out."""
    names = {name, name.replace("_", "-")}
    return any(file.name.split(".")[0] in names for file in kernel.root.rglob("*.ko*"))


def _module_files(kernel: Kernel, wanted: tuple[str, ...]) -> list[Path]:
    """Files of these modules and what they depend on, in the order to load them."""
    files: dict[Path, None] = {}
    for name in wanted:
        shown = _output(["modprobe", "-d", str(kernel.root), "-S", kernel.release, "--show-depends", name])
        for line in shown.splitlines():
            action, _, path = line.strip().partition(" ")
            if action == "insmod":
                files[Path(path.strip())] = None
    return list(files)


def _cpio(files: Mapping[str, Path | bytes], links: Mapping[str, str] | None = None) -> bytes:
    """An archive in cpio's "newc" format: folders, files (a path to copy or contents), symbolic links."""
    contents = {name: (data if isinstance(data, bytes) else data.read_bytes()) for name, data in files.items()}
    folders = {"proc", "sys", "dev", "tmp", "mnt", "bin", "root", "etc"}
    for name in contents:
        folders.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    members = [(name, stat.S_IFDIR | 0o755, b"") for name in sorted(folders)]
    members += [(name, stat.S_IFREG | 0o755, data) for name, data in contents.items()]
    members += [(name, stat.S_IFLNK | 0o777, target.encode()) for name, target in (links or {}).items()]
    archive = b"".join(_cpio_member(number, *member) for number, member in enumerate(members, 1))
    archive += _cpio_member(0, "TRAILER!!!", 0, b"")
    return archive + bytes(-len(archive) % 512)


def _cpio_member(inode: int, name: str, mode: int, data: bytes) -> bytes:
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def _own_source() -> bytes:
    return Path(__file__).read_bytes()


def digest(parts: Iterable[str | bytes]) -> str:
    """A name for all of them together."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:16]


def with_sbin(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An environment in which the programs that an administrator calls are found, too."""
    return {**env, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}


def _output(command: list[str], env: Mapping[str, str] = os.environ) -> str:
    run = subprocess.run(command, env=with_sbin(env), check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout.strip()
