"""Databases of PostgreSQL: made on this machine once, served by the borrower."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench import chroot
from bench.machine import FOLDER, PATIENCE_SECONDS, Machine
from bench.tools import make_image

USER = "setpriv --reuid=postgres --regid=postgres --clear-groups"
DATA = f"{FOLDER}/pg"
SQL = f"{FOLDER}/sql"
# Small buffers, so that the kernel's page cache is the cache; a commit does not wait for the log, for which the disk
# has 166 writes a second; and nothing that works at times of its own choice.
SETTINGS = {
    "shared_buffers": "16MB", "effective_cache_size": "256MB", "work_mem": "4MB", "max_connections": "20",
    "synchronous_commit": "off", "autovacuum": "off", "max_parallel_workers_per_gather": "0", "jit": "off",
    "max_wal_size": "1GB", "checkpoint_timeout": "1h", "dynamic_shared_memory_type": "sysv",
    "unix_socket_directories": "/tmp", "listen_addresses": "",
}  # fmt: skip
PSQL = f"{USER} psql -h /tmp -X -q -A -t -v ON_ERROR_STOP=1"
START = f"{USER} pg_ctl -D {DATA} -l /tmp/postgres.log -w -t 600 start > /dev/null"
STOP = f"{USER} pg_ctl -D {DATA} -w -t 600 stop > /dev/null"
# Those of a table or an index that counts.
BIG_FILES = f"find {DATA}/base -type f -size +512k"


def make(out: Path, files: dict[str, str], image_mib: int, then: str = "true", filesystem: str = "ext4") -> str:
    """A disk with a database (`load.sql` of the files) and with the files; what a shell command says of it."""
    content = out / "content"
    (content / "sql").mkdir(parents=True)
    for name, text in files.items():
        (content / "sql" / name).write_text(text)
    (content / "settings").write_text("".join(f"{name} = '{value}'\n" for name, value in SETTINGS.items()))
    steps = (
        f"install -d -o postgres -g postgres -m 700 {DATA}",
        f"{USER} initdb -D {DATA} --no-sync -A trust -E UTF8 --locale=C > /dev/null",
        f"cat {FOLDER}/settings >> {DATA}/postgresql.conf",
        START,
        f"{PSQL} -f {SQL}/load.sql",
        f"{PSQL} -c 'vacuum freeze analyze' -c checkpoint",
        then,
        STOP,
    )
    said = chroot.run(content, " && ".join(steps))
    make_image(out / "disk", content, image_mib, filesystem)
    subprocess.run(["rm", "-r", str(content)], check=True)
    return said


def start(machine: Machine) -> None:
    """Serves it from now on."""
    machine.tool(machine.borrower, START)


def stop(machine: Machine) -> None:
    """Serves it no more."""
    machine.tool(machine.borrower, STOP)


def query(machine: Machine, arguments: str) -> str:
    """What psql prints."""
    return machine.tool(machine.borrower, f"{PSQL} {arguments}", PATIENCE_SECONDS)


def files(machine: Machine) -> list[str]:
    """Those that most of the database is in."""
    return machine.tool(machine.borrower, BIG_FILES).split()
