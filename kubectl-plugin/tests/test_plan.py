"""What memory is worth: now and at other sizes, for each guest and for the pool, and what is not known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import HEAD, PAIRING, condition, exposition, guest, of_class, pairing, parsed, pool
from rich.console import Console

from tidepool_api import MemoryGrant, MemoryQuota, ObjectKey
from tidepool_api.curve import curve_of
from tidepool_api.worth import forecast
from tidepool_kubectl.figures import hits_per_second, parse
from tidepool_kubectl.plan import Lenders, Plan, plan
from tidepool_kubectl.plan_text import remarks, summary, table, title
from tidepool_kubectl.snapshot import Fleet

MIB = 1 << 20
GIB = 1 << 30
CURVE = {256: 0.2, 512: 0.8, 1024: 0.9}


def reader(
    name: str,
    misses: int | None = 1000,
    ratios: dict[int, float] | None = None,
    *,
    references: int = 5000,
    role: str = "None",
) -> dict[str, Any]:
    """A guest labelled to borrow, with a curve: hit ratios by sizes in MiB."""
    body = guest(name, "short")
    points = [{"sizeBytes": size * MIB, "hitRatio": f"{ratio:.2f}"} for size, ratio in (ratios or {}).items()]
    body["status"] |= {"curve": points, "curveReferences": references, "role": role}
    body["status"] |= {"pressure": {"ioSome": 30}} | ({} if misses is None else {"missesPerSecond": misses})
    return body


def rich(name: str, available: int = 2048, *, namespace: str = "ns", waits: int = 0, lent: int = 0) -> dict[str, Any]:
    """A guest of 4 GiB labelled to lend, with so many MiB available."""
    body = guest(name, "spare")
    body["metadata"]["namespace"] = namespace
    memory = {"totalBytes": 4 * GIB, "availableBytes": available * MIB, "lentBytes": lent * MIB}
    body["status"] |= {"memory": memory, "pressure": {"memorySome": waits}}
    return body


def borrowing(used: int = 256, **lender: Any) -> dict[str, Any]:
    """b has 512Mi with l, and uses so many MiB of it."""
    body = pairing()
    body["status"]["borrower"]["usedBytes"] = used * MIB
    body["spec"]["lender"] |= lender
    return body


def made(*bodies: dict[str, Any], spared: float | None = None, sizes: tuple[int, ...] = (), **fleet: Any) -> Plan:
    """The plan of the first pool among these objects; the pairing of b spares so much."""
    found = Fleet(**parsed(*bodies), **fleet)
    counted = {} if spared is None else {ObjectKey("ns", PAIRING): spared}
    return plan(found.pools[0], found, counted, [size * MIB for size in sizes])


def lines(shown: Plan) -> list[list[str]]:
    """The table as a terminal of 80 columns gets it: whole."""
    console = Console(width=80, record=True)
    console.print(table(shown), crop=False)
    return [line.split() for line in console.export_text().splitlines()]


def test_a_borrower_is_worth_what_is_counted_and_what_its_curve_says() -> None:
    (row,) = made(pool(), borrowing(), reader("b", 1000, CURVE), spared=500, sizes=(256, 1024)).rows
    assert (row.reads, row.size_bytes, row.used_bytes, row.spared) == (1000, 512 * MIB, 256 * MIB, 500)
    assert row.is_measured
    assert row.forecast == (200, 900)
    assert row.instead_bytes == 384 * MIB  # halfway between 200 and 800 reads


def test_what_is_not_counted_is_read_off_the_curve() -> None:
    (row,) = made(pool(), borrowing(), reader("b", 1000, CURVE)).rows
    assert (row.spared, row.is_measured, row.instead_bytes) == (200, False, 256 * MIB)


def test_who_is_not_connected_is_spared_nothing() -> None:
    cut = borrowing()
    cut["status"]["phase"] = "Connecting"
    (row,) = made(pool(), cut, reader("b", 1000, CURVE)).rows
    assert (row.spared, row.instead_bytes) == (0, 0)


def test_a_guest_needs_no_more_itself_than_the_pool_gives_it() -> None:
    """However much the pool spares it beyond what its curve promises."""
    (row,) = made(pool(), borrowing(), reader("b", 1000, CURVE), spared=950).rows
    assert row.instead_bytes == 512 * MIB


def test_the_sizes_are_the_pools_own_or_those_asked_for_each_once() -> None:
    assert made(pool()).sizes == (256 * MIB, 512 * MIB, 1024 * MIB)
    assert made(pool(), sizes=(512, 64, 512)).sizes == (64 * MIB, 512 * MIB)


def test_those_that_would_gain_come_after_those_that_do() -> None:
    shown = made(
        pool(),
        borrowing(),
        reader("b", 1000, CURVE),
        reader("c", 500, CURVE),
        reader("lends", 900, CURVE, role="Lender"),
        reader("elsewhere", 900, CURVE, role="Borrower"),
        guest("kept-out", "short", condition("Ready", "Unknown", "Excluded")),
        guest("stranger", "other"),
        spared=10,
    )
    assert [row.name for row in shown.rows] == ["b", "c"]
    assert shown.rows[1].size_bytes is None
    assert title(shown) == "pool ns/pool: 1 guest borrows, 1 could"


def test_an_auto_pool_takes_those_whose_curve_promises_something() -> None:
    auto = pool()
    auto["spec"] |= {"role": "Auto", "selector": {"matchLabels": {"memory": "short"}}, "lenders": {"maxLend": "1Gi"}}
    auto["spec"]["borrowers"] = {"size": "512Mi"}
    idle, useless = reader("idle", 1000), reader("scans", 1000, {512: 0})
    idle["status"]["memory"] = {"totalBytes": 4 * GIB, "availableBytes": 2 * GIB}
    shown = made(auto, idle, useless, reader("gains", 1000, CURVE))
    assert [row.name for row in shown.rows] == ["gains"]
    assert shown.lenders == Lenders(guests=2, free_bytes=GIB, guests_bytes=GIB)


def quota(namespace: str = "ns", used: dict[str, str] | None = None, **spec: str) -> MemoryQuota:
    """What bounds a namespace, and what counts there."""
    body = {"metadata": {"name": "q", "namespace": namespace}, "spec": spec, "status": used or {}}
    return MemoryQuota.parse(body)


@pytest.mark.parametrize(
    ("quotas", "free"),
    [
        ([quota(maxLent="768Mi", used={"lent": "512Mi"})], 256),
        ([quota(maxBorrowed="512Mi", used={"borrowed": "1Gi"})], 0),
        ([quota(maxBorrowed="640Mi"), quota(maxLent="1Gi", used={"lent": "900Mi"})], 124),
        ([quota(maxLent="4Gi"), quota("other", maxLent="0")], 2048),
    ],
)
def test_lenders_have_no_more_than_quotas_leave(quotas: list[MemoryQuota], free: int) -> None:
    """Of what two guests would have to spare beyond."""
    shown = made(pool(), rich("l"), rich("m"), quotas=tuple(quotas))
    assert (shown.lenders.free_bytes, shown.lenders.forbidden_bytes) == (free * MIB, (2048 - free) * MIB)
    said = [line for line in summary(shown) if line.startswith("not to spare, for a MemoryQuota forbids it")]
    assert bool(said) == (free < 2048)


def test_lenders_of_another_namespace_are_bound_by_its_quota() -> None:
    wide = pool()
    wide["spec"]["lenders"]["namespaces"] = ["far"]
    some = (rich("l"), rich("m", namespace="far"))
    shown = made(wide, *some, grants=(grant("far"),), quotas=(quota("far", maxLent="100Mi"),))
    assert shown.lenders.free_bytes == (1024 + 100) * MIB


def test_a_pool_is_planned_with_what_its_class_gives() -> None:
    """What one may lend, what it keeps, what counts of an overcommitted one; the summary says where that is from."""
    shown = made(of_class(pool(), lenders={"maxLend": "512Mi", "reserve": "1Gi"}), rich("l"), rich("m"))
    assert shown.lenders.free_bytes == 1024 * MIB
    assert next(summary(shown)) == "MemoryPoolClass gold gives lenders.maxLend: 512Mi, lenders.reserve: 1Gi"
    assert not [line for line in summary(made(pool(), rich("l"))) if "Class" in line]


def test_lenders_have_what_their_own_use_leaves_and_is_not_promised() -> None:
    each = (rich("l"), rich("m", 1024), rich("busy", waits=5), guest("down", "spare", condition("Ready", "False")))
    shown = made(pool(), borrowing(), *each)
    free = (512 + 768) * MIB
    assert shown.lenders == Lenders(4, reluctant=2, promised_bytes=512 * MIB, free_bytes=free, guests_bytes=free)
    assert made(pool(), rich("l", lent=400)).lenders.free_bytes == 624 * MIB
    killed = guest("killed", "spare", condition("Ready", "False", "Ended"))
    assert made(pool(), rich("l"), killed).lenders.guests == 1


@pytest.mark.parametrize(("choice", "free", "left_out"), [("Exclude", 256, 1536), ("Lend", 1024, 0)])
def test_lenders_have_no_more_than_their_pods_request_unless_the_pool_says_so(
    choice: str, free: int, left_out: int
) -> None:
    """Of 4 GiB, 2 GiB of them available, half a GiB would be promised beside the use; and the reserve is kept."""
    body, asking = rich("l"), pool()
    body["status"]["backing"] = {"requestBytes": 2760 * MIB, "overcommittedBytes": 1536 * MIB}
    asking["spec"]["lenders"]["overcommitted"] = choice
    shown = made(asking, body)
    assert shown.lenders == Lenders(
        guests=1, free_bytes=free * MIB, left_out_bytes=left_out * MIB, guests_bytes=free * MIB
    )
    said = "not lent, for no pod requests it: 1.5Gi of theirs (spec.lenders.overcommitted: Exclude)"
    assert (said in list(summary(shown))) == (choice == "Exclude")


@pytest.mark.parametrize("namespace", ["ns", "far"])
def test_a_lender_that_its_pool_has_relieved_takes_nobody_new(namespace: str) -> None:
    """Because its node is under memory pressure, say, which is not among what is looked at here."""
    name = "l" if namespace == "ns" else f"{namespace}/l"
    relieved = {"guest": name, "role": "None", "since": "2026-01-01T00:00:00Z", "reason": "NodeUnderMemoryPressure"}
    wide = pool()
    wide["spec"]["lenders"]["namespaces"] = ["far"]
    wide["status"]["roles"] = [relieved]
    shown = made(wide, rich("l", namespace=namespace), grants=(grant("far"),))
    assert shown.lenders == Lenders(guests=1, reluctant=1)


NETWORK = {"cidrs": ["10.20.0.0/16"]}


@pytest.mark.parametrize(
    ("network", "status", "free"),
    [
        (None, {}, 1024),
        (None, {"migrating": True}, 0),
        (None, {"addresses": []}, 0),
        (NETWORK, {}, 0),
        (NETWORK, {"interfaces": [{"name": "eth1", "addresses": ["10.20.0.1"]}]}, 1024),
    ],
)
def test_a_lender_that_no_borrower_would_reach_has_nothing_to_spare(
    network: dict[str, Any] | None, status: dict[str, Any], free: int
) -> None:
    """One that migrates, or that has no address on the pool's network; whether it lends already or not."""
    body, asking, borrower = rich("l"), pool(), reader("b", 1000, CURVE)
    body["status"] |= status
    asking["spec"] |= {"network": network} if network else {}
    shown = made(asking, body, borrower, sizes=(512,))
    assert shown.lenders == Lenders(1, reluctant=int(not free), free_bytes=free * MIB, guests_bytes=free * MIB)
    lacking = "which lenders have" if free else "512Mi more than lenders have"
    assert f"at 512Mi each: 512Mi for 1 guest, {lacking}" in summary(shown)
    assert made(asking, borrowing(), body, borrower).lenders.free_bytes == max(0, free - 512) * MIB


