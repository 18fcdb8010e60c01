"""Pages leave the borrower encrypted, and nothing but what was put ever comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bed.guest import HOST_ADDRESS, PAGE, Guest, Spec
from bed.image import build_module, fetch_kernel
from bed.pair import NAME, PATIENT, Pair
from bed.protocol import Lender
from bed.tidepool import MIB, quantile
from bed.workload import stress, wrong_pages

SECRET = b"the tide is out at Skagen"
VERSIONS = {"alter": (1,), "swap": (1,), "replay": (1, 2)}  # how often the file is written, by what the lender does
SMALL_MIB, LARGE_MIB, FILES = 6, 16, 24


@contextmanager
def _connected(pair: Pair, encryption: str, size: int = 128 * MIB) -> Iterator[None]:
    pair.connect(size=size, more={**PATIENT, "encryption": encryption})
    try:
        yield
    finally:
        pair.disconnect()


def _evict(pair: Pair, path: str, times: int = 1) -> None:
    """Reads a file and drops it from memory; what is not put in one round goes in the next."""
    for _ in range(times):
        pair.borrower.sh(f"cat {path} > /dev/null")
        pair.borrower.sh("sync")
        pair.evict()


def _contains(guest: Guest, text: bytes) -> bool:
    return any(text in piece for piece in guest.memory())


def _captured(pair: Pair) -> bytes:
    return (pair.borrower.folder / "net0.pcap").read_bytes()


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """A borrower of which all that it sends and receives is captured, and a lender, not connected."""
    with (pair := Pair(kernel, capture=True, host=True)):
        yield pair


def test_lender_and_network_see_ciphertext(pair: Pair) -> None:
    """A text of the borrower's file is neither on the wire nor in the lender's memory; without encryption it is."""
    borrower, lender = pair.borrower, pair.lender
    borrower.sh(f"yes '{SECRET.decode()}' | head -c {SMALL_MIB * MIB} > /mnt/secret; sync")
    checksum = borrower.sh("md5sum /mnt/secret")
    with _connected(pair, "AES-GCM"):
        _evict(pair, "/mnt/secret", times=2)
        assert borrower.sh("md5sum /mnt/secret") == checksum
        figures = pair.borrowed()
        assert figures["get_hits"] - figures["get_hits_buffer"] > SMALL_MIB * 256 // 8
        assert figures["get_corrupt"] == 0
        assert not _contains(lender, SECRET)
        assert SECRET not in _captured(pair)
    with _connected(pair, "None"):
        _evict(pair, "/mnt/secret", times=2)
        assert _contains(lender, SECRET)
        assert borrower.sh("md5sum /mnt/secret") == checksum
        assert SECRET in _captured(pair)
    pair.assert_clean()


def test_file_numbers_say_nothing(pair: Pair) -> None:
    """A lender cannot tell from a file's number which file it is, nor which came first; the network sees none."""
    lender, pair.name = Lender(), "model"
    if not pair.b.loaded:
        pair.b.load()
    more = {"port": lender.port, **PATIENT}
    pair.b.borrow("model", address=HOST_ADDRESS, size=64 * MIB, identity=lender.identity, more=more)
    pair.b.wait_state("lenders/model", "Connected")
    pair.borrower.sh(f"for i in $(seq {FILES}); do head -c 131072 /dev/urandom > /mnt/$i; done; sync")
    pair.evict()
    pair.b.rmdir("lenders/model")
    lender.close()
    numbers = list(dict.fromkeys(file for file, _ in lender.pages))
    assert len(numbers) > FILES // 2
    assert all(number >> 40 for number in numbers)
    assert numbers not in (sorted(numbers), sorted(numbers, reverse=True))
    pair.name = NAME
    pair.assert_clean()


@contextmanager
def _holes(guest: Guest, mib: int) -> Iterator[Callable[[], object]]:
    """Free memory in holes of 64 KiB, which single pages are taken from first; yields what frees the rest."""
    guest.sh("mkdir /tmp/holes && mount -t tmpfs -o size=90% holes /tmp/holes")
    guest.sh(f"for i in $(seq {2 * mib * 16}); do head -c 65536 /dev/zero > /tmp/holes/$i; done")
    guest.sh("rm /tmp/holes/*[13579]")
    try:
        yield lambda: guest.sh("rm /tmp/holes/*")
    finally:
        guest.sh("umount /tmp/holes && rmdir /tmp/holes")


def test_pages_that_the_lender_moved(pair: Pair) -> None:
    """The lender's kernel compacts its memory: the tags of pages go where the pages go."""
    stress(pair.borrower, f"fill /mnt/moved mib={SMALL_MIB}")
    with _connected(pair, "AES-GCM"), _holes(pair.lender, SMALL_MIB * 2) as close:
        _evict(pair, "/mnt/moved", times=2)  # the file system is known after the first
        close()
        moved = pair.lender.vmstat("pgmigrate_success")
        pair.lender.write("/proc/sys/vm/compact_memory", "1\n")
        assert pair.lender.vmstat("pgmigrate_success") - moved > SMALL_MIB * 256 // 8
        stress(pair.borrower, "sequential /mnt/moved")
        figures = pair.borrowed()
        assert figures["get_hits"] > SMALL_MIB * 256 // 8
        assert figures["get_misses"] == figures["get_corrupt"] == 0
    pair.assert_clean()


@pytest.mark.long
def test_throughput(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    """What encryption costs: reading a file in order and at random from the pool, without it and with it."""
    stress(pair.borrower, f"fill /mnt/large mib={LARGE_MIB}")
    for encryption in ("None", "AES-GCM"):
        with _connected(pair, encryption):
            _evict(pair, "/mnt/large", times=2)
            rate = _megabytes_per_second(pair, "/mnt/large")
            pair.borrower.drop_caches(1)
            stress(pair.borrower, "random /mnt/large reads=200")
            median = quantile(pair.b.latency(f"lenders/{pair.name}"), 0.5)
            with capsys.disabled():
                print(f"\n{encryption:>8}: {rate:5.1f} MB/s in order, median of a get {median / 1000:.1f} ms")
    pair.assert_clean()


def _megabytes_per_second(pair: Pair, path: str) -> float:
    """Reads a file, of which most is with the lender, in order; how fast that came."""
    before, start = pair.borrowed()["get_hits"], time.monotonic()
    stress(pair.borrower, f"sequential {path}")
    seconds = time.monotonic() - start
    hits = pair.borrowed()["get_hits"] - before
    assert hits > 1000
    return hits * PAGE / seconds / 1e6


def test_says_what_is_missing(kernel: str, tmp_path: Path) -> None:
    """A kernel without AES-GCM: loading fails with its name in the log, and leaves nothing behind."""
    spec = Spec("guest", "192M", append="initcall_blacklist=crypto_gcm_module_init,aesni_init")
    image = fetch_kernel(kernel)
    guest = Guest.boot(spec, image, build_module(image), tmp_path / "guest")
    try:
        guest.wait_ready()
        assert guest.run("insmod /lib/tidepool.ko").code != 0
        assert "tidepool: this kernel has no gcm(aes)" in guest.log()
        assert guest.run("ls /sys/module/tidepool /sys/kernel/config/tidepool").code != 0
        guest.assert_clean()
    finally:
        guest.close()


@pytest.fixture(scope="module")
def cheated(kernel: str) -> Iterator[Pair]:
    """A borrower with a lender that cheats it as the pairing's name says."""
    with (pair := Pair(kernel, lender_broken="LENDER")):
        yield pair


def _wrong_pages(pair: Pair, cheat: str, path: str) -> int:
    """A file is written and evicted, as often as the cheat wants it, and read; how many wrong pages the reader saw."""
    for version in VERSIONS[cheat]:
        stress(pair.borrower, f"fill {path} mib={SMALL_MIB} version={version}")
        _evict(pair, path)
    return wrong_pages(pair.borrower, f"sequential {path} version={VERSIONS[cheat][-1]}")


@pytest.mark.parametrize("cheat", VERSIONS)
def test_cheating_lender(cheated: Pair, cheat: str) -> None:
    """Pages altered, exchanged, or older ones: none is shown, each is counted, forgotten and read from disk.

    Without encryption the application sees them.
    """
    cheated.name = cheat
    with _connected(cheated, "None"):
        assert _wrong_pages(cheated, cheat, f"/mnt/{cheat}") > 0
        assert cheated.borrowed()["get_corrupt"] == 0
    with _connected(cheated, "AES-GCM"):
        assert _wrong_pages(cheated, cheat, f"/mnt/{cheat}.2") == 0
        figures = cheated.borrowed()
        assert figures["get_corrupt"] > SMALL_MIB * 256 // 8
        assert figures["catalog_pages"] <= figures["puts"] - figures["get_corrupt"]
        assert "a page came back that is not what was put there" in cheated.borrower.log()
    cheated.assert_clean()


@pytest.mark.long
def test_without_the_check(kernel: str) -> None:
    """A borrower that does not look at the tag shows what a cheating lender sends."""
    pair = Pair(kernel, broken="TAG", lender_broken="LENDER")
    with pair:
        pair.name = "alter"
        with _connected(pair, "AES-GCM"):
            assert _wrong_pages(pair, "alter", "/mnt/file") > 0
