"""Loading, configfs and unloading: what ABI.md promises to those who configure the module."""

from __future__ import annotations

import re

import pytest

from bed.guest import Guest
from bed.image import TESTS, TOP
from bed.pair import BORROWER_ADDRESS, LENDER_ADDRESS, Pair
from bed.protocol import KIND, somebody
from bed.tidepool import MIB, ROOT, Tidepool, wait_until
from tidepool_api.live import FIXED, WAYS

SOMEBODY = somebody()
LENDER_ATTRIBUTES: dict[str, object] = {"address": LENDER_ADDRESS, "identity": SOMEBODY, "size_bytes": 64 * MIB}
BORROWER_ATTRIBUTES: dict[str, object] = {"identity": SOMEBODY, "quota_bytes": 64 * MIB}
PRIME = 2**255 - 19
# Of the numbers below the prime, those that agree on nothing; and some that are no element of the field.
LOW_ORDER = (
    1,
    PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
NO_POINTS = (PRIME, PRIME + 1, 2**255 - 1, 2**255 + 9, 2**256 - 1)


def _point(number: int) -> str:
    return KIND + number.to_bytes(32, "little").hex()


BAD_IDENTITIES = [
    ("", "must be x25519: and 64 lowercase hexadecimal digits"),
    (SOMEBODY[:-1], "must be x25519: and"),
    (SOMEBODY + "0", "must be x25519: and"),
    (SOMEBODY[:-1] + "g", "must be x25519: and"),
    (KIND + "AB" * 32, "must be x25519: and"),
    (SOMEBODY.replace(KIND, "p-256::"), "must be x25519: and"),
    (SOMEBODY.removeprefix(KIND), "must be x25519: and"),
    (_point(0), "is zero"),
    *((_point(number), "is a point of low order") for number in LOW_ORDER),
    *((_point(number), "is no point of the curve") for number in NO_POINTS),
]

# One for each attribute that a pairing sets, other than the default and what the tests begin with.
OTHER_VALUES = {
    "port": "7480",
    "lend_bytes": str(64 * MIB),
    "reserve_bytes": str(32 * MIB),
    "lenders/address": "10.7.0.9",
    "lenders/port": "7471",
    "lenders/identity": somebody(),
    "lenders/size_bytes": str(16 * MIB),
    "lenders/strategy": "Exclusive",
    "lenders/sequential_filter": "1",
    "lenders/encryption": "None",
    "lenders/deadline_us": "5000",
    "lenders/breaker": "Thresholds",
    "lenders/breaker_short": "2000 50000",
    "lenders/breaker_long": "900 1800",
    "borrowers/identity": somebody(),
    "borrowers/quota_bytes": str(16 * MIB),
}

BAD_VALUES = [
    ("port", "0"),
    ("port", "65536"),
    ("port", "http"),
    ("port", ""),
    ("lend_bytes", "-1"),
    ("lend_bytes", "much"),
    ("lend_bytes", "99999999999999999999999"),
    ("linger_s", "3601"),
    ("linger_s", "-1"),
    ("hold", "2"),
    ("reserve_bytes", "-1"),
    ("reserve_bytes", "1G of it"),
    ("ghost", "1"),
    ("ghost", "Inclusive"),
    ("borrowers/x/quota_bytes", "-4096"),
    ("borrowers/x/quota_bytes", "four"),
    ("borrowers/x/enabled", "2"),
    ("borrowers/x/enabled", "maybe"),
    ("lenders/x/address", "lender.example"),
    ("lenders/x/address", "10.7.0"),
    ("lenders/x/address", "10.7.0.256"),
    ("lenders/x/address", "fe80::1::2"),
    ("lenders/x/address", ""),
    ("lenders/x/port", "0"),
    ("lenders/x/port", "70000"),
    ("lenders/x/size_bytes", "-1"),
    ("lenders/x/size_bytes", "0x"),
    ("lenders/x/size_bytes", "99999999999999999999999"),
    ("lenders/x/strategy", "Inclusive"),
    ("lenders/x/strategy", ""),
    ("lenders/x/deadline_us", "-1"),
    ("lenders/x/deadline_us", "soon"),
    ("lenders/x/deadline_us", "999"),
    ("lenders/x/deadline_us", "60000001"),
    ("lenders/x/enabled", "-1"),
    ("lenders/x/encryption", "AES"),
    ("lenders/x/encryption", "none"),
    ("lenders/x/encryption", ""),
    ("lenders/x/breaker", "On"),
    ("lenders/x/breaker_short", "40000"),
    ("lenders/x/breaker_short", "40000 1500"),
    ("lenders/x/breaker_short", "1500 1500"),
    ("lenders/x/breaker_short", "0 40000"),
    ("lenders/x/breaker_long", "1000 60000001"),
    ("lenders/x/breaker_long", "-1 1500"),
    ("lenders/x/breaker_long", "1000 1500 2000"),
    ("lenders/x/breaker_long", "1ms 2ms"),
    ("lenders/x/sequential_filter", "2"),
]


def _log_since(guest: Guest, mark: str) -> str:
    return guest.log().rpartition(mark)[2]


def _mark(guest: Guest, text: str) -> str:
    mark = f"mark: {text}"
    guest.write("/dev/kmsg", f"<6>{mark}\n")
    return mark


def _assert_refused(tidepool: Tidepool, path: str, value: object, error: str, named: str | None = None) -> None:
    """The write fails with the error, and the kernel log says why, naming the attribute."""
    mark = _mark(tidepool.guest, f"a bad value for {path}")
    owner, _, attribute = path.rpartition("/")
    expected = f"tidepool: {owner}: {named or attribute}" if owner else f"tidepool: {named or attribute}"

    def refused_and_logged() -> bool:
        result = tidepool.try_set(path, value)
        assert result.code != 0, f"{path} took {value!r}"
        assert error in result.output
        return expected in _log_since(tidepool.guest, mark)

    # The log is rate-limited, so it may take another try.
    wait_until(f"the log says {expected}", refused_and_logged, every=1)


def test_loads_and_says_its_version(bare_pair: Pair) -> None:
    """The version is the project's; unloading leaves nothing in configfs, /sys/module or the log."""
    version = (TOP / "VERSION").read_text().strip()
    guest, tidepool = bare_pair.borrower, bare_pair.b
    tidepool.load()
    assert tidepool.get("version") == version
    assert guest.read("/sys/module/tidepool/version") == version
    assert guest.read("/sys/module/tidepool/srcversion")
    tidepool.unload()
    assert guest.run(f"ls {ROOT} /sys/module/tidepool").code != 0
    guest.assert_clean()


def test_hooks_only_while_needed(bare_pair: Pair) -> None:
    """Out while there is neither a peer nor ghost mode; in, and served by, whichever comes first or goes last."""
    tidepool = bare_pair.b
    tidepool.load()
    seen = [tidepool.stats()["hooks"]]
    tidepool.set("ghost", "NonInclusive")
    seen.append(tidepool.stats()["hooks"])
    tidepool.lend("x", quota=4 * MIB)
    tidepool.set("ghost", "Off")
    seen.append(tidepool.stats()["hooks"])
    tidepool.borrow("y", address="10.9.9.9", size=4 * MIB)
    tidepool.rmdir("borrowers/x")
    seen.append(tidepool.stats()["hooks"])
    tidepool.rmdir("lenders/y")
    seen.append(tidepool.stats()["hooks"])
    tidepool.unload()
    assert seen == [0, 1, 1, 1, 0]
    bare_pair.borrower.assert_clean()


def test_compiler_made_no_copies(bare_pair: Pair) -> None:
    """Who calls a copy of a wrapped function that the compiler made for some callers would pass the wrapper by."""
    wrapped = re.findall(r"TIDE_WRAPPER\((\w+), tide_", (TESTS.parent / "pagecache/ftrace.c").read_text())
    assert "truncate_inode_pages_range" in wrapped
    names = "|".join(wrapped)
    counted = bare_pair.borrower.run(f"grep -cE ' ({names})$' /proc/kallsyms").output
    assert len(wrapped) - 1 <= int(counted) <= len(wrapped)  # one of them is in later kernels only
    assert bare_pair.borrower.run(f"grep -E ' ({names})\\.(constprop|isra|part)' /proc/kallsyms").code == 1


@pytest.mark.parametrize(("path", "value"), BAD_VALUES)
def test_refuses_bad_values(loaded: Guest, path: str, value: str) -> None:
    """EINVAL, a log line that names the attribute, and the old value stays."""
    tidepool = Tidepool(loaded)
    tidepool.mkdir("borrowers/x")
    tidepool.mkdir("lenders/x")
    before = tidepool.get(path)
    _assert_refused(tidepool, path, value, "Invalid argument")
    assert tidepool.get(path) == before


@pytest.mark.parametrize("name", ["a b", "x" * 64, "a/b", "ümlaut", "semi;colon"])
@pytest.mark.parametrize("side", ["borrowers", "lenders"])
def test_refuses_bad_names(loaded: Guest, side: str, name: str) -> None:
    """Only names as ABI.md allows them, so that they can stand in log lines and paths."""
    assert loaded.run(f"mkdir '{ROOT}/{side}/{name}'").code != 0


def test_takes_good_names(loaded: Guest) -> None:
    """All that is allowed, up to its length."""
    for name in ["a", "x" * 63, "0f3c9d3e-8a53-4f1c-8f5e-0242ac120002", "A.b_c-1"]:
        loaded.sh(f"mkdir {ROOT}/lenders/{name} && rmdir {ROOT}/lenders/{name}")


@pytest.mark.parametrize("missing", list(LENDER_ATTRIBUTES))
def test_lender_cannot_be_enabled_without(loaded: Guest, missing: str) -> None:
    """Each attribute that has no default is asked for by name."""
    tidepool = Tidepool(loaded)
    tidepool.mkdir("lenders/x")
    for attribute, value in LENDER_ATTRIBUTES.items():
        if attribute != missing:
            tidepool.set(f"lenders/x/{attribute}", value)
    _assert_refused(tidepool, "lenders/x/enabled", 1, "Invalid argument", missing)
    assert tidepool.get("lenders/x/state") == "Disabled"


@pytest.mark.parametrize("missing", list(BORROWER_ATTRIBUTES))
def test_borrower_cannot_be_enabled_without(loaded: Guest, missing: str) -> None:
    """Each attribute that has no default is asked for by name."""
    tidepool = Tidepool(loaded)
    tidepool.mkdir("borrowers/x")
    for attribute, value in BORROWER_ATTRIBUTES.items():
        if attribute != missing:
            tidepool.set(f"borrowers/x/{attribute}", value)
    _assert_refused(tidepool, "borrowers/x/enabled", 1, "Invalid argument", missing)
    assert tidepool.get("borrowers/x/state") == "Disabled"


def test_busy_while_enabled(loaded: Guest) -> None:
    """What cannot change in use says so; what can, changes."""
    tidepool = Tidepool(loaded)
    tidepool.set("lend_bytes", 64 * MIB)
    tidepool.lend("x", quota=32 * MIB)
    tidepool.borrow("x", address=BORROWER_ADDRESS, size=32 * MIB)
    _assert_refused(tidepool, "port", 7480, "busy")
    _assert_refused(tidepool, "lenders/x/encryption", "None", "busy")
    lender = {"address": "10.7.0.9", "port": 7471, "strategy": "Exclusive", "deadline_us": 5000}
    live = {**{f"lenders/x/{name}": value for name, value in lender.items()}, "linger_s": 5, "hold": 1}
    for path, value in live.items():
        tidepool.set(path, value)
        assert tidepool.get(path) == str(value)
    tidepool.set("lend_bytes", 16 * MIB)
    tidepool.set("reserve_bytes", 32 * MIB)
    assert tidepool.get("lend_bytes") == str(16 * MIB)


def test_takes_live_what_pools_count_on(loaded: Guest) -> None:
    """Each attribute that a pairing sets, written while its peers are enabled: taken, or refused, as the API says.

    Passes when the two agree for every one, and when the folders of the peers have no other that could be written.
    """
    tidepool = Tidepool(loaded)
    tidepool.lend("x", quota=32 * MIB, identity=SOMEBODY)
    tidepool.borrow("x", address=BORROWER_ADDRESS, size=32 * MIB, identity=SOMEBODY)
    attributes = {name.replace("/", "/x/"): name for one in WAYS for name in one.attributes}
    refused = set()
    for path, name in attributes.items():
        value, answer = OTHER_VALUES[name], tidepool.try_set(path, OTHER_VALUES[name])
        assert (answer.code == 0) == (tidepool.get(path) == value), path
        assert answer.code == 0 or "busy" in answer.output, path
        refused |= {name} if answer.code else set()
    assert refused == FIXED
    found = loaded.sh(f"cd {ROOT} && find lenders/x borrowers/x -type f -perm -200").split()
    assert set(found) == {path for path in attributes if "/" in path} | {"lenders/x/enabled", "borrowers/x/enabled"}


@pytest.mark.parametrize("side", ["lenders", "borrowers"])
def test_refuses_bad_identities(loaded: Guest, side: str) -> None:
    """What is malformed, zero, no point, of low order or one's own: EINVAL, a log line that says which; no change."""
    tidepool = Tidepool(loaded)
    tidepool.mkdir(f"{side}/x")
    path = f"{side}/x/identity"
    assert tidepool.get(path) == ""
    tidepool.set(path, SOMEBODY)
    loaded.write("/proc/sys/kernel/printk_ratelimit", "0\n")
    for value, why in [*BAD_IDENTITIES, (tidepool.identity, "is this guest's own")]:
        _assert_refused(tidepool, path, value, "Invalid argument", f"identity: {why}")
        assert tidepool.get(path) == SOMEBODY


@pytest.mark.parametrize(("side", "attributes"), [("lenders", LENDER_ATTRIBUTES), ("borrowers", BORROWER_ATTRIBUTES)])
def test_an_identity_has_one_enabled_peer(loaded: Guest, side: str, attributes: dict[str, object]) -> None:
    """A second one cannot be enabled, nor one that is enabled become it; EEXIST, and a word why."""
    tidepool = Tidepool(loaded)
    one, two = f"{side}/x", f"{side}/y"
    for path in (one, two):
        tidepool.mkdir(path)
        for name, value in attributes.items():
            tidepool.set(f"{path}/{name}", value)
    tidepool.set(f"{one}/enabled", 1)
    _assert_refused(tidepool, f"{two}/enabled", 1, "File exists", f"identity: is that of another enabled {side[:-1]}")
    assert tidepool.get(f"{two}/state") == "Disabled"
    other = somebody()
    tidepool.set(f"{two}/identity", other)
    tidepool.set(f"{two}/enabled", 1)
    _assert_refused(tidepool, f"{two}/identity", SOMEBODY, "File exists")
    assert tidepool.get(f"{two}/identity") == other
    tidepool.set(f"{one}/identity", SOMEBODY)  # its own
    tidepool.set(f"{one}/enabled", 0)
    tidepool.set(f"{two}/identity", SOMEBODY)


def test_identity_is_another_after_each_load(loaded: Guest) -> None:
    """It is a point, the same for whoever reads it, and drawn anew with the module."""
    tidepool = Tidepool(loaded)
    first = tidepool.identity
    assert re.fullmatch("x25519:[0-9a-f]{64}", first)
    assert tidepool.identity == first
    tidepool.unload()
    tidepool.load()
    assert tidepool.identity != first


def test_not_unloaded_while_configured(loaded: Guest) -> None:
    """rmmod is refused while a peer's directory exists, enabled or not, and works after it is gone."""
    tidepool = Tidepool(loaded)
    tidepool.mkdir("lenders/x")
    assert loaded.run("rmmod tidepool").code != 0
    tidepool.rmdir("lenders/x")
    tidepool.unload()
    tidepool.load()


def test_many_peers_come_and_go(loaded: Guest) -> None:
    """Peers made, enabled towards nobody, and removed: nothing is left and nothing is said but notices."""
    tidepool = Tidepool(loaded)
    for _ in range(3):
        for number in range(8):
            tidepool.borrow(f"lender-{number}", address="10.7.0.77", size=16 * MIB)
            tidepool.lend(f"borrower-{number}", quota=16 * MIB, identity=somebody())
        for number in range(8):
            tidepool.rmdir(f"lenders/lender-{number}")
            tidepool.rmdir(f"borrowers/borrower-{number}")
    loaded.assert_clean()
