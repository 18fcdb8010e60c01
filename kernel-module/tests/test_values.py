"""/dev/tidepool: a get brings what was put last or nothing, whatever becomes of lenders; each error has its name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_invariants import Hoarder, borrowing

from bed.device import MODULES, dmsetup, faults_of_wire, load_target
from bed.guest import PAGE, Guest, Job
from bed.measure import has_kasan
from bed.pair import NAME as PAIRING
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB, parse_histogram, wait_until
from bed.workload import end_stress, start_stress, stress, wrong_pages

USER = 1000
FEW = 100  # pages that were on their way when a pool went
ANEW = 500  # values of a page that are put again and again
NOBODY_ANSWERS = "ENOTCONN"
NODE = 576  # bytes of the catalog: 16 pages are in a leaf, and 64 leaves below a node
BUFFER_SECONDS = 0.1  # that a put waits for one at least


@pytest.fixture(scope="module")
def connected(kernel: str) -> Iterator[Pair]:
    """A pair with a lender connected, and the borrower's device."""
    with (pair := Pair(kernel, relay=True, host=True, modules=MODULES)):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        yield pair
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")


def said(guest: Guest, script: str, pool: str = "-", options: str = "") -> list[str]:
    """What a program says that makes these calls, a line each."""
    job = guest.start(f"stress value {pool} {options}", script.encode())
    return [line.rstrip() for line in job.result().output.splitlines()]


def figures(guest: Guest, pool: str) -> dict[str, int]:
    """What a pool with a name counts."""
    found: dict[str, int] = json.loads(said(guest, "stats\n", pool)[0])
    return found


def test_mixture(connected: Pair) -> None:
    """All sizes, by four threads; pages come from lenders, small values are moved, and nothing is left."""
    report = stress(connected.borrower, "values - keys=800 seconds=120 changes=2000")
    assert report["puts"] > 100
    assert report["hits"] > report["gets"] / 2
    assert report["full"] == 0
    assert connected.borrowed()["get_hits"] > 0
    wait_until("next to nothing is lent", lambda: connected.lent()["lent_pages"] < FEW)


def overwrite_small_values(guest: Guest) -> dict[str, int]:
    """What a pool of 600 values of 200 bytes on average counts when some were put many times."""
    return stress(guest, "values - keys=600 seconds=120 changes=6000 most=400")


def fits(report: dict[str, int]) -> bool:
    """Does it take no more than twice its values, what is remembered of them, and the holes that nobody minds?"""
    return report["bytes"] < 2 * report["value_bytes"] + 600 * 130 + 24 * PAGE


def test_programs_race_and_are_killed(connected: Pair) -> None:
    """Six put the same keys of one pool; who reads after one was killed gets no older value than he may."""
    report = stress(connected.borrower, "crowd shared seconds=30")
    assert report["puts"] > 1000
    assert report["hits"] > 1000
    assert report["killed"] > 50
    assert len(connected.borrower.sh("cat /dev/tidepool").splitlines()) == 1


def test_values_expire_in_a_mixture(connected: Pair) -> None:
    """Nobody gets one whose time was over when he asked."""
    report = stress(connected.borrower, "values - keys=100 seconds=20 expire_ms=200")
    assert 0 < report["hits"] < report["gets"]


def test_small_values_share_pages(connected: Pair) -> None:
    """And what holes are left there is filled."""
    report = overwrite_small_values(connected.borrower)
    assert report["moved"] > 0
    assert fits(report), report


@pytest.mark.parametrize("way", ["uring=0", "uring=1"])
def test_calls(connected: Pair, way: str) -> None:
    """Each says what came of it, by ioctl and by io_uring."""
    guest = connected.borrower
    script = "put a 1234\nget a\nput a 56\nget a\nexists a\nexists b\nput b x\nkeys\ndelete a\nget a\ndelete a\nkeys\n"
    outcomes = ["ok", "ok 4 1234", "ok", "ok 2 56", "ok 2", "ENOENT 0", "ok", "a", "b", "ok", "ENOENT 0", "ENOENT", "b"]
    assert said(guest, script, "-", way) == outcomes
    assert said(guest, "put a\nget a\n", "-", way) == ["ok", "ok 0"]


