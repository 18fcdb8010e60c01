"""Kept pools of /dev/tidepool: a get brings what was put last, whatever lenders do, or says that the disk failed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_values import fits, listed, of_all, said

from bed.device import MODULES, dmsetup, faults_of_wire, load_target
from bed.guest import PAGE, Guest
from bed.image import tools_disk, with_tools
from bed.pair import NAME as PAIRING
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, wait_until
from bed.workload import Report, end_stress, finish_stress, start_stress, stress, wrong_pages

SPILL = "/mnt/spill"
LARGE = 3 * PAGE  # bytes of a value
FAILED_WRITES = r"\bdm-0\b"  # of a disk that fails for a test
SLOW = 300_000  # bytes a second that a lender takes
WORDS = "abcdefghij"  # keys, a value each
WITH_MODULES, TOOLS = (*MODULES, "dm-flakey", "btrfs"), ("mkfs.ext4", "mkfs.btrfs")
MKFS = f"{with_tools('mkfs.ext4')} -q"


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected, and the borrower's device."""
    with (pair := Pair(kernel, relay=True, modules=WITH_MODULES, tools=tools_disk(*TOOLS))):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        pair.borrower.sh("mkdir /tools && mount -o ro /dev/vdb /tools")
        yield pair
        pair.assert_clean(allow=FAILED_WRITES)
        pair.borrower.sh("rmmod tidepool_app")


@contextmanager
def spill(guest: Guest, size: int = 64 * MIB, path: str = SPILL) -> Iterator[str]:
    """A file for a pool to keep its values in, as the option that says so."""
    guest.sh(f"rm -f {path} && truncate -s {size} {path}")
    yield f"spill={path}"
    guest.sh(f"rm -f {path}")


def puts() -> str:
    """A script that puts a value for each word."""
    return "".join(f"put {word} {word}\n" for word in WORDS)


def gets() -> str:
    """And gets them back."""
    return "".join(f"get {word}\n" for word in WORDS)


def values(size: int) -> list[str]:
    """What they say then."""
    return [f"ok {size} {word * min(20, size)}" for word in WORDS]


def evict(guest: Guest) -> None:
    """What the guest had in memory of its files is on the disk alone, or with a lender."""
    guest.sh("sync && echo 3 > /proc/sys/vm/drop_caches")


def stress_evicting(guest: Guest, arguments: str) -> Report:
    """What the stress program reports while caches are dropped again and again."""
    job = start_stress(guest, arguments)
    for _ in range(4):
        evict(guest)
    return finish_stress(job)


@pytest.mark.parametrize("calls", ["uring=0", "uring=1"])
def test_mixture(connected: Pair, calls: str) -> None:
    """All sizes, by four threads, and caches dropped meanwhile: each value that was put is there."""
    with spill(connected.borrower) as kept:
        mixture = f"values - keys=800 seconds=120 changes=2000 {kept} {calls}"
        report = stress_evicting(connected.borrower, mixture)
    assert report["puts"] > 100
    assert report["full"] == 0


def test_values_expire(connected: Pair) -> None:
    """None goes before its time, and none comes after it."""
    with spill(connected.borrower) as kept:
        report = stress(connected.borrower, f"values - keys=100 seconds=20 expire_ms=200 {kept}")
    assert 0 < report["hits"] < report["gets"]


def test_programs_race_and_are_killed(connected: Pair) -> None:
    """Six put the same keys of one pool: none is missing that was put and not deleted, whoever was killed meanwhile."""
    with spill(connected.borrower) as kept:
        report = stress_evicting(connected.borrower, f"crowd shared seconds=30 {kept}")
    assert report["puts"] > 1000
    assert report["hits"] > 1000
    assert report["killed"] > 50


def test_small_values_share_pages(connected: Pair) -> None:
    """Holes are filled in a kept pool, too."""
    with spill(connected.borrower) as kept:
        report = stress(connected.borrower, f"values - keys=600 seconds=120 changes=6000 most=400 {kept}")
    assert report["moved"] > 0
    assert fits(report), report


