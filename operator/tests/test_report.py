"""What the user is told, from what the agents report."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cast import identity_of
from world import BORROWER, LENDER, LONG_AGO, MIB, TEAM, auto_pool, guest, pairing, plan, pool

from tidepool_api import HitShares, MemoryGuest, MemoryPairing, PairingStatus, PoolStatus, Status, condition, find
from tidepool_api.fields import MOST_BYTES
from tidepool_operator.planning.planner import Plan
from tidepool_operator.status import report
from tidepool_operator.status.waits import Waits

NOW = LONG_AGO + timedelta(minutes=1)
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
        conditions = [FAILED] if lender == "Failed" else []
        sides["lender"] = {"state": lender, "conditions": conditions, "peerIdentity": identity_of("b")}
    if borrower:
        conditions = [FAILED] if borrower == "Failed" else []
        sides["borrower"] = {"state": borrower, "conditions": conditions, "peerIdentity": identity_of("l"), **figures}
    known = condition("IdentitiesExchanged", True, "Exchanged", at=LONG_AGO)
    sides["conditions"] = [known.to_dict()]
    return pairing("b", "l", 512 * MIB).model_copy(update={"status": PairingStatus.model_validate(sides)})


def late(one: MemoryPairing) -> report.Verdict:
    """What is to be said of one that has been so for a minute."""
    waits = Waits()
    waits.judged(one, report.judge(one), LONG_AGO)
    return waits.judged(one, report.judge(one), NOW)


@pytest.mark.parametrize(
    ("lender", "borrower", "phase", "ready", "reason"),
    [
        (None, None, "Pending", "False", "IdentityNotGiven"),
        ("Pending", None, "Pending", "False", "IdentityNotGiven"),
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
    verdict = late(reported(lender, borrower))
    assert (verdict.phase, verdict.ready, verdict.reason) == (phase, ready, reason)
    assert verdict.message


def test_figures_that_no_guest_can_have_hold_up_no_status() -> None:
    """Root in two borrowers says what they use; one pass writes what is to be said of all pools of a namespace."""
    each = reported("Connected", "Connected", usedBytes=MOST_BYTES)
    judged = [report.Judged(each, late(each))] * 2
    assert report.pool_status(pool(), Plan(), judged).used_bytes == MOST_BYTES


def test_a_refusal_is_a_failure_only_when_nothing_explains_it() -> None:
    """One of the two may have just been loaded anew, or been given the other's identity a moment ago."""
    refused = reported("Listening", "Rejected")
    early = report.judge(refused)
    assert (early.phase, early.reason, early.patience) == ("Connecting", "HandshakeRejected", timedelta(seconds=15))
    behind = reported("Listening", "Rejected", peerIdentity=identity_of("l", 1))
    verdict = late(behind)
    assert (verdict.phase, verdict.reason) == ("Pending", "IdentityNotGiven")
    assert verdict.message.endswith("to borrower b that of lender l")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("VersionMismatch", "lender l refuses borrower b: it speaks another version of the protocol"),
        ("BadLimits", "lender l refuses borrower b: one of the two allows nothing, or too much, at once"),
        ("OtherIdentity", "10.0.0.1 port 7470 is a lender with another identity"),
        ("Unheard", "the borrower's kernel log says why"),
    ],
)
def test_a_refusal_says_why_in_the_modules_word(word: str, message: str) -> None:
    verdict = late(reported("Listening", "Rejected", reason=word))
    assert (verdict.phase, verdict.reason) == ("Failed", word)
    assert message in verdict.message
    assert verdict.message.endswith("; the borrower tries again by itself")


def test_a_lender_that_nobody_reaches_is_called_that() -> None:
    """In the module's word, which is for the network rather than for the two guests."""
    verdict = late(reported("Listening", "Connecting", reason="Unreachable"))
    assert (verdict.phase, verdict.reason) == ("Connecting", "Unreachable")
    assert verdict.message == "b connects to 10.0.0.1 port 7470; if this lasts, see whether the network lets it"


def test_a_pool_that_is_being_deleted_says_whom_it_waits_for() -> None:
    """Pairings, and guests whose agents are still to gather memory from them: each alone, and both."""
    for left, marked, message in (
        ([reported("Connected", "Connected")], [], "waiting for 1 pairing to be taken down: pool.b.l"),
        ([], ["d"], "waiting for 1 guest to be told that nothing is gathered any more: d"),
        ([], [], "nothing is left of it"),
    ):
        ready = find(report.terminating_status(pool(), left, marked).conditions, "Ready")
        assert ready is not None
        assert ready.message == message