@pytest.mark.parametrize("placement", [{"require": "SameNode"}, {"apart": "Node"}])
def test_where_a_pool_asks_its_lenders_to_be_is_left_out_of_account_and_said_so(placement: dict[str, str]) -> None:
    asking = pool()
    asking["spec"]["placement"] = placement
    ((field, value),) = placement.items()
    said = "a borrower may not have all that lenders have to spare"
    assert list(remarks(made(asking, rich("l")))) == [f"left out of account: spec.placement ({field}: {value}); {said}"]
    given = made(of_class(pool(), lenders={"maxLend": "1Gi"}, placement=placement), rich("l"))
    assert next(remarks(given)).startswith("left out of account: MemoryPoolClass gold's placement (")


def test_who_lends_to_another_pool_has_nothing_for_this_one() -> None:
    other = borrowing()
    other["spec"]["pool"] = "other"
    assert made(pool(), other, rich("l")).lenders == Lenders()


def grant(namespace: str) -> MemoryGrant:
    spec = {"to": [{"namespace": "ns", "pool": "pool"}]}
    return MemoryGrant.parse({**HEAD, "metadata": {"name": "g", "namespace": namespace}, "spec": spec})


def test_lenders_of_other_namespaces_count_where_a_grant_allows_it() -> None:
    wide = pool()
    wide["spec"]["lenders"]["namespaces"] = ["far", "closed", "secret"]
    guests = (rich("l", namespace="far"), rich("m", namespace="closed"))
    shown = made(wide, *guests, grants=(grant("far"),), hidden=("secret", "of-another-pool"))
    assert shown.lenders == Lenders(guests=1, free_bytes=GIB, guests_bytes=GIB)
    assert list(remarks(shown)) == ["not among the lenders: those of secret, which you may not list"]


