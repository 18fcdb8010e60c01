"""What the demo does inside the guests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from demo import fio, lab, module
from demo.figures import Measured, RoundTrip
from tidepool_lab import paths

BORROWER, LENDER = "borrower", "lender"
DISK, FOLDER = "/dev/vdb", "/mnt"
FILE = f"{FOLDER}/data"
ROUND_TRIP_PORT = 7999
PAGES_PER_MIB = 256
ENOUGH = 0.97
COMPLAINTS = (
    "tidepool: warning|BUG[: ]|WARNING: |Oops|general protection|Call Trace|soft lockup|rcu.*stall|hung_task"
    "|blocked for more"
)

borrower: Callable[[str], str] = partial(lab.guest, BORROWER)
lender: Callable[[str], str] = partial(lab.guest, LENDER)


def make_file(mib: int) -> str:
    """Mounts the data disk and fills a file with random bytes; returns its checksum as it was written."""
    borrower(f"mountpoint -q {FOLDER} || mount {DISK} {FOLDER}")
    borrower(f"dd if=/dev/urandom of={FILE} bs=1M count={mib} conv=fsync status=none")
    return checksum()


def checksum() -> str:
    """The file's sha256, as read through the page cache."""
    with_read_ahead(4096)
    digest = borrower(f"sha256sum {FILE}").split()[0]
    with_read_ahead(128)
    return digest


def with_read_ahead(kib: int) -> None:
    """How much the kernel reads ahead from the data disk: much of it makes a slow disk fast in sequence."""
    borrower(f"echo {kib} > /sys/block/{Path(DISK).name}/queue/read_ahead_kb")


def measure(depth: int, seconds: int) -> Measured:
    """Random reads of the file at a queue depth.

    One second of them goes before: fio itself may have to be read from the root disk, which is no part of the figures.
    """
    borrower(fio.command(FILE, depth, 1))
    before = module.read(borrower)
    reads = fio.parse(borrower(fio.command(FILE, depth, seconds)))
    return Measured(reads, module.difference(before, module.read(borrower)))


def empty_page_cache() -> None:
    """Has the borrower's kernel drop its clean pages.

    What is cached here and there in a file breaks its reading in order into small reads, of which the disk does few.
    """
    borrower("echo 1 > /proc/sys/vm/drop_caches")


def warm_up(mib: int, passes: int, progress: Callable[[str], None]) -> None:
    """Reads the file in order until the lender has it, each page evicted as soon as it was read (dd's `nocache`).

    A page gets to the lender when the borrower's kernel evicts it. One that is evicted while no buffer is free is
    dropped, as it always was, and gets its chance in the next pass.
    """
    with_read_ahead(1024)
    for number in range(1, passes + 1):
        borrower(f"dd if={FILE} of=/dev/null bs=1M status=none iflag=nocache")
        held = module.read(borrower).borrowing.get("catalog_pages", 0)
        progress(f"pass {number}: {held // PAGES_PER_MIB} of {mib} MiB are with the lender")
        if held >= ENOUGH * mib * PAGES_PER_MIB:
            break
    with_read_ahead(128)


def read_in_order() -> None:
    """Reads the file once, which leaves the borrower's page cache as full as it can be."""
    borrower(f"dd if={FILE} of=/dev/null bs=1M status=none")


def round_trip(program: Path, address: str, requests: int) -> RoundTrip:
    """How long asking the lender for 4 KiB over plain TCP takes, one request at a time."""
    for name in (BORROWER, LENDER):
        lab.call("cp", program, f"{name}:/root/round-trip")
    server = f"systemd-run -q --collect --unit=round-trip /root/round-trip server {ROUND_TRIP_PORT}"
    lender(server)
    client = f"/root/round-trip client {address} port={ROUND_TRIP_PORT} requests={requests}"
    try:
        report = json.loads(borrower(f"sleep 1; {client}").splitlines()[-1])
    finally:
        lender("systemctl stop round-trip; rm /root/round-trip")
    return RoundTrip(float(report["p50_us"]), float(report["p99_us"]))


def complaints(name: str) -> list[str]:
    """Lines of a guest's kernel log that must not be there."""
    return lab.guest(name, f"dmesg | grep -E '{COMPLAINTS}' || true").splitlines()


def pod_address(name: str) -> str:
    """The address at which other guests reach a guest."""
    instance = lab.get("virtualmachineinstance", name)
    return str(instance["status"]["interfaces"][0]["ipAddress"])


def build_stress() -> Path:
    """The kernel tests' stress program, static, so that it runs in any guest."""
    sources = sorted((paths.ROOT / "kernel-module/tests/stress").glob("*.[ch]"))
    program = paths.BUILD / "stress"
    if not program.exists() or any(source.stat().st_mtime > program.stat().st_mtime for source in sources):
        paths.BUILD.mkdir(exist_ok=True)
        units = [source for source in sources if source.suffix == ".c"]
        subprocess.run(["gcc", "-std=gnu11", "-O2", "-static", "-pthread", "-o", program, *units, "-lm"], check=True)
    return program