def test_there_is_nothing_to_poll_for(connected: Pair) -> None:
    """Who waits for a call by a ring waits for the ring's descriptor, as the program of test_calls does."""
    assert said(connected.borrower, "poll\n") == ["ready EPERM"]


@pytest.mark.parametrize(
    ("script", "options", "error"),
    [
        ("put a x", "size=2097153", "E2BIG"),
        ("put a x", "key_size=251", "EINVAL"),
        ("put a x", "key_size=0", "EINVAL"),
        ("put a x", "size=8192 quota=8192", "EDQUOT"),
        ("put a x", "size=8192 fault=1", "EFAULT"),
        ("put a x", "size=10 fault=1", "EFAULT"),
        ("put a x", "key_fault=1", "EFAULT"),
        ("put a x", "unopened=1", "ENXIO"),
        ("put a x", "unopened=1 uring=1", "ENXIO"),
        ("stats", "unopened=1", "ENXIO"),
        ("open another", "", "EBUSY"),
        ("put a x", "api=2", "EPROTONOSUPPORT"),
        ("put a x", "mode=0700", "EINVAL"),
        ("unlink", f"open={os.O_ACCMODE}", "EBADF"),
        ("stats", f"open={os.O_WRONLY}", "EBADF"),
        ("get a", "", "ENOENT 0"),
        ("unlink", "", "ENOENT"),
    ],
)
def test_bad_calls(connected: Pair, script: str, options: str, error: str) -> None:
    """Nothing is half done, and the next one does."""
    assert said(connected.borrower, f"{script}\n", "-", options) == [error]


@pytest.mark.parametrize("size", [10, 8192])
def test_nowhere_to_bring_it(connected: Pair, size: int) -> None:
    """A value whose reader has no memory where he says stays; the key has to be in memory, too."""
    guest = connected.borrower
    assert said(guest, "put a x\n", "pool", f"size={size}") == ["ok"]
    assert said(guest, "get a\n", "pool", f"room={size} fault=1")[0].startswith("EFAULT")
    assert said(guest, "get a\n", "pool", f"room={size} key_fault=1")[0].startswith("EFAULT")
    assert said(guest, "get a\nunlink\n", "pool", f"room={size}") == [f"ok {size} {'x' * min(size, 20)}", "ok"]


def test_no_room_for_it(connected: Pair) -> None:
    """A value that is larger than the buffer stays, and its size is told."""
    guest = connected.borrower
    assert said(guest, "put a x\n", "roomy", "size=5000") == ["ok"]
    assert said(guest, "get a\n", "roomy", "room=10") == ["EMSGSIZE 5000"]
    assert said(guest, "get a\nunlink\n", "roomy", "room=5000")[0].startswith("ok 5000 xxxx")