def test_the_table_has_a_row_for_each_guest_and_one_for_all() -> None:
    shown = made(pool(), borrowing(), reader("b", 1000, CURVE), reader("c", 500, CURVE), spared=500, sizes=(512,))
    header, *rows = lines(shown)
    assert header == [
        "GUEST",
        "READS/S",
        "IO",
        "WAIT",
        "SIZE",
        "USED",
        "SPARED/S",
        "/GiB",
        "AT",
        "512Mi",
        "/GiB",
        "INSTEAD",
    ]
    assert rows == [
        ["b", "1,000", "30%", "512Mi", "256Mi", "500", "2,000", "800", "1,600", "384Mi"],
        ["c", "500", "30%", "-", "-", "-", "-", "400", "800", "-"],
        ["all", "1,500", "512Mi", "256Mi", "500", "2,000", "1,200", "1,200", "384Mi"],
    ]


def test_what_is_estimated_is_marked() -> None:
    shown = made(pool(), borrowing(), reader("b", 1000, CURVE), sizes=(512,))
    assert [row[5] for row in lines(shown)[1:2]] == ["~200"]
    assert list(remarks(shown)) == ["~ is not counted, but what the curve says of the memory in use"]


def test_what_it_comes_to_is_said_below() -> None:
    bodies = (pool(), borrowing(), reader("b", 1000, CURVE), reader("c", 500, CURVE), rich("l"))
    assert list(summary(made(*bodies, spared=500, sizes=(512, 1024)))) == [
        "lenders: 1 guest, 512Mi promised to this pool, 512Mi to spare beyond",
        "at 512Mi each: 1.0Gi for 2 guests, which lenders have",
        "at 1Gi each: 2.0Gi for 2 guests, 1.0Gi more than lenders have",
        "without the pool: 384Mi more memory for those that borrow, for as few reads from disk",
    ]
    assert list(summary(made(pool(), rich("l", waits=5)))) == [
        "lenders: 1 guest, 0Mi promised to this pool, 0Mi to spare beyond; 1 of them takes nobody new at present"
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (reader("b", None, CURVE), "how much it reads is not known yet"),
        (reader("b", 1000), "no curve: one is measured only while a guest borrows nothing"),
        (reader("b", 1000, CURVE, references=500), "its curve rests on 500 reads, and says nothing below 1000"),
    ],
)
def test_a_guest_of_which_nothing_is_known_is_not_counted(body: dict[str, Any], said: str) -> None:
    shown = made(pool(), borrowing(), body, reader("c", 500, CURVE), sizes=(512,))
    assert {row.name: row.forecast for row in shown.rows} == {"b": (None,), "c": (400,)}
    assert list(remarks(shown)) == [f"b: {said}", "not in the sums: 1 of 2 guests, whose gain is not known"]
    assert lines(shown)[-1][-3:] == ["400", "800", "-"]


