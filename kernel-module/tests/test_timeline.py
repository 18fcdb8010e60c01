"""A borrower whose memory goes back in time: no nonce is used twice, and no page of another time line is believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import stress

OLD_MIB, NEW_MIB = 8, 3
GENERATIONS = ("0d5e1b5e-6f1c-4f7b-9d61-000000000001", "0d5e1b5e-6f1c-4f7b-9d61-000000000002")
WINDOW = 32  # bytes of a ciphertext: nothing else on the wire has the same
SAMPLES = 1500
FORKED = "this machine was reverted or cloned"
HEARD_OF = ("6.12", "7.2")  # the kernels that know the generation of their machine


@contextmanager
def booted(kernel: str, broken: str = "") -> Iterator[Pair]:
    """Both guests, the borrower on a machine that has a generation, all that it sends and receives captured."""
    with (pair := Pair(kernel, capture=True, relay=True, broken=broken, generation=GENERATIONS[0])):
        yield pair


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    with booted(kernel) as pair:
        yield pair


def prepare(pair: Pair) -> None:
    """In memory, what files have of a letter: who has gone back writes it before he finds his connection dead."""
    for letter in "AB":
        pair.borrower.sh(f"head -c {NEW_MIB * MIB} /dev/zero | tr '\\0' {letter} > /tmp/{letter}")


def write(pair: Pair, letter: str) -> None:
    """A file of one letter, which goes to the lender."""
    pair.borrower.sh(f"cp /tmp/{letter} /mnt/new && sync && echo 1 > /proc/sys/vm/drop_caches")


def assert_reads(pair: Pair, letter: str) -> None:
    """The file has that letter and no other."""
    assert pair.borrower.sh(f"tr -d {letter} < /mnt/new | wc -c; wc -c < /mnt/new").split() == ["0", str(NEW_MIB * MIB)]


def captured(pair: Pair) -> bytes:
    return (pair.borrower.folder / "net0.pcap").read_bytes()


def reused(one: bytes, other: bytes, letters: str) -> int:
    """In how many samples of `one` a nonce was used that `other` has for other contents: both differ as their pages do.

    A page of the one letter and a page of the other, encrypted under the same nonce, differ in each byte as the letters
    do. It does not matter where in the streams they are.
    """
    differ = ord(letters[0]) ^ ord(letters[1])
    changed = one.translate(bytes(byte ^ differ for byte in range(256)))
    step = max(1, len(changed) // SAMPLES)
    return sum(changed[at : at + WINDOW] in other for at in range(0, len(changed) - WINDOW, step))


def go_back(pair: Pair, generation: str) -> tuple[bytes, bytes]:
    """Two time lines from one moment, with the same session at their beginning; what each sent and received."""
    stress(pair.borrower, f"fill /mnt/old mib={OLD_MIB}")
    pair.connect(size=128 * MIB, more=PATIENT)
    for _ in range(2):
        pair.evict()
        stress(pair.borrower, "sequential /mnt/old")
    prepare(pair)
    pair.borrower.save()
    before = len(captured(pair))

    for _ in range(3):
        write(pair, "A")
        pair.settle()
    stress(pair.borrower, "overwrite /mnt/old version=2")
    pair.borrower.sh("sync")
    pair.evict()
    assert_reads(pair, "A")
    stress(pair.borrower, "sequential /mnt/old version=2")
    assert pair.borrowed()["get_hits"] > 1000, "the lender has the pages of this time line"
    first = captured(pair)[before:]

    assert pair.relay
    pair.relay.cut = True  # or the lender, which may have given the silent borrower up, resets the connection at once
    pair.revert_borrower(generation)
    write(pair, "B")
    pair.relay.cut = False
    assert_reads(pair, "B")
    stress(pair.borrower, "sequential /mnt/old version=1")
    pair.l.set(f"borrowers/{pair.name}/identity", pair.b.identity)  # who hears of the leap is somebody else
    wait_until("another session", lambda: pair.borrowed()["connects"] > 1)
    pair.b.wait_state(f"lenders/{pair.name}", "Connected")
    return first, captured(pair)


def test_hibernation(pair: Pair) -> None:
    """No session lives through it: the one before has ended before the image is made, another begins after it.

    The guest has no place to write the image to, which the kernel finds out when it has made it.
    """
    stress(pair.borrower, f"fill /mnt/old mib={OLD_MIB}")
    pair.connect(size=128 * MIB, more=PATIENT)
    pair.evict()
    assert pair.borrower.run("echo disk > /sys/power/state").code != 0
    wait_until("another session", lambda: pair.borrowed()["connects"] > 1)
    stress(pair.borrower, "sequential /mnt/old")
    log = pair.borrower.log()
    assert "hibernation: no session until it is over" in log
    made = re.search("Creating image|Normal pages needed", log)  # older kernels say the one, newer ones the other
    ended = log.index(f"lenders/{pair.name}: connection lost")
    begun = log.rindex(f"lenders/{pair.name}: connected")
    assert made
    assert ended < made.start() < begun
    pair.assert_clean()
    pair.disconnect()


def test_reverted_borrower(pair: Pair, kernel: str) -> None:
    """It reads what its disk has, puts and reads again, and nothing that it sends was encrypted under a used nonce.

    What it sends on the connection that it believes to have still is part of this. Where the kernel hears of it, the
    module does, too.
    """
    first, _ = go_back(pair, GENERATIONS[1])
    assert pair.borrowed()["resumes"] == 0, "the lender has seen what came after"
    before = pair.borrowed()["get_hits"]
    for _ in range(2):
        write(pair, "B")
        pair.settle()
        assert_reads(pair, "B")
        stress(pair.borrower, "sequential /mnt/old version=1")
    figures = pair.borrowed()
    assert figures["get_hits"] - before > 1000, "the pool serves it again"
    assert figures["get_corrupt"] == 0
    assert reused(captured(pair), first, "AB") == 0
    assert (FORKED in pair.borrower.log()) == (kernel in HEARD_OF)
    pair.assert_clean()


@pytest.mark.long
@pytest.mark.parametrize("broken", ["SALT,STRIDES", "SALT,STRIDES,RENEW"])
def test_used_twice(kernel: str, broken: str) -> None:
    """Without salt and strides the dead connection shows it, with one key for all sessions the next one, too.

    Either of the two would do: salts of batches, and strides between versions, which the clock decides.

    The host says nothing of the leap.
    """
    with booted(kernel, broken) as pair:
        first, dead = go_back(pair, GENERATIONS[0])
        write(pair, "B")
        pair.settle()
        fresh = captured(pair)[len(dead) :]
        assert reused(dead, first, "AB") > 0
        assert (reused(fresh, first, "AB") > 0) == ("RENEW" in broken)
