"""What the borrower runs: a Debian root file system with xfstests, built in it, as an archive.

The guest unpacks it into memory. On a disk its pages would be evicted with those of the tests, and read again for each
program that a test calls.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

from tidepool_lab import rootfs, store

HOME = "/xfstests"  # in the root file system
PACKAGES = (
    # what its tests call
    "acl",
    "attr",
    "bc",
    "btrfs-progs",
    "bsdextrautils",
    "dbench",
    "dmsetup",
    "e2fsprogs",
    "fdisk",
    "fio",
    "gawk",
    "hostname",
    "keyutils",
    "kmod",
    "libcap2-bin",
    "perl",
    "procps",
    "psmisc",
    "python3-minimal",
    "quota",
    "util-linux-extra",
    "uuid-runtime",
    "xfsdump",
    "xfsprogs",
    # what it is built with
    "autoconf",
    "automake",
    "gcc",
    "libacl1-dev",
    "libaio-dev",
    "libattr1-dev",
    "libbtrfsutil-dev",
    "libc6-dev",
    "libcap-dev",
    "libgdbm-dev",
    "libtool",
    "libtool-bin",
    "liburing-dev",
    "make",
    "pkg-config",
    "uuid-dev",
    "xfslibs-dev",
)
USERS = "for user in fsgqa fsgqa2 123456-fsgqa; do useradd --badname --user-group --create-home $user; done"
FOLDERS = ("mnt/test", "mnt/scratch")
# What was needed to build, and what no test of the generic group calls.
LEFT_OUT = (
    "./dev/*",
    "./var/*",
    "./usr/include",
    "./usr/lib/gcc",
    "./usr/lib/x86_64-linux-gnu/gconv",
    "./usr/lib/x86_64-linux-gnu/lib*san.so*",
    "./usr/lib/x86_64-linux-gnu/perl/*/CORE",
    "./usr/lib/x86_64-linux-gnu/perl/*/auto/Encode/[JKCT]*",
    "*.a",
    "./usr/bin/x86_64-linux-gnu-*",
    "./usr/share/auto*",
    "./usr/share/zoneinfo",
    "*/autom4te.cache",
    "./xfstests/tests/[!g]*",
    "./xfstests/*.c",
    "./xfstests/*.o",
)


def archive(checkout: Path) -> Path:
    """The tar file, with xfstests as the checkout's HEAD has it."""
    tree = _output("git", "-C", str(checkout), "rev-parse", "HEAD^{tree}")
    whole = rootfs.build(rootfs.Recipe("xfstests", "bookworm", PACKAGES, hooks=_hooks(checkout), inputs=(tree,)))
    key = store.digest(str(whole), *LEFT_OUT)
    return store.entry("xfstests", key, lambda out: _shrink(whole, out / "root.tar")) / "root.tar"


def _hooks(checkout: Path) -> tuple[str, ...]:
    packed = f"git -C {shlex.quote(str(checkout.resolve()))} archive --prefix={HOME.strip('/')}/ HEAD"
    return (
        f'{packed} | tar -x -C "$1"',
        f'chroot "$1" nice make -s -C {HOME} -j2',
        f'chroot "$1" sh -ec {shlex.quote(USERS)}',
        f'cd "$1" && mkdir -p {" ".join(FOLDERS)}',
    )


def _shrink(whole: Path, small: Path) -> None:
    """The same archive without what is left out."""
    with tempfile.TemporaryDirectory(dir=small.parent) as root:
        excludes = [f"--exclude={pattern}" for pattern in LEFT_OUT]
        subprocess.run(["tar", "-xf", whole, "-C", root, "--numeric-owner", *excludes], check=True)
        subprocess.run(["tar", "-cf", small, "-C", root, "--numeric-owner", "."], check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
