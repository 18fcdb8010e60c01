"""Models: JSON in and out, and the same refusals as the API server's."""

from __future__ import annotations

import pytest
from objects import GUEST, PAIRING, POOL, changed
from pydantic import ValidationError

from tidepool_api import (
    GuestMemory,
    GuestPressure,
    MemoryGuest,
    MemoryPairing,
    MemoryPool,
    PoolStatus,
    Requirement,
    Selector,
)


def test_pool_fills_in_defaults() -> None:
    pool = MemoryPool.parse(POOL)
    assert (pool.spec.port, pool.spec.deadline, pool.spec.strategy) == (7470, "200ms", "NonInclusive")
    assert (pool.spec.filter, pool.spec.latency.mode) == ("None", "Automatic")
    assert (pool.spec.latency.short.resume_us, pool.spec.latency.short.stop_us) == (1500, 40000)
    assert (pool.spec.most_bytes, pool.spec.reserve_bytes) == (512 << 20, 256 << 20)


def test_json_round_trip() -> None:
    """What was parsed is written with the API's own names."""
    pairing = MemoryPairing.parse(PAIRING)
    assert pairing.to_dict()["spec"] == PAIRING["spec"]
    assert MemoryPairing.parse(pairing.to_dict()) == pairing


def test_boot_id_keeps_its_capitals() -> None:
    guest = MemoryGuest.parse(GUEST | {"status": {"bootID": "1"}})
    assert guest.status.to_dict()["bootID"] == "1"


def test_report_of_a_guest() -> None:
    """What the planner decides on has the API's own names, and only percents that are percents."""
    report = {
        "memory": {"totalBytes": 3, "availableBytes": 2, "workingSetBytes": 1},
        "pressure": {"memorySome": 4, "memoryFull": 0, "ioSome": 100, "ioFull": 20, "refaultsPerSecond": 7},
        "curve": [{"sizeBytes": 1 << 30, "hitRatio": "0.81"}],
        "curveReferences": 5000,
        "missesPerSecond": 60,
    }
    status = MemoryGuest.parse(GUEST | {"status": report}).status.to_dict()
    assert status | report | {"memory": status["memory"]} == status
    assert status["memory"] | report["memory"] == status["memory"]
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        GuestPressure(io_some=101)


@pytest.mark.parametrize(("choice", "kept"), [("Exclude", 1280), ("Lend", 256)])
def test_a_lender_keeps_what_its_host_has_not_promised_unless_the_pool_lends_it(choice: str, kept: int) -> None:
    guest = MemoryGuest.parse(GUEST | {"status": {"backing": {"requestBytes": 1 << 30, "overcommittedBytes": 1 << 30}}})
    spec = MemoryPool.parse(changed(POOL, "spec.lenders.overcommitted", choice)).spec
    assert spec.reserve_of(guest.status) == kept << 20
    assert spec.reserve_of(MemoryGuest.parse(GUEST).status) == 256 << 20


def test_a_node_lends_what_its_administrator_and_the_pool_let_it() -> None:
    """The smaller maximum and the larger reserve; without maxLend for guests where none lend."""
    terms = {"maxLendBytes": 8 << 30, "reserveBytes": 4 << 30, "port": 7470}
    node = MemoryGuest.parse(GUEST | {"status": {"node": terms, "backing": {"overcommittedBytes": 1 << 30}}}).status
    for asked, most, kept in (({"maxLend": "2Gi"}, 2, 4), ({"maxLend": "32Gi", "reserve": "6Gi"}, 8, 6)):
        spec = MemoryPool.parse(changed(POOL, "spec.lenders", {"nodes": asked})).spec
        assert (spec.max_lend_of(node) >> 30, spec.reserve_of(node) >> 30) == (most, kept)
        assert not spec.needs_max_lend
    assert MemoryPool.parse(POOL).spec.max_lend_of(node) == 0
    assert MemoryPool.parse(POOL).spec.max_lend_of(MemoryGuest.parse(GUEST).status) == 1 << 30


def test_unknown_fields_are_ignored() -> None:
    """An older program reads what a newer one wrote."""
    assert MemoryPool.parse(changed(POOL, "spec.novelty", True)).spec == MemoryPool.parse(POOL).spec


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.borrowers.size", "lots", "'lots' is not an amount of memory"),
        ("spec.borrowers.size", "1Mi", "1Mi is too little; the least is 16Mi"),
        ("spec.borrowers.size", "17Ti", "17Ti is too much; the most is 16Ti"),
        ("spec.deadline", "2m", "2m is out of range"),
        ("spec.encryption", "ROT13", "spec.encryption"),
        ("spec.latency.short", {"resume": "2ms", "stop": "1ms"}, r"resume \(2ms\) must be less than stop \(1ms\)"),
        ("spec.latency.short", {"resume": "0.5us", "stop": "1ms"}, "0.5us is out of range"),
    ],
)
def test_wrong_values_are_named(path: str, value: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MemoryPool.parse(changed(POOL, path, value))


def test_sizes_for_people_fill_themselves_in() -> None:
    """The columns of kubectl have MiB and GiB without anyone writing them."""
    assert GuestMemory(total_bytes=(1461 << 20) + 5, available_bytes=1).total == "1461Mi"
    status = PoolStatus(lent_bytes=1 << 30, used_bytes=0)
    assert (status.lent, status.used) == ("1Gi", "0")
    assert PoolStatus().to_dict() == {"conditions": []}


LABELS = {"memory": "spare", "zone": "a"}


@pytest.mark.parametrize(
    ("operator", "key", "values", "expected"),
    [
        ("In", "zone", ("a", "b"), True),
        ("In", "zone", ("b",), False),
        ("In", "rack", ("a",), False),
        ("NotIn", "zone", ("b",), True),
        ("NotIn", "zone", ("a",), False),
        ("NotIn", "rack", ("a",), True),
        ("Exists", "zone", (), True),
        ("Exists", "rack", (), False),
        ("DoesNotExist", "rack", (), True),
        ("DoesNotExist", "zone", (), False),
    ],
)
def test_selector_means_what_kubernetes_means(operator: str, key: str, values: tuple[str, ...], expected: bool) -> None:
    selector = Selector(match_expressions=(Requirement(key=key, operator=operator, values=values),))
    assert selector.matches(LABELS) is expected


def test_selector_needs_all_of_it() -> None:
    zone = Requirement(key="zone", operator="In", values=("b",))
    assert Selector(match_labels={"memory": "spare"}).matches(LABELS)
    assert not Selector(match_labels={"memory": "spare"}, match_expressions=(zone,)).matches(LABELS)
    assert str(Selector(match_labels={"memory": "spare"}, match_expressions=(zone,))) == "memory=spare,zone in (b)"
