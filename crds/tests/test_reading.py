"""Whatever is in a status, the object is read."""

from __future__ import annotations

from typing import Any

import pytest
from objects import GRANT, GUEST, PAIRING, POOL, QUOTA
from pydantic import ValidationError

from tidepool_api import ApiObject, MemoryGrant, MemoryGuest, MemoryPairing, MemoryPool, MemoryQuota, PoolSpec, Selector
from tidepool_api.crd import KINDS
from tidepool_api.reading import as_far_as_understood

TIME = "2026-01-01T00:00:00Z"
SAID = {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": TIME}
ROLE = {"guest": "g", "role": "Lender", "since": TIME, "reason": "Spare"}
LENT, MEMORY = {"lentBytes": 1 << 30}, {"totalBytes": 3, "availableBytes": 2}
ODD_TIME = SAID | {"type": "Odd", "lastTransitionTime": "0000-01-01T00:00:00Z"}  # Kubernetes takes it, Python does not

# Nor is there one in UTC for these, or none that is written as the API reads it: what an agent says of its own ends is
# read with what others say of theirs.
NO_TIMES = ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z")
NEVER = [SAID | {"type": "Odd", "lastTransitionTime": time} for time in NO_TIMES]

# What is stored, and what is understood of it.
STORED: list[tuple[type[ApiObject], dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (MemoryPool, POOL, {"phase": "Novel", "lenders": 1}, {"lenders": 1}),
    (
        MemoryPool,
        POOL,
        {"className": "gold", "fromClass": {"strategy": "Novel", "lenders": {"reserve": "1Gi", "spread": 99}}},
        {"className": "gold", "fromClass": {"lenders": {"reserve": "1Gi"}}},
    ),
    (MemoryPool, POOL, {"className": "gold", "fromClass": "all"}, {"className": "gold"}),
    (MemoryPool, POOL, {"fromClass": {"network": {}, "maxUnavailable": []}}, {"fromClass": {}}),
    (MemoryPool, POOL, {"conditions": [SAID | {"status": "Maybe"}, SAID, ODD_TIME]}, {"conditions": [SAID]}),
    (MemoryPool, POOL, {"roles": [ROLE, ROLE | {"role": "Novel"}], "hitRatio": "2.00"}, {"roles": [ROLE]}),
    (MemoryPool, POOL, {"lentBytes": 10**30, "pairings": 2}, {"pairings": 2}),
    (MemoryPool, POOL, {"conditions": [SAID] * 25, "pairings": 2}, {"pairings": 2}),
    (MemoryGuest, GUEST, {"role": "Novel", "memory": MEMORY}, {"memory": MEMORY}),
    (MemoryGuest, GUEST, {"memory": MEMORY | {"availableBytes": -1}, "kernelRelease": "6.1"}, {"kernelRelease": "6.1"}),
    (MemoryGuest, GUEST, {"pressure": {"ioSome": 101, "ioFull": 5}}, {"pressure": {"ioFull": 5}}),
    (MemoryPairing, PAIRING, {"lender": {"state": "Novel"} | LENT}, {"lender": LENT}),
    (
        MemoryPairing,
        PAIRING,
        {"lender": LENT | {"conditions": [*NEVER, SAID]}},
        {"lender": LENT | {"conditions": [SAID]}},
    ),
    (MemoryGuest, GUEST, {"conditions": [SAID, *NEVER], "observedAt": NO_TIMES[0]}, {"conditions": [SAID]}),
    (MemoryPairing, PAIRING, {"borrower": {"reason": "Never heard!", "hits": 3}}, {"borrower": {"hits": 3}}),
    (MemoryGrant, GRANT, {"pairings": 1, "uses": [{"namespace": "team"}]}, {"pairings": 1, "uses": []}),
    (MemoryQuota, QUOTA, {"lent": "1Gi", "borrowed": 5}, {"lent": "1Gi"}),
    (MemoryQuota, QUOTA, {"lent": "a" * 21}, {}),
]


@pytest.mark.parametrize(("model", "body", "stored", "understood"), STORED)
def test_what_a_status_has_that_is_not_understood_is_left_out(
    model: type[ApiObject], body: dict[str, Any], stored: dict[str, Any], understood: dict[str, Any]
) -> None:
    """And no more than that, as a newer version or an agent has written it; the spec counts all the same."""
    found: Any = model.parse(body | {"status": stored})
    assert found.status == type(found.status).model_validate(understood)
    assert found.to_dict() | {"status": None} == model.parse(body).to_dict() | {"status": None}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
@pytest.mark.parametrize("value", [None, "nonsense", [], {"conditions": 7, "uses": 7, "roles": {}, "memory": []}])
def test_no_status_is_in_the_way_of_the_spec(kind: Any, value: Any) -> None:
    """Of none of the kinds that have one."""
    body = next((one for one in (POOL, PAIRING, GUEST, GRANT, QUOTA) if one["kind"] == kind.model.__name__), None)
    if body is None:
        assert "status" not in kind.model.model_fields
    else:
        assert kind.model.parse(body | {"status": value}) == kind.model.parse(body)


def test_what_is_asked_for_stays_and_is_as_it_was() -> None:
    """Only what is read is another one; what cannot be without more than is there is refused."""
    given: dict[str, Any] = {"matchLabels": {"a": "b", "c": 7}}
    assert as_far_as_understood(given, Selector.model_validate) == Selector(match_labels={"a": "b"})
    assert given == {"matchLabels": {"a": "b", "c": 7}}
    with pytest.raises(ValidationError):
        as_far_as_understood({"borrowers": 7}, PoolSpec.model_validate)
