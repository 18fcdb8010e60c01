"""The guests' programs on this machine, for what is made, or found out, before a guest boots."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.machine import FOLDER, HELD_IN_MEMORY, inside
from bench.tools import tree
from tidepool_lab.progress import LabError


def run(content: Path, command: str) -> str:
    """Runs a shell command as a guest would, with a folder as its data; its output."""
    root = tree()
    mounts = [
        f"mount --bind {content} {root}{FOLDER}",
        f"mount --rbind /dev {root}/dev",
        f"mount -t proc proc {root}/proc",
        *(f"mount -t tmpfs -o mode=1777 tmp {root}/{name}" for name in HELD_IN_MEMORY),
    ]
    script = " && ".join([*mounts, f"({inside(command, str(root))})"])
    answer = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    )  # fmt: skip
    if answer.returncode:
        raise LabError(f"{command}: {answer.stdout[-2000:]}")
    return answer.stdout
