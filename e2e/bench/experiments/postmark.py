"""Many small files that are read, appended to, created and deleted: the paper's figures 5d and 6."""

from __future__ import annotations

import re
import time
from pathlib import Path

from bench import data
from bench.experiments.application import Aim, Application, Run
from bench.machine import FOLDER, ROOT, Machine
from bench.tools import make_image
from tidepool_lab import store

FILES, SMALLEST, LARGEST = 6000, 512, 65536  # sizes as in the paper, fewer files
TRANSACTIONS = 3000
IMAGE_MIB = 512
OUTPUT = "/tmp/postmark"
# As in the paper: reads as often as appends, creations as often as deletions, 4 KiB at a time, 10 folders.
CONFIGURATION = f"""\
set location {FOLDER}
set number {FILES}
set size {SMALLEST} {LARGEST}
set transactions {TRANSACTIONS}
set subdirectories 10
set read 4096
set write 4096
set buffering false
set seed 2015
run
quit
"""
WAIT = "until grep -q '{}' {} 2>/dev/null; do sleep 0.1; done"
LONGEST_SECONDS = 600.0


class Postmark(Application):
    """The files are made with a fast disk, and only then the transactions are measured with a slow one."""

    name = "postmark"
    title = "Postmark (figures 5d and 6)"
    data_mib = 200
    operation = "transaction"
    shown = ("per_s", "transactions/s")
    aims = (Aim(1.1, "figure 5d, a small pool"), Aim(3, "figure 5d, at most"), Aim(1.55, "table 2"))
    ahead_of_dm_cache = False  # the paper's was not either: dm-cache may keep what is written
    warm_ups = 1

    def disk(self) -> Path:
        return store.entry("bench-data", data.key("empty", IMAGE_MIB), _make) / "disk"

    def prepare(self, machine: Machine) -> None:
        machine.borrower.write(f"{ROOT}{OUTPUT}.conf", CONFIGURATION)
        machine.tool(machine.borrower, f"rm -f {OUTPUT}; postmark < {OUTPUT}.conf > {OUTPUT} 2>&1 &")
        _wait(machine, "Performing")

    def run(self, machine: Machine) -> Run:
        begin = time.monotonic()
        _wait(machine, "Deleting files")
        return Run(TRANSACTIONS, time.monotonic() - begin)

    def finish(self, machine: Machine) -> None:
        _wait(machine, "megabytes written")
        _check(machine.borrower.read(f"{ROOT}{OUTPUT}"))


def _wait(machine: Machine, text: str) -> None:
    machine.borrower.sh(WAIT.format(text, f"{ROOT}{OUTPUT}"), LONGEST_SECONDS)


def _check(output: str) -> None:
    """Each transaction reads or appends, and every file that was made is gone: the program counts what succeeded."""
    count = {what: int(number) for number, what in re.findall(r"(\d+) (created|read|appended|deleted) ", output)}
    assert count["read"] + count["appended"] == TRANSACTIONS, output
    assert count["created"] == count["deleted"] > FILES, output


def _make(out: Path) -> None:
    content = out / "content"
    content.mkdir()
    make_image(out / "disk", content, IMAGE_MIB)
    content.rmdir()
