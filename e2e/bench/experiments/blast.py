"""Searching a database of DNA for a few sequences: the paper's figure 5c."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from bench import chroot, data
from bench.experiments.application import Aim, Application, Run
from bench.machine import FOLDER, Machine
from bench.tools import make_image
from tidepool_lab import store
from tidepool_lab.progress import step

SEQUENCES, LENGTH = 896, 1 << 20  # bases; four of them are a byte
QUERIES, QUERY_LENGTH = 5, 600  # as in the paper, taken from the database
IMAGE_MIB = 320
BASES = bytes(b"ACGT"[value % 4] for value in range(256))
INDEX = f"makeblastdb -in {FOLDER}/fasta -dbtype nucl -title random -out {FOLDER}/dna > /dev/null"
SEARCH = f"BLAST_USAGE_REPORT=false blastn -db {FOLDER}/dna -query {FOLDER}/queries -outfmt 6 | md5sum"


class Blast(Application):
    """All queries in one search, whose output has to be the same on every side."""

    name = "blast"
    title = "BLAST (figure 5c)"
    data_mib = SEQUENCES * LENGTH // 4 >> 20
    operation = "query"
    shown = ("seconds", "seconds")
    aims = (Aim(1.3, "figure 5c"), Aim(1.45, "figure 5c", filter=1), Aim(2.49, "table 2"))

    def disk(self) -> Path:
        return _data() / "disk"

    def run(self, machine: Machine) -> Run:
        begin = time.monotonic()
        found = machine.tool(machine.borrower, SEARCH)
        seconds = time.monotonic() - begin
        expected = (_data() / "found").read_text()
        assert found.strip() == expected.strip(), f"BLAST's output: {found}, not {expected}"
        return Run(QUERIES, seconds)


def _data() -> Path:
    return store.entry("bench-data", data.key("blast", SEQUENCES, LENGTH, QUERIES, QUERY_LENGTH, INDEX, SEARCH), _make)


def _make(out: Path) -> None:
    with step("making a disk with a database of DNA (about 1 min)"):
        content = out / "content"
        content.mkdir()
        _write_sequences(content)
        chroot.run(content, INDEX)
        (content / "fasta").unlink()
        (out / "found").write_text(chroot.run(content, SEARCH))
        make_image(out / "disk", content, IMAGE_MIB)
        subprocess.run(["rm", "-r", content], check=True)


def _write_sequences(content: Path) -> None:
    chance = random.Random(SEQUENCES)
    chosen = {number * SEQUENCES // QUERIES for number in range(QUERIES)}
    with (content / "fasta").open("wb") as fasta, (content / "queries").open("wb") as queries:
        for number in range(SEQUENCES):
            bases = chance.randbytes(LENGTH).translate(BASES)
            fasta.write(b">s%d\n%b\n" % (number, bases))
            if number in chosen:
                at = chance.randrange(LENGTH - QUERY_LENGTH)
                queries.write(b">q%d\n%b\n" % (number, bases[at : at + QUERY_LENGTH]))
