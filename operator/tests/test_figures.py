"""Which reports can wait for the next pass over their namespace (issue 28, fault 10)."""

from __future__ import annotations

from typing import Any

import pytest
from world import BORROWER, MIB, guest, pairing, pool

from tidepool_api import MemoryGuest, MemoryPairing
from tidepool_operator.planning import figures

BEFORE = guest("b", BORROWER, misses=100, available=300)
PAIRED = pairing("b", "l", 512 * MIB, connected=True)


def reported(**fields: Any) -> MemoryGuest:
    """The guest after another report."""
    body = BEFORE.to_dict()
    return MemoryGuest.parse({**body, "status": body["status"] | fields})


def said(side: str, **fields: Any) -> MemoryPairing:
    """The pairing after a report of one end."""
    body = PAIRED.to_dict()
    status = body["status"]
    return MemoryPairing.parse({**body, "status": status | {side: status.get(side, {}) | fields}})


MEMORY = {"memory": {"totalBytes": 2048 * MIB, "availableBytes": 100 * MIB}}


@pytest.mark.parametrize(
    ("fields", "can_wait"),
    [
        ({}, True),
        (MEMORY, True),
        ({"missesPerSecond": 5000, "observedAt": "2026-01-02T00:00:00Z"}, True),
        ({"role": "Lender"}, False),
        ({"addresses": ["10.9.9.9"]}, False),
        ({"conditions": []}, False),
        ({"bootID": "another"}, False),
    ],
)
def test_figures_of_a_guest_that_lends_nothing_can_wait(fields: dict[str, Any], can_wait: bool) -> None:
    assert figures.are_all(BEFORE, reported(**fields)) is can_wait


def test_a_lender_that_may_need_its_memory_does_not_wait() -> None:
    assert not figures.are_all(reported(role="Lender"), reported(role="Lender", **MEMORY))


@pytest.mark.parametrize(
    ("side", "fields", "can_wait"),
    [
        ("borrower", {"usedBytes": 5, "hits": 3, "misses": 1, "hitRatio": "0.75"}, True),
        ("lender", {"lentBytes": 5}, True),
        ("borrower", {"state": "Connecting"}, False),
        ("lender", {"observedGeneration": 7}, False),
        ("borrower", {"bootID": "another"}, False),
    ],
)
def test_figures_of_a_pairing_can_wait(side: str, fields: dict[str, Any], can_wait: bool) -> None:
    present = said("lender", state="Listening")
    after = said("lender", state="Listening", **fields) if side == "lender" else None
    if after is None:
        body = present.to_dict()
        body["status"]["borrower"] |= fields
        after = MemoryPairing.parse(body)
    assert figures.are_all(present, after) is can_wait


def test_what_is_new_gone_or_edited_does_not_wait() -> None:
    body = BEFORE.to_dict()
    assert not figures.are_all(None, BEFORE)
    assert not figures.are_all(BEFORE, None)
    assert not figures.are_all(
        BEFORE, MemoryGuest.parse(body | {"metadata": body["metadata"] | {"labels": {"x": "y"}}})
    )
    assert not figures.are_all(BEFORE, MemoryGuest.parse(body | {"spec": body["spec"] | {"nodeName": "n9"}}))
    assert not figures.are_all(
        PAIRED, MemoryPairing.parse({**PAIRED.to_dict(), "spec": {**PAIRED.to_dict()["spec"], "size": "1Gi"}})
    )


@pytest.mark.parametrize(
    ("change", "is_ours"),
    [
        ({"status": {"phase": "Failed", "observedGeneration": 7, "conditions": []}}, True),
        ({"status": {"lender": {"lentBytes": 5}}}, False),
        ({"status": {"phase": "Failed", "borrower": {"state": "Connecting"}}}, False),
        ({"spec": {"size": "1Gi"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}}, False),
    ],
)
def test_what_the_operator_says_of_a_pairing_is_no_news_to_it(change: dict[str, Any], is_ours: bool) -> None:
    """Unless somebody else has changed something beside."""
    after = {
        part: fields | change.get(part, {}) for part, fields in PAIRED.to_dict().items() if isinstance(fields, dict)
    }
    after["metadata"]["resourceVersion"] = "9"
    assert figures.are_ours(PAIRED, MemoryPairing.parse(after)) is is_ours


def test_what_the_operator_says_of_a_pool_is_no_news_to_it() -> None:
    before = pool()
    assert figures.are_ours(
        before, before.model_copy(update={"status": before.status.model_copy(update={"lenders": 3})})
    )
    assert not figures.are_ours(before, pool(size=1024))
