"""Whether the installation is well."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from objects import NOW, condition, exposition, guest, losing, pairing, parsed, pool

from tidepool_kubectl.check import check
from tidepool_kubectl.figures import Figures, parse
from tidepool_kubectl.snapshot import Snapshot, Workload
from tidepool_kubectl.verdict import Mark, Step

SOUND = Snapshot(
    NOW,
    **parsed(guest("b", "short"), guest("l", "spare"), pool(), pairing()),
    workloads={"operator": Workload("op", 1, 1), "agent": Workload("ag", 3, 3)},
    heartbeats={"n1": NOW},
    figures=parse(exposition(90, 10)),
)


def steps(**changes: Any) -> list[Step]:
    return check(replace(SOUND, **changes), Figures())


def worse(**changes: Any) -> list[Step]:
    return [step for step in steps(**changes) if step.mark is not Mark.GOOD]


def test_a_sound_installation_is_all_good_and_its_round_trip_measured() -> None:
    assert worse() == []
    assert steps()[-1].text == "pairing ns/pool.b.l: connected, round trip 384µs"


def test_the_round_trip_is_that_of_the_interval() -> None:
    """Pings of long ago do not count when there are new ones."""
    earlier = parse(exposition(900, 10, ping_us=1000))
    both = {bound: 900 * (bound >= 1000) + 50 * (bound >= 512) for bound in (256, 512, 1024)}
    text = exposition(950, 10, ping_us=1000)
    for bound, count in both.items():
        text = re.sub(rf'(ping_\S+le="{bound / 1e6}"}}) \d+', rf"\1 {count}", text)
    later = parse(text)
    assert "round trip 384µs" in check(replace(SOUND, figures=later), earlier)[-1].text


NO_MODULE = condition("ModuleAvailable", "False", "NoModuleForKernel", "build one")
OVERDUE = condition("IdentitiesExchanged", "False", "Overdue", "takes longer than 5 minutes")
HELD = pool() | {
    "status": {"phase": "Paused", "conditions": [condition("ChangesPending", "True", "Paused", "l would lend to b")]}
}
STRAY = condition("LendingPaired", "False", "NoPairing", "64Mi for ns.pool.gone.l")
NOT_READY = condition("Ready", "False", "NoAddress", "give it a network interface")


@pytest.mark.parametrize(
    ("changes", "text", "advice"),
    [
        ({"workloads": {"operator": Workload("op", 1, 1)}}, "no agent is installed", "install the chart"),
        (
            {"workloads": {**(SOUND.workloads or {}), "agent": Workload("ag", 3, 2, "ag-x: ImagePullBackOff")}},
            "agent: 2 of 3 ready",
            "ImagePullBackOff",
        ),
        ({"workloads": None}, "you may not list them", "--system"),
        ({"heartbeats": {}}, "no heartbeat of the agents on n1", "is old"),
        ({"guests": ()}, "no MemoryGuest", "start a virtual machine"),
        (
            parsed(guest("b", "", NO_MODULE, kernel="9.9.9")) | {"pairings": ()},
            "kernel 9.9.9 (1 guests): no mod",
            "build",
        ),
        (parsed(guest("l", "spare", STRAY)), "guest ns/l lends memory of which no pairing tells", "64Mi"),
        (parsed(guest("b", "", NOT_READY)), "guest ns/b cannot lend or borrow", "give it a network interface"),
        (
            {"pools": parsed(pool(condition("Degraded", "True", "NoLenders", "label one")))["pools"]},
            "pool ns/pool: Degraded",
            "label one",
        ),
        (
            {"pools": parsed(HELD)["pools"]},
            "pool ns/pool: Paused",
            "l would lend to b",
        ),
        ({"pairings": parsed(pairing("Failed", "NoSpace", "free 2 MiB"))["pairings"]}, "Failed", "NoSpace: free 2 MiB"),
        (
            {"pairings": parsed(pairing("Pending", "SettingUp", "", OVERDUE))["pairings"]},
            "do not know each other",
            "5 minutes",
        ),
        (
            {"pairings": parsed(losing(pairing("Unstable")))["pairings"]},
            "pairing ns/pool.b.l: Unstable, its connection does not last",
            "(MTU); see TidepoolPairingFlapping",
        ),
        (
            {"pairings": parsed(losing(pairing("Connecting", "Unreachable")))["pairings"]},
            "Connecting, its connection does not last",
            "MTU",
        ),
        ({"figures": parse(exposition(9, 1, breaker=1))}, "left alone", "TidepoolBreakerOpen"),
        ({"figures": Figures(), "unread": ("ag-x: Forbidden",)}, "metrics of ag-x: Forbidden", "missing"),
    ],
)
def test_what_is_not_well_is_said(changes: dict[str, Any], text: str, advice: str) -> None:
    found = worse(**changes)
    assert [step for step in found if text in step.text and advice in step.advice], found


def test_who_has_not_been_heard_of_lately_says_nothing_about_its_connection() -> None:
    """What its agent said before it fell silent may be long over."""
    found = worse(pairings=parsed(losing(pairing("Connecting", "AgentNotResponding", "silent")))["pairings"])
    assert [(step.text, step.advice) for step in found] == [
        ("pairing ns/pool.b.l: Connecting", "AgentNotResponding: silent")
    ]


@pytest.mark.parametrize("phase", ["Failed", "Paused"])
def test_a_connection_that_is_not_to_be_there_is_not_called_one_that_does_not_last(phase: str) -> None:
    found = worse(pairings=parsed(losing(pairing(phase, "Why", "because")))["pairings"])
    assert [(step.text, step.advice) for step in found] == [(f"pairing ns/pool.b.l: {phase}", "Why: because")]


@pytest.mark.parametrize("reason", ["Excluded", "SystemUnsupported"])
def test_a_guest_that_is_left_alone_is_no_trouble(reason: str) -> None:
    shy = parsed(guest("b", "short"), guest("shy", "", condition("Ready", "False", reason, "because")))["guests"]
    assert worse(guests=shy) == []
    assert [step.text for step in steps(guests=shy) if "left alone" in step.text] == [
        "left alone, as their owners or their systems want it: 1"
    ]