LOSING = {
    "type": "Configured",
    "status": "True",
    "reason": "ConnectionUnstable",
    "message": "the connection to the lender is lost again and again: give the guests' network an MTU of 1400",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize("state", ["Connected", "Connecting"])
def test_a_connection_that_is_there_at_each_look_and_does_not_last_is_not_called_connected(state: str) -> None:
    """Issue 28, fault 9: neither by the pairing nor by its pool; what pages came are counted all the same."""
    one = reported("Listening", state, conditions=[LOSING], usedBytes=100 * MIB, hits=3, misses=1)
    verdict = late(one)
    assert (verdict.phase, verdict.ready, verdict.reason) == ("Unstable", "False", "ConnectionUnstable")
    assert verdict.message == f"borrower b: {LOSING['message']}"
    status = status_of(plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], []), one)
    ready, degraded = (find(status.conditions, type_) for type_ in ("Ready", "Degraded"))
    assert ready is not None
    assert degraded is not None
    assert (status.phase, ready.status, ready.reason) == ("Degraded", "False", "ConnectionUnstable")
    assert degraded.message == f"unstable: pool.b.l; the first because: {verdict.message}"
    assert (status.ready_pairings, status.used_bytes, status.hit_ratio) == (0, 100 * MIB, "0.75")


def test_what_is_known_of_a_connection_is_old_where_the_agent_is_silent_and_wrong_where_the_side_failed() -> None:
    lost = reported("Listening", "Connected", conditions=[LOSING])
    assert report.judge(lost, {"n1"}).reason == "AgentNotResponding"
    assert late(reported("Failed", "Connected", conditions=[LOSING])).phase == "Failed"


def test_a_failed_side_is_named_with_its_remedy() -> None:
    assert late(reported("Failed", None)).message == "lender l: free 2 MiB on its root disk"


def test_old_news_is_unknown_but_the_phase_stays() -> None:
    verdict = report.judge(reported("Connected", "Connected"), {"n1"})
    assert (verdict.phase, verdict.ready, verdict.reason) == ("Connected", Status.UNKNOWN, "AgentNotResponding")


def test_a_terminating_pairing_says_whom_it_waits_for() -> None:
    leaving = pairing("b", "l", 512 * MIB, terminating=True)
    metadata = leaving.metadata.model_copy(update={"finalizers": ("tidepool.dev/lender",)})
    verdict = late(leaving.model_copy(update={"metadata": metadata}))
    assert (verdict.phase, verdict.message) == ("Terminating", "waiting for the agent of: lender")


def status_of(made: Plan, *pairings: MemoryPairing) -> PoolStatus:
    return report.pool_status(pool(), made, [report.Judged(one, late(one)) for one in pairings])


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


def test_who_waits_for_a_migration_to_end_is_under_way() -> None:
    made = plan(pool(), [guest("l", LENDER, migrating=True), guest("b", BORROWER)], [])
    status = status_of(made)
    ready, guests_ready = (find(status.conditions, type_) for type_ in ("Ready", "GuestsReady"))
    assert ready is not None
    assert guests_ready is not None
    assert (status.phase, ready.reason, guests_ready.reason) == ("Pending", "Progressing", "GuestMigrates")
    assert ready.message == "b waiting for the end of a live migration"


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


def test_a_message_does_not_repeat_its_reason() -> None:
    """Issue 28, fault 9: who reads both has it twice."""
    degraded = find(status_of(plan(pool(), [], [])).conditions, "Degraded")
    assert degraded is not None
    assert degraded.reason == "NoLenders"
    assert degraded.message.startswith("no MemoryGuest of namespace ns")


def test_what_lasts_is_said_once_and_what_is_over_no_longer() -> None:
    """A refusal and pending changes keep their times: else each pass would write, and be woken by it for the next."""
    held = pool()
    held = held.model_copy(update={"spec": held.spec.model_copy(update={"paused": True})})
    made = plan(held, [guest("l", LENDER), guest("b", BORROWER)], [])
    first = report.pool_status(held, made, [], "l would lend to b", refused=["could not x: no"])
    aged = tuple(one.model_copy(update={"last_transition_time": LONG_AGO}) for one in first.conditions)
    present = held.model_copy(update={"status": first.model_copy(update={"conditions": aged})})
    again = report.pool_status(present, made, [], "l would lend to b", refused=["could not x: no"])
    assert again == present.status
    over = report.pool_status(present, made, [], "")
    assert find(over.conditions, "WriteRefused") is None
    assert find(over.conditions, "ChangesPending") is not None


