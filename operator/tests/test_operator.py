"""The operator as it runs: its process, a real API server, the rights of its role; agents are played by hand."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from cast import MIB, Agent, OperatorProcess, identity_of, wait_for

from tidepool_api import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidepool_api_testing.server import Server

LENDS = {"memory": "spare"}
BORROWS = {"memory": "short"}
PAIRING = "pool.b.l"
PRESSED = "NodeUnderMemoryPressure"

pytestmark = pytest.mark.usefixtures("operator")


def pair(agent: Agent) -> Any:
    """A lender, a borrower and a pool; returns the pairing that comes of it."""
    agent.guest("l", LENDS, address="10.0.0.1")
    agent.guest("b", BORROWS, address="10.0.0.2")
    agent.pool()
    wait_for("pairing", lambda: agent.pairing(PAIRING).get("status"))
    agent.wait_for_names(PAIRING)
    return agent.pairing(PAIRING)


def test_a_pool_becomes_a_pairing(agent: Agent) -> None:
    """Passes when the pairing says all that the agents need, the guests' identities too, and belongs to the pool."""
    pairing = pair(agent)
    lender = {"guest": "l", "nodeName": agent.node, "address": "10.0.0.1", "otherAddresses": [], "port": 7470}
    lender["identity"] = identity_of("l")
    assert pairing["spec"] == {
        "pool": "pool",
        "lender": lender,
        "borrower": {"guest": "b", "nodeName": agent.node, "identity": identity_of("b"), "devices": [], "force": []},
        "size": "512Mi",
        "reserve": "256Mi",
        "maxLend": "1Gi",
        "strategy": "NonInclusive",
        "encryption": "None",
        "deadline": "200ms",
        "filter": "None",
        "latency": {
            "mode": "Automatic",
            "short": {"resume": "1500us", "stop": "40ms"},
            "long": {"resume": "1ms", "stop": "1500us"},
        },
    }
    assert pairing["metadata"]["finalizers"] == [names.LENDER_FINALIZER, names.BORROWER_FINALIZER]
    assert pairing["metadata"]["labels"] == {names.POOL_LABEL: "pool"}
    assert [one["kind"] for one in pairing["metadata"]["ownerReferences"]] == ["MemoryPool"]
    assert pairing["status"]["phase"] == "Pending"
    assert agent.condition("Progressing")["status"] == "True"


def test_a_connected_pairing_makes_the_pool_ready(agent: Agent, operator: OperatorProcess) -> None:
    """Passes when phase, figures, columns, Events and metrics follow from what the two agents report."""
    pair(agent)
    agent.report(PAIRING, "lender", state="Listening")
    agent.report(PAIRING, "borrower", state="Connecting")
    wait_for("Connecting", lambda: agent.pairing(PAIRING)["status"]["phase"] == "Connecting")
    agent.connect(PAIRING, usedBytes=300 * MIB + 5, hits=970, misses=30, hitRatio="0.97")
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    status = agent.status()
    assert {key: value for key, value in status.items() if key != "conditions"} == {
        "observedGeneration": 1,
        "phase": "Ready",
        "lenders": 1,
        "borrowers": 1,
        "pairings": 1,
        "readyPairings": 1,
        "lentBytes": 512 * MIB,
        "usedBytes": 300 * MIB,
        "lent": "512Mi",
        "used": "300Mi",
        "hitRatio": "0.97",
    }
    assert agent.pairing(PAIRING)["status"]["phase"] == "Connected"
    row = agent.server.kubectl("get", "tpool", "-n", agent.namespace).splitlines()[1].split()
    assert row[:7] == ["pool", "Ready", "1", "1", "512Mi", "300Mi", "0.97"]
    wait_for(
        "Events", lambda: {("pool", "PairingCreated"), ("pool", "Ready"), (PAIRING, "Connected")} <= {*agent.events()}
    )
    series = f'tidepool_pool_used_bytes{{namespace="{agent.namespace}",pool="pool"}} '
    values = [float(line.removeprefix(series)) for line in operator.get("/metrics").splitlines() if series in line]
    assert values == [300 * MIB]