def test_faults_of_the_wire(connected: Pair) -> None:
    """The lender is frozen, cut off, drops its pages, goes and comes back: no value is missing."""
    guest = connected.borrower
    with spill(guest) as kept:
        job = start_stress(guest, f"values - keys=500 seconds=300 {kept}")
        for fault in (*faults_of_wire(connected), connected.lender.stop, connected.lender.cont):
            fault()
            evict(guest)
        connected.l.set("lend_bytes", 2 * MIB)
        evict(guest)
        connected.l.set("lend_bytes", 64 * MIB)
        with connected.without_lender():
            evict(guest)
        report = end_stress(job)
    assert report["hits"] > 0
    assert report["spilled"] > 0


@pytest.mark.parametrize("size", [100, LARGE])
def test_no_lender_is_needed(connected: Pair, size: int) -> None:
    """Neither to put a value nor to get it back, also when the guest has nothing of it in memory."""
    guest, options = connected.borrower, f"size={size} room={size}"
    with spill(guest) as kept, connected.without_lender():
        before = of_all(guest)["spilled"]
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        evict(guest)
        assert said(guest, gets(), "pool", f"spill=join {options}") == values(size)
        spilled = int(listed(guest)["pool"]["spilled"])
        assert (spilled > 0) == (size == LARGE), "small ones are in memory yet"
        assert of_all(guest)["spilled"] - before == spilled
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]


def test_what_lenders_had_is_lost(connected: Pair) -> None:
    """The values are there all the same."""
    guest, options = connected.borrower, f"size={LARGE} room={LARGE}"
    with spill(guest) as kept:
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        with connected.without_lender():
            evict(guest)
            assert said(guest, gets(), "pool", f"spill=join {options}") == values(LARGE)
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]


def test_nearest_answers(connected: Pair) -> None:
    """The guest's own memory, then a lender, then the disk."""
    guest, options = connected.borrower, f"size={LARGE} room={LARGE}"

    def asked() -> tuple[int, int]:
        """How many pages lenders gave, and how often the disk was read, for all of them."""
        before, spilled = connected.borrowed()["get_hits"], of_all(guest)["spilled"]
        assert said(guest, gets(), "pool", f"spill=join {options}") == values(LARGE)
        return connected.borrowed()["get_hits"] - before, of_all(guest)["spilled"] - spilled

    def lenders_gave_all() -> bool:
        evict(guest)
        return asked() == (len(WORDS) * LARGE // PAGE, 0)

    with spill(guest) as kept:
        said(guest, puts(), "pool", f"{kept} {options}")
        connected.settle()
        assert asked() == (0, 0)
        wait_until("no lender is late", lenders_gave_all)
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]


def test_file_is_full(connected: Pair) -> None:
    """A put says so, and changes nothing; what is deleted makes room."""
    guest = connected.borrower
    with spill(guest, 4 * PAGE) as kept:
        script = "put a x\nput b y\nget a\ndelete a\nput b y\nexists b\nput c z\n"
        outcomes = said(guest, script, "-", f"{kept} size={LARGE} room={LARGE}")
    assert outcomes == ["ok", "ENOSPC", f"ok {LARGE} {'x' * 20}", "ok", "ok", f"ok {LARGE}", "ENOSPC"]


def test_file_is_allocated(connected: Pair) -> None:
    """When the pool is opened."""
    guest = connected.borrower
    with spill(guest, MIB) as kept:
        assert guest.sh(f"stat -c %b {SPILL}").strip() == "0"
        said(guest, "put a x\n", "-", kept)
        assert int(guest.sh(f"stat -c %b {SPILL}")) * 512 >= MIB


@contextmanager
def full_disk(guest: Guest, mkfs: str, options: str) -> Iterator[str]:
    """A disk that is full but for the file of a pool, the option of which it is."""
    guest.sh("mkdir -p /full; truncate -s 128M /mnt/disk && losetup /dev/loop0 /mnt/disk")
    guest.sh(f"{with_tools(mkfs)} -q /dev/loop0 && mount {options} /dev/loop0 /full && truncate -s 256K /full/spill")
    try:
        said(guest, "put a x\n", "-", "spill=/full/spill")
        guest.sh("! dd if=/dev/zero of=/full/rest bs=64k 2> /dev/null; sync")
        yield "spill=/full/spill"
    finally:
        guest.sh("umount /full; losetup -d /dev/loop0; rm /mnt/disk")