@pytest.mark.parametrize(("unready", "phase"), [("lender", "Ready"), ("served", "Ready"), ("unserved", "Degraded")])
def test_degraded_is_a_pool_that_does_not_serve_somebody(unready: str, phase: str) -> None:
    """Issue 28, fault 9: of many guests one is always being restarted, and nobody lacks anything for it."""
    extra = {
        "lender": guest("k", LENDER, ready=False),
        "served": guest("b", BORROWER, ready=False),
        "unserved": guest("c", BORROWER, ready=False),
    }[unready]
    guests = {one.name: one for one in (guest("l", LENDER), guest("b", BORROWER), extra)}
    present = reported("Connected", "Connected")
    status = status_of(plan(pool(), guests.values(), [present]), present)
    ready, guests_ready = (find(status.conditions, type_) for type_ in ("Ready", "GuestsReady"))
    assert ready is not None
    assert guests_ready is not None
    assert (status.phase, ready.status, guests_ready.reason) == (phase, str(phase == "Ready"), "GuestNotReady")


CLAIMED = {"k": "older"}


@pytest.mark.parametrize(
    ("left_out", "claimed", "phase", "reason"),
    [
        (guest("k", LENDER), CLAIMED, "Ready", "GuestClaimed"),
        (guest("c", BORROWER), {"c": "older"}, "Degraded", "GuestClaimed"),
        (guest("k", LENDER), {"k": "older", "l": "older"}, "Degraded", "GuestClaimed"),
        (guest("both", LENDER | BORROWER), {}, "Degraded", "RoleConflict"),
        (guest("both", LENDER | BORROWER), {"both": "older"}, "Degraded", "RoleConflict"),
    ],
)
def test_a_guest_that_is_left_out_degrades_a_pool_if_somebody_is_not_served_for_it(
    left_out: MemoryGuest, claimed: dict[str, str], phase: str, reason: str
) -> None:
    """Issue 28, fault 9: a lender that another pool has is missed by nobody while the others have enough."""
    present = reported("Connected", "Connected")
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER), left_out], [present], claimed=claimed)
    status = status_of(made, present)
    ready, degraded, roles = (find(status.conditions, type_) for type_ in ("Ready", "Degraded", "RolesConsistent"))
    assert ready is not None
    assert degraded is not None
    assert roles is not None
    assert (status.phase, ready.status, roles.reason) == (phase, str(phase == "Ready"), reason)
    assert degraded.reason == (reason if phase == "Degraded" else "AsExpected")


def test_a_lender_that_another_pool_has_is_named_where_there_is_not_enough_without_it() -> None:
    made = plan(pool(), [guest("l", LENDER, total=600), guest("k", LENDER), guest("b", BORROWER)], [], claimed=CLAIMED)
    degraded = find(status_of(made).conditions, "Degraded")
    assert degraded is not None
    assert degraded.message.startswith("guest k left out: pool older, which is older or paused, has them already")
    assert "InsufficientCapacity: not enough for guest b" in degraded.message


@pytest.mark.parametrize(("taken", "phase"), [({"x"}, "Ready"), ({"x", "y"}, "Degraded")])
def test_an_auto_pool_is_degraded_when_others_have_all_of_its_guests(taken: set[str], phase: str) -> None:
    """Those it leaves out might lend as well as borrow; a pool without anybody serves nobody."""
    made = plan(auto_pool(), [guest("x", TEAM), guest("y", TEAM)], [], claimed=dict.fromkeys(taken, "older"))
    assert status_of(made).phase == phase


@pytest.mark.parametrize("paused", ["l", "b"])
def test_a_pairing_whose_guest_is_paused_says_so(paused: str) -> None:
    """Issue 28, fault 9: neither Connected nor waiting for an agent; nothing is wrong with its pool."""
    one = reported("Listening" if paused == "l" else "Connected", "Connected")
    verdict = report.judge(one, paused={paused})
    assert (verdict.phase, verdict.ready, verdict.reason) == ("Paused", "False", "Paused")
    assert f"{'lender l' if paused == 'l' else 'borrower b'};" in verdict.message
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [one])
    status = report.pool_status(pool(), made, [report.Judged(one, verdict)])
    ready = find(status.conditions, "Ready")
    assert ready is not None
    assert (status.phase, status.ready_pairings) == ("Ready", 0)
    assert ready.message == "0 pairings connected; paused: pool.b.l"


def borrower(name: str = "b", *, lent: bool = True, **conditions: tuple[str, str]) -> MemoryGuest:
    """A borrower with a device and a swap area, and what its agent says of them: reason and message by type."""
    device = {"name": "tidepool-vdb", "sizeBytes": MIB, "lent": lent, "hits": 20}
    swap = {"name": "tidepool.swap", "sizeBytes": 1 << 30, "lent": lent, "hits": 10}
    body = guest(name, BORROWER).to_dict()
    body["status"] |= {"devices": [device], "swap": swap}
    at = LONG_AGO.isoformat()
    for kind, (reason, message) in conditions.items():
        one = {"type": kind, "status": "False", "reason": reason, "message": message, "lastTransitionTime": at}
        body["status"]["conditions"].append(one)
    return MemoryGuest.parse(body)


