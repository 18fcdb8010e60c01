"""What a pool gets of its class (issue 28: what an administrator misses, item 4)."""

from __future__ import annotations

from typing import Any

import pytest
from objects import CLASS, MISSING, POOL, changed

from tidepool_api import ApiObject, Classes, MemoryPool, MemoryPoolClass, Unusable, complete, names

SILENT = changed(changed(POOL, "spec.lenders.maxLend", MISSING), "spec.lenders.reserve", MISSING)


def pool_class(name: str, created: int = 1, *, default: bool = False, **spec: Any) -> MemoryPoolClass:
    """A class; `created` is the second in which it was made."""
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02}Z"}
    metadata["annotations"] = {names.DEFAULT_CLASS_ANNOTATION: str(default).lower()}
    return MemoryPoolClass.parse({"metadata": metadata, "spec": spec or CLASS["spec"]})


def classes(*known: MemoryPoolClass) -> Classes:
    """These and no others."""
    return Classes({one.name: one for one in known})


def completed(body: dict[str, Any], *known: MemoryPoolClass) -> MemoryPool:
    """A pool with what these classes give it."""
    return complete(MemoryPool.parse(body), classes(*known))


GOLD, SILVER = pool_class("gold"), pool_class("silver", 2, default=True, lenders={"maxLend": "3Gi"}, deadline="1s")


def test_a_class_gives_what_the_pool_leaves_out_and_no_more() -> None:
    """Field by field, and within lenders and borrowers, too; what the pool says itself holds."""
    said = changed(changed(SILENT, "spec.lenders.reserve", "1Gi"), "spec.className", "gold")
    one = completed(said, GOLD, SILVER)
    assert (one.spec.lenders.max_lend, one.spec.lenders.reserve, one.spec.lenders.overcommitted) == (
        "2Gi",
        "1Gi",
        "Lend",
    )
    assert (one.spec.strategy, one.spec.encryption, one.spec.latency.mode) == ("Exclusive", "None", "Off")
    assert (one.spec.borrowers.size, one.spec.borrowers.priorities[0].priority) == ("512Mi", 100)
    assert (one.spec.deadline, one.spec.max_unavailable, one.spec.cool_down) == ("200ms", 1, "10m")
    assert one.source.class_name == "gold"
    assert one.source.given.said() == changed(CLASS["spec"], "lenders", {"maxLend": "2Gi", "overcommitted": "Lend"})
    assert one.source.note == (
        "MemoryPoolClass gold gives lenders.maxLend: 2Gi, lenders.overcommitted: Lend, "
        "borrowers.priorities: 1 of them, placement.require: SameZone, strategy: Exclusive, "
        "network.cidrs: 10.20.0.0/16, latency.mode: Off, maxUnavailable: 1"
    )
    assert one.source.lack is None
    assert not one.is_held


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("placement", {}),
        ("placement", {"apart": "Node"}),
        ("latency", {"mode": "Automatic"}),
        ("network", {"multus": "a/b"}),
        ("borrowers.priorities", []),
        ("strategy", "NonInclusive"),
        ("maxUnavailable", "25%"),
    ],
)
def test_what_a_pool_says_counts_as_a_whole(field: str, value: object) -> None:
    """Be it what it would get without a class: nothing of the class is mixed into it."""
    said = changed(changed(POOL, "spec.className", "gold"), f"spec.{field}", value)
    alone = changed(POOL, f"spec.{field}", value)

    def found(body: dict[str, Any]) -> Any:
        place: Any = completed(body, GOLD).spec.to_dict()
        for part in field.split("."):
            place = place[part]
        return place

    assert found(said) == found(alone)


