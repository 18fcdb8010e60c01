"""What goes when a guest or a node has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from objects import key, machine, pairing

from tidepool_agent.cluster import Cluster, owned
from tidepool_agent.controller import Controller, orphaned
from tidepool_agent.metrics import Figures
from tidepool_api import GuestKey, names
from tidepool_api.kube import Refused

BOTH = [names.LENDER_FINALIZER, names.BORROWER_FINALIZER]


HOME = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}


def test_a_guest_of_the_nodes_own_libvirt_goes_with_the_node() -> None:
    """Issue 28, fault 4: nobody else would delete its MemoryGuest; KubeVirt's go with their instances."""
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": "u"}
    assert owned(machine(), HOME).owner == HOME
    assert owned(machine(), None).owner == {}
    assert owned(machine(owner=instance), HOME).owner == instance


def test_a_granted_lender_is_looked_for_in_its_own_namespace() -> None:
    """Issue 28, fault 12: else its finalizer goes at once, while it still holds the borrower's pages."""
    granted = pairing()
    spec = granted.spec.model_copy(update={"lender": granted.spec.lender.model_copy(update={"namespace": "rich"})})
    granted = granted.model_copy(update={"spec": spec})
    machines = {("rich", "lender"), ("default", "borrower")}
    assert orphaned(granted, "node1", machines) == []
    assert orphaned(granted, "node1", {key("lender"), key("borrower")}) == [names.LENDER_FINALIZER]


@pytest.mark.parametrize(
    ("node", "machines", "gone"),
    [
        ("node1", {key("lender"), key("borrower")}, []),
        ("node1", {key("lender")}, [names.BORROWER_FINALIZER]),
        ("node1", set(), BOTH),
        ("node2", set(), []),
    ],
)
def test_ends_of_guests_that_are_gone(node: str, machines: set[GuestKey], gone: list[str]) -> None:
    assert orphaned(pairing(), node, machines) == gone


class Remains:
    """What guests that are gone have left, and an API server that answers in some way to what is done about it."""

    node = "node1"

    def __init__(self, refusal: Refused) -> None:
        self.refusal, self.tried = refusal, list[str]()

    def machines(self) -> dict[Any, Any]:
        return {}

    def guests(self) -> dict[Any, Any]:
        return {GuestKey("default", name): {"metadata": {"namespace": "default", "name": name}} for name in "ab"}

    def terminating(self) -> list[Any]:
        return [pairing(terminating=True)]

    def ended(self, _: GuestKey) -> str:
        return ""

    async def let_go(self, guest: Any) -> None:
        self.tried.append(GuestKey.of(guest).name)
        raise self.refusal

    async def release(self, _: Any, finalizer: str) -> bool:
        self.tried.append(finalizer)
        raise self.refusal


def errors(figures: Figures) -> dict[tuple[str, str], float]:
    """What is exported of steps that failed, by node and namespace."""
    (family,) = [one for one in figures.collect() if one.name == "tidepool_agent_errors"]
    return {(one.labels["agent"], one.labels["namespace"]): one.value for one in family.samples}


@pytest.mark.parametrize(
    ("status", "tried", "counted"),
    [(422, ["a", "b", *BOTH], {("node1", "default"): 4}), (0, ["a"], {("node1", "tidepool-system"): 1})],
)
def test_one_object_that_cannot_be_tidied_up_holds_up_no_other(
    status: int, tried: list[str], counted: dict[tuple[str, str], float]
) -> None:
    """As one whose owner has filled its annotations up; who cannot be asked at all is not asked for each of them."""
    remains = Remains(Refused(status, "apply", "no"))
    figures = Figures()
    tools: Any = type("Tools", (), {"cluster": remains, "figures": figures})
    asyncio.run(Controller(tools, "tidepool-system")._settle())  # noqa: SLF001 - `run` goes on for ever
    assert remains.tried == tried
    assert errors(figures) == counted


class Failed(Remains):
    """Of the guests that are gone, one whose instance is still there, and says how it ended."""

    def __init__(self) -> None:
        super().__init__(Refused(422, "apply", "no"))

    def ended(self, key: GuestKey) -> str:
        return "VMI a is Failed" if key.name == "a" else ""

    async def write_ended(self, key: GuestKey, words: str) -> None:
        self.tried.append(f"{key.name}: {words}")


def test_a_guest_whose_instance_has_ended_is_not_let_go_but_says_so() -> None:
    """Its ends of pairings are released like those of one that is gone."""
    remains = Failed()
    figures = Figures()
    tools: Any = type("Tools", (), {"cluster": remains, "figures": figures})
    asyncio.run(Controller(tools, "tidepool-system")._settle())  # noqa: SLF001 - `run` goes on for ever
    assert remains.tried == ["a: VMI a is Failed", "b", *BOTH]


class Recorder:
    """An API server that notes what it is asked to do."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def apply(self, _: str, body: dict[str, Any], **_more: Any) -> dict[str, Any]:
        self.asked.append("apply")
        return body | {"metadata": body["metadata"] | {"resourceVersion": "2"}}

    def delete(self, _: str, **_more: Any) -> None:
        self.asked.append("delete")


LONG_LEFT = {names.LEAVING_ANNOTATION: "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("meta", "asked"),
    [
        ({}, ["apply"]),
        ({"annotations": LONG_LEFT}, ["delete"]),
        ({"annotations": LONG_LEFT, "deletionTimestamp": "2026-01-01T00:00:00Z"}, []),
    ],
)
def test_a_guest_is_let_go_whatever_others_have_done_to_it(meta: dict[str, Any], asked: list[str]) -> None:
    """Who may change it may have it forget who wrote what, or keep it with a finalizer: no crash, no calls for ever."""
    guest = {
        "kind": "MemoryGuest",
        "metadata": {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "1"} | meta,
        "spec": {"provider": "KubeVirt", "vm": {"name": "g", "uid": "u"}, "nodeName": "node1"},
    }
    api: Any = Recorder()
    cluster = Cluster(api, "node1", (), lambda _: None)
    cluster.guests()[key("g")] = guest
    assert cluster.guest(key("g")) is not None
    asyncio.run(cluster.let_go(guest))
    assert api.asked == asked