def test_files_devices_and_swap_are_shown_apart() -> None:
    """What of them goes on without a lender is not the pool's; a pool that has files alone says nothing of it."""
    one = reported("Connected", "Connected", hits=100, misses=0)
    connected = [report.Judged(one, late(one))]
    made = plan(pool(), [guest("l", LENDER), borrower()], [one])
    status = report.pool_status(pool(), made, connected, borrowers=[borrower().status])
    assert (status.devices, status.swap) == (1, "1Gi")
    assert status.hit_shares == HitShares(files="0.70", devices="0.20", swap="0.10")
    for none in ([], [guest("b", BORROWER).status], [borrower(lent=False).status]):
        status = report.pool_status(pool(), made, connected, borrowers=none)
        assert (status.devices, status.swap, status.hit_shares) == (None, None, None)


def test_hits_that_were_counted_a_moment_later_are_no_more_than_all() -> None:
    made = plan(pool(), [guest("l", LENDER), borrower()], [])
    status = report.pool_status(pool(), made, [], borrowers=[borrower().status])
    assert status.hit_shares == HitShares(files="0.00", devices="0.67", swap="0.33")


def test_values_of_programs_are_shown_apart() -> None:
    """By the pages that lenders have answered, and with what they take; where nobody has any, not at all."""
    body = guest("b", BORROWER).to_dict()
    body["status"]["applications"] = {"sizeBytes": 1 << 30, "usedBytes": 1 << 29, "hits": 500, "pageHits": 25}
    one = reported("Connected", "Connected", hits=100, misses=0)
    connected = [report.Judged(one, late(one))]
    made = plan(pool(), [guest("l", LENDER), borrower()], [one])
    status = report.pool_status(pool(), made, connected, borrowers=[MemoryGuest.parse(body).status])
    assert (status.applications, status.applications_bytes, status.devices) == ("512Mi", 1 << 29, None)
    assert status.hit_shares == HitShares(files="0.75", devices="0.00", swap="0.00", applications="0.25")
    without = report.pool_status(pool(), made, connected, borrowers=[borrower().status])
    assert (without.applications, without.hit_shares and without.hit_shares.applications) == (None, None)


def test_what_is_wrong_with_memory_for_programs_is_the_pools_trouble() -> None:
    message = "the guest has no group redis: make it, or name another one in spec.borrowers.applications.group"
    guests = [guest("l", LENDER, total=8192), borrower("a", ApplicationsReady=("NoGroup", message))]
    status = status_of(plan(pool(max_lend=8192), guests, []))
    ready, degraded = find(status.conditions, "ApplicationsReady"), find(status.conditions, "Degraded")
    assert ready is not None
    assert degraded is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "ApplicationsNotReady", f"guest a: {message}")
    assert degraded.reason == "ApplicationsNotReady"


def test_what_is_wrong_with_devices_and_swap_is_the_pools_trouble() -> None:
    """Of the first borrower in full, and how many there are; what is only being set up is none."""
    guests = [
        guest("l", LENDER, total=8192),
        borrower("a", SwapReady=("SettingUp", "tidepool.swap is being set up")),
        borrower("b", DevicesReady=("DeviceInUse", "/dev/vdb is mounted; unmount it, or name another device")),
        borrower("c", DevicesReady=("DeviceMissing", "the guest has no block device /dev/vdb")),
    ]
    status = status_of(plan(pool(max_lend=8192), guests, []))
    devices, swap, degraded = (find(status.conditions, type_) for type_ in ("DevicesReady", "SwapReady", "Degraded"))
    assert devices is not None
    assert swap is not None
    assert degraded is not None
    assert (devices.status, devices.reason) == ("False", "DevicesNotReady")
    assert devices.message == (
        "guest b: /dev/vdb is mounted; unmount it, or name another device; not as asked in guest c either"
    )
    assert (swap.status, swap.reason, degraded.reason) == ("True", "AsExpected", "DevicesNotReady")


def test_the_same_facts_change_nothing() -> None:
    """The status of a pool that is as before is as before, times included."""
    made = plan(pool(), [guest("l", LENDER), guest("b", BORROWER)], [])
    once = status_of(made, reported("Connected", "Connected"))
    again = report.pool_status(
        pool().model_copy(update={"status": once}),
        made,
        [report.Judged(one, late(one)) for one in [reported("Connected", "Connected")]],
    )
    assert again == once
