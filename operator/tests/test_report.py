"""What the user is told, from what the agents report."""

from __future__ import annotations

import pytest
from world import BORROWER, LENDER, MIB, guest, pairing, plan, pool

from tidepool_api import MemoryPairing, PairingStatus, PoolStatus, Status, find
from tidepool_operator import report
from tidepool_operator.planner import Plan

FAILED = {
    "type": "Configured",
    "status": "False",
    "reason": "NoSpace",
    "message": "free 2 MiB on its root disk",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def reported(lender: str | None, borrower: str | None, **figures: object) -> MemoryPairing:
    sides: dict[str, object] = {}
    if lender:
        sides["lender"] = {"state": lender, "conditions": [FAILED] if lender == "Failed" else []}
    if borrower:
        sides["borrower"] = {"state": borrower, "conditions": [FAILED] if borrower == "Failed" else [], **figures}
    return pairing("b", "l", 512 * MIB).model_copy(update={"status": PairingStatus.model_validate(sides)})


@pytest.mark.parametrize(
    ("lender", "borrower", "phase", "ready", "reason"),
    [
        (None, None, "Pending", "False", "SettingUp"),
        ("Pending", None, "Pending", "False", "SettingUp"),
        ("Listening", "Pending", "Pending", "False", "SettingUp"),
        ("Listening", "Connecting", "Connecting", "False", "Connecting"),
        ("Listening", "Connected", "Connected", "True", "Connected"),
        ("Connected", "Connected", "Connected", "True", "Connected"),
        ("Failed", "Connecting", "Failed", "False", "NoSpace"),
        ("Listening", "Failed", "Failed", "False", "NoSpace"),
        ("Listening", "Rejected", "Failed", "False", "HandshakeRejected"),
    ],
)
def test_a_pairing_is_what_its_two_ends_are(
    lender: str | None, borrower: str | None, phase: str, ready: str, reason: str
) -> None:
    verdict = report.judge(reported(lender, borrower))
    assert (verdict.phase, verdict.ready, verdict.reason) == (phase, ready, reason)
    assert verdict.message


def test_a_failed_side_is_named_with_its_remedy() -> None:
    assert report.judge(reported("Failed", None)).message == "lender l: free 2 MiB on its root disk"


def test_old_news_is_unknown_but_the_phase_stays() -> None:
    verdict = report.judge(reported("Connected", "Connected"), {"n1"})
    assert (verdict.phase, verdict.ready, verdict.reason) == ("Connected", Status.UNKNOWN, "AgentNotResponding")


def test_a_terminating_pairing_says_whom_it_waits_for() -> None:
    leaving = pairing("b", "l", 512 * MIB, terminating=True)
    metadata = leaving.metadata.model_copy(update={"finalizers": ("tidepool.dev/lender",)})
    verdict = report.judge(leaving.model_copy(update={"metadata": metadata}))
    assert (verdict.phase, verdict.message) == ("Terminating", "waiting for the agent of: lender")


def status_of(made: Plan, *pairings: MemoryPairing) -> PoolStatus:
    return report.pool_status(pool(), made, [report.Judged(one, report.judge(one)) for one in pairings])


def test_figures_are_summed_over_connected_pairings_and_rounded() -> None:
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    first = reported("Connected", "Connected", usedBytes=100 * MIB + 7, hits=3, misses=1)
    second = reported("Connected", "Connected", usedBytes=50 * MIB, hits=6, misses=0)
    waiting = reported("Listening", "Connecting", usedBytes=999 * MIB)
    status = status_of(made, first, second, waiting)
    assert (status.used_bytes, status.lent_bytes) == (150 * MIB, 1024 * MIB)
    assert (status.hit_ratio, status.ready_pairings, status.pairings) == ("0.90", 2, 3)
    assert (status.lent, status.used) == ("1Gi", "150Mi")


def test_no_reads_no_ratio() -> None:
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    assert status_of(made, reported("Connected", "Connected")).hit_ratio is None


@pytest.mark.parametrize(
    ("lender", "borrower", "phase", "summary"),
    [
        ("Connected", "Connected", "Ready", ("True", "False", "False")),
        ("Listening", "Connecting", "Pending", ("False", "True", "False")),
        ("Listening", "Rejected", "Degraded", ("False", "False", "True")),
    ],
)
def test_three_conditions_sum_it_up(lender: str, borrower: str, phase: str, summary: tuple[str, str, str]) -> None:
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    status = status_of(made, reported(lender, borrower))
    found = [find(status.conditions, type_) for type_ in ("Ready", "Progressing", "Degraded")]
    assert (status.phase, tuple(one.status for one in found if one)) == (phase, summary)


def test_problems_are_conditions_with_what_to_do() -> None:
    status = status_of(plan(pool(), [], []))
    missing = find(status.conditions, "LendersFound")
    degraded = find(status.conditions, "Degraded")
    assert missing is not None
    assert degraded is not None
    assert (missing.status, missing.reason, degraded.status, degraded.reason) == (
        "False",
        "NoLenders",
        "True",
        "NoLenders",
    )
    assert "NoBorrowers: " in degraded.message
    assert status.phase == "Degraded"


def test_the_same_facts_change_nothing() -> None:
    """The status of a pool that is as before is as before, times included."""
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    once = status_of(made, reported("Connected", "Connected"))
    again = report.pool_status(
        pool().model_copy(update={"status": once}),
        made,
        [report.Judged(one, report.judge(one)) for one in [reported("Connected", "Connected")]],
    )
    assert again == once
