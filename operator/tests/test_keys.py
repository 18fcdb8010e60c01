"""Keys are replaced in time and taken up without losing anything (issue 4, item 4: key rotated)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from cast import PAIRING, Agent, OperatorProcess, connected_pool, wait_for
from hypothesis import given
from hypothesis import strategies as st
from world import LONG_AGO, MIB, pairing, pool

from tidepool_api import MemoryPairing, MemoryPool, PairingStatus, Status
from tidepool_operator import keys

HOUR = timedelta(hours=1)


def pool_with(**wanted: Any) -> MemoryPool:
    one = pool()
    return MemoryPool.parse({**one.to_dict(), "spec": one.spec.to_dict() | {"keys": wanted}})


def made(at: datetime, uid: str = "u", **ends: str) -> MemoryPairing:
    """A pairing whose key is of that moment; `ends` say whose key each end has."""
    one = pairing("b", "l", 512 * MIB)
    head = one.metadata.model_copy(update={"creation_timestamp": at, "uid": uid})
    status = PairingStatus.model_validate({side: {"keySecret": name} for side, name in ends.items()})
    return one.model_copy(update={"metadata": head, "status": status})


def renewed(one: MemoryPairing, at: datetime) -> MemoryPairing:
    spec = one.spec.model_copy(update={"key_secret": keys.successor(one, at)})
    return one.model_copy(update={"spec": spec})


def test_keys_stay_unless_the_pool_says_otherwise() -> None:
    assert keys.expiry(pool(), made(LONG_AGO)) is None
    assert keys.judge(made(LONG_AGO), LONG_AGO + 1000 * HOUR) is None


@given(st.text(min_size=1, max_size=20))
def test_a_key_is_replaced_in_the_last_tenth_of_its_lifetime(uid: str) -> None:
    expiry = keys.expiry(pool_with(lifetime="10h"), made(LONG_AGO, uid))
    assert expiry is not None
    assert 9 * HOUR <= expiry - LONG_AGO <= 10 * HOUR


def test_keys_from_before_a_moment_are_replaced() -> None:
    wanted = pool_with(notBefore="2026-01-01T01:00:00Z")
    assert keys.expiry(wanted, made(LONG_AGO)) == LONG_AGO + HOUR
    assert keys.expiry(wanted, made(LONG_AGO + HOUR)) is None
    assert keys.expiry(wanted, renewed(made(LONG_AGO), LONG_AGO + HOUR)) is None


def test_names_go_by_turns_and_one_replacement_ends_before_the_next() -> None:
    first = made(LONG_AGO)
    second = renewed(first, LONG_AGO + HOUR)
    assert second.spec.key_secret.former == first.spec.key_secret.name
    assert keys.next_name(second) == first.spec.key_secret.name
    assert keys.expiry(pool_with(lifetime="10m"), second) is None


def test_who_does_not_have_the_key_is_named_and_in_the_end_complained_about() -> None:
    first = made(LONG_AGO)
    new = keys.next_name(first)
    half = renewed(made(LONG_AGO, lender=new, borrower=first.spec.key_secret.name), LONG_AGO)
    early = keys.judge(half, LONG_AGO + timedelta(minutes=9))
    assert early is not None
    assert (early.status, early.reason) == (Status.FALSE, "BeingReplaced")
    assert early.message == f"b to be given the key of the Secret {new}"
    late = keys.judge(half, LONG_AGO + timedelta(minutes=10))
    assert late is not None
    assert late.reason == keys.NOT_TAKEN_UP
    assert late.message.startswith(f"b did not get the key of the Secret {new}; pages still flow")
    assert not keys.is_bad_news(half, early)
    assert keys.is_bad_news(half, late)
    told = half.model_copy(update={"status": half.status.model_copy(update={"conditions": (late,)})})
    assert not keys.is_bad_news(told, late)
    done = keys.judge(renewed(made(LONG_AGO, lender=new, borrower=new), LONG_AGO), LONG_AGO + HOUR)
    assert done is not None
    assert (done.status, done.reason) == (Status.TRUE, "TakenUp")


def secrets(agent: Agent) -> dict[str, str]:
    items = agent.server.get("-n", agent.namespace, "secrets")["items"]
    return {one["metadata"]["name"]: one["data"]["key"] for one in items}


def key_condition(agent: Agent) -> dict[str, Any]:
    conditions = agent.pairing(PAIRING)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == "KeyCurrent"), {})


@pytest.mark.usefixtures("operator")
def test_a_key_is_replaced_when_both_guests_have_the_next(agent: Agent) -> None:
    """The pairing stays, and the former key is there until nobody needs it."""
    uid = connected_pool(agent)
    first, second = f"{PAIRING}-key", f"{PAIRING}-key-b"
    before = secrets(agent)
    agent.pool(keys={"notBefore": "2999-01-01T00:00:00Z"})
    agent.pool(keys={"notBefore": datetime.now().astimezone().isoformat()})
    wait_for("another key", lambda: agent.pairing(PAIRING)["spec"]["keySecret"]["name"] == second)
    assert secrets(agent).keys() == {first, second}
    assert secrets(agent)[second] != before[first]
    for side in ("lender", "borrower"):
        wait_for("condition", lambda: key_condition(agent).get("reason") == "BeingReplaced")
        agent.report(PAIRING, side, state="Connected", bootID="1", keySecret=second)
    wait_for("taken up", lambda: key_condition(agent)["reason"] == "TakenUp")
    wait_for("the former one is gone", lambda: list(secrets(agent)) == [second])
    assert agent.pairing(PAIRING)["spec"]["keySecret"].get("former") is None
    assert agent.pairing(PAIRING)["metadata"]["uid"] == uid
    assert (PAIRING, "KeyReplaced") in agent.events()


def test_an_operator_that_dies_in_between_goes_on(agent: Agent, own_operator: OperatorProcess) -> None:
    """The Secret was made and the pairing does not name it yet: it is made anew, and none is left over."""
    second = f"{PAIRING}-key-b"
    with own_operator:
        connected_pool(agent)
    left = {"apiVersion": "v1", "kind": "Secret", "type": "tidepool.dev/key", "data": {"key": "bGVmdA=="}}
    agent.server.create(left | {"metadata": {"name": second, "namespace": agent.namespace}})
    agent.pool(keys={"notBefore": datetime.now().astimezone().isoformat()})
    with own_operator:
        wait_for("another key", lambda: agent.pairing(PAIRING)["spec"]["keySecret"]["name"] == second)
        assert secrets(agent)[second] != "bGVmdA=="
