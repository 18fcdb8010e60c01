"""What the operator knows: the newest version wins, what is gone is forgotten, what cannot be read is kept apart."""

from __future__ import annotations

from typing import Any

import pytest
from world import BORROWER, LENDER, pairing

from tidepool_api import LenderState, LenderStatus, names
from tidepool_operator.cluster.state import State


def body(name: str, version: int, *, uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version)}
    lenders, borrowers = {"selector": {"matchLabels": LENDER}}, {"selector": {"matchLabels": BORROWER}}
    sizes = {"maxLend": "1Gi"}, {"size": spec.pop("size", "512Mi")}
    whole = {"lenders": lenders | sizes[0], "borrowers": borrowers | sizes[1], "encryption": "None"}
    return {"apiVersion": names.API_VERSION, "kind": "MemoryPool", "metadata": metadata, "spec": whole | spec}


def test_an_older_version_changes_nothing() -> None:
    """The answer to a write may be known before an event of the time before it arrives."""
    pools = State().pools
    pools.put(body("pool", 9, port=9))
    pools.put(body("pool", 10, port=10))
    pools.put(body("pool", 8, port=8))
    assert [one.spec.port for one in pools.in_namespace("ns")] == [10]


def test_what_others_note_down_on_an_object_is_no_change() -> None:
    """Nor is it kept: an annotation has room for a quarter of a MiB, and may be written all the time."""
    pools = State().pools
    noted = body("pool", 1)
    for version, notes in ((1, {}), (2, {"example.com/note": "x"}), (3, {names.DRY_RUN_ANNOTATION: "true"})):
        metadata = noted["metadata"] | {"resourceVersion": str(version), "annotations": notes}
        pools.put(noted | {"metadata": metadata})
        assert pools.changes() == (1 if version < 3 else 2)
    assert pools.in_namespace("ns")[0].metadata.annotations == {names.DRY_RUN_ANNOTATION: "true"}


def test_a_late_deletion_does_not_take_the_successor() -> None:
    pools = State().pools
    pools.put(body("pool", 5, uid="first"))
    pools.put(body("pool", 7, uid="second"))
    pools.remove("ns", "pool", "first")
    assert [one.metadata.uid for one in pools.in_namespace("ns")] == ["second"]
    pools.remove("ns", "pool", "second")
    assert pools.namespaces() == set()


def test_a_pairing_is_known_whatever_its_ends_say() -> None:
    """A time that Kubernetes takes and Python does not kept the last version, whose finalizers cannot be changed."""
    pairings, one = State().pairings, pairing("b", "l", 1 << 30)
    said = {"type": "Configured", "status": "True", "reason": "Fine", "lastTransitionTime": "0000-01-01T00:00:00Z"}
    metadata = {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1"}
    pairings.put(
        {
            "metadata": metadata | {"finalizers": [names.LENDER_FINALIZER]},
            "spec": one.to_dict()["spec"],
            "status": {"phase": "Connected", "lender": {"state": "Listening", "conditions": [said]}},
        }
    )
    (found,) = pairings.in_namespace("ns")
    assert pairings.unreadable("ns") == []
    assert (found.status.phase, found.status.lender) == ("Connected", LenderStatus(state=LenderState.LISTENING))


@pytest.mark.parametrize("status", [{"fromClass": {"strategy": "Novel"}}, {"phase": "Novel"}, {"roles": 7}])
def test_a_pool_is_read_whatever_its_status_says(status: dict[str, Any]) -> None:
    """A newer version has written it, say; the operator corrects what it does not understand."""
    pools = State().pools
    pools.put(body("pool", 1) | {"status": status})
    assert pools.unreadable("ns") == []
    (found,) = pools.in_namespace("ns")
    assert found.status.phase is None


def test_pairings_are_found_by_their_pool() -> None:
    pairings, spec = State().pairings, pairing("b", "l", 1 << 30).to_dict()["spec"]
    for name, version, of in (("one", 1, "a"), ("two", 2, "a"), ("three", 3, "b"), ("one", 4, "a")):
        metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}
        pairings.put({"metadata": metadata, "spec": spec | {"pool": of}})
    assert sorted(one.name for one in pairings.in_group("ns", "a")) == ["one", "two"]
    pairings.remove("ns", "one", "one")
    assert [one.name for one in pairings.in_group("ns", "a")] == ["two"]
    assert pairings.in_group("ns", "none") == []


def test_a_listing_finds_what_was_deleted_unseen_and_spares_what_is_newer() -> None:
    pools = State().pools
    for name, version in (("stays", 3), ("gone", 4), ("new", 12)):
        pools.put(body(name, version))
    assert pools.forget_missing([body("stays", 3)], at=10) == {"ns"}
    assert {one.name for one in pools.in_namespace("ns")} == {"stays", "new"}


def test_a_pool_that_cannot_be_read_is_named_with_its_fields() -> None:
    pools = State().pools
    pools.put(body("pool", 1))
    pools.put(body("pool", 2, size="lots", port=0))
    (broken,) = pools.unreadable("ns")
    assert pools.in_namespace("ns") == []
    assert "spec.borrowers.size: " in broken.why
    assert "spec.port: " in broken.why
    pools.put(body("pool", 3))
    assert pools.unreadable("ns") == []
    assert len(pools.in_namespace("ns")) == 1


def test_the_last_readable_guest_stands_in() -> None:
    guests = State().guests
    spec = {"provider": "KubeVirt", "vm": {"name": "g", "uid": "1"}, "nodeName": "n"}
    metadata = {"name": "g", "namespace": "ns", "uid": "g"}
    guests.put({"metadata": metadata | {"resourceVersion": "1"}, "spec": spec})
    guests.put({"metadata": metadata | {"resourceVersion": "2"}, "spec": spec | {"provider": "Novelty"}})
    assert [one.spec.provider for one in guests.in_namespace("ns")] == ["KubeVirt"]
