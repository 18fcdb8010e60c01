"""A source tree that is searched again and again."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

from bench import data
from bench.experiments.application import Application, Run
from bench.machine import FOLDER, Machine
from bench.tools import make_image
from tidepool_lab import debian, store
from tidepool_lab.progress import step

PACKAGE = "linux-source-6.1"
FOLDERS = ("fs", "kernel", "lib", "mm", "net", "sound")
IMAGE_MIB = 288
PATTERN = "spin_lock_irqsave"
SEARCH = f"grep -r -F -c {PATTERN} source | awk -F: '{{ files++; found += $NF }} END {{ print files, found }}'"


class Source(Application):
    """The whole tree in one search, which in a borrower alone finds nothing of the search before in its memory."""

    name = "source"
    title = "Searching a source tree"
    data_mib = 150
    operation = "file"
    shown = ("seconds", "seconds")

    def disk(self) -> Path:
        return _data() / "disk"

    def run(self, machine: Machine) -> Run:
        begin = time.monotonic()
        found = machine.tool(machine.borrower, f"cd {FOLDER} && {SEARCH}")
        seconds = time.monotonic() - begin
        expected = (_data() / "found").read_text().strip()
        assert found.strip() == expected, f"files searched and lines found: {found}, not {expected}"
        return Run(int(expected.split()[0]), seconds)


def _data() -> Path:
    return store.entry("bench-data", data.key("source", PACKAGE, FOLDERS, SEARCH), _make)


def _make(out: Path) -> None:
    with step("making a disk with a source tree (about 1 min)"):
        archive = debian.unpacked(debian.HOST_SUITE, PACKAGE) / f"usr/src/{PACKAGE}.tar.xz"
        content = out / "content"
        (content / "source").mkdir(parents=True)
        members = [f"{PACKAGE}/{name}" for name in FOLDERS]
        unpack = ["tar", "-xJf", str(archive), "-C", str(content / "source"), "--strip-components=1", *members]
        subprocess.run(unpack, check=True)
        search = f"cd {shlex.quote(str(content))} && {SEARCH}"
        found = subprocess.run(["sh", "-c", search], check=True, capture_output=True, text=True, env={"LC_ALL": "C"})
        (out / "found").write_text(found.stdout)
        make_image(out / "disk", content, IMAGE_MIB)
        subprocess.run(["rm", "-r", content], check=True)