def test_a_guest_that_has_no_curve_yet_or_is_gone_is_told_so() -> None:
    assert next(remarks(made(pool(), reader("b", 1000)))) == "b: no curve: its module has measured none yet"
    assert next(remarks(made(pool(), borrowing()))) == "b: how much it reads is not known yet"


def test_a_guest_that_reads_nothing_gains_nothing() -> None:
    shown = made(pool(), reader("b", 0))
    assert (shown.rows[0].forecast, list(remarks(shown))) == ((0, 0, 0), [])


@pytest.mark.parametrize(
    ("spared", "is_doubted"),
    [(110, False), (210, False), (90, True), (500, True)],
)
def test_a_curve_that_does_not_hold_is_said_so(spared: float, is_doubted: bool) -> None:
    (row,) = made(pool(), borrowing(), reader("b", 1000, CURVE), spared=spared).rows
    expected = "it reads in another way now than its curve, of before it borrowed, has it: by that 200 would be spared"
    assert row.doubt == (expected if is_doubted else "")


def test_reads_are_counted_between_two_readings() -> None:
    before, after = parse(exposition(90, 10)), parse(exposition(190, 10))
    assert hits_per_second(before, after, 2) == {("ns", PAIRING): 50}
    assert hits_per_second(parse(""), after, 2) == hits_per_second(before, after, 0) == {}