BLOCK = {
    "devices": ["/dev/vdb"],
    "swap": {"backing": "File", "size": "1Gi", "write": "Behind"},
    "force": ["/dev/vdb"],
    "applications": {"size": "256Mi", "mode": "0660", "group": "redis"},
}


def test_devices_and_swap_of_a_pool_reach_its_pairings_and_leave_them(agent: Agent) -> None:
    """As an agent reads them: of a former backing nothing is left, and in the end nothing at all."""
    borrowers = {"selector": {"matchLabels": {"memory": "short"}}, "size": "512Mi"}
    agent.guest("l", LENDS, address="10.0.0.1")
    agent.guest("b", BORROWS, address="10.0.0.2")
    on_disk = {"swap": {"backing": "Device", "device": "/dev/vdc", "write": "Through"}}
    for block in (BLOCK, BLOCK | on_disk | {"applications": {"size": "128Mi"}}, {}):
        agent.pool(borrowers=borrowers | block)
        wanted = {"devices": [], "force": []} | block
        wait_for("the pairing", partial(_has_block, agent, wanted))
    assert agent.condition("DevicesReady")["status"] == "True"
    assert agent.condition("ApplicationsReady")["status"] == "True"


def _has_block(agent: Agent, wanted: dict[str, Any]) -> bool:
    end = agent.pairing(PAIRING).get("spec", {}).get("borrower", {})
    return {name: end[name] for name in ("devices", "swap", "force", "applications") if name in end} == wanted


def test_users_objects_are_left_clean(agent: Agent) -> None:
    """No annotation, no label, one finalizer."""
    pair(agent)
    metadata = agent.server.get("-n", agent.namespace, "tpool", "pool")["metadata"]
    assert metadata["finalizers"] == [names.POOL_FINALIZER]
    assert "annotations" not in metadata
    assert "labels" not in metadata
    assert "annotations" not in agent.server.get("-n", agent.namespace, "tguest", "l")["metadata"]


def test_nothing_is_written_when_nothing_happens(agent: Agent) -> None:
    """Passes when a settled pool and its pairing keep their versions although guests report the same again."""
    pair(agent)
    agent.connect(PAIRING)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    before = _versions(agent)
    for _ in range(3):
        agent.guest("l", LENDS, address="10.0.0.1", available=1500 * MIB)
        agent.guest("l", LENDS, address="10.0.0.1", available=1501 * MIB)
        time.sleep(1)
    assert _versions(agent) == before


def _versions(agent: Agent) -> list[str]:
    objects = agent.server.get("-n", agent.namespace, "tpool,tpair")["items"]
    return [one["metadata"]["resourceVersion"] for one in objects]


