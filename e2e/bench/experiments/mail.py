"""A mail spool: many small files, any of them read at any time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bed.image import TESTS, build_program
from bench import data
from bench.experiments.application import Application, Run
from bench.machine import FOLDER, PATIENCE_SECONDS, Machine
from bench.tools import make_image
from tidepool_lab import store
from tidepool_lab.progress import step

FILES, PAGES = 12_000, 6  # of 1 to so many pages
IMAGE_MIB = 320
SPOOL = f"stress many mail files={FILES} pages={PAGES}"
SECONDS, THREADS = 20, 4
WARM_SECONDS, WARM_THREADS = 15, 8


class Mail(Application):
    """Whole files read and verified at random, by as many readers as a small mail server has."""

    name = "mail"
    title = "A mail spool of 12,000 small files"
    data_mib = 164
    operation = "file"
    shown = ("per_s", "files/s")
    warm_ups = 6

    def disk(self) -> Path:
        return store.entry("bench-data", data.key("mail", SPOOL), _make) / "disk"

    def warm_up(self, machine: Machine) -> None:
        _stress(machine, f"{SPOOL} seconds={WARM_SECONDS} threads={WARM_THREADS}")

    def run(self, machine: Machine) -> Run:
        report = _stress(machine, f"{SPOOL} seconds={SECONDS} threads={THREADS}")
        return Run(report["files"], report["seconds"])


def _stress(machine: Machine, command: str) -> dict[str, float]:
    """What the program reports; a wrong page fails."""
    found: dict[str, float] = json.loads(machine.borrower.sh(f"cd {FOLDER} && {command}", PATIENCE_SECONDS))
    return found


def _make(out: Path) -> None:
    with step("making a disk with a mail spool"):
        sources = (TESTS / "stress").glob("*.[ch]")
        program = build_program("stress", [*sources, TESTS.parent / "uapi/wire.h"])
        content = out / "content"
        content.mkdir()
        subprocess.run([program, *SPOOL.split()[1:], "write=1"], cwd=content, check=True, stdout=subprocess.DEVNULL)
        make_image(out / "disk", content, IMAGE_MIB)
        subprocess.run(["rm", "-r", content], check=True)