@pytest.mark.parametrize(
    ("mkfs", "options", "outcomes"),
    [
        ("mkfs.ext4", "", {"ok"}),
        ("mkfs.btrfs", "-o nodatacow", {"ok"}),
        ("mkfs.btrfs", "", {"ok", "ENOSPC"}),
    ],
)
def test_disk_is_full(connected: Pair, mkfs: str, options: str, outcomes: set[str]) -> None:
    """No put finds that out unless the file system puts what is written again elsewhere; then it changes nothing."""
    guest, large = connected.borrower, f"size={LARGE} room={LARGE}"
    with full_disk(guest, mkfs, options) as kept, connected.without_lender():
        found = said(guest, puts(), "pool", f"{kept} {large}")
        for _ in range(10):
            evict(guest)
            found += said(guest, puts(), "pool", f"{kept} {large}")
        assert set(found) == outcomes
        evict(guest)
        there = said(guest, f"{gets()}unlink\n", "pool", f"{kept} {large}")
    assert set(there) - {"ENOENT 0"} <= {*values(LARGE), "ok"}
    assert "ENOSPC" in found or there == [*values(LARGE), "ok"]


@pytest.mark.parametrize(
    ("prepare", "options", "error"),
    [
        ("truncate -s 1M /mnt/bad", f"spill_open={os.O_RDONLY}", "EBADF"),
        ("truncate -s 1M /mnt/bad", f"spill_open={os.O_WRONLY}", "EBADF"),
        ("truncate -s 1M /mnt/bad", f"spill_open={os.O_RDWR | os.O_APPEND}", "EINVAL"),
        ("truncate -s 1M /mnt/bad", f"spill_open={os.O_RDWR | os.O_DIRECT}", "EINVAL"),
        ("truncate -s 8191 /mnt/bad", "", "EINVAL"),
        ("truncate -s 4G /mnt/bad", "", "ENOSPC"),
        ("mkfifo /mnt/bad", "", "EINVAL"),
        ("truncate -s 1M /tmp/bad && ln -s /tmp/bad /mnt/bad", "", "EOPNOTSUPP"),
        ("truncate -s 1M /mnt/bad", "quota=4096", "EDQUOT"),
        ("dd if=/dev/zero of=/mnt/bad bs=1M count=2 && mkswap /mnt/bad && swapon /mnt/bad", "", "ETXTBSY"),
    ],
)
def test_bad_files(connected: Pair, prepare: str, options: str, error: str) -> None:
    """Each says what is wrong, and the pool is not made."""
    guest = connected.borrower
    guest.sh(prepare)
    try:
        assert said(guest, "put a x\n", "pool", f"spill=/mnt/bad {options}") == [error]
        assert len(guest.sh("cat /dev/tidepool").splitlines()) == 1
    finally:
        guest.sh("swapoff /mnt/bad 2> /dev/null; rm -f /mnt/bad /tmp/bad")


def test_a_put_is_not_tried(connected: Pair) -> None:
    """Its file system may take its time."""
    with spill(connected.borrower) as kept:
        assert said(connected.borrower, "try a x\nget a\nput a x\n", "-", kept) == ["EAGAIN", "ENOENT 0", "ok"]


def test_kinds_do_not_mix(connected: Pair) -> None:
    """Who wants a value kept does not get a pool that loses it, and a file is one pool's."""
    guest = connected.borrower
    with spill(guest) as kept:
        assert said(guest, "put a x\n", "kept", kept) == ["ok"]
        assert said(guest, "get a\n", "kept") == ["EEXIST"]
        assert said(guest, "get a\n", "kept", "spill=join") == ["ok 1 x"]
        assert said(guest, "put a x\n", "another", kept) == ["EBUSY"]
        assert said(guest, "put a x\n", "none", "spill=join") == ["EBADF"]
        assert said(guest, "unlink\n", "kept", "spill=join") == ["ok"]
        assert said(guest, "put a x\n", "plain") == ["ok"]
        assert said(guest, "get a\n", "plain", "spill=join") == ["EEXIST"]
        assert said(guest, "unlink\n", "plain") == ["ok"]
        assert said(guest, "put a x\n", "-", kept) == ["ok"]


