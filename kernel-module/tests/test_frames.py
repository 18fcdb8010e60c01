"""Somebody between the two guests: all that he can do is end their session."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bed.between import Between, Change, flip, leave_out, repeat
from bed.guest import HOST_ADDRESS
from bed.pair import NAME, PATIENT, Pair
from bed.protocol import (
    CLEAR,
    DATA,
    EVICTED,
    FORGET,
    GET,
    GRANT,
    PAGE,
    PING,
    PONG,
    PUT,
    PUT_ACK,
    REKEY_FRAMES,
    RESIZE,
    Borrower,
    KeyPair,
    point_of,
    siphash,
)
from bed.tidepool import MIB, wait_until
from bed.workload import stress

LENGTH, TYPE, FLAGS, COUNT, ID, METADATA, TAG = 0, 4, 5, 6, 8, 16, -1  # places in a frame
BURST = 512  # frames at once
LENDER = f"lenders/{NAME}"
FILE_MIB = 4


def _evict(pair: Pair) -> None:
    """Pages go out."""
    stress(pair.borrower, "sequential /mnt/file")
    pair.borrower.drop_caches(1)


def _read(pair: Pair) -> None:
    """Pages come back; whatever is between, they are right."""
    _evict(pair)
    pair.settle()
    stress(pair.borrower, "sequential /mnt/file")


def _resize(pair: Pair) -> None:
    """Another size is wanted, and granted."""
    for mib in (32, 64):
        pair.b.set(f"{LENDER}/size_bytes", mib * MIB)


def _forget(pair: Pair) -> None:
    """Pages that went out are of no use any more."""
    stress(pair.borrower, f"fill /mnt/other mib={FILE_MIB}")
    pair.borrower.drop_caches(1)
    pair.settle()
    pair.borrower.sh("rm /mnt/other")


def _shrink(pair: Pair) -> None:
    """The lender drops what it has, and says so."""
    _evict(pair)
    pair.settle()
    for mib in (1, 64):
        pair.l.set("lend_bytes", mib * MIB)


def _wait(_pair: Pair) -> None:
    """There is a ping each second."""


ALTERED: list[tuple[int, Change, Callable[[Pair], None]]] = [
    (PUT, flip(ID), _evict),
    (PUT, flip(METADATA), _evict),
    (PUT_ACK, flip(METADATA), _evict),
    (PUT_ACK, repeat, _evict),
    (GET, flip(FLAGS), _read),
    (GET, flip(COUNT), _read),
    (GET, flip(METADATA), _read),
    (DATA, flip(ID), _read),
    (DATA, flip(LENGTH), _read),
    (DATA, flip(METADATA), _read),
    (DATA, flip(TAG), _read),
    (EVICTED, flip(METADATA), _shrink),
    (FORGET, flip(METADATA), _forget),
    (FORGET, leave_out, _forget),
    (PING, flip(ID), _wait),
    (PING, flip(TYPE), _wait),
    (PING, repeat, _wait),
    (PONG, flip(ID), _wait),
    (RESIZE, flip(METADATA), _resize),
    (GRANT, flip(METADATA), _resize),
]


def test_model_has_the_tags_of_others(tmp_path: Path) -> None:
    """SipHash with 128 bits is what OpenSSL takes for it."""
    key, text = bytes(range(16)), tmp_path / "text"
    for size in (0, 7, 8, 63):
        text.write_bytes(bytes(range(size)))
        options = ["-macopt", f"hexkey:{key.hex()}", "-macopt", "size:16", "-in", str(text)]
        said = subprocess.run(["openssl", "mac", *options, "SIPHASH"], check=True, capture_output=True, text=True)
        assert said.stdout.strip().lower() == siphash(key, text.read_bytes()).hex()


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    with (pair := Pair(kernel, host=True)):
        pair.l.load()
        pair.b.load()
        yield pair


@pytest.mark.parametrize("encryption", ["AES-GCM", pytest.param("None", marks=pytest.mark.long)])
def test_altered_frame_ends_the_session(pair: Pair, encryption: str) -> None:
    """One bit of header, metadata or tag, a frame less or one twice: it is counted, and no page is ever wrong."""
    between = Between(pair.lender_port)
    pair.l.lend(NAME, quota=64 * MIB)
    more = {"port": between.port, "encryption": encryption, **PATIENT}
    pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, more=more)
    pair.b.wait_state(LENDER, "Connected")
    stress(pair.borrower, f"fill /mnt/file mib={FILE_MIB}")
    for kind, change, provoke in ALTERED:
        before = pair.borrowed()["disconnects"], _noticed(pair)
        between.alter(kind, change)
        what = f"{kind} altered by {change.__qualname__}"
        wait_until(f"{what}: passed", lambda: _passed(pair, between, provoke), timeout=120)  # noqa: B023
        wait_until(f"{what}: ended", lambda: pair.borrowed()["disconnects"] > before[0])  # noqa: B023
        wait_until(f"{what}: noticed", lambda: _noticed(pair) == before[1] + 1)  # noqa: B023
        pair.b.wait_state(LENDER, "Connected")
    _read(pair)
    assert pair.borrowed()["get_hits"] > pair.borrowed()["get_hits_buffer"]
    assert pair.borrowed()["get_corrupt"] == 0
    pair.disconnect()
    between.close()
    pair.assert_clean()


def _passed(pair: Pair, between: Between, provoke: Callable[[Pair], None]) -> bool:
    """Such a frame, which is provoked for that; without a session, as on a busy machine for a while, it is not sent."""
    pair.b.wait_state(LENDER, "Connected")
    provoke(pair)
    with contextlib.suppress(AssertionError):
        wait_until("it passes", lambda: between.done, timeout=15)
    return between.done


def _noticed(pair: Pair) -> int:
    return pair.borrowed()["bad_frames"] + pair.lent()["bad_frames"]


@pytest.mark.parametrize("features", [0, CLEAR])
def test_keys_are_renewed(pair: Pair, features: int) -> None:
    """A session goes on when the keys of both directions have become others, as the model's do."""
    own = KeyPair()
    pair.l.lend(NAME, quota=16 * MIB, identity=own.identity)
    lender, address = point_of(pair.l.identity), ("127.0.0.1", pair.lender_port)
    with contextlib.closing(Borrower(address, own, lender, 8 * MIB, features=features)) as borrower:
        assert borrower.store(1, 1, 1, bytes(PAGE))
        for _ in range(2 * REKEY_FRAMES // BURST + 1):
            borrower.pings(BURST)
        assert borrower.load(1, 1, 1) == bytes(PAGE)
    pair.l.rmdir(f"borrowers/{NAME}")
    pair.assert_clean()


@pytest.mark.long
def test_without_the_check(kernel: str) -> None:
    """A borrower that does not look at the tag believes what somebody in between has altered."""
    with (pair := Pair(kernel, disk=None, host=True, broken="FRAMES")):
        between = Between(pair.lender_port)
        pair.l.load()
        pair.b.load()
        pair.l.lend(NAME, quota=64 * MIB)
        pair.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, more={"port": between.port})
        pair.b.wait_state(LENDER, "Connected")
        between.alter(GRANT, flip(METADATA + 5))
        pair.b.set(f"{LENDER}/size_bytes", 32 * MIB)
        wait_until("it is believed", lambda: pair.borrowed()["granted_bytes"] > 1 << 40)
        assert pair.borrowed()["disconnects"] == 0
