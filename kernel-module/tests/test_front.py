"""Values of /dev/tidepool that are read often are in the guest's own memory, as long as that helps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from test_values import listed, of_all, said

from bed.device import MODULES, load_target
from bed.guest import PAGE, Guest
from bed.pair import PATIENT, Pair
from bed.tidepool import MIB

POOL = "front"
MANY, FEW = 400, 10  # values, and those that are read often
TIMES = 20
SIZE = 4000  # bytes of one: a page of its own
PARAMETER = "/sys/module/tidepool_app/parameters/front_bytes"
ROOM = 16 * PAGE  # for values that are read often: too little for all


@contextmanager
def lent(kernel: str, broken: str = "") -> Iterator[Pair]:
    """A pair whose borrower has the device, and a pool of many values."""
    with (pair := Pair(kernel, modules=MODULES, broken=broken)):
        pair.connect(size=64 * MIB, more=PATIENT)
        load_target(pair.borrower, "app")
        set_room(pair.borrower, ROOM)
        script = "".join(f"put {n} {n}-\n" for n in range(MANY))
        assert said(pair.borrower, script, POOL, f"size={SIZE}") == ["ok"] * MANY
        pair.settle()
        yield pair
        pair.assert_clean()
        pair.borrower.sh("rmmod tidepool_app")


@pytest.fixture(scope="module")
def pair(kernel: str) -> Iterator[Pair]:
    """One with nothing broken."""
    with lent(kernel) as whole:
        yield whole


def set_room(guest: Guest, size: int) -> None:
    """So many bytes of the guest's memory."""
    guest.write(PARAMETER, str(size))


def read(guest: Guest, keys: list[int]) -> int:
    """Reads them one after the other, each as it should be; how many came from the guest's own memory."""
    script = "".join(f"get {n}\n" for n in keys) + "stats\n"
    *values, figures = said(guest, script, POOL, f"room={SIZE}")
    assert values == [f"ok {SIZE} {(f'{n}-' * 20)[:20]}" for n in keys]
    return int(json.loads(figures)["local"])


def read_few(guest: Guest) -> int:
    """The same few again and again; how many came from the guest's own memory."""
    before = read(guest, [])
    return read(guest, list(range(FEW)) * TIMES) - before


def read_all(guest: Guest) -> int:
    """All, one after the other, several times: none is read again soon; how many came from there after the first."""
    before = read(guest, list(range(MANY)))
    return read(guest, list(range(MANY)) * 5) - before


def test_what_is_read_often_is_near(pair: Pair) -> None:
    """From the third time on, and no lender is asked for it."""
    guest = pair.borrower
    asked = pair.borrowed()["get_hits"]
    assert read_few(guest) >= FEW * (TIMES - 2)
    assert pair.borrowed()["get_hits"] - asked <= 2 * FEW
    assert of_all(guest)["front_bytes"] == FEW * PAGE
    (figures,) = said(guest, "stats\n", POOL)
    said_of_it = json.loads(figures)
    assert said_of_it["front_bytes"] == FEW * PAGE
    one = listed(guest)[POOL]
    assert (int(one["front_bytes"]), int(one["local"])) == (FEW * PAGE, said_of_it["local"])


def test_what_is_put_anew_is_read(pair: Pair) -> None:
    """Nothing old is left here, and what is put often is near, too."""
    guest = pair.borrower
    read_few(guest)
    script = "".join(f"put 0 {n}\nget 0\nget 0\nget 0\n" for n in range(8))
    outcomes = said(guest, script, POOL, f"size={SIZE} room={SIZE}")
    assert outcomes == [outcome for n in range(8) for outcome in ("ok", *[f"ok {SIZE} {str(n) * 20}"] * 3)]
    assert said(guest, "put 0 0-\n", POOL, f"size={SIZE}") == ["ok"]


def fill(guest: Guest) -> None:
    """More is read often than there is room for."""
    for first in range(0, MANY // 2, FEW):
        read(guest, list(range(first, first + FEW)) * 3)
    assert of_all(guest)["front_bytes"] == ROOM


def test_it_is_bounded(pair: Pair) -> None:
    """What is read less often goes; without room nothing is here."""
    guest = pair.borrower
    fill(guest)
    set_room(guest, 0)
    try:
        assert read_few(guest) == 0
    finally:
        set_room(guest, ROOM)


@pytest.mark.parametrize("room", [0, 3 * PAGE])
def test_less_room_is_less_memory(pair: Pair, room: int) -> None:
    """At once, and not when somebody reads the next time; a room that is none changes nothing."""
    guest = pair.borrower
    fill(guest)
    assert guest.run(f"echo -1 > {PARAMETER}").code != 0
    assert of_all(guest)["front_bytes"] == ROOM
    set_room(guest, room)
    try:
        assert of_all(guest)["front_bytes"] == room
    finally:
        set_room(guest, ROOM)


def test_memory_is_given_back(pair: Pair) -> None:
    """When the guest is short of it."""
    guest = pair.borrower
    read_few(guest)
    assert of_all(guest)["front_bytes"] > 0
    guest.write("/proc/sys/vm/drop_caches", "2")
    assert of_all(guest)["front_bytes"] == 0
    assert read_few(guest) > 0


def test_it_is_nobodys(pair: Pair) -> None:
    """Whose memory cgroup is small is not killed for what he reads: that cannot be had back from there."""
    guest, group = pair.borrower, "/sys/fs/cgroup/reader"
    guest.sh("mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control")
    guest.sh(f"mkdir {group}")
    set_room(guest, MANY * PAGE)
    try:
        script = "".join(f"get {n}\n" for n in list(range(MANY)) * 3).encode()
        guest.start(f"echo $$ > {group}/cgroup.procs; exec stress value {POOL} room={SIZE} > /tmp/said", script).wait()
        assert of_all(guest)["front_bytes"] == MANY * PAGE
        assert int(guest.read(f"{group}/memory.current")) < MANY * PAGE / 2
    finally:
        set_room(guest, ROOM)
        guest.sh(f"rmdir {group} && umount /sys/fs/cgroup")


def test_it_is_off_where_it_does_not_help(pair: Pair) -> None:
    """Where nothing is read again soon it takes no memory, until something is."""
    guest = pair.borrower
    read_few(guest)
    assert of_all(guest)["front_bytes"] > 0
    assert read_all(guest) == 0
    assert of_all(guest)["front_bytes"] == 0
    for _ in range(6):
        read_few(guest)
    assert read_few(guest) == FEW * TIMES


def test_mechanisms_are_needed(kernel: str) -> None:
    """Without it nothing is near; if nobody looks whether it helps, it takes memory for nothing."""
    with lent(kernel, "APP_FRONT") as pair:
        assert read_few(pair.borrower) == 0
    with lent(kernel, "APP_FRONT_OFF") as pair:
        read_few(pair.borrower)
        read_all(pair.borrower)
        assert of_all(pair.borrower)["front_bytes"] > 0
