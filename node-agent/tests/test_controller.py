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
from tidepool_api.kube.client import TIMEOUT

SOON = 10.0
BOTH = [names.LENDER_FINALIZER, names.BORROWER_FINALIZER]
HOME = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
INSTANCE = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": "u"}


def test_a_guest_of_the_nodes_own_libvirt_goes_with_the_node() -> None:
    """Issue 28, fault 4: nobody else would delete its MemoryGuest; KubeVirt's go with their instances."""
    assert owned(machine(), HOME).owner == HOME
    assert owned(machine(), None).owner == {}
    assert owned(machine(owner=INSTANCE), HOME).owner == INSTANCE


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


def tidied(remains: Remains) -> Figures:
    """The figures after one go at what guests that are gone have left."""
    figures = Figures()
    tools: Any = type("Tools", (), {"cluster": remains, "figures": figures, "donors": None})

    async def run() -> None:
        async with asyncio.timeout(SOON):
            await Controller(tools, "tidepool-system")._tidy()  # noqa: SLF001 - `run` goes on for ever

    asyncio.run(run())
    return figures


@pytest.mark.parametrize(
    ("refusal", "tried", "counted"),
    [
        ((422, "apply", "no"), ["a", "b", *BOTH], {("node1", "default"): 4}),
        ((0, "PATCH", "no answer in 30 s", TIMEOUT), ["a", "b", *BOTH], {("node1", "default"): 4}),
        ((0, "apply", "connection refused"), ["a"], {("node1", "tidepool-system"): 1}),
    ],
)
def test_one_object_that_cannot_be_tidied_up_holds_up_no_other(
    refusal: tuple[Any, ...], tried: list[str], counted: dict[tuple[str, str], float]
) -> None:
    """As one whose owner has filled its annotations up; who cannot be asked at all is not asked for each of them."""
    remains = Remains(Refused(*refusal))
    figures = tidied(remains)
    assert remains.tried == tried
    assert errors(figures) == counted


class Hanging(Remains):
    """Of the guests that are gone, one about which the API server says nothing before all else is done."""

    def __init__(self) -> None:
        super().__init__(Refused(422, "apply", "no"))
        self.is_done = asyncio.Event()

    async def let_go(self, guest: Any) -> None:
        if GuestKey.of(guest).name == "a":
            await self.is_done.wait()
        self.tried.append(GuestKey.of(guest).name)

    async def release(self, _: Any, finalizer: str) -> bool:
        self.tried.append(finalizer)
        if finalizer == BOTH[-1]:
            self.is_done.set()
        return True


def test_one_object_that_hangs_holds_up_no_other() -> None:
    remains = Hanging()
    tidied(remains)
    assert remains.tried == ["b", *BOTH, "a"]


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
    tidied(remains)
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
