"""tidepoolctl and the module, in two guests without a cluster that docs/how-to/without-kubernetes.md sets up.

Each guest has Python. What the page has ssh do, busybox's `nc` does here: it asks the other guest for its identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bed.channel import Result
from bed.documented import Page
from bed.guest import Guest
from bed.image import TOP, tools_disk
from bed.pair import BORROWER_ADDRESS, LENDER_ADDRESS, Pair
from bed.python import INTERPRETER, library_files, with_python
from bed.tidepool import ROOT, Tidepool, wait_until
from bed.workload import stress

PROGRAM = TOP / "standalone/tidepoolctl.py"
PAGE = Page("docs/how-to/without-kubernetes.md")
LENDING, BORROWING = PAGE.examples("toml")
(APPLY,), (STATUS,) = PAGE.commands("tidepoolctl apply"), PAGE.commands("tidepoolctl status")
FILE = "/etc/tidepool.conf"
PORT = 7471  # of who is asked for an identity
LEND, BORROW = "borrowers/db", "lenders/batch"
FILE_MIB = 24
MOST_PASSES, ENOUGH = 20, 1000


def here(text: str, *, size: str = "96Mi") -> str:
    """A file of the page with the bed's addresses and sizes."""
    said = re.sub(r'"[24]Gi"', f'"{size}"', text).replace('"512Mi"', '"64Mi"')
    asked = {"10.0.0.6": BORROWER_ADDRESS, "10.0.0.7": LENDER_ADDRESS}
    for address, there in asked.items():
        said = said.replace(f'["ssh", "tidepool@{address}"]', f'["nc", "-w", "10", "{there}", "{PORT}"]')
        said = said.replace(f'"{address}"', f'"{there}"')
    return said


def prepare(guest: Guest) -> None:
    """The program in its place, the module where modprobe looks for it, and somebody who answers for the identity."""
    guest.sh("for disk in /dev/vd?; do :; done; mkdir /tools && mount -o ro $disk /tools && ln -s /tools/lib64 /lib64")
    guest.write("/bin/tidepoolctl", f'#!/bin/sh\n{with_python()} /tools/tidepoolctl.py "$@"\n')
    guest.sh(
        "chmod +x /bin/tidepoolctl && mkdir /lib/modules/$(uname -r) && mv /lib/*.ko /lib/modules/*.ko"
        " /lib/modules/$(uname -r)/ && depmod"
    )
    guest.start(f"nc -ll -p {PORT} -e cat {ROOT}/identity")


@pytest.fixture
def pair(kernel: str) -> Iterator[Pair]:
    """Two guests; the module is in neither."""
    tools = tools_disk(INTERPRETER, more={"tidepoolctl.py": PROGRAM, **library_files()})
    with (one := Pair(kernel, borrower_mem="192M", lender_mem="384M", tools=tools)) as guests:
        for guest in guests:
            prepare(guest)
        yield one


def apply(guest: Guest, text: str) -> Result:
    guest.write(FILE, text)
    return guest.run(APPLY)


def at_rest(side: Tidepool) -> None:
    """Another time there is nothing to do."""
    assert side.guest.run(APPLY) == Result(0, "")


def status(guest: Guest) -> str:
    return guest.run(STATUS).output