def test_pools_by_name(connected: Pair) -> None:
    """They outlive their programs, belong to who made them, and let in whom their mode says."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool")
    assert said(guest, "put k mine\n", "own", f"user={USER}") == ["ok"]
    assert said(guest, "get k\n", "own", f"user={USER}") == ["ok 4 mine"]
    assert said(guest, "get k\n", "own", f"user={USER + 1}") == ["EACCES"]
    assert said(guest, "put k all\n", "others", f"mode=0666 user={USER}") == ["ok"]
    assert said(guest, "get k\nunlink\n", "others", f"mode=0666 user={USER + 1}") == ["ok 3 all", "EPERM"]
    listed = guest.sh("cat /dev/tidepool").splitlines()[1:]
    assert sorted(line.split()[:3] for line in listed) == [["others", "1000", "0666"], ["own", "1000", "0600"]]
    assert said(guest, "unlink\nunlink\n", "own", f"user={USER}") == ["ok", "ENOENT"]
    assert said(guest, "unlink\n", "others", f"user={USER}") == ["ok"]
    assert len(guest.sh("cat /dev/tidepool").splitlines()) == 1


def of_all(guest: Guest) -> dict[str, int]:
    """What all pools hold and have counted."""
    lines = guest.sh("cat /sys/class/misc/tidepool/stats").splitlines()
    return {name: int(count) for name, count in map(str.split, lines)}


def test_figures_of_all_pools(connected: Pair) -> None:
    """Those without a name among them, and what pools have counted that are gone; for root alone."""
    guest = connected.borrower
    before = of_all(guest)
    assert said(guest, "put a x\nget a\nget b\n", "-", "size=5000 room=5000")[0] == "ok"
    after = of_all(guest)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown == {"hits": 1, "misses": 1, "puts": 1, "page_hits": 2}
    assert said(guest, "put a x\n", "counted", "size=5000") == ["ok"]
    held = of_all(guest)
    assert [held[name] - after[name] for name in ("pools", "values", "value_bytes", "puts")] == [1, 1, 5000, 1]
    assert held["bytes"] > after["bytes"] + 2 * PAGE
    assert said(guest, "unlink\n", "counted") == ["ok"]
    assert of_all(guest) == held | {name: after[name] for name in ("pools", "values", "value_bytes", "bytes")}
    assert guest.sh("stat -c %a /sys/class/misc/tidepool/stats").strip() == "400"


def listed(guest: Guest) -> dict[str, dict[str, str]]:
    """The pools with a name, as the device lists them."""
    head, *lines = (line.split() for line in guest.sh("cat /dev/tidepool").splitlines())
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def counted(times: str) -> list[tuple[float, int]]:
    """A histogram of a line of that list."""
    pairs = (one.split(":") for one in times.split(",") if one != "-")
    return [(float(bound), int(count)) for bound, count in pairs]


def all_times(guest: Guest, kind: str) -> list[tuple[float, int]]:
    """How long gets or puts of all pools have taken."""
    return parse_histogram(guest.sh("cat /sys/class/misc/tidepool/latency"), kind)


def number(times: list[tuple[float, int]], least: float = 0) -> int:
    """How many of them took so many microseconds at least."""
    return sum(count for bound, count in times if bound >= least)


def test_how_long_calls_take(connected: Pair) -> None:
    """By pool, and all together; what failed or found nothing is in neither, and what a pool has counted stays."""
    guest = connected.borrower
    before = {kind: number(all_times(guest, kind)) for kind in ("get", "put")}
    script = "put a x\nput b x\nput c x\nget a\nget b\nget none\nput d x\n"
    assert said(guest, script, "timed", f"size=5000 room=5000 quota={8 * PAGE}")[-2:] == ["ENOENT 0", "EDQUOT"]
    one = listed(guest)["timed"]
    assert (number(counted(one["get_us"])), number(counted(one["put_us"]))) == (2, 3)
    assert (one["hits"], one["misses"], one["puts"]) == ("2", "1", "3")
    assert said(guest, "unlink\n", "timed") == ["ok"]
    after = {kind: number(all_times(guest, kind)) for kind in ("get", "put")}
    assert {kind: after[kind] - before[kind] for kind in after} == {"get": 2, "put": 3}
    assert guest.sh("stat -c %a /sys/class/misc/tidepool/latency").strip() == "400"


@pytest.mark.parametrize("user", [0, USER])
def test_name_was_taken(connected: Pair, user: int) -> None:
    """By somebody who would read what is put, or have his own read: nobody joins that who has not said he would."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool")
    assert said(guest, "put k forged\n", "sessions", f"mode=0666 user={USER + 1}") == ["ok"]
    for mode in ("0600", "0660", "0644", "0664"):
        assert said(guest, "get k\n", "sessions", f"mode={mode} user={user}") == ["EEXIST"]
    assert said(guest, "get k\n", "sessions", f"mode=0666 quota={MIB} user={user}") == ["EEXIST"]
    assert said(guest, "get k\n", "sessions", f"mode=0666 user={user}") == ["ok 6 forged"]
    assert said(guest, "unlink\n", "sessions", f"user={USER + 1}") == ["ok"]


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        ("mode=0000", "mode=0600"),
        ("mode=0444", "mode=0644"),
        ("mode=0444", f"mode=0644 open={os.O_RDONLY} user={USER}"),
        ("mode=0222", f"mode=0622 open={os.O_WRONLY} user={USER}"),
    ],
)
def test_name_was_taken_by_who_keeps_more_than_he_says(connected: Pair, taken: str, asked: str) -> None:
    """Who has made a pool has it open to read and write, though its mode lets him do neither."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool")
    assert said(guest, "put k forged\nget k\n", "sessions", f"{taken} user={USER + 1}") == ["ok", "ok 6 forged"]
    joined = said(guest, "get k\n", "sessions", asked)
    assert said(guest, "unlink\n", "sessions", "mode=0666") == ["ok"]
    assert joined == ["EEXIST"]


def test_pools_of_root_are_taken_as_they_are(connected: Pair) -> None:
    """So are one's own."""
    guest = connected.borrower
    guest.sh("chmod 0666 /dev/tidepool")
    for owner in ("", f"user={USER}"):
        assert said(guest, "put k x\n", "given", f"mode=0666 {owner}") == ["ok"]
        assert said(guest, "get k\n", "given", f"mode=0600 quota={MIB} {owner or f'user={USER}'}") == ["ok 1 x"]
        assert said(guest, "unlink\n", "given", owner) == ["ok"]