def test_deleting_the_pool_waits_for_the_agents(agent: Agent, operator: OperatorProcess) -> None:
    """The pairing goes when both agents have torn their sides down, and then the pool."""
    pair(agent)
    _delete_pool(agent)
    wait_for("Terminating", lambda: agent.status()["phase"] == "Terminating")
    wait_for("pairing deleted", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
    agent.release(PAIRING, "borrower")
    time.sleep(1)
    assert not agent.is_gone("tpool", "pool")
    agent.release(PAIRING, "lender")
    wait_for("pool gone", lambda: agent.is_gone("tpool", "pool") and agent.is_gone("tpair", PAIRING))
    wait_for("metrics gone", lambda: f'namespace="{agent.namespace}"' not in operator.get("/metrics"))


def test_deleting_the_pool_takes_a_minute_at_most_when_an_agent_is_dead(agent: Agent, cluster: Server) -> None:
    """The borrower's agent dies just before; the lender's agent is well and finishes its part."""
    with Agent(cluster, agent.namespace, f"second-{agent.node}") as other:
        agent.guest("l", LENDS)
        other.guest("b", BORROWS, address="10.0.0.2")
        agent.pool()
        wait_for("pairing", lambda: agent.pairing(PAIRING).get("status"))
        other.renew()
        other.die()
        start = time.monotonic()
        _delete_pool(agent)
        wait_for("pairing deleted", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
        agent.release(PAIRING, "lender")
        wait_for("pool gone", lambda: agent.is_gone("tpool", "pool"), 60)
        assert time.monotonic() - start > 20, "a slow renewal must not be taken for death"
        wait_for("Event", lambda: (PAIRING, "SideAbandoned") in agent.events())


def test_a_lender_that_is_gone_is_replaced(agent: Agent) -> None:
    """Its side is let go at once, and the borrower gets another lender."""
    pair(agent)
    agent.guest("z", LENDS, address="10.0.0.3")
    agent.delete_guest("l")
    wait_for("new pairing", lambda: "pool.b.z" in agent.pairings())
    old = agent.pairing(PAIRING)["metadata"]
    assert old["deletionTimestamp"]
    wait_for(
        "lender's side let go", lambda: agent.pairing(PAIRING)["metadata"]["finalizers"] == [names.BORROWER_FINALIZER]
    )
    agent.release(PAIRING, "borrower")
    wait_for("old pairing gone", lambda: agent.is_gone("tpair", PAIRING))
    assert (PAIRING, "SideAbandoned") not in agent.events(), "of a guest that is gone nothing is left"


def test_a_renamed_guest_is_another_one(agent: Agent) -> None:
    """Issue 4, item 4: what its former name borrowed is given back at once, and the new one borrows it."""
    pair(agent)
    agent.guest("c", BORROWS, address="10.0.0.2")
    agent.delete_guest("b")
    wait_for("new pairing", lambda: "pool.c.l" in agent.pairings())
    wait_for(
        "borrower's side let go", lambda: agent.pairing(PAIRING)["metadata"]["finalizers"] == [names.LENDER_FINALIZER]
    )
    agent.release(PAIRING, "lender")
    wait_for("only the new one", lambda: list(agent.pairings()) == ["pool.c.l"])


def test_a_guest_that_moves_keeps_its_pairing(agent: Agent) -> None:
    """Another node, another address, a reboot: the same pairing, updated."""
    uid = pair(agent)["metadata"]["uid"]
    with Agent(agent.server, agent.namespace, "elsewhere"):
        agent.guest("l", LENDS, address="10.9.9.9", node="elsewhere")
        wait_for("node", lambda: agent.pairing(PAIRING)["spec"]["lender"]["nodeName"] == "elsewhere")
    wait_for("address", lambda: agent.pairing(PAIRING)["spec"]["lender"]["address"] == "10.9.9.9")
    pairing = agent.pairing(PAIRING)
    assert pairing["spec"]["lender"]["nodeName"] == "elsewhere"
    assert pairing["metadata"]["uid"] == uid
    wait_for("Event", lambda: ("pool", "GuestMoved") in agent.events())


def test_a_pool_that_names_a_network_keeps_its_pairings(agent: Agent) -> None:
    """Issue 28: a Multus network, a range, and neither again; a lender that is not there is named with what it has."""
    uid = pair(agent)["metadata"]["uid"]
    interfaces = [{"name": "pages", "multus": "storage/pages", "addresses": ["10.20.0.1", "fd00::1"]}]
    agent.guest("l", LENDS, interfaces=interfaces)
    for network, address in (
        ({"multus": "storage/pages"}, "10.20.0.1"),
        ({"cidrs": ["fd00::/64"]}, "fd00::1"),
        ({"multus": "storage/pages"}, "10.20.0.1"),
        (None, "10.0.0.1"),
    ):
        agent.pool(**{"network": network} if network else {})
        wait_for(address, lambda at=address: agent.pairing(PAIRING)["spec"]["lender"]["address"] == at)
        given = agent.pairing(PAIRING)["spec"]["lender"].get("network")
        assert given is None if network is None else given | network == given
    agent.pool(network={"cidrs": ["10.30.0.0/16"]}, paused=True)
    had = agent.wait_for_reason("LendersOnNetwork", "NotOnNetwork")["message"]
    assert "(10.30.0.0/16): l has 10.20.0.1, fd00::1 (network storage/pages)" in had
    pairing = agent.pairing(PAIRING)
    assert (pairing["metadata"]["uid"], pairing["spec"]["lender"]["address"]) == (uid, "10.0.0.1")
    assert "deletionTimestamp" not in pairing["metadata"]


def test_a_drained_node_keeps_its_pairings_until_its_guests_leave(agent: Agent) -> None:
    """Issue 4, item 4: cordoned, its lender takes nobody new, and says so; moved elsewhere, it does again."""
    elsewhere = f"elsewhere-of-{agent.namespace}"  # where no test's agent has ever been
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": agent.node}, "spec": {"unschedulable": True}}
    uid = pair(agent)["metadata"]["uid"]
    agent.server.apply(node)
    agent.guest("c", BORROWS, address="10.0.0.3", node=elsewhere)
    assert "guests b, l on cordoned nodes" in agent.wait_for_reason("GuestsReady", "NodeCordoned")["message"]
    assert [one["metadata"]["uid"] for one in agent.pairings().values()] == [uid]
    agent.guest("l", LENDS, address="10.9.9.9", node=elsewhere)
    wait_for("another pairing", lambda: sorted(agent.pairings()) == [PAIRING, "pool.c.l"])
    assert agent.pairing(PAIRING)["metadata"]["uid"] == uid
    agent.wait_for_reason("GuestsReady", "AsExpected")


def test_a_node_under_memory_pressure_gets_back_what_its_guests_lend(agent: Agent) -> None:
    """Issue 28, point 2: the kubelet's word alone ends it; the pool says so, and remembers whose turn it was."""
    pair(agent)
    condition = {"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"}
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": agent.node}}
    agent.server.apply_status({**head, "status": {"conditions": [condition]}}, "kubelet")
    wait_for("end of the pairing", lambda: "deletionTimestamp" in agent.pairing(PAIRING)["metadata"])
    assert f"{agent.node} under memory pressure" in agent.wait_for_reason("LendersBacked", PRESSED)["message"]
    wait_for("Event", lambda: ("pool", "EndToLend") in agent.events())
    wait_for("role", lambda: [(one["guest"], one["reason"]) for one in agent.status()["roles"]] == [("l", PRESSED)])


def test_an_edited_pool_changes_its_pairings_in_place(agent: Agent) -> None:
    """Issue 4, items 3 and 4: sizes, thresholds and filters reach the pairings, which stay what they are."""
    uid = pair(agent)["metadata"]["uid"]
    agent.pool(size="768Mi", encryption="AES-GCM")
    wait_for("size", lambda: agent.pairing(PAIRING)["spec"]["size"] == "768Mi")
    assert agent.pairing(PAIRING)["spec"]["encryption"] == "AES-GCM"
    assert agent.pairing(PAIRING)["metadata"]["uid"] == uid
    wait_for("generation", lambda: agent.status()["observedGeneration"] == 2)
    wait_for("Event", lambda: ("pool", "PairingResized") in agent.events())
    latency = {"mode": "Thresholds", "short": {"resume": "2ms", "stop": "20ms"}}
    agent.pool(size="768Mi", filter="Sequential", latency=latency)
    wait_for("filter", lambda: agent.pairing(PAIRING)["spec"]["filter"] == "Sequential")
    found = agent.pairing(PAIRING)
    assert found["metadata"]["uid"] == uid
    assert found["spec"]["latency"] == latency | {"long": {"resume": "1ms", "stop": "1500us"}}


def test_a_pairing_deleted_by_hand_comes_back(agent: Agent) -> None:
    uid = pair(agent)["metadata"]["uid"]
    agent.server.kubectl("delete", "tpair", "-n", agent.namespace, PAIRING, "--wait=false")
    agent.release(PAIRING, "lender")
    agent.release(PAIRING, "borrower")
    wait_for(
        "another pairing", lambda: agent.pairings().get(PAIRING, {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
    )


def test_what_an_agent_cannot_do_shows_on_the_pool(agent: Agent) -> None:
    """A side that failed names itself, its reason and the remedy, on the pairing and on the pool."""
    pair(agent)
    why = {
        "type": "Configured",
        "status": "False",
        "reason": "ModuleRefused",
        "message": "Secure Boot is on: give the agent a signing key",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    agent.report(PAIRING, "borrower", state="Failed", conditions=[why])
    degraded = agent.wait_for_reason("Degraded", "PairingFailed")
    assert "borrower b: Secure Boot is on: give the agent a signing key" in degraded["message"]
    assert agent.pairing(PAIRING)["status"]["phase"] == "Failed"
    assert agent.status()["phase"] == "Degraded"


def test_bad_input_is_said_and_everything_else_goes_on(agent: Agent) -> None:
    """A guest with two roles, one that is not ready, a borrower too much: each has its condition, one pairing works."""
    agent.guest("l", LENDS, available=1024 * MIB)
    agent.guest("both", LENDS | {"tier": "short"})
    agent.guest("b", BORROWS | {"tier": "short"}, address="10.0.0.2")
    agent.guest("c", BORROWS | {"tier": "short"}, address="10.0.0.4")
    agent.guest("deaf", BORROWS | {"tier": "short"}, address="10.0.0.5", ready=False)
    agent.server.apply(_pool_by_tier(agent))
    said = {
        ("RolesConsistent", "RoleConflict"): "guest both left out",
        ("GuestsReady", "GuestNotReady"): "deaf (NotConnected: install qemu-guest-agent in the guest)",
        ("CapacitySufficient", "InsufficientCapacity"): "not enough for guest c: each should get 512Mi",
    }
    for (type_, reason), message in said.items():
        assert message in agent.wait_for_reason(type_, reason)["message"]
    wait_for("pairing", lambda: list(agent.pairings()) == [PAIRING])
    agent.connect(PAIRING)
    wait_for("one pairing connected", lambda: agent.status()["readyPairings"] == 1)
    assert agent.condition("Degraded")["status"] == "True"
    assert agent.condition("Ready")["status"] == "False"


def test_a_quota_is_kept_by_all_pools_of_a_namespace(agent: Agent) -> None:
    """Two pools of a namespace share it; raised, the second one is served; lowered, it gives its memory back."""
    _quota(agent, maxBorrowed="520Mi")
    for name in ("one", "two"):
        agent.guest(f"l-{name}", {"memory": f"spare-{name}"}, address="10.0.0.2")
        agent.guest(f"b-{name}", {"memory": f"short-{name}"}, address="10.0.0.3")
        agent.pool(name, lends=f"spare-{name}", borrows=f"short-{name}")
    first, second = "one.b-one.l-one", "two.b-two.l-two"
    wait_for("first pairing", lambda: first in agent.pairings())

    def found() -> Any:
        status = agent.server.get("memorypools", "two", "-n", agent.namespace).get("status", {})
        return next((one for one in status.get("conditions", []) if one["type"] == "QuotaSufficient"), {})

    wait_for("the pool says it", lambda: found().get("reason") == "QuotaReached")
    assert "borrows 512Mi of at most 520Mi; guest b-two would have more" in found()["message"]
    assert list(agent.pairings()) == [first]
    _quota(agent, maxBorrowed="1Gi")
    wait_for("second pairing", lambda: second in agent.pairings())
    _quota(agent, maxBorrowed="520Mi")
    wait_for("deletion", lambda: agent.pairing(second)["metadata"].get("deletionTimestamp"))
    assert "deletionTimestamp" not in agent.pairing(first)["metadata"]


def _quota(agent: Agent, **spec: str) -> None:
    """What the administrator of the namespace writes."""
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryQuota"}
    agent.server.apply({**head, "metadata": {"name": "quota", "namespace": agent.namespace}, "spec": spec})


@pytest.fixture
def pool_class(agent: Agent) -> Iterator[Callable[..., None]]:
    """Writes a class, called like the test's namespace; it goes with the test, for it is the whole cluster's."""
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryPoolClass"}

    def write(*, default: bool = False, **spec: Any) -> None:
        annotations = {names.DEFAULT_CLASS_ANNOTATION: "true"} if default else {}
        metadata = {"name": agent.namespace, "annotations": annotations}
        agent.server.apply({**head, "metadata": metadata, "spec": spec})

    yield write
    agent.server.kubectl("delete", "tclass", agent.namespace, "--ignore-not-found")


def _silent_pool(agent: Agent, **spec: Any) -> None:
    """A pool that says who takes part and how much each gets."""
    body = _pool_by_tier(agent)
    ends = {side: dict(body["spec"][side]) for side in ("lenders", "borrowers")}
    del ends["lenders"]["maxLend"]
    agent.server.apply(body | {"spec": ends | spec})


def test_a_pool_gets_what_its_class_gives_and_keeps_it_without(agent: Agent, pool_class: Callable[..., None]) -> None:
    """It is held before its class is there, follows it, and loses nothing when it goes."""
    agent.guest("l", LENDS)
    agent.guest("b", {"tier": "short"})
    _silent_pool(agent, className=agent.namespace, deadline="1s")
    said = agent.wait_for_reason("SpecComplete", "ClassNotFound")["message"]
    assert f"spec.className is {agent.namespace}, and there is no MemoryPoolClass of that name" in said
    assert agent.condition("Degraded")["status"] == "True"
    given = {"lenders": {"maxLend": "1Gi"}, "encryption": "None", "deadline": "2s"}
    pool_class(**given, strategy="Exclusive")
    wait_for("pairing", lambda: PAIRING in agent.pairings())
    made = agent.pairing(PAIRING)
    asked = ("maxLend", "encryption", "strategy", "deadline", "reserve")
    assert [made["spec"][one] for one in asked] == ["1Gi", "None", "Exclusive", "1s", "256Mi"]
    wait_for("status", lambda: agent.status().get("className") == agent.namespace)
    from_class = {"lenders": {"maxLend": "1Gi"}, "encryption": "None", "strategy": "Exclusive"}
    assert agent.status()["fromClass"] == from_class
    pool_class(**given)
    wait_for("the class is followed", lambda: agent.pairing(PAIRING)["spec"]["strategy"] == "NonInclusive")
    wait_for("status", lambda: "strategy" not in agent.status()["fromClass"])
    agent.server.kubectl("delete", "tclass", agent.namespace)
    agent.wait_for_reason("SpecComplete", "ClassNotFound")
    assert not agent.condition("ChangesPending"), "without the class nobody knows what would change"
    kept = agent.pairing(PAIRING)
    assert (kept["metadata"]["uid"], kept["spec"]["maxLend"]) == (made["metadata"]["uid"], "1Gi")
    assert "deletionTimestamp" not in kept["metadata"]
    assert agent.status()["className"] == agent.namespace
    assert "className" not in made["spec"]


def test_a_pool_without_class_name_has_the_default_one(agent: Agent, pool_class: Callable[..., None]) -> None:
    """The author's own object stays as it was written; it keeps what it has without a default, "" is for no class."""
    agent.guest("l", LENDS)
    agent.guest("b", {"tier": "short"})
    _silent_pool(agent)
    agent.wait_for_reason("SpecComplete", "MaxLendMissing")
    pool_class(default=True, lenders={"maxLend": "1Gi"})
    wait_for("pairing", lambda: PAIRING in agent.pairings())
    assert agent.pairing(PAIRING)["spec"]["encryption"] == "AES-GCM"
    wait_for("status", lambda: agent.status().get("className") == agent.namespace)
    spec = agent.server.get("-n", agent.namespace, "tpool", "pool")["spec"]
    assert {"className", "encryption", "strategy"}.isdisjoint(spec)
    assert "maxLend" not in spec["lenders"]
    pool_class(lenders={"maxLend": "1Gi"}, encryption="None")
    said = agent.wait_for_reason("SpecComplete", "ClassNotFound")["message"]
    assert f"what the pool has is of MemoryPoolClass {agent.namespace}: have one marked" in said
    assert agent.pairing(PAIRING)["spec"]["encryption"] == "AES-GCM"
    _silent_pool(agent, className="", lenders=_pool_by_tier(agent)["spec"]["lenders"])
    wait_for("no class", lambda: "className" not in agent.status())
    assert "deletionTimestamp" not in agent.pairing(PAIRING)["metadata"]


def _pool_by_tier(agent: Agent) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": "MemoryPool",
        "metadata": {"name": "pool", "namespace": agent.namespace},
        "spec": {
            "lenders": {"selector": {"matchLabels": LENDS}, "maxLend": "1Gi"},
            "borrowers": {"selector": {"matchLabels": {"tier": "short"}}, "size": "512Mi"},
            "encryption": "None",
        },
    }


def test_nothing_selected_is_said(agent: Agent) -> None:
    agent.pool()
    assert (
        "matches spec.lenders.selector (memory=spare)" in agent.wait_for_reason("LendersFound", "NoLenders")["message"]
    )
    assert (
        "matches spec.borrowers.selector (memory=short)"
        in agent.wait_for_reason("BorrowersFound", "NoBorrowers")["message"]
    )
    assert agent.status()["phase"] == "Degraded"
    agent.guest("l", LENDS)
    agent.guest("b", BORROWS, address="10.0.0.2")
    wait_for("pairing", lambda: PAIRING in agent.pairings())
    agent.wait_for_reason("Degraded", "AsExpected")


def test_the_older_of_two_pools_has_the_guests(agent: Agent) -> None:
    pair(agent)
    time.sleep(1.1)  # creation times are whole seconds
    agent.pool("another")
    said = agent.wait_for_reason("RolesConsistent", "GuestClaimed", "another")
    assert "pool pool, which is older or paused, has them" in said["message"]
    assert list(agent.pairings()) == [PAIRING]
    _delete_pool(agent)
    wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))
    agent.release(PAIRING, "lender")
    agent.release(PAIRING, "borrower")
    wait_for("the newer pool's turn", lambda: list(agent.pairings()) == ["another.b.l"])


def test_pairings_of_a_pool_that_was_forced_away_go_too(agent: Agent) -> None:
    """Somebody removed the pool's finalizer: its pairings are no longer wanted."""
    pair(agent)
    agent.server.kubectl(
        "patch", "tpool", "-n", agent.namespace, "pool", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    _delete_pool(agent)
    wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"))


def test_it_watches_each_kind_once(agent: Agent, cluster: Server) -> None:
    """Issue 4, item 6: however many pools and namespaces there are; told by the API server's own count."""
    agent.pool("one")
    agent.pool("two")
    agent.wait_for_reason("Degraded", "NoLenders", "two")
    counted = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    found = {
        resource: sum(float(line.rsplit(" ", 1)[1]) for line in counted if _is_watch(line, resource))
        for resource in (names.POOLS, names.PAIRINGS, names.GUESTS, names.GRANTS, names.CLASSES)
    }
    assert set(found.values()) == {1}, found


def _is_watch(line: str, resource: str) -> bool:
    """Whether it counts those of that kind that are open."""
    return line.startswith("apiserver_longrunning_requests{") and all(
        label in line for label in (f'resource="{resource}"', 'verb="WATCH"')
    )


def test_it_is_healthy_and_says_so(operator: OperatorProcess) -> None:
    """The kubelet is answered, metrics are those that the API package names, every log line is JSON."""
    assert (operator.get("/healthz"), operator.get("/readyz")) == ("ok\n", "ok\n")
    text = operator.get("/metrics")
    for metric in ("tidepool_operator_plan_duration_seconds_bucket", "tidepool_operator_reconciles_total"):
        assert metric in text
    lines = [json.loads(line) for line in operator.log().splitlines()]
    assert all(line["message"] for line in lines)
    assert not [line for line in lines if "exception" in line]


def _delete_pool(agent: Agent) -> None:
    agent.server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false")