@pytest.mark.parametrize(
    ("named", "known", "expected"),
    [
        (MISSING, [GOLD], ""),
        (MISSING, [GOLD, SILVER], "silver"),
        (MISSING, [SILVER, pool_class("bronze", 1, default=True)], "silver"),
        (MISSING, [SILVER, pool_class("bronze", 3, default=True)], "bronze"),
        (MISSING, [SILVER, pool_class("bronze", 2, default=True)], "bronze"),
        ("", [GOLD, SILVER], ""),
        ("gold", [GOLD, SILVER], "gold"),
    ],
)
def test_which_class_a_pool_has(named: object, known: list[MemoryPoolClass], expected: str) -> None:
    """The one that it names; else the youngest of those marked as the default, by name among those of an age."""
    body = POOL if named is MISSING else changed(POOL, "spec.className", named)
    assert completed(body, *known).source.class_name == completed(body, *reversed(known)).source.class_name == expected


def test_several_defaults_are_said() -> None:
    note = completed(SILENT, SILVER, pool_class("bronze", 3, default=True)).source.note
    assert note.endswith("; bronze, silver are all marked as the default class: bronze, the youngest, holds")
    assert "marked" not in completed(changed(SILENT, "spec.className", "silver"), SILVER, GOLD).source.note


@pytest.mark.parametrize(
    ("named", "known", "reason", "message"),
    [
        (
            "gold",
            [SILVER],
            "ClassNotFound",
            "spec.className is gold, and there is no MemoryPoolClass of that name: have it written, name another one, ",
        ),
        (
            "thin",
            [pool_class("thin", deadline="1s")],
            "MaxLendMissing",
            "is missing, and MemoryPoolClass thin does not giv",
        ),
        (
            MISSING,
            [GOLD],
            "MaxLendMissing",
            "no MemoryPoolClass is marked as the default: say the most that one lender",
        ),
        ("", [SILVER], "MaxLendMissing", 'spec.lenders.maxLend is missing, and className is ""'),
    ],
)
def test_a_pool_that_lacks_something_says_what_and_is_held(
    named: object, known: list[MemoryPoolClass], reason: str, message: str
) -> None:
    one = completed(SILENT if named is MISSING else changed(SILENT, "spec.className", named), *known)
    assert one.source.lack is not None
    assert one.source.lack.reason == reason
    assert message in one.source.lack.message
    assert one.source.lack.message.endswith("; the pool keeps what it has until then")
    assert one.is_held


def had(name: str, *known: MemoryPoolClass, **spec: Any) -> MemoryPool:
    """A pool that had a class before."""
    return completed({**SILENT, "spec": SILENT["spec"] | spec, "status": {"className": name}}, *known)


@pytest.mark.parametrize("left", [[], [GOLD], [GOLD, pool_class("silver")]])
def test_a_pool_does_not_lose_its_default_class_by_what_others_do(left: list[MemoryPoolClass]) -> None:
    """Deleted or no longer marked: what it gave, such as a network, stays in force until somebody says otherwise."""
    one = had("silver", *left)
    assert one.is_held
    assert one.source.lack is not None
    assert one.source.lack.reason == "ClassNotFound"
    assert one.source.lack.message == (
        "spec.className is missing, no MemoryPoolClass is marked as the default, and what the pool has is of "
        'MemoryPoolClass silver: have one marked, or write a name into spec.className, or "" for none; the pool keeps '
        "what it has until then"
    )


def test_the_ways_out_for_a_pool_without_its_default_class() -> None:
    """Another default, the class by its name, or none at all; who never had one does not ask for one."""
    lenders = SILENT["spec"]["lenders"] | {"maxLend": "1Gi"}
    bronze = pool_class("bronze", default=True)
    assert had("silver", bronze).source.class_name == "bronze"
    assert had("gold", GOLD, className="gold").source.class_name == "gold"
    without = had("silver", GOLD, className="", lenders=lenders)
    assert (without.source.class_name, without.source.lack, without.spec.strategy) == ("", None, "NonInclusive")
    never = completed(changed(POOL, "status.phase", "Ready"), GOLD)
    assert (never.source.class_name, never.source.lack) == ("", None)


