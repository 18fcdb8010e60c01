"""The node lender's daemon for this machine's architecture and others, by Debian's compiler.

For another architecture the compiler is the same; the standard library is that architecture's own package, of the very
version, and a GCC that is made for it links.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tidepool_lab import debian, paths, rootfs

COMPILER = "rustc-web"
NAME = "tidepool-node-lender"
TARGETS = {"arm64": "aarch64-unknown-linux-gnu"}  # as Rust calls them
LINKERS = {"arm64": "aarch64-linux-gnu"}  # as GNU calls them


def node_lender(architecture: str = rootfs.NATIVE) -> Path:
    """The daemon, built of the present sources."""
    command: list[str | Path] = [paths.ROOT / "node-lender/cargo", "build", "--quiet", "--release"]
    target = TARGETS.get(architecture, "")
    subprocess.run(command, check=True, env=os.environ | (_foreign(architecture) if target else {}))
    return paths.cache() / "node-lender" / target / "release" / NAME


def _foreign(architecture: str) -> dict[str, str]:
    """What cargo has to be told to build for another architecture."""
    target, gnu = TARGETS[architecture], LINKERS[architecture]
    library = debian.unpacked(debian.HOST_SUITE, f"libstd-rust-web-dev:{architecture}={_version()}")
    more = f"libc6-dev-{architecture}-cross"
    linker = debian.program(f"gcc-{gnu}", f"usr/bin/{gnu}-gcc", more)
    flags = ["-L", str(library / "usr/lib/rustlib" / target / "lib")]
    flags += ["-C", f"linker={linker}", "-C", f"link-arg=--sysroot={linker.parents[1]}"]
    return {"CARGO_BUILD_TARGET": target, "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)}


def _version() -> str:
    """The compiler's own: a standard library of any other is refused."""
    query = ["dpkg-query", "-W", "-f", "${Version}", COMPILER]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout
