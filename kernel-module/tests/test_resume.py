"""A session outlives its connections (invariant 14): what was there is there again, all that was acknowledged."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator

import pytest

from bed.guest import HOST_ADDRESS
from bed.pair import LENDER_ADDRESS, NAME, PATIENT, Pair
from bed.protocol import PAGE, Borrower, KeyPair, Lender, point_of, somebody
from bed.tidepool import MIB, ROOT, wait_until
from bed.workload import running, stress
from tidepool_api.live import FIXED, WAYS

LENDER, BORROWER = f"lenders/{NAME}", f"borrowers/{NAME}"
OTHER_ADDRESS = "10.7.0.3"
IPV6 = {"borrower": "fd07::1", "lender": "fd07::2"}
FILE_MIB = 8
FILE_PAGES = FILE_MIB * 256
LOST_SECONDS = 20  # longer than both ends' patience with silence
PROMPT_SECONDS = 20  # a connection that stands is not given up by itself
LINGER_SECONDS = 600  # longer than any test takes
NOTES = 1024  # that the lender keeps of pages that are gone
READINGS = 5
PIECE_PAGES, PIECES = 64, 10
# What an edit of a pool writes while the pairing is in use, each with room for what is lent. The strategy decides what
# a hit leaves, so it is the last. Addresses have tests of their own, and an identity is somebody else.
EDITS = {
    "lend_bytes": 192 * MIB,
    "reserve_bytes": 16 * MIB,
    "borrowers/quota_bytes": 96 * MIB,
    "lenders/size_bytes": 64 * MIB,
    "lenders/sequential_filter": 1,
    "lenders/deadline_us": 9_000_000,
    "lenders/breaker": "Thresholds",
    "lenders/breaker_short": "8000000 9000000",
    "lenders/breaker_long": "8000000 9000000",
    "lenders/strategy": "Exclusive",
}
UNLIKE_EDITS = {"lenders/address", "lenders/identity", "borrowers/identity", "lenders/port"}
# Reads a file of which nothing is cached, piece by piece; says of each when it was done, and the figures by then.
READ_ON = f"""i=0; while :; do
echo 1 > /proc/sys/vm/drop_caches
dd if=/mnt/file of=/dev/null bs={PIECE_PAGES * PAGE} count=1 skip=$((i++ % {FILE_PAGES // PIECE_PAGES})) 2> /dev/null
figures=$(awk '{{ f[$1] = $2 }} END {{ print f["resumes"], f["get_hits"] }}' {ROOT}/{LENDER}/stats)
echo "$(cut -d' ' -f1 /proc/uptime) $figures"; done > /tmp/pieces"""


def hits(pair: Pair, path: str) -> int:
    """How many of a file's pages, of which none is cached, come from the pool."""
    before = pair.borrowed()["get_hits"]
    stress(pair.borrower, f"sequential {path} passes=1")
    return pair.borrowed()["get_hits"] - before


def lend_all(pair: Pair, path: str, pages: int) -> None:
    """Evict and read a file until the lender has its pages, which leave the cache faster than they can be sent."""
    for _ in range(20):
        pair.evict()
        if hits(pair, path) > pages * 0.98:  # more than whoever reads them later has to find
            return pair.evict()
    raise AssertionError(pair.borrowed())


@pytest.fixture(scope="module")
def guests(kernel: str) -> Iterator[Pair]:
    with (pair := Pair(kernel, borrower_mem="160M", relay=True, host=True)):
        pair.l.load()
        pair.b.load()
        pair.lender.sh(f"ip addr add {OTHER_ADDRESS}/24 dev eth0")
        yield pair


@pytest.fixture
def pair(guests: Pair) -> Iterator[Pair]:
    """Connected, with a file whose pages are all with the lender."""
    guests.l.set("linger_s", LINGER_SECONDS)
    guests.l.set("hold", 0)
    with guests.pairing():
        guests.connect(size=128 * MIB, more=PATIENT)
        stress(guests.borrower, f"fill /mnt/file mib={FILE_MIB}")
        lend_all(guests, "/mnt/file", FILE_PAGES)
        yield guests


def resumed(pair: Pair, times: int = 1) -> None:
    """Connected again so many times, each time with the same session; a busy machine may add to these."""
    wait_until("it goes on", lambda: pair.borrowed()["resumes"] >= times)
    figures = pair.borrowed()
    assert figures["connects"] == figures["resumes"] + 1


def assert_all_there(pair: Pair, path: str = "/mnt/file", pages: int = FILE_PAGES) -> None:
    """Reading it finds each of its pages in the pool that the catalog has, and asks for none in vain.

    It is read again if the lender was late, as one is on a busy machine.
    """
    for _ in range(READINGS):
        pair.evict()
        before = pair.borrowed()
        stress(pair.borrower, f"sequential {path} passes=1")
        after = pair.borrowed()
        changes = {name: value - before[name] for name, value in after.items() if value != before[name]}
        assert "get_misses" not in changes, changes
        assert after["get_corrupt"] == 0
        if "get_late" not in changes:
            break
    assert changes.get("get_hits", 0) > pages * 0.95, changes


def test_wire_is_cut(pair: Pair) -> None:
    """Until both ends have given the connections up: reads come from disk meanwhile, and from the pool right after."""
    assert pair.relay
    lent = pair.lent()["lent_pages"]
    pair.relay.cut = True
    pair.b.wait_state(LENDER, "Connecting")
    pair.l.wait_state(BORROWER, "Listening", timeout=LOST_SECONDS + 40)
    assert pair.lent()["connections"] == 0
    assert pair.lent()["lent_pages"] == lent
    asked = pair.borrowed()["gets_sent"]
    pair.borrower.drop_caches(1)
    stress(pair.borrower, "sequential /mnt/file passes=1")
    assert pair.borrowed()["gets_sent"] == asked
    pair.relay.cut = False
    resumed(pair)
    assert_all_there(pair)


def test_hits_are_back_within_a_second(pair: Pair) -> None:
    """Of a file that is read all the time: a second after the two are connected again, its pages come from the pool."""
    assert pair.relay
    with running(pair.borrower, READ_ON, times=1):
        pair.relay.cut = True
        pair.b.wait_state(LENDER, "Connecting")
        pair.relay.cut = False
        resumed(pair)
        wait_until("it is read for a while", lambda: len(_hits_since(pair)) >= PIECES)
        found = _hits_since(pair)
    assert min(found) > PIECE_PAGES // 4, found  # one answer may be late
    assert sum(found) > len(found) * PIECE_PAGES * 0.9, found


def _hits_since(pair: Pair) -> list[int]:
    """How many pages came from the pool, of each piece that was begun a second after the two were connected again."""
    lines = [line.split() for line in pair.borrower.read("/tmp/pieces").splitlines()]
    read = [(float(clock), int(resumes), int(hits)) for clock, resumes, hits in lines]
    back = next((clock for clock, resumes, _ in read if resumes), float("inf"))
    return [now[2] - before[2] for before, now in itertools.pairwise(read) if before[0] > back + 1]


@pytest.mark.parametrize("whose", ["lender", pytest.param("borrower", marks=pytest.mark.long)])
def test_paused(pair: Pair, whose: str) -> None:
    """A guest stands still, as it does when it is migrated or its host is busy."""
    guest = pair.lender if whose == "lender" else pair.borrower
    guest.stop()
    time.sleep(LOST_SECONDS)
    guest.cont()
    resumed(pair)
    assert_all_there(pair)


def test_another_address(pair: Pair) -> None:
    """The lender is to be found elsewhere: written while enabled, taken up at once; who answers is the same."""
    begin = time.monotonic()
    pair.b.set(f"{LENDER}/address", OTHER_ADDRESS)
    resumed(pair)
    assert time.monotonic() - begin < PROMPT_SECONDS
    assert_all_there(pair)
    pair.b.set(f"{LENDER}/address", OTHER_ADDRESS)  # the same: nothing happens
    pair.b.set(f"{LENDER}/port", pair.b.get(f"{LENDER}/port"))
    assert_all_there(pair)
    pair.b.set(f"{LENDER}/address", LENDER_ADDRESS)
    resumed(pair, 2)


def test_edits_lose_no_page(pair: Pair) -> None:
    """Whatever of a pool changes live is written to the peers that are connected: session and pages stay."""
    assert EDITS.keys() == {name for way in WAYS for name in way.attributes} - FIXED - UNLIKE_EDITS
    before, guest_wide = pair.borrowed(), {name: pair.l.get(name) for name in EDITS if "/" not in name}
    for name, value in EDITS.items():
        folder, _, attribute = name.rpartition("/")
        tidepool = pair.b if folder == "lenders" else pair.l
        tidepool.set(f"{folder}/{NAME}/{attribute}" if folder else attribute, value)
        pair.settle()
        after = pair.borrowed()
        for figure in ("connects", "disconnects", "catalog_pages"):
            assert after[figure] == before[figure], (name, figure, before[figure], after[figure])
        assert pair.b.get(f"{LENDER}/state") == "Connected", name
    assert_all_there(pair)
    for name, former in guest_wide.items():
        pair.l.set(name, former)


def test_over_ipv6(pair: Pair) -> None:
    """The same session goes on over IPv6, and comes back."""
    for guest in (pair.borrower, pair.lender):
        guest.sh(f"ip -6 addr add {IPV6[guest.name]}/64 dev eth0")
    wait_until("the addresses may be used", lambda: "tentative" not in pair.lender.sh("ip -6 addr show dev eth0"))
    pair.b.set(f"{LENDER}/address", IPV6["lender"])
    resumed(pair)
    assert int(pair.borrower.sh("grep -c '^TCP6: inuse [1-9]' /proc/net/sockstat6")) == 1
    assert_all_there(pair)
    pair.b.set(f"{LENDER}/address", LENDER_ADDRESS)
    resumed(pair, 2)
    assert_all_there(pair)


def test_what_changed_meanwhile(pair: Pair) -> None:
    """Pages that were written, and files that went, while nobody was connected are not asked for."""
    assert pair.relay
    pair.relay.cut = True
    pair.b.wait_state(LENDER, "Connecting")
    stress(pair.borrower, "overwrite /mnt/file version=2")
    pair.borrower.sh("sync")
    pair.borrower.drop_caches(1)
    assert pair.borrowed()["catalog_pages"] == 0
    pair.relay.cut = False
    resumed(pair)
    before = pair.borrowed()["gets_sent"]
    stress(pair.borrower, "sequential /mnt/file version=2 passes=1")
    assert pair.borrowed()["gets_sent"] == before
    wait_until("the lender has dropped them", lambda: pair.lent()["lent_pages"] < FILE_PAGES // 10)


def test_lender_drops_some_meanwhile(pair: Pair) -> None:
    """It says so when the borrower is back, who then asks for the others only."""
    assert pair.relay
    pair.relay.cut = True
    pair.b.wait_state(LENDER, "Connecting")
    pair.l.wait_state(BORROWER, "Listening", timeout=LOST_SECONDS + 40)
    pair.l.set(f"{BORROWER}/quota_bytes", FILE_MIB * MIB // 2)
    left = pair.lent()["lent_pages"]
    assert left < FILE_PAGES * 0.6
    pair.relay.cut = False
    resumed(pair)
    wait_until("it is told", lambda: pair.borrowed()["catalog_pages"] == left)
    before = pair.borrowed()["get_misses"]
    pair.borrower.drop_caches(1)
    stress(pair.borrower, "sequential /mnt/file passes=1")
    assert pair.borrowed()["get_misses"] == before


def test_lender_drops_most_meanwhile(pair: Pair) -> None:
    """More than it keeps notes of: the borrower learns of all, and asks for what is left and nothing else."""
    assert pair.relay
    pair.relay.cut = True
    pair.b.wait_state(LENDER, "Connecting")
    pair.l.wait_state(BORROWER, "Listening", timeout=LOST_SECONDS + 40)
    quota = pair.l.get(f"{BORROWER}/quota_bytes")
    pair.l.set(f"{BORROWER}/quota_bytes", MIB)
    pair.l.set(f"{BORROWER}/quota_bytes", quota)
    left = pair.lent()["lent_pages"]
    assert left < FILE_PAGES - NOTES - 500
    before = pair.borrowed()
    pair.relay.cut = False
    resumed(pair)
    wait_until("it is told", lambda: pair.borrowed()["catalog_pages"] == left)
    assert pair.borrowed()["evicted_notices"] - before["evicted_notices"] <= NOTES
    pair.borrower.drop_caches(1)
    stress(pair.borrower, "sequential /mnt/file passes=1")
    assert pair.borrowed()["get_misses"] == before["get_misses"]


@pytest.mark.parametrize("seconds", [3, pytest.param(0, marks=pytest.mark.long)])
def test_linger_ends(pair: Pair, seconds: int) -> None:
    """Both ends forget by themselves, and begin anew."""
    assert pair.relay
    pair.l.set("linger_s", seconds)
    pair.relay.cut = True
    wait_until("the borrower forgets", lambda: pair.borrowed()["catalog_pages"] == 0, timeout=LOST_SECONDS + 40)
    wait_until("the lender forgets", lambda: pair.lent()["lent_pages"] == 0, timeout=LOST_SECONDS + 40)
    pair.relay.cut = False
    pair.b.wait_state(LENDER, "Connected")
    assert pair.borrowed()["resumes"] == 0
    lend_all(pair, "/mnt/file", FILE_PAGES)
    assert_all_there(pair)


def test_somebody_else(pair: Pair) -> None:
    """Another identity, or a lender that has switched this off, has nothing of the session: both ends give it up."""
    pair.b.set(f"{LENDER}/identity", somebody())
    wait_until("it is forgotten", lambda: pair.borrowed()["catalog_pages"] == 0)
    pair.b.set(f"{LENDER}/identity", pair.l.identity)
    pair.b.wait_state(LENDER, "Connected")
    assert pair.lent()["lent_pages"] == 0
    lend_all(pair, "/mnt/file", FILE_PAGES)
    pair.l.lend("another", quota=MIB, identity=somebody())  # there is somebody who can say no
    pair.l.set(f"{BORROWER}/enabled", 0)
    assert pair.lent()["lent_pages"] == 0
    wait_until("it is forgotten", lambda: pair.borrowed()["catalog_pages"] == 0)
    pair.l.set(f"{BORROWER}/enabled", 1)
    pair.l.rmdir("borrowers/another")
    pair.b.wait_state(LENDER, "Connected")
    assert pair.borrowed()["resumes"] == 0


def lose_often(pair: Pair, times: int) -> int:
    """Put a file of its own on each of so many connections, and read all of them after the last; returns the hits."""
    for n in range(times):
        stress(pair.borrower, f"fill /mnt/epoch{n} mib=1")
        lend_all(pair, f"/mnt/epoch{n}", 256)
        pair.b.set(f"{LENDER}/address", LENDER_ADDRESS if n % 2 else OTHER_ADDRESS)
        resumed(pair, n + 1)
    pair.borrower.drop_caches(1)
    there = sum(hits(pair, f"/mnt/epoch{n}") for n in range(times))
    assert (pair.borrowed()["get_misses"], pair.borrowed()["get_corrupt"]) == (0, 0)
    return there


def test_lost_again_and_again(pair: Pair) -> None:
    """Each connection has a key of its own for what is put, and those before open what was put then."""
    assert lose_often(pair, 6) > 6 * 256 * 0.95


@pytest.mark.long
def test_lost_more_often_than_there_are_keys(kernel: str) -> None:
    """The oldest pages are not asked for any more, and no others are; with a module that has four keys."""
    with (pair := Pair(kernel, borrower_mem="160M", broken="EPOCHS")):
        pair.lender.sh(f"ip addr add {OTHER_ADDRESS}/24 dev eth0")
        pair.connect(size=128 * MIB, more=PATIENT)
        assert 2 * 256 < lose_often(pair, 8) < 5 * 256
        pair.assert_clean()


def test_lender_wants_no_puts(pair: Pair) -> None:
    """Before it moves, say: nothing is put until it takes pages again, and all that it has can be read meanwhile."""
    pair.hold(1)
    stress(pair.borrower, "fill /mnt/held mib=2")
    before = pair.borrowed()
    pair.borrower.drop_caches(1)
    assert pair.borrowed()["drop_held"] > 0  # folios, of many pages each where the kernel has such
    assert pair.borrowed()["puts_sent"] == before["puts_sent"]
    assert_all_there(pair)
    pair.hold(0)
    lend_all(pair, "/mnt/held", 512)


def test_what_a_lender_that_wants_no_puts_has_stays(pair: Pair) -> None:
    """With Exclusive, too: what left it meanwhile would not come back when the borrower evicts it."""
    pair.b.set(f"{LENDER}/strategy", "Exclusive")
    pair.hold(1)
    for _ in range(2):
        pair.evict()
        assert_all_there(pair)
    pair.hold(0)
    pair.evict()
    assert_all_there(pair)
    wait_until("a hit leaves the lender again", lambda: pair.borrowed()["catalog_pages"] < FILE_PAGES * 0.1)


def test_counters_begin_anew(pair: Pair) -> None:
    """With each time that a lender is enabled, those that each processor counts for itself, too."""
    pair.hold(1)
    stress(pair.borrower, "fill /mnt/held mib=1")
    pair.borrower.drop_caches(1)
    assert pair.borrowed()["drop_held"]
    pair.hold(0)
    pair.b.set(f"{LENDER}/enabled", 0)
    pair.b.set(f"{LENDER}/enabled", 1)
    pair.b.wait_state(LENDER, "Connected")
    assert {name: count for name, count in pair.borrowed().items() if name.startswith("drop_") and count} == {}


# One end is the model


@pytest.fixture
def known(guests: Pair) -> Iterator[KeyPair]:
    """A borrower that the lender's guest knows."""
    own = KeyPair()
    guests.l.set("linger_s", 60)
    guests.l.lend(NAME, quota=16 * MIB, identity=own.identity)
    yield own
    guests.l.rmdir(BORROWER)
    guests.assert_clean()


def borrow(pair: Pair, own: KeyPair, resume: int = 0, version: int = 0) -> contextlib.closing[Borrower]:
    lender = point_of(pair.l.identity)
    address = ("127.0.0.1", pair.lender_port)
    return contextlib.closing(Borrower(address, own, lender, 16 * MIB, resume=resume, version=version))


def test_lender_refuses_the_past(guests: Pair, known: KeyPair) -> None:
    """Who comes back with a version older than what he has put has gone back in time: he finds nothing of his."""
    page = bytes([7]) * PAGE
    with borrow(guests, known) as borrower:
        assert (borrower.resumed, borrower.linger_ms) == (False, 60_000)
        assert borrower.store(1, 1, 100, page)
    with borrow(guests, known, borrower.session, 100) as borrower:
        assert borrower.resumed
        assert borrower.load(1, 1, 100) == page
    with borrow(guests, known, borrower.session, 99) as behind:
        assert not behind.resumed
        assert behind.load(1, 1, 100) is None
    with borrow(guests, known, borrower.session, 1000) as late:
        assert not late.resumed, "it was the other time line's"
        assert late.store(1, 1, 1001, page)
    for number in (late.session ^ 1, 0):
        with borrow(guests, known, number, 2000) as stranger:
            assert not stranger.resumed
            assert stranger.load(1, 1, 1001) is None


def test_another_in_its_place(guests: Pair, known: KeyPair) -> None:
    """A lender is told of another guest: the session ends with its pages, whoever knows its number finds nothing."""
    page, other = bytes([9]) * PAGE, KeyPair()
    with borrow(guests, known) as borrower:
        assert borrower.store(1, 1, 1, page)
        guests.l.set(f"{BORROWER}/identity", other.identity)
        wait_until("it is given up", lambda: guests.lent()["connections"] == 0)
        assert guests.lent()["lent_pages"] == 0
    with borrow(guests, other, borrower.session, 1) as stranger:
        assert not stranger.resumed
        assert stranger.load(1, 1, 1) is None


def test_takes_over(guests: Pair, known: KeyPair) -> None:
    """A borrower that has lost its connections need not wait until the lender finds that out, too."""
    page = bytes([8]) * PAGE
    with borrow(guests, known) as lost:
        assert lost.store(1, 1, 1, page)
        with borrow(guests, known, lost.session, 1) as borrower:
            assert borrower.resumed
            assert borrower.load(1, 1, 1) == page


def test_not_acknowledged_is_not_believed(guests: Pair) -> None:
    """What a lender has been sent and has not answered for is not asked of it when the session goes on."""
    lender = Lender()
    more = {"port": lender.port, **PATIENT}
    guests.b.borrow(NAME, address=HOST_ADDRESS, size=64 * MIB, identity=lender.identity, more=more)
    guests.b.wait_state(LENDER, "Connected")
    stress(guests.borrower, "fill /mnt/unanswered mib=4")
    lender.delay = 3600.0
    guests.borrower.drop_caches(1)
    wait_until("it is given up", lambda: guests.borrowed()["drop_lost"] > 0)
    lender.delay = 0.0
    wait_until("it goes on", lambda: guests.borrowed()["resumes"] > 0)
    assert lender.pages
    assert guests.borrowed()["catalog_pages"] == 0
    stress(guests.borrower, "sequential /mnt/unanswered passes=1")
    assert guests.borrowed()["gets_sent"] == 0
    guests.b.rmdir(LENDER)
    lender.close()
    guests.assert_clean()