def outlived(guest: Guest, expire_ms: int) -> list[str]:
    """What is said of a value that stays for so long, half a second after it was put."""
    return said(guest, "put k x\nsleep 500\nexists k\n", "-", f"expire_ms={expire_ms}")


def test_values_expire(connected: Pair) -> None:
    """At their time."""
    assert outlived(connected.borrower, 100) == ["ok", "ENOENT 0"]
    assert outlived(connected.borrower, 100_000) == ["ok", "ok 1"]


def test_expired_values_go_when_keys_are_listed(connected: Pair) -> None:
    """And count no more."""
    outcomes = said(connected.borrower, "put a x\nput b x\nsleep 50\nkeys\nstats\n", "-", "expire_ms=10")
    assert outcomes[:2] == ["ok", "ok"]
    assert json.loads(outcomes[2])["values"] == 0


def test_expired_values_make_room(connected: Pair) -> None:
    """When there is none for a new one."""
    options = f"expire_ms=5000 size=4000 quota={4 * PAGE}"
    outcomes = said(connected.borrower, "put a x\nput b x\nput c x\nsleep 5500\nput c x\n", "-", options)
    assert outcomes == ["ok", "ok", "EDQUOT", "ok"]


def test_what_is_remembered_counts(connected: Pair) -> None:
    """With what the kernel's memory is handed out in: a key of 177 bytes and what is known of it take 512."""
    (_, outcome) = said(connected.borrower, "put a\nstats\n", "-", "key_size=177")
    assert json.loads(outcome)["bytes"] == PAGE + 512


@pytest.mark.parametrize(("fails", "least"), [(0, 96 + 8), (2, 96 + NODE), (128, 96 + 2 * NODE)])
def test_what_is_far_apart_counts(connected: Pair, fails: int, least: int) -> None:
    """A page alone in the catalog takes more there than one among others, and not only for who looks at the slabs."""
    guest, count = connected.borrower, 500
    puts = "".join(f"fail {fails}\nput {n} x\n" for n in range(count))
    outcomes = said(guest, f"{puts}sleep 1000\nput last x\nstats\n", "-", f"size={PAGE - 1}")
    assert set(outcomes[1:-1:2]) <= {"ok", "EAGAIN", NOBODY_ANSWERS}, "a lender may stand still for a moment"
    held = json.loads(outcomes[-1])
    assert held["values"] > 0.9 * count
    assert least < (held["bytes"] - held["values"] * PAGE) / held["values"] < least + 300
    assert of_all(guest)["bytes"] == 0


def parameter(name: str) -> str:
    """Where one of the module's is."""
    return f"/sys/module/tidepool_app/parameters/{name}"


@contextmanager
def limit(guest: Guest, name: str, size: int) -> Iterator[None]:
    """A bound of so many bytes, for a while."""
    before = guest.read(parameter(name))
    guest.write(parameter(name), str(size))
    try:
        yield
    finally:
        guest.write(parameter(name), before)


def keys_without_values(count: int) -> str:
    """A script that puts as many."""
    return "".join(f"put {number}\n" for number in range(count))