def test_several_make_it(connected: Pair) -> None:
    """At the same time: one of them does, and the others join."""
    guest = connected.borrower
    command = f"echo put a x | stress value pool spill={SPILL}"
    with spill(guest):
        for _ in range(10):
            outcomes = guest.sh(f"for i in 1 2 3 4 5 6 7 8; do {command} & done; wait").split()
            assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]
            assert outcomes == ["ok"] * 8


@contextmanager
def flakey(guest: Guest, features: str = "^has_journal") -> Iterator[str]:
    """A file system on a disk whose writes can be made to fail: the option of a file there."""
    guest.sh("mkdir -p /flakey; truncate -s 64M /mnt/disk && losetup /dev/loop0 /mnt/disk")
    guest.sh(dmsetup(f'create flakey --table "{table("linear")}" '))
    guest.sh(f"{MKFS} -O {features} /dev/mapper/flakey")
    guest.sh("mount /dev/mapper/flakey /flakey")
    try:
        guest.sh("truncate -s 16M /flakey/spill && sync")
        yield "spill=/flakey/spill"
    finally:
        guest.sh(f"umount /flakey; {dmsetup('remove flakey')}; losetup -d /dev/loop0; rm /mnt/disk")


def table(target: str) -> str:
    """The disk's; `flakey` writes nothing."""
    return f"0 131072 {target} /dev/loop0 0" + (" 0 3600 1 error_writes" if target == "flakey" else "")


def exchange(guest: Guest, target: str) -> None:
    """Another table, while the file system is in use."""
    guest.sh(dmsetup(f'suspend --noflush --nolockfs flakey && dmsetup load flakey --table "{table(target)}"'))
    guest.sh(dmsetup("resume flakey"))


def lose_writes(guest: Guest) -> None:
    """What was written to the file and is not on the disk yet never gets there, and is not in memory either."""
    exchange(guest, "flakey")
    guest.run("sync")
    exchange(guest, "linear")
    guest.sh("echo 3 > /proc/sys/vm/drop_caches")


def after_lost_writes(guest: Guest) -> list[str]:
    """What is said of values that a failed disk should have, and of a new one."""
    options = f"size={LARGE} room={LARGE}"
    with flakey(guest) as kept:
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        lose_writes(guest)
        outcomes = said(guest, f"{gets()}put new x\n", "pool", f"spill=join {options}")
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]
    return outcomes


def test_disk_loses_writes(connected: Pair) -> None:
    """Lenders have the values yet; without them a get fails, and brings nothing old. A put fails at once."""
    assert after_lost_writes(connected.borrower) == [*values(LARGE), "EIO"]
    with connected.without_lender():
        outcomes = after_lost_writes(connected.borrower)
    assert [outcome.split()[0] for outcome in outcomes] == ["EIO"] * (len(WORDS) + 1)


def test_file_system_gives_up(connected: Pair) -> None:
    """A value is in memory yet, or a get fails; what is on the disk in its place is not read."""
    guest, options = connected.borrower, f"size={LARGE} room={LARGE}"
    with flakey(guest, "has_journal") as kept, connected.without_lender():
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        guest.sh("mount -o remount,abort /flakey")
        evict(guest)
        outcomes = said(guest, gets(), "pool", f"spill=join {options}")
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]
    for outcome, value in zip(outcomes, values(LARGE), strict=True):
        assert outcome in (value, f"EIO {LARGE}")


@pytest.mark.parametrize("harm", [f"truncate -s 0 {SPILL}; truncate -s 64M {SPILL}", f"truncate -s {PAGE} {SPILL}"])
def test_file_is_written_to(connected: Pair, harm: str) -> None:
    """By somebody else, which is a mistake: a get says so, and brings nothing that was never put."""
    guest, options = connected.borrower, f"size={LARGE} room={LARGE}"
    with spill(guest) as kept, connected.without_lender():
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        guest.sh(harm)
        outcomes = said(guest, gets(), "pool", f"spill=join {options}")
        assert said(guest, "unlink\n", "pool", "spill=join") == ["ok"]
    assert all(outcome.startswith("EIO") for outcome in outcomes), outcomes


