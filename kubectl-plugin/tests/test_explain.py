"""Why a guest takes no part: the first thing in its way is said, with what to do, and nothing after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from objects import NOW, condition, guest, losing, of_class, pairing, parsed, pool

from tidepool_api import GuestKey
from tidepool_kubectl.explain import explain
from tidepool_kubectl.snapshot import Snapshot
from tidepool_kubectl.verdict import Mark, Step

BLOCKED = condition("GuestAgentReady", "False", "CommandsBlocked", "remove guest-exec from block-rpcs")
NO_MODULE = condition("ModuleAvailable", "False", "NoModuleForKernel", "build one for 9.9.9")
ENDED = condition("Ready", "False", "Ended", "VMI b is Failed")
OVERDUE = condition("IdentitiesExchanged", "False", "Overdue", "takes longer than 5 minutes")
DEGRADED = condition("Degraded", "True", "InsufficientCapacity", "raise spec.lenders.maxLend")


def steps(*bodies: dict[str, Any], name: str = "b", age: float = 5) -> list[Step]:
    heard = {"n1": NOW - timedelta(seconds=age)}
    return explain(GuestKey("ns", name), Snapshot(NOW, **parsed(*bodies), heartbeats=heard))


@pytest.mark.parametrize(
    ("bodies", "text", "advice"),
    [
        ([guest("other")], "no MemoryGuest ns/b; those known there are other", "kubectl get vmi"),
        ([guest("b", "short", BLOCKED)], "carries out commands", "remove guest-exec from block-rpcs"),
        ([guest("b", "short", ENDED)], "not so: its virtual machine runs", "Ended: VMI b is Failed"),
        ([guest("b", "short", NO_MODULE)], "there is a module for its kernel", "build one for 9.9.9"),
        ([guest("b", "short")], "no pool selects it (its labels: memory=short)", "there is no MemoryPool"),
        ([guest("b", "mid"), pool()], "no pool selects it", "pool pool lends from memory=spare to memory=short"),
        ([guest("b", "short"), pool(DEGRADED)], "pool pool is degraded", "raise spec.lenders.maxLend"),
        ([guest("b", "short"), pool()], "it is in no pairing", "needs no more"),
        (
            [guest("b", "short"), pool(), pairing("Failed", "HandshakeRejected", "delete the pairing")],
            "in which it borrows from l, is Failed",
            "delete the pairing",
        ),
        (
            [guest("b", "short"), pool(), pairing("Connecting", "Connecting", "see whether the network lets it")],
            "is Connecting",
            "see whether the network lets it",
        ),
        (
            [guest("b", "short"), pool(), pairing("Pending", "IdentityNotGiven", "waiting", OVERDUE)],
            "is Pending, for the two do not know each other",
            "takes longer than 5 minutes",
        ),
        (
            [guest("b", "short"), pool(), losing(pairing("Unstable"))],
            "is Unstable: its connection does not last",
            "(MTU); see TidepoolPairingFlapping",
        ),
        (
            [guest("b", "short", condition("SwapReady", "False", "NoRoom", "make room")), pool(), pairing()],
            "not so: its swap is as the pool asks",
            "NoRoom: make room",
        ),
        (
            [guest("b", "short", condition("ApplicationsReady", "False", "NoGroup", "make it")), pool(), pairing()],
            "not so: its programs have the memory that the pool gives them",
            "NoGroup: make it",
        ),
    ],
)
def test_the_last_step_is_what_is_in_the_way(bodies: list[dict[str, Any]], text: str, advice: str) -> None:
    *before, last = steps(*bodies)
    assert text in last.text
    assert advice in last.advice
    assert last.mark is not Mark.GOOD
    assert all(step.mark is Mark.GOOD for step in before)


@pytest.mark.parametrize(
    ("node", "text", "advice"),
    [
        ("", "does not run yet", "kubectl describe vmi"),
        ("n2", "no agent is alive there", "agent.tolerations"),
        ("n1", "has not listed it yet", "wait a minute"),
    ],
)
def test_a_machine_that_is_no_guest_yet(node: str, text: str, advice: str) -> None:
    (step,) = explain(GuestKey("ns", "b"), Snapshot(NOW, machines={GuestKey("ns", "b"): node}, heartbeats={"n1": NOW}))
    assert text in step.text
    assert advice in step.advice


def test_nothing_is_believed_of_an_agent_that_is_silent() -> None:
    last = steps(guest("b", "short"), pool(), pairing(), age=100)[-1]
    assert "was last heard 100 s ago" in last.text
    assert "node n1" in last.advice


def test_a_guest_that_borrows_says_how_well() -> None:
    found = steps(guest("b", "short"), pool(), pairing())
    assert {step.mark for step in found} == {Mark.GOOD}
    assert found[-1].text == (
        "pairing pool.b.l, in which it borrows from l, is Connected; 97% of the reads of its pages came from there"
    )


def test_a_guest_says_where_its_devices_are() -> None:
    mapped = condition("DevicesReady", "True", "Mapped", "/dev/mapper/tidepool-vdb")
    last = steps(guest("b", "short", mapped), pool(), pairing())[-1]
    assert (last.mark, last.text) == (Mark.GOOD, "its devices are as the pool asks: /dev/mapper/tidepool-vdb")


def auto(*roles: dict[str, str]) -> dict[str, Any]:
    """A pool that chooses roles by need."""
    body = pool()
    del body["spec"]["lenders"]["selector"], body["spec"]["borrowers"]["selector"]
    body["spec"] |= {"role": "Auto", "selector": {"matchLabels": {"memory": "any"}}}
    body["status"]["roles"] = list(roles)
    return body


def test_a_pool_that_chooses_roles_says_which_and_why() -> None:
    role = {"guest": "b", "role": "Borrower", "since": "2026-01-01T11:50:00Z", "reason": "Refaults"}
    found = [step.text for step in steps(guest("b", "any"), auto(role), pairing())]
    assert "pool pool selects it as lender, borrower or neither, by its need" in found
    assert "since 2026-01-01 11:50 UTC its role there is Borrower (Refaults)" in found
    assert "pool pool chooses among memory=any" in steps(guest("b", "mid"), auto())[-1].advice


def test_a_lender_for_another_namespace_is_explained() -> None:
    """Its pairing, and the pool, are where one may not look perhaps."""
    body = guest("l", "spare")
    body["status"]["role"] = "Lender"
    assert {step.mark for step in steps(body, name="l")} == {Mark.GOOD}


def test_a_guest_with_the_module_says_who_it_is() -> None:
    body = guest("l", "spare")
    body["status"] |= {"moduleVersion": "0.2.0", "identity": f"x25519:{'a' * 64}"}
    said = f"the module is loaded, version 0.2.0; its identity: x25519:{'a' * 64}"
    assert said in [step.text for step in steps(body, pool(), pairing(), name="l")]


@pytest.mark.parametrize(("name", "label", "said"), [("l", "spare", True), ("b", "short", False)])
def test_a_lender_is_told_what_it_cannot_lend(name: str, label: str, *, said: bool) -> None:
    body = guest(name, label)
    body["status"]["backing"] = {"requestBytes": 2 << 30, "overcommittedBytes": 1 << 30}
    text = "as a lender it counts 1Gi less than it has, for its pod does not request that much"
    assert (text in [step.text for step in steps(body, pool(), pairing(), name=name)]) == said


def test_a_lender_that_is_off_the_network_is_told() -> None:
    """What stands in its way, though the pool is well without it."""
    named = pool()
    named["spec"]["network"] = {"multus": "storage/pages"}
    body = guest("l", "spare")
    last = steps(body, named, name="l")[-1]
    assert last.text == "it has no address on the network of pool pool (Multus network storage/pages)"
    assert last.mark is Mark.BAD
    body["status"]["interfaces"] = [{"multus": "storage/pages", "addresses": ["10.20.0.1"]}]
    assert "no address" not in steps(body, named, name="l")[-1].text
    assert "needs no more" in steps(guest("b", "short"), named)[-1].advice


def test_a_lender_is_told_to_whom_it_lends() -> None:
    assert "in which it lends to b" in steps(guest("l", "spare"), pool(), pairing(), name="l")[-1].text


def test_who_is_of_another_namespace_is_named_with_it() -> None:
    """A lender elsewhere is not told of a twin beside it, and a role that the pool gave its own guest is not its."""
    theirs, given = guest("l", "spare"), pool()
    theirs["metadata"]["namespace"] = "far"
    given["spec"]["lenders"]["namespaces"] = ["far"]
    role = {"guest": "l", "role": "None", "since": "2026-01-01T00:00:00Z", "reason": "UnderMemoryPressure"}
    given["status"]["roles"] = [role]
    lent = pairing()
    lent["spec"]["lender"]["namespace"] = "far"
    snapshot = Snapshot(NOW, **parsed(theirs, guest("b", "short"), given, lent), heartbeats={"n1": NOW})
    lender, borrower = ([step.text for step in explain(key, snapshot)] for key in snapshot.pairings[0].ends)
    assert "in which it lends to ns/b" in lender[-1]
    assert "in which it borrows from far/l" in borrower[-1]
    assert not [text for text in lender if "UnderMemoryPressure" in text]
    given["status"]["roles"] = [role | {"guest": "far/l"}]
    snapshot = Snapshot(NOW, **parsed(theirs, given, lent), heartbeats={"n1": NOW})
    assert [step for step in explain(GuestKey("far", "l"), snapshot) if "UnderMemoryPressure" in step.text]


def test_a_guest_is_told_of_a_quota_that_bounds_its_pool() -> None:
    """The pool is well, for everybody has the minimum; and yet each would have more."""
    bounded = pool(condition("QuotaSufficient", "False", "QuotaReached", "MemoryQuota q limits: more is not allowed"))
    said = "a quota bounds pool pool: MemoryQuota q limits: more is not allowed"
    assert said in [step.text for step in steps(guest("b", "short"), bounded, pairing())]
    assert said not in [step.text for step in steps(guest("b", "short"), pool(), pairing())]


def test_a_guest_is_told_what_comes_from_the_class_of_its_pool() -> None:
    given = {"lenders": {"maxLend": "2Gi"}, "network": {"cidrs": ["10.9.0.0/16"]}}
    said = "what pool pool leaves out: MemoryPoolClass gold gives lenders.maxLend: 2Gi, network.cidrs: 10.9.0.0/16"
    found = [step.text for step in steps(guest("l", "spare"), of_class(pool(), **given), name="l")]
    assert found[-2:] == [said, "it has no address on the network of pool pool (10.9.0.0/16)"]
    assert not [step.text for step in steps(guest("b", "short"), pool(), pairing()) if "Class" in step.text]