ratios = st.dictionaries(st.integers(1, 8192), st.integers(0, 100).map(lambda part: part / 100), max_size=8)
guests = st.lists(st.tuples(ratios, st.integers(0, 10**5)), min_size=1, max_size=4)


@given(guests, st.sets(st.integers(16, 16384), min_size=1, max_size=4), st.floats(0, 10**5))
def test_more_memory_spares_no_less_never_more_than_is_read_and_needs_no_more_instead(
    each: list[tuple[dict[int, float], int]], sizes: set[int], spared: float
) -> None:
    bodies = [reader(name, misses, measured) for name, (measured, misses) in zip("bcde", each, strict=False)]
    shown = made(pool(), borrowing(), *bodies, spared=spared, sizes=tuple(sizes))
    for row in shown.rows:
        known = [one for one in row.forecast if one is not None]
        assert all(less <= more * (1 + 1e-9) for less, more in pairwise(known))
        assert all(0 <= one <= (row.reads or 0) * (1 + 1e-9) for one in known)
        assert 0 <= (row.instead_bytes or 0) <= (row.size_bytes or 0)


@given(ratios, st.integers(0, 10**5), st.integers(0, 1 << 45))
def test_a_guest_without_a_curve_is_forecast_nothing_or_not_at_all(
    measured: dict[int, float], misses: int, size: int
) -> None:
    (found,) = parsed(reader("b", misses, measured, references=999))["guests"]
    curve = curve_of(found.status)
    assert forecast(found.status, curve, size) == (0 if not misses or not size else None)