@pytest.mark.parametrize("flags", [os.O_APPEND, os.O_DIRECT])
def test_flags_of_the_descriptor_are_not_the_pools(connected: Pair, flags: int) -> None:
    """Whatever the program makes of its own afterwards."""
    guest, options = connected.borrower, f"size={LARGE} room={LARGE}"
    with spill(guest) as kept, connected.without_lender():
        outcomes = said(guest, puts() + gets(), "-", f"{kept} {options} spill_then={flags}")
        assert int(guest.sh(f"stat -c %s {SPILL}")) == 64 * MIB
    assert outcomes == ["ok"] * len(WORDS) + values(LARGE)


@pytest.mark.parametrize("size", [1000, LARGE])
def test_limit_of_files(connected: Pair, size: int) -> None:
    """A program that may write no large files of its own is not ended by a put: that says what is wrong."""
    guest = connected.borrower
    with spill(guest) as kept:
        script = "".join(f"echo put {word} {word};" for word in WORDS)
        guest.sh(f"({script}) > /tmp/script")
        outcomes = guest.sh(f"(ulimit -f 0; stress value - {kept} size={size} < /tmp/script) | cat").split()
    assert len(outcomes) == len(WORDS)
    assert outcomes[-1] == "EFBIG"


def test_full_of_holes(connected: Pair) -> None:
    """Small values are put together where a file has no room: what is deleted makes room."""
    guest, count = connected.borrower, 64 * 4
    with spill(guest, 64 * PAGE) as kept:
        full = "".join(f"put {i} {i}\n" for i in range(count + 8))
        holes = "".join(f"delete {i}\n" for i in range(count) if i % 4)
        again = "".join(f"put n{i} {i}\n" for i in range(50))
        outcomes = said(guest, full + holes + again, "-", f"{kept} size=1000")
    assert outcomes[count : count + 8] == ["ENOSPC"] * 8
    assert outcomes[-49:] == ["ok"] * 49


def test_disk_is_read_at_once(connected: Pair) -> None:
    """And not a page at a time."""
    guest, options = connected.borrower, f"size={2 * MIB} room={2 * MIB}"

    def reads() -> int:
        return int(guest.sh("cat /sys/block/vda/stat").split()[0])

    with spill(guest) as kept, connected.without_lender():
        assert said(guest, "put a x\n", "pool", f"{kept} {options}") == ["ok"]
        evict(guest)
        before = reads()
        assert said(guest, "get a\nunlink\n", "pool", f"spill=join {options}")[0].startswith("ok")
        assert reads() - before < 2 * MIB // PAGE // 4


def test_slow_lender(connected: Pair) -> None:
    """A put does not wait until it has taken a value."""
    guest, options = connected.borrower, f"size={2 * MIB} room={2 * MIB}"
    with spill(guest) as kept:
        connected.relay.rate = SLOW
        try:
            began = time.monotonic()
            outcomes = said(guest, puts(), "-", f"{kept} {options}")
            took = time.monotonic() - began
        finally:
            connected.relay.rate = 0
    assert outcomes == ["ok"] * len(WORDS)
    assert took < len(WORDS) * 2 * MIB / SLOW / 4


@contextmanager
def frozen(guest: Guest, place: str) -> Iterator[None]:
    """A file system, for a while."""
    guest.sh(f"fsfreeze --freeze {place}")
    try:
        yield
    finally:
        guest.sh(f"fsfreeze --unfreeze {place}")


