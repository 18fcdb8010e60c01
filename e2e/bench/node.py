"""A guest that plays a node, and who lends its memory to clients on this machine: its kernel or the daemon."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bed.guest import Disk, Guest, Link, Spec
from bed.image import CACHE, build_module, fetch_kernel, tools_disk, with_tools
from bed.pair import JUMBO, free_port
from bed.protocol import KeyPair, point_of
from bed.tidepool import MIB, Tidepool, wait_until
from bench.machine import furnish
from tidepool_lab import paths

SOURCES = paths.ROOT / "node-lender"
PORT = 7470
KERNEL, DAEMON = "guest's kernel", "node lender"
CONFIG, LOG = "/tmp/lender.toml", "/tmp/lender.log"
# The programs' disk, on which the daemon finds its libraries by its loader's usual name; and a user to become.
FURNISH = (
    "mkdir -p /tools && mount -t ext4 -o ro,noatime /dev/{device} /tools && ln -s /tools/lib64 /lib64"
    " && echo 'nobody:x:65534:65534::/:/bin/false' > /etc/passwd && chmod 1777 /tmp"
)
NAMES = 'for d in /sys/block/vd*; do [ "$(cat $d/serial)" != tools ] || echo ${d##*/}; done'


def sources() -> list[Path]:
    """What the daemon is made of."""
    return sorted([*SOURCES.glob("src/**/*.rs"), SOURCES / "Cargo.lock"])


@functools.cache
def program() -> Path:
    """The daemon, as a release is built."""
    subprocess.run([SOURCES / "cargo", "build", "--release", "--quiet"], check=True)
    return CACHE / "node-lender/release/tidepool-node-lender"


@dataclass
class Node:
    """A guest that is up; `address` is where its lender answers on this machine."""

    guest: Guest
    address: tuple[str, int]


@contextmanager
def node(
    mib: int, *, processors: int = 1, counted: bool = False, balloon: bool = False, disk: Disk | None = None,
    tools: Path | None = None, kernel: str = "6.1",
) -> Iterator[Node]:  # fmt: skip
    """Boots one of that size. If `counted` its clock goes by instructions; with a `balloon` a libvirt runs it.

    `tools` is a disk of programs in place of the daemon's.
    """
    files, port = fetch_kernel(kernel), free_port()
    folder = Path(tempfile.mkdtemp(prefix="tidepool-bed-", dir="/var/tmp"))
    # A counted guest waits for real time only if it has a card whose other end it may have to wait for.
    links = (Link(folder / "near", folder / "far", "10.7.0.2", JUMBO),) if counted else ()
    spec = Spec(
        "node", f"{mib}M", processors, disk, links, counted=counted, balloon=balloon,
        tools=tools or tools_disk(str(program())), host=port,
    )  # fmt: skip
    guest = Guest.boot(spec, files, build_module(files), folder)
    try:
        guest.wait_ready()
        furnish(guest) if tools else guest.sh(FURNISH.format(device=guest.sh(NAMES)))
        yield Node(guest, ("127.0.0.1", port))
    finally:
        guest.close()
        shutil.rmtree(folder, ignore_errors=True)


def uptime(guest: Guest) -> float:
    """Seconds since it was booted, by its own clock."""
    return float(guest.read("/proc/uptime").split()[0])


@dataclass
class Terms:
    """Who may borrow, and how much: in all, and each."""

    borrowers: Mapping[str, KeyPair]
    lend_mib: int
    quota_mib: int
    reserve_mib: int = 16
    group: str = ""
    """Of control groups, in which the daemon is; the kernel's lender is in none."""

    def toml(self) -> str:
        """The daemon's configuration."""
        lines = [f'listen = "0.0.0.0:{PORT}"', f'max_lend = "{self.lend_mib}Mi"', f'reserve = "{self.reserve_mib}Mi"']
        for name, own in self.borrowers.items():
            lines += [f"[borrowers.{name}]", f'identity = "{own.identity}"', f'quota = "{self.quota_mib}Mi"']
        return "\n".join([*lines, ""])


@contextmanager
def lending(guest: Guest, lender: str, terms: Terms) -> Iterator[bytes]:
    """One of the two lends meanwhile; its point."""
    with (_kernel if lender == KERNEL else _daemon)(guest, terms) as point:
        yield point


@contextmanager
def _kernel(guest: Guest, terms: Terms) -> Iterator[bytes]:
    module = Tidepool(guest)
    module.load()
    try:
        module.set("reserve_bytes", terms.reserve_mib * MIB)
        module.set("lend_bytes", terms.lend_mib * MIB)
        for name, own in terms.borrowers.items():
            module.lend(name, quota=terms.quota_mib * MIB, identity=own.identity)
        yield point_of(module.identity)
    finally:
        module.unload()


@contextmanager
def _daemon(guest: Guest, terms: Terms) -> Iterator[bytes]:
    guest.write(CONFIG, terms.toml())
    guest.write(LOG, "")
    into = f"echo $$ > {terms.group}/cgroup.procs && " if terms.group else ""
    job = guest.start(f"{into}exec env {with_tools(str(program()))} --config {CONFIG} 2> {LOG}")

    def lends() -> bool:
        assert job.running, guest.read(LOG)
        return "lends" in guest.read(LOG)

    try:
        wait_until("the daemon lends", lends)
        (found,) = re.findall(r"identity=(x25519:[0-9a-f]{64})", guest.read(LOG))
        yield point_of(found)
    finally:
        job.kill()
        job.result()