def test_what_is_remembered_has_a_bound(connected: Pair) -> None:
    """For all pools together, however much they may hold; what is with lenders does not count towards it."""
    guest, room = connected.borrower, (MIB - PAGE) // 512
    assert of_all(guest)["bytes"] == 0
    with limit(guest, "remember_bytes", MIB):
        outcomes = said(guest, keys_without_values(room + 9), "hoard", "key_size=177")
        assert outcomes == ["ok"] * room + ["EDQUOT"] * 9
        assert said(guest, "put a\n", "another") == ["EDQUOT"]
        assert said(guest, "put a x\ndelete 5\nput a x\n", "hoard", "key_size=177") == ["EDQUOT", "ok", "EDQUOT"]
        assert said(guest, "put a\nunlink\n", "hoard", "key_size=177") == ["ok", "ok"]
        assert said(guest, "put a x\nput b x\nput c x\n", "-", f"size={2 * MIB}") == ["ok"] * 3


def test_an_eighth_of_the_guest_remembers(connected: Pair) -> None:
    """Unless it is said otherwise: a program that puts keys without values takes no more, and the guest goes on."""
    guest = connected.borrower
    assert guest.read(parameter("remember_bytes")).strip() == "0"
    total = int(guest.sh("grep MemTotal /proc/meminfo").split()[1]) * 1024
    room = (total // 8 - PAGE) // 512
    outcomes = said(guest, keys_without_values(room + 9), "hoard", "key_size=250")
    assert (outcomes.count("ok"), outcomes[room:]) == (room, ["EDQUOT"] * 9)
    assert said(guest, "unlink\n", "hoard") == ["ok"]
    assert of_all(guest)["bytes"] == 0


def test_what_is_remembered_is_charged(connected: Pair) -> None:
    """To the memory cgroup of who has put it, also when he has gone."""
    guest, group, count = connected.borrower, "/sys/fs/cgroup/hoard", 4000
    guest.sh("mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control")
    guest.sh(f"mkdir {group}")
    puts = keys_without_values(count).encode()
    guest.start(f"echo $$ > {group}/cgroup.procs; exec stress value hoard key_size=250 > /tmp/said", puts).wait()
    charged = dict(map(str.split, guest.read(f"{group}/memory.stat").splitlines()))
    most = 3 if has_kasan(guest) else 2  # which puts more round each object than it has
    assert count * 512 <= int(charged["slab"]) < most * count * 512
    assert said(guest, "unlink\n", "hoard") == ["ok"]
    guest.sh(f"rmdir {group} && umount /sys/fs/cgroup")


def test_holes_are_filled_without_room(connected: Pair) -> None:
    """A pool whose quota is full has room again when what it holds is holes."""
    guest, pool, quota = connected.borrower, "holes", f"quota={64 * PAGE}"
    outcomes = said(guest, "".join(f"put {n:03} x\n" for n in range(200)), pool, f"size=1360 {quota}")
    count = outcomes.index("EDQUOT")
    said(guest, "".join(f"delete {n:03}\n" for n in range(count) if n % 3), pool)
    assert said(guest, "put large x\n", pool, f"size={2 * PAGE}") == ["ok"]
    assert said(guest, "put a x\nput b x\nput c x\nput d x\n", pool, "size=1360") == ["ok"] * 4
    assert said(guest, "unlink\n", pool) == ["ok"]


def test_mechanisms_are_needed(kernel: str) -> None:
    """Without them holes stay, and values as well."""
    with (pair := Pair(kernel, broken="APP_EXPIRE,APP_HOLES")):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        assert outlived(pair.borrower, 100) == ["ok", "ok 1"]
        report = overwrite_small_values(pair.borrower)
        assert not fits(report), report
        assert wrong_pages(pair.borrower, "values - keys=100 seconds=60 expire_ms=200 first=1")
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")


def test_a_program_that_is_killed_leaves_nothing(connected: Pair) -> None:
    """Its values go with it."""
    guest, before = connected.borrower, of_all(connected.borrower)["puts"]
    job = start_stress(guest, "values - keys=500 seconds=300")
    wait_until("it puts", lambda: of_all(guest)["puts"] > before and connected.lent()["lent_pages"] > FEW)
    guest.sh("kill -9 $(pidof stress)")
    job.result()
    wait_until("next to nothing is lent", lambda: connected.lent()["lent_pages"] < FEW)
    assert len(guest.sh("cat /dev/tidepool").splitlines()) == 1


def test_quota_is_kept(connected: Pair) -> None:
    """And what is refused changes nothing."""
    report = stress(connected.borrower, f"values - keys=800 seconds=120 changes=3000 quota={2 * MIB}")
    assert report["full"] > 0
    assert report["bytes"] <= 2 * MIB


def test_what_a_user_may_keep(connected: Pair) -> None:
    """All his pools together, and nobody else's; he has room again when one of them goes."""
    guest, options = connected.borrower, f"size=4000 user={USER}"
    guest.sh("chmod 0666 /dev/tidepool")
    with limit(guest, "user_bytes", MIB):
        outcomes = said(guest, "".join(f"put {n} x\n" for n in range(300)), "one", options)
        room = outcomes.index("EDQUOT")
        assert 200 < room < MIB // PAGE
        assert set(outcomes[room:]) == {"EDQUOT"}
        assert said(guest, "put a x\n", "two", options) == ["EDQUOT"]
        assert said(guest, "put a x\nput b x\n", "-", f"size=4000 user={USER + 1}") == ["ok", "ok"]
        assert said(guest, "unlink\n", "one", options) == ["ok"]
        assert said(guest, "put a x\nunlink\n", "two", options) == ["ok", "ok"]


def test_how_many_pools_a_user_has(connected: Pair) -> None:
    """Those without a name count, too; another user has his own."""
    guest, most = connected.borrower, 4096
    guest.sh("chmod 0666 /dev/tidepool")
    guest.sh("mkfifo /tmp/enough")
    job = guest.start(f"ulimit -n {most + 99}; cat - /tmp/enough | stress value - user={USER}", b"pool\n" * most)
    wait_until("all are made", lambda: of_all(guest)["pools"] == most)
    assert said(guest, "put a x\n", "-", f"user={USER + 1}") == ["ok"]
    guest.sh(": > /tmp/enough; rm /tmp/enough")
    assert job.result().output.split() == ["ok"] * (most - 1) + ["EDQUOT"]
    assert said(guest, "put a x\n", "-", f"user={USER}") == ["ok"]


def lent_to_others(pair: Pair) -> int:
    """Pages that the lender has, when those of the tests before have left it."""
    wait_until("next to nothing is lent", lambda: pair.lent()["lent_pages"] < FEW)
    return pair.lent()["lent_pages"]


def put_anew(guest: Guest, rounds: int) -> None:
    """The same values again and again."""
    outcomes = said(guest, "".join(f"put {n} x\n" for n in range(ANEW)) * rounds, "anew", "size=4000")
    assert set(outcomes) <= {"ok", "EAGAIN"}, "a lender may stand still for a moment"
    assert outcomes.count("ok") > ANEW * rounds / 2


def are_alone(pair: Pair, before: int) -> bool:
    """Whether, of all that was put anew since then, the lender has hardly more than the pool holds."""
    return pair.lent()["lent_pages"] < before + ANEW + FEW / 4


def test_values_put_anew_leave_their_lender(connected: Pair) -> None:
    """All of them, however fast: what is lent is what the pool holds, and nobody else's pages go for it."""
    before = lent_to_others(connected)
    put_anew(connected.borrower, 12)
    wait_until("as much is lent as is held", lambda: are_alone(connected, before))
    assert said(connected.borrower, "unlink\n", "anew") == ["ok"]


def test_values_that_are_late_leave_their_lender(connected: Pair) -> None:
    """Also those that come later than the word that they may go: the lender stood still when both were sent."""
    connected.settle()
    before = lent_to_others(connected)
    connected.lender.stop()
    try:
        put_anew(connected.borrower, 2)
        time.sleep(2)  # until the word is on its way
    finally:
        connected.lender.cont()
    connected.settle()
    wait_until("as much is lent as is held", lambda: are_alone(connected, before))
    assert said(connected.borrower, "unlink\n", "anew") == ["ok"]


def test_values_are_no_measure_of_the_disk(connected: Pair) -> None:
    """With Automatic a read in ten seconds goes to the disk to know how long it takes: no value is there."""
    mode = connected.b.get(breaker := f"lenders/{PAIRING}/breaker")
    connected.b.set(breaker, "Automatic")
    with limit(connected.borrower, "front_bytes", 0):
        outcomes = said(connected.borrower, "put a x\n" + "sleep 1000\nget a\n" * 12, "-", "size=3000 room=3000")
    connected.b.set(breaker, mode)
    assert {outcome.partition(" x")[0] for outcome in outcomes[1:]} == {"ok 3000"}


def test_lender_drops_pages(connected: Pair) -> None:
    """Values that a lender has dropped are missed, and count no more; nothing old comes back."""
    before = of_all(connected.borrower)["lost"]
    job = start_stress(connected.borrower, "values - keys=2000 seconds=300")
    wait_until("it puts", lambda: connected.lent()["lent_pages"] > 1000)
    connected.lender.write("/proc/sys/vm/drop_caches", "1")
    connected.l.set("lend_bytes", 2 * MIB)
    wait_until("one is missed", lambda: of_all(connected.borrower)["lost"] > before)
    connected.l.set("lend_bytes", 64 * MIB)
    time.sleep(1)
    end_stress(job)


def test_faults_of_the_wire(connected: Pair) -> None:
    """The lender is frozen, cut off and back: values come or do not, and none is wrong."""
    job = start_stress(connected.borrower, "values - keys=500 seconds=300")
    for fault in (*faults_of_wire(connected), connected.lender.stop, connected.lender.cont):
        fault()
        time.sleep(2)
    report = end_stress(job)
    assert report["hits"] > 0


def test_without_a_lender(connected: Pair) -> None:
    """A put says so, and changes nothing."""
    with connected.without_lender():
        assert said(connected.borrower, "put a x\nget a\n") == [NOBODY_ANSWERS, "ENOENT 0"]


@contextmanager
def late_put(guest: Guest) -> Iterator[Job]:
    """A program that puts a value that is read from its disk only then; its disk answers afterwards."""
    guest.sh("dd if=/dev/zero of=/tmp/disk bs=1k count=64 && losetup /dev/loop0 /tmp/disk")
    guest.sh(dmsetup('create late --table "0 128 linear /dev/loop0 0"; dmsetup suspend late'))
    try:
        job = guest.start("exec stress value - from=/dev/mapper/late size=8192", b"put a\n")
        waits = "grep -q 'State:.D' /proc/$(pidof stress)/status"
        wait_until("it waits for its disk", lambda: guest.run(waits).code == 0)
        yield job
    finally:
        guest.sh(dmsetup("resume late"))
        job.wait()
        guest.sh(dmsetup("remove late; losetup -d /dev/loop0; rm /tmp/disk"))


def test_no_buffer_waits_for_a_program(connected: Pair) -> None:
    """A value that is not in memory yet holds none of those that evictions need."""
    long = number(all_times(connected.borrower, "put"), 1e6)
    with late_put(connected.borrower) as job:
        connected.settle()
        time.sleep(1)
    assert job.result().output.split() == ["ok"]
    assert number(all_times(connected.borrower, "put"), 1e6) == long + 1


def test_last_lender_goes_while_a_value_is_read(connected: Pair) -> None:
    """The buffers go with it, and nobody has one of them; with the next lender all is as before."""
    guest = connected.borrower
    with late_put(guest) as job:
        connected.disconnect()
    assert job.result().output.split() == [NOBODY_ANSWERS]
    connected.connect(size=64 * MIB, more=PATIENT)
    connected.settle()
    assert said(guest, "put a x\nget a\n") == ["ok", "ok 1 x"]


@contextmanager
def full_buffers(pair: Pair) -> Iterator[None]:
    """All that programs may have are taken: a lender has got them and does not say so. The other one wants none."""
    pair.settle()
    pair.hold(1)
    try:
        with borrowing(pair, "hoarder", Hoarder(), 64 * MIB):
            outcomes = said(pair.borrower, "put a x\nput b x\nput c x\nput d x\n", "full", f"size={2 * MIB}")
            assert outcomes[-1] == "EAGAIN"
            yield
    finally:
        pair.hold(0)
        assert said(pair.borrower, "unlink\n", "full") == ["ok"]
        pair.settle()


def test_a_put_that_is_tried_waits_for_no_lender(connected: Pair) -> None:
    """It says so at once, however often, and changes nothing."""
    guest, tries = connected.borrower, 200
    assert said(guest, "try k old\nget k\n", "tried") == ["ok", "ok 3 old"]
    with full_buffers(connected):
        began = time.monotonic()
        assert said(guest, "try k new\n" * tries, "tried", f"size={2 * PAGE}") == ["EAGAIN"] * tries
        assert time.monotonic() - began < tries * BUFFER_SECONDS / 2
        assert said(guest, "get k\n", "tried") == ["ok 3 old"]
    assert said(guest, "try k new\nget k\nunlink\n", "tried") == ["ok", "ok 3 new", "ok"]


def test_a_put_that_is_tried_leaves_no_holes(connected: Pair) -> None:
    """Where there are many it has those who wait fill them first."""
    one_stays = [f"{n} x" if n % 10 == 0 else "again x" for n in range(1000)]  # of a page
    script = "\n".join(f"{what} {one}" for what in ("try", "put", "try") for one in one_stays)
    outcomes = said(connected.borrower, f"{script}\n", "-", "size=400")
    tried, put, tried_then = (outcomes[first : first + 1000] for first in (0, 1000, 2000))
    assert set(tried) == {"ok", "EAGAIN"}
    assert set(put) == {"ok"}
    assert tried_then[0] == "ok"


def test_puts_leave_buffers(connected: Pair) -> None:
    """To evictions, which do not wait for one: a quarter, also when their lender says of nothing that it has it."""
    with full_buffers(connected):
        figures = connected.b.stats()
        assert figures["buffers_free"] >= figures["buffers_total"] // 4


def test_a_get_that_is_tried(connected: Pair) -> None:
    """It brings what is near, and what lenders send while it waits. What does not come in time is no miss."""
    guest, room = connected.borrower, f"room={2 * PAGE}"
    outcomes = said(guest, "put small x\ntry-get small\ntry-get none\n")
    assert outcomes[1] == "ok 1"
    assert outcomes[2].split()[0] == "ENOENT"
    assert said(guest, "put k far\n", "trying", f"size={2 * PAGE}") == ["ok"]
    connected.settle()
    with limit(guest, "front_bytes", 0):
        assert said(guest, "try-get k\n", "trying", room)[0].split()[0] == "EAGAIN"
        assert said(guest, "try-get k\n", "trying", f"{room} wait_us=10000000") == [f"ok {2 * PAGE}"]
        connected.lender.stop()
        try:
            assert said(guest, "try-get k\n", "trying", f"{room} wait_us=1000")[0].split()[0] == "EAGAIN"
        finally:
            connected.lender.cont()
    found = figures(guest, "trying")
    assert (found["hits"], found["misses"], found["lost"]) == (1, 0, 0)
    said(guest, "unlink\n", "trying")


def test_no_more_is_given_up_than_may_be(connected: Pair) -> None:
    """Who tries again and again, and does not wait, has a lender asked for so many pages and no more."""
    guest, tries, most = connected.borrower, 600, 256
    assert said(guest, "put k far\n", "vain", f"size={PAGE}") == ["ok"]
    connected.settle()
    sent = connected.lent()["get_hits"]
    with limit(guest, "front_bytes", 0):
        connected.lender.stop()
        try:
            outcomes = said(guest, "try-get k\n" * tries, "vain", f"room={PAGE} wait_us=1")
        finally:
            connected.lender.cont()
        assert {outcome.split()[0] for outcome in outcomes} == {"EAGAIN"}
        assert said(guest, "get k\n", "vain", f"room={PAGE}")[0].startswith("ok ")  # behind all of them
    assert most / 2 < connected.lent()["get_hits"] - sent - 1 <= most
    said(guest, "unlink\n", "vain")
