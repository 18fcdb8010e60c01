"""A guest in which a program of this machine runs: one that plays a node, or that counts its instructions."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bed.guest import Guest, Spec
from bed.image import fetch_kernel, tools_disk, with_tools

# The loader of the program is where it is on other machines, and there is a user to become.
READY = (
    "for disk in /dev/vd?; do :; done; mkdir -p /tools && mount -o ro $disk /tools && ln -s /tools/lib64 /lib64"
    " && echo 'nobody:x:65534:65534::/:/bin/false' > /etc/passwd && ip link set lo up"
)


@contextlib.contextmanager
def guest_with(program: Path, memory: str, *, counted: bool = False, port: int | None = None) -> Iterator[Guest]:
    """A guest with Debian's kernel 6.1 that has the program, and not the module.

    Its port for borrowers is this machine's `port`; if `counted` its clock goes by instructions.
    """
    spec = Spec("node", memory, counted=counted, tools=tools_disk(str(program)), host=port)
    folder = Path(tempfile.mkdtemp(prefix="tidepool-bed-", dir="/var/tmp"))
    guest = Guest.boot(spec, fetch_kernel("6.1"), None, folder)
    try:
        guest.wait_ready()
        guest.sh(READY)
        yield guest
    finally:
        guest.close()
        shutil.rmtree(folder, ignore_errors=True)


def started(program: Path) -> str:
    """The beginning of a shell command that is the program, in such a guest."""
    return f"env {with_tools(str(program))}"
