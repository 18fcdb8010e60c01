"""What goes when a guest or a node has gone."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import libvirt
import pytest
from cast import TOP
from objects import key, machine, pairing

from tidepool_agent import report
from tidepool_agent.cluster import LEAVING_SECONDS, LINGER_SECONDS, Cluster, owned
from tidepool_agent.controller import Controller, orphaned
from tidepool_agent.host import HAS_LEFT, Host
from tidepool_agent.metrics import Figures
from tidepool_agent.report import Finding
from tidepool_api import GuestKey, MemoryGuest, Provider, names
from tidepool_api.base import rfc3339
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
    assert orphaned(granted, "node1", machines.__contains__) == []
    assert orphaned(granted, "node1", {key("lender"), key("borrower")}.__contains__) == [names.LENDER_FINALIZER]


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
    assert orphaned(pairing(), node, machines.__contains__) == gone


class Remains:
    """What guests that are gone have left, and an API server that answers in some way to what is done about it."""

    node = "node1"

    def __init__(self, refusal: Refused) -> None:
        self.refusal, self.tried = refusal, list[str]()

    def machines(self) -> dict[Any, Any]:
        return {}

    def machine(self, _: GuestKey) -> None:
        return None

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
        return body | {"metadata": body["metadata"] | {"uid": "u", "resourceVersion": "2"}}

    def delete(self, _: str, **_more: Any) -> None:
        self.asked.append("delete")


def let_go(guest: dict[str, Any], *sources: Any, departed: bool = False, back: MemoryGuest | None = None) -> list[str]:
    """What the agent of a node asks of the API server about a MemoryGuest whose machine is not there."""
    api: Any = Recorder()

    async def run() -> None:
        cluster = Cluster(api, "node1", sources, lambda _: None)
        cluster.guests()[key("g")] = guest
        assert cluster.guest(key("g")) is not None
        if departed:
            cluster.departed(guest["spec"]["vm"]["uid"])
        if back:
            await cluster.claim(back)
        await cluster.let_go(guest)

    asyncio.run(run())
    return list(api.asked)


def left(since: str, provider: str = "KubeVirt", **meta: Any) -> dict[str, Any]:
    """A MemoryGuest whose machine has not been found since then."""
    marked = {"annotations": {names.LEAVING_ANNOTATION: since}} if since else {}
    return {
        "kind": "MemoryGuest",
        "metadata": {"name": "g", "namespace": "default", "uid": "u", "resourceVersion": "1"} | marked | meta,
        "spec": {"provider": provider, "vm": {"name": "g", "uid": "u"}, "nodeName": "node1"},
    }


LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("since", "meta", "asked"),
    [("", {}, ["apply"]), (LONG_AGO, {}, ["delete"]), (LONG_AGO, {"deletionTimestamp": LONG_AGO}, [])],
)
def test_a_guest_is_let_go_whatever_others_have_done_to_it(since: str, meta: dict[str, Any], asked: list[str]) -> None:
    """Who may change it may have it forget who wrote what, or keep it with a finalizer: no crash, no calls for ever."""
    assert let_go(left(since, **meta)) == asked


def ago(seconds: float) -> str:
    return rfc3339(datetime.now(UTC) - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("provider", "sign", "is_kept"),
    [
        ("KubeVirt", "owned", True),
        ("KubeVirt", "", False),
        ("Libvirt", "departed", True),
        ("Libvirt", "migrating", True),
        ("Libvirt", "", False),
        ("Node", "", False),
    ],
)
def test_a_guest_that_may_arrive_elsewhere_is_kept_while_its_lender_keeps_the_session(
    provider: str, sign: str, *, is_kept: bool
) -> None:
    """The agent there may be away for a moment. What does not migrate is gone after seconds, for people wait for it."""

    def asked(seconds: float) -> list[str]:
        status = {"migrating": True} if sign == "migrating" else {}
        owners = {"ownerReferences": [INSTANCE]} if sign == "owned" else {}
        return let_go(left(ago(seconds), provider, **owners) | {"status": status}, departed=sign == "departed")

    assert asked(LEAVING_SECONDS + 2) == ([] if is_kept else ["delete"])
    assert asked(LINGER_SECONDS + 2) == ["delete"]


def test_a_guest_that_has_come_back_and_is_shut_off_then_is_not_waited_for() -> None:
    """That it once was migrated away is forgotten."""
    guest = left(ago(LEAVING_SECONDS + 2), "Libvirt")
    back = report.guest(machine("g", provider=Provider.LIBVIRT, uid="u"), "node1", Finding(), (), None)
    assert let_go(guest, departed=True, back=back) == ["apply", "delete"]


class Unserved:
    """A source whose machine still is on this node; another namespace's machines are looked at now."""

    def machine(self, found: GuestKey) -> Any:
        return machine(found.name)


def test_an_instance_that_is_here_and_no_longer_looked_at_is_not_waited_for() -> None:
    assert let_go(left(ago(LEAVING_SECONDS + 2), ownerReferences=[INSTANCE]), Unserved()) == ["delete"]


def test_the_module_keeps_a_session_as_long() -> None:
    source = (TOP / "kernel-module/lender/sessions.c").read_text()
    assert f"unsigned int tide_linger_s = {LINGER_SECONDS};" in source


class Loop:
    """An event loop that does at once what it is asked to do."""

    def call_soon_threadsafe(self, call: Any, *what: Any) -> None:
        call(*what)


def test_a_domain_that_has_been_migrated_away_is_told_from_one_that_is_off() -> None:
    """By what its libvirt says at the end, for one that goes within a moment is never seen to migrate.

    Libvirt's test driver says how a domain is switched off; it migrates none, so that this is said in its place.
    """
    departed, woken, loop = list[str](), threading.Event(), Loop()
    host = Host(Path("/proc"), "libvirt", lambda _: None, departed.append)
    connection = libvirt.open("test:///default")

    def said(*what: Any) -> None:
        host._lived(*what)  # noqa: SLF001 - libvirt calls it
        woken.set()

    connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, said, loop)
    domain = connection.lookupByName("test")
    domain.destroy()
    assert woken.wait(SOON)
    assert departed == []
    said(connection, domain, *HAS_LEFT, loop)
    assert departed == [domain.UUIDString()]
    connection.close()