@pytest.mark.parametrize("named", ["gold", MISSING])
def test_a_class_that_cannot_be_read_is_not_passed_over(named: object) -> None:
    """A pool must not do without it, nor take another one, because a newer version has written it."""
    head = ApiObject.parse(GOLD.to_dict() | {"metadata": pool_class("gold", 9, default=True).metadata.to_dict()})
    body = SILENT if named is MISSING else changed(SILENT, "spec.className", named)
    one = complete(MemoryPool.parse(body), Classes({"silver": SILVER}, {"gold": Unusable(head, "spec.strategy: odd")}))
    assert one.source.lack is not None
    assert one.source.lack.message.startswith(
        "MemoryPoolClass gold cannot be read: spec.strategy: odd; have it corrected"
    )


def test_a_class_that_cannot_be_read_any_more_counts_as_before_and_it_is_said() -> None:
    """But whether it is the default is plain to see."""
    named, unnamed = changed(SILENT, "spec.className", "gold"), SILENT
    for is_default in (True, False):
        head = ApiObject.parse({"metadata": pool_class("gold", default=is_default).metadata.to_dict()})
        both = Classes({"gold": GOLD}, {"gold": Unusable(head, "spec.strategy: odd")})
        one = complete(MemoryPool.parse(named), both)
        assert (one.source.lack, one.spec.strategy) == (None, "Exclusive")
        said = "; it has become one that cannot be read (spec.strategy: odd) and counts as before: correct it"
        assert one.source.note.endswith(said)
        assert complete(MemoryPool.parse(unnamed), both).source.class_name == ("gold" if is_default else "")


def test_where_a_value_comes_from() -> None:
    one = completed(changed(changed(SILENT, "spec.className", "gold"), "spec.strategy", "Exclusive"), GOLD)
    assert one.origin("placement") == "MemoryPoolClass gold's placement"
    assert [one.origin(field) for field in ("strategy", "port")] == ["spec.strategy", "spec.port"]


def test_a_pool_is_asked_anew_from_what_its_author_wrote() -> None:
    """Nothing stays of a class that has changed, or that is gone."""
    one = completed(changed(SILENT, "spec.className", "gold"), GOLD)
    other = complete(one, classes(pool_class("gold", lenders={"maxLend": "5Gi"})))
    assert (other.spec.lenders.max_lend, other.spec.strategy) == ("5Gi", "NonInclusive")
    assert other.source.given.said() == {"lenders": {"maxLend": "5Gi"}}
    assert complete(other, classes()).spec == MemoryPool.parse(SILENT).spec.model_copy(update={"class_name": "gold"})
    assert complete(other, classes(GOLD)) == one


def test_the_status_says_what_is_in_effect() -> None:
    """Who may not see classes sees by it what a pool works with; only what the class gives is in it."""
    one = completed(changed(SILENT, "spec.className", "gold"), GOLD)
    told = MemoryPool.parse(one.to_dict() | {"spec": one.written.said()})
    status = told.status.model_copy(update={"class_name": "gold", "from_class": one.source.given})
    assert status.to_dict()["fromClass"] == one.source.given.said()
    told = MemoryPool.parse({**SILENT, "spec": one.written.said(), "status": status.to_dict()})
    assert told.spec.lenders.max_lend is None
    assert told.in_effect.spec == one.spec
    assert told.in_effect.source.class_name == "gold"


def test_a_pool_of_nodes_alone_needs_no_max_lend_of_guests() -> None:
    """One that has guests lend, too, does: by itself or by its class."""
    nodes = {"nodes": {"maxLend": "4Gi"}}
    assert completed(changed(POOL, "spec.lenders", nodes)).source.lack is None
    both = completed(changed(POOL, "spec.lenders", nodes | {"selector": POOL["spec"]["lenders"]["selector"]}))
    assert both.source.lack is not None
    assert both.source.lack.reason == "MaxLendMissing"