def test_frozen_file_system(connected: Pair) -> None:
    """Puts wait for it until a signal comes; gets, other pools and other files go on, and nothing is lost."""
    guest, options, more = connected.borrower, "size=1000 room=1000", "012"
    join = f"spill=join {options}"
    with flakey(guest, "has_journal") as kept, spill(guest) as elsewhere:
        guest.sh("truncate -s 1M /flakey/second")
        assert said(guest, puts(), "pool", f"{kept} {options}") == ["ok"] * len(WORDS)
        with frozen(guest, "/flakey"):
            small = guest.start(f"exec stress value pool {join}", "".join(f"put {n} {n}\n" for n in more).encode())
            wait_until("a page is full", lambda: listed(guest)["pool"]["puts"] == str(len(WORDS) + 2))
            large = guest.start(f"exec stress value pool spill=join size={LARGE}", b"put large x\n")
            opening = guest.start("exec stress value second spill=/flakey/second", b"put a x\n")
            time.sleep(1)
            assert said(guest, f"{gets()}get 0\nget 1\n", "pool", join) == [*values(1000), *filled("01")]
            assert said(guest, "put a x\nget a\n") == ["ok", "ok 1 x"]
            assert said(guest, "put a x\nunlink\n", "third", elsewhere) == ["ok", "ok"]
            assert (small.running, large.running, opening.running) == (True, True, True)
            guest.sh("kill -TERM $(pidof stress)")
            assert [job.result().output.split() for job in (small, large, opening)] == [
                ["ok", "ok", "EINTR"],
                ["EINTR"],
                ["EINTR"],
            ]
        script = f"{gets()}get 0\nget 1\nget 2\nget large\nput 2 2\nget 2\n"
        outcomes = [*values(1000), *filled("01"), "ENOENT 0", "ENOENT 0", "ok", *filled("2")]
        assert said(guest, script, "pool", join) == outcomes
        evict(guest)
        assert said(guest, f"{gets()}get 0\nunlink\n", "pool", join) == [*values(1000), *filled("0"), "ok"]


def filled(words: str) -> list[str]:
    """What gets of 1000 bytes say that are full of these, each its own."""
    return [f"ok 1000 {word * 20}" for word in words]


def test_frozen_now_and_then(connected: Pair) -> None:
    """While four threads put small values, which are moved, too: each is there."""
    guest = connected.borrower
    with flakey(guest, "has_journal") as kept:
        before = of_all(guest)["moved"]
        job = start_stress(guest, f"values - keys=600 seconds=300 most=400 {kept}")

        def moved() -> bool:
            with frozen(guest, "/flakey"):
                time.sleep(1)
            time.sleep(1)
            return of_all(guest)["moved"] > before

        for _ in range(5):
            moved()
        wait_until("some are moved", moved, timeout=120)
        report = end_stress(job)
    assert report["puts"] > 100
    assert report["moved"] > 0


def test_a_program_that_is_killed_leaves_nothing(connected: Pair) -> None:
    """Its file is its own again: it can be unmounted."""
    guest = connected.borrower
    with spill(guest) as kept:
        before = of_all(guest)["puts"]
        job = start_stress(guest, f"values - keys=500 seconds=300 {kept}")
        wait_until("it puts", lambda: of_all(guest)["puts"] > before)
        guest.sh("kill -9 $(pidof stress)")
        job.result()
        assert said(guest, "put a x\n", "-", kept) == ["ok"]


@contextmanager
def without(kernel: str, broken: str) -> Iterator[Pair]:
    """A pair whose borrower's module has these mechanisms broken, and no lender in use."""
    with (pair := Pair(kernel, broken=broken, modules=WITH_MODULES, tools=tools_disk(*TOOLS))):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        pair.borrower.sh("mkdir /tools && mount -o ro /dev/vdb /tools")
        pair.b.set(f"lenders/{PAIRING}/enabled", 0)
        yield pair
        pair.borrower.sh("rmmod tidepool_app")


def test_file_is_needed(kernel: str) -> None:
    """Without it values are lost with their lender."""
    with without(kernel, "APP_SPILL") as pair, spill(pair.borrower) as kept:
        said(pair.borrower, puts(), "pool", f"{kept} size={LARGE}")
        evict(pair.borrower)
        assert said(pair.borrower, "get a\nunlink\n", "pool", f"spill=join room={LARGE}") == [f"ENOENT {LARGE}", "ok"]


def test_looks_are_needed(kernel: str) -> None:
    """Without one at the sum of what was written, and at who has the room now, values are wrong."""
    with without(kernel, "APP_SPILL_SUM,APP_STALE") as pair:
        assert set(after_lost_writes(pair.borrower)) - {*values(LARGE), "EIO", "ok"}
        with spill(pair.borrower, 2 * MIB) as kept:
            assert wrong_pages(pair.borrower, f"values - keys=16 seconds=60 most=400000 first=1 {kept}")
            assert wrong_pages(pair.borrower, f"crowd shared keys=16 seconds=60 most=400000 first=1 {kept}")