def test_two_guests_find_each_other(pair: Pair) -> None:
    """By their files alone. Each change of a file becomes one of the module, in an order that it takes."""
    borrower, lender = pair.borrower, pair.lender
    assert status(borrower) == "the module is not loaded\n"

    alone = apply(borrower, here(BORROWING))
    assert alone.code == 1
    assert f"{BORROW} does not say who it is" in alone.output
    assert pair.b.loaded
    assert apply(lender, here(LENDING)).code == 0
    identity = pair.l.identity
    assert apply(borrower, here(BORROWING)) == Result(0, shown(identity, 96 << 20))
    pair.b.wait_state(BORROW, "Connected")
    at_rest(pair.b)
    at_rest(pair.l)

    stress(borrower, f"fill /mnt/file mib={FILE_MIB}")
    _pages_come_back(pair)
    said = status(borrower).splitlines()
    assert said[0] == f"tidepool {pair.b.get('version')}, {pair.b.identity}"
    held = re.fullmatch(rf"{BORROW}: Connected, (\d+)Mi", said[1])
    assert held
    assert int(held[1]) > 0

    _another_port(pair)
    _another_encryption(pair)
    _a_module_that_refuses(pair)
    _another_boot(pair)

    assert apply(lender, here(LENDING).partition("[borrowers")[0]) == Result(0, f"{LEND}/enabled 0\n{LEND} -\n")
    assert lender.run(f"ls {ROOT}/borrowers").output == ""
    wait_until("the borrower has noticed", lambda: "Connecting" in status(borrower))
    assert borrower.run(STATUS).code == 1
    assert apply(borrower, "").code == 0
    assert borrower.run(f"ls {ROOT}/lenders").output == ""
    pair.assert_clean()


def shown(identity: str, size: int) -> str:
    """What the page shows that is printed, with this identity, address and size."""
    (text,) = (one for one in PAGE.examples("text") if one.startswith(f"{BORROW} +"))
    return text.replace("10.0.0.7", LENDER_ADDRESS).replace("2147483648", str(size)).replace("x25519:5f1c…", identity)


def _pages_come_back(pair: Pair) -> None:
    """Each is compared with what was written."""
    before = pair.b.stats(BORROW)["get_hits"]
    for _ in range(MOST_PASSES):
        stress(pair.borrower, "sequential /mnt/file")
        pair.evict()
        if (hits := pair.b.stats(BORROW)["get_hits"] - before) > ENOUGH:
            return
    raise AssertionError(f"{hits} pages came from the lender")


def _another_port(pair: Pair) -> None:
    """Which the module takes only while it serves nobody."""
    lending = here(LENDING).replace("[guest]\n", "[guest]\nport = 7480\n")
    done = apply(pair.lender, lending)
    assert done == Result(0, f"{LEND}/enabled 0\nport 7480\n{LEND}/enabled 1\n")
    done = apply(pair.borrower, here(BORROWING) + "port = 7480\n")
    assert done == Result(0, f"{BORROW}/port 7480\n")
    pair.b.wait_state(BORROW, "Connected")
    assert (apply(pair.lender, here(LENDING).replace("[guest]\n", "[guest]\nport = 7470\n"))).code == 0
    assert apply(pair.borrower, here(BORROWING) + "port = 7470\n").code == 0
    pair.b.wait_state(BORROW, "Connected")


def _another_encryption(pair: Pair) -> None:
    """Which is not for a lender that is enabled."""
    done = apply(pair.borrower, here(BORROWING) + 'encryption = "None"\n')
    assert done == Result(0, f"{BORROW}/enabled 0\n{BORROW}/encryption None\n{BORROW}/enabled 1\n")
    pair.b.wait_state(BORROW, "Connected")
    at_rest(pair.b)


def _a_module_that_refuses(pair: Pair) -> None:
    """It is named what, and the kernel log says what would be right."""
    done = apply(pair.borrower, here(BORROWING) + "deadline_us = 1\n")
    assert done.code == 2
    assert f"{BORROW}/deadline_us: the module refuses '1': Invalid argument; see dmesg" in done.output
    assert "must be a number of microseconds from 1000" in pair.borrower.log()


def _another_boot(pair: Pair) -> None:
    """A guest whose module is loaded anew is somebody else; both files together find that out."""
    before = pair.l.identity
    pair.l.unload()
    assert apply(pair.lender, here(LENDING)).code == 0
    assert pair.l.identity != before
    assert apply(pair.borrower, here(BORROWING)) == Result(0, f"{BORROW}/identity {pair.l.identity}\n")
    pair.b.wait_state(BORROW, "Connected")
    _pages_come_back(pair)
