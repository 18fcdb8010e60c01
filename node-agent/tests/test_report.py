"""What is said about a guest and its pairings, and when it is written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from objects import BOOT, BORROWER, LENDER, machine, observation, pairing, want

from tidepool_agent import balloonreport, guestfs, report
from tidepool_agent.addresses import interface
from tidepool_agent.errors import (
    CommandsBlocked,
    ConfigureFailed,
    Excluded,
    Frozen,
    GuestError,
    LoadFailed,
    ModulesRefused,
    ModuleUnavailable,
    Paused,
    Unreachable,
    Unsupported,
)
from tidepool_agent.guestfs import Observation, Peer, Side
from tidepool_agent.losses import Reach
from tidepool_agent.plan import Want
from tidepool_agent.report import Finding
from tidepool_api import (
    BorrowerStatus,
    GuestBalloon,
    GuestStatus,
    LenderStatus,
    MemoryPairing,
    Provider,
    Role,
    Status,
    cadence,
    condition,
    find,
)
from tidepool_api.fields import MOST_BYTES, MOST_COUNT

MIB = 1 << 20
WAIT, LONG = timedelta(seconds=30), timedelta(days=1)
LENT = want(Side.BORROWERS, pairing())
BORROWED = want(Side.LENDERS, pairing())


def status(found: Finding, wants: tuple[Want, ...] = (), before: GuestStatus | None = None) -> GuestStatus:
    return report.guest(machine(), "node1", found, wants, before).status


def said(found: Finding, kind: str) -> tuple[str, str, str]:
    condition = find(status(found).conditions, kind)
    assert condition is not None
    return condition.status.value, condition.reason, condition.message


def connected(**stats: int) -> Observation:
    return observation(loaded=True, peers={LENT.key: Peer({"enabled": "1", "state": "Connected"}, stats)})


def borrower(**stats: int) -> Finding:
    peer = Peer({"enabled": "1", "state": "Connected"}, stats)
    return Finding(seen=observation(loaded=True, peers={BORROWED.key: peer}))


def test_a_guest_that_nobody_uses_is_ready() -> None:
    found = Finding(seen=observation())
    assert said(found, "Ready")[0] == "True"
    assert said(found, "ModuleLoaded")[:2] == ("False", "NotNeeded")
    assert status(found).role is Role.NONE


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Finding(unreachable=Unreachable("x", "NotConnected")), "NotConnected"),
        (Finding(seen=observation(), unreachable=CommandsBlocked(["guest-exec"])), "CommandsBlocked"),
        (Finding(seen=observation(), unavailable=ModuleUnavailable("no module for 5.4")), "NoModuleForKernel"),
        (Finding(seen=observation(), refused=LoadFailed("insmod: tidepool: unknown symbol")), "LoadFailed"),
        (Finding(seen=observation(), rebooted=True), "GuestRebooted"),
        (Finding(), "KernelUnknown"),
    ],
)
def test_what_keeps_a_guest_from_taking_part_is_said_by_ready(found: Finding, reason: str) -> None:
    state, why, message = said(found, "Ready")
    assert (state, why) == ("False", reason)
    assert message


def test_of_a_guest_that_is_left_alone_nothing_is_said_but_why() -> None:
    """Also of one that was known before; its end of a pairing that is still there is no more."""
    found = Finding(unreachable=Excluded("its label says so"), left_alone=True)
    before = status(Finding(seen=connected(lent_pages=256)), (LENT,))
    fresh = status(found, (), before)
    bare = GuestStatus(addresses=fresh.addresses, conditions=fresh.conditions)
    assert fresh == bare
    assert said(found, "Ready") == ("False", "Excluded", "its label says so")
    assert said(found, "GuestAgentReady")[:2] == said(found, "ModuleAvailable")[:2] == ("Unknown", "Excluded")
    end = report.end(LENT, found)
    assert (end.state, getattr(end, "lent_bytes", None), end.conditions[0].reason) == ("Failed", None, "Excluded")


def test_memory_that_is_lent_without_a_pairing_is_named() -> None:
    seen = connected(lent_pages=12 * 256)
    paired = Finding(seen=seen, paired=frozenset({LENT.name}))
    assert said(paired, "LendingPaired")[:2] == ("True", "Paired")
    state, reason, message = said(Finding(seen=seen), "LendingPaired")
    assert (state, reason) == ("False", "WithoutPairing")
    assert message == f"it holds 12Mi for borrowers that no MemoryPairing names: tidepool/borrowers/ has {LENT.name}"


def test_nothing_is_said_of_memory_that_nobody_has_seen() -> None:
    before = status(Finding(seen=connected()))
    found = Finding(unreachable=Unreachable("x"))
    assert find(status(found).conditions, "LendingPaired") is None
    assert find(status(found, (), before).conditions, "LendingPaired") == find(before.conditions, "LendingPaired")


def test_a_guest_that_a_backup_has_frozen_takes_part_as_before() -> None:
    """No alert and no other role: its condition stays True, and says what is waited for."""
    frozen = Finding(seen=connected(), unreachable=Frozen())
    assert said(frozen, "GuestAgentReady")[:2] == ("True", "Frozen")
    assert "waiting" in said(frozen, "GuestAgentReady")[2]
    assert said(frozen, "Ready")[0] == "True"
    end = report.end(LENT, frozen)
    assert (end.conditions[0].status, end.conditions[0].reason) == (Status.UNKNOWN, "Frozen")


def test_an_agent_that_starts_while_a_guest_is_frozen_says_what_the_one_before_said() -> None:
    before = status(Finding(seen=connected()), (LENT,))
    after = status(Finding(unreachable=Frozen()), (LENT,), before)
    assert (find(after.conditions, "Ready"), after.role) == (find(before.conditions, "Ready"), Role.LENDER)


def test_a_guest_that_is_paused_says_so() -> None:
    paused = Finding(seen=connected(), unreachable=Paused(" while it is saved"))
    for kind in ("GuestAgentReady", "Ready"):
        assert said(paused, kind) == (
            "False",
            "Paused",
            "the virtual machine is paused while it is saved; what it had goes on when it is resumed",
        )
    end = report.end(LENT, paused)
    assert (end.conditions[0].status, end.conditions[0].reason) == (Status.UNKNOWN, "Paused")


PORT, OWN = interface("p1", ("10.0.0.5",)), interface("eth1", ("10.0.0.5", "10.20.0.5"))


def test_a_guest_has_the_addresses_that_its_provider_knows_and_those_that_it_says_itself() -> None:
    """The latter are preferred by nobody, unless there are no others; an agent that starts does not forget them."""
    nova = machine(provider=Provider.LIBVIRT, addresses=("10.0.0.5",), interfaces=(PORT,))
    plain = machine(provider=Provider.LIBVIRT, addresses=())
    found = Finding(seen=observation(interfaces=(OWN,)))
    for one, addresses, interfaces in (
        (nova, ("10.0.0.5",), (PORT, interface("eth1", ("10.20.0.5",)))),
        (plain, ("10.0.0.5", "10.20.0.5"), (OWN,)),
    ):
        fresh = report.guest(one, "node1", found, (), None).status
        assert (fresh.addresses, fresh.interfaces) == (addresses, interfaces)
        ready = find(fresh.conditions, "Ready")
        assert ready is not None
        assert ready.status is Status.TRUE
        restarted = Finding(unreachable=Unreachable("about to ask", "NotAskedYet"))
        again = report.guest(one, "node1", restarted, (), fresh).status
        assert (again.addresses, again.interfaces) == (addresses, interfaces)


@pytest.mark.parametrize("found", [Finding(seen=observation()), Finding(unreachable=Unreachable("x", "Silent"))])
def test_a_guest_says_that_it_migrates_until_it_does_not(found: Finding) -> None:
    """Issue 28, live migration: the operator learns it from there; also of a guest that does not answer meanwhile."""
    for migrating, before, expected in ((True, None, True), (False, True, None), (False, None, None)):
        moving, known = replace(machine(), migrating=migrating), GuestStatus(migrating=before)
        said = report.guest(moving, "node1", found, (), known).status
        assert said.migrating is expected
        assert ("migrating" in said.to_dict()) == migrating


def test_a_guest_without_address_cannot_be_reached_by_others() -> None:
    fresh = report.guest(machine(addresses=()), "node1", Finding(seen=observation()), (), None)
    ready = fresh.ready
    assert ready is not None
    assert ready.reason == "NoAddress"
    local = report.guest(machine(addresses=("fe80::1%eth0",)), "node1", Finding(seen=observation()), (), None)
    assert local.status.addresses == ()
    assert local.ready is not None
    assert local.ready.message.endswith("; of no use to them: fe80::1%eth0")


def test_a_guest_is_silent_but_still_what_it_was() -> None:
    """Pages go on flowing while the guest agent does not answer."""
    quiet = Finding(seen=connected(), unreachable=Unreachable("x"))
    fresh = status(quiet, (LENT,))
    assert (fresh.role, fresh.module_version, fresh.boot_id) == (Role.LENDER, "0.1.0", BOOT)


def test_who_a_guest_is_and_whom_it_knows_is_what_its_module_says() -> None:
    """And what it said last while it is silent; a guest that has just rebooted is nobody."""
    seen = observation(loaded=True, peers={LENT.key: Peer({"enabled": "1", "identity": BORROWER})})
    for found in (Finding(seen=seen), Finding(seen=seen, unreachable=Unreachable("x"))):
        assert status(found, (LENT,)).identity == LENDER
        assert report.end(LENT, found).peer_identity == BORROWER
    rebooted = Finding(seen=observation(), rebooted=True)
    assert status(rebooted, (LENT,), status(Finding(seen=seen))).identity is None
    assert report.end(LENT, rebooted).peer_identity is None
    unasked = Finding(unreachable=Unreachable("x"))
    assert status(unasked, (LENT,), status(Finding(seen=seen))).identity == LENDER
    for nonsense in ("", "x25519:" + "0" * 64, "x25519:" + "A" * 64, "\u202e"):
        odd = observation(loaded=True, peers={LENT.key: Peer({"identity": nonsense})})
        assert report.end(LENT, Finding(seen=odd)).peer_identity is None


def test_why_a_borrower_is_not_connected_is_the_modules_word() -> None:
    for said, known in (("VersionMismatch", "VersionMismatch"), ("", None), ("<b>", None), ("A" * 40, None)):
        peer = Peer({"enabled": "1", "state": "Rejected", "reason": said})
        end = report.end(BORROWED, Finding(seen=observation(loaded=True, peers={BORROWED.key: peer})))
        assert isinstance(end, BorrowerStatus)
        assert end.reason == known


def test_an_end_that_waits_for_its_peer_says_for_whom() -> None:
    waiting = want(Side.BORROWERS, pairing(identities=(LENDER, None)))
    found = find(report.end(waiting, Finding(seen=observation(loaded=True))).conditions, "Configured")
    assert found is not None
    assert (found.status, found.reason) == (Status.FALSE, "PeerUnknown")
    assert found.message == "the identity of borrower is not known yet: the agent of node node1 reports it"


def test_memory_is_rounded_so_that_it_does_not_change_all_the_time() -> None:
    memory = status(Finding(seen=connected(lent_pages=(33 * MIB) // 4096))).memory
    assert memory is not None
    assert (memory.lent_bytes, memory.available_bytes) == (32 * MIB, 288 * MIB)


def test_whatever_a_lender_had_and_the_disk_was_read_for_is_a_miss() -> None:
    reasons = ("misses", "late", "errors", "corrupt", "incomplete", "unasked", "skipped", "skipped_sequential")
    end = report.end(BORROWED, borrower(get_hits=8, **{f"get_{reason}": 1 for reason in reasons}))
    assert isinstance(end, BorrowerStatus)
    assert (end.hits, end.misses, end.hit_ratio) == (8, 8, "0.50")


def test_ends_of_a_pairing() -> None:
    lender = report.end(LENT, Finding(seen=connected(lent_pages=8192)))
    assert isinstance(lender, LenderStatus)
    assert (lender.state, lender.lent_bytes, lender.observed_generation) == ("Connected", 32 * MIB, 1)
    end = report.end(
        BORROWED, borrower(get_hits=96, get_misses=1, get_late=1, get_errors=1, get_corrupt=1, catalog_pages=4096)
    )
    assert isinstance(end, BorrowerStatus)
    assert (end.hits, end.misses, end.hit_ratio, end.used_bytes) == (96, 4, "0.96", 16 * MIB)


@pytest.mark.parametrize(
    ("found", "state", "expected"),
    [
        (Finding(seen=connected()), "Connected", (Status.TRUE, "Configured")),
        (Finding(seen=observation(loaded=True)), "Pending", (Status.FALSE, "Configuring")),
        (
            Finding(seen=observation(), unavailable=ModulesRefused("ModulesDisabled")),
            "Failed",
            (Status.FALSE, "ModulesDisabled"),
        ),
        (Finding(seen=observation(), refused=LoadFailed("no")), "Failed", (Status.FALSE, "LoadFailed")),
        (
            Finding(seen=observation(loaded=True), failed={LENT.key: GuestError("gone")}),
            "Failed",
            (Status.FALSE, "GuestFailed"),
        ),
        (
            Finding(seen=observation(loaded=True), failed={LENT.key: ConfigureFailed("port in use")}),
            "Failed",
            (Status.FALSE, "ConfigureFailed"),
        ),
        (Finding(seen=observation(), rebooted=True), "Pending", (Status.FALSE, "GuestRebooted")),
        (Finding(seen=connected(), unreachable=Unreachable("x")), "Pending", (Status.UNKNOWN, "NotResponding")),
    ],
)
def test_the_condition_of_an_end_says_why(found: Finding, state: str, expected: tuple[Status, str]) -> None:
    end = report.end(LENT, found)
    assert end.state == state
    assert (end.conditions[0].status, end.conditions[0].reason) == expected


def test_an_end_keeps_its_state_while_the_guest_is_silent() -> None:
    present = LENT.pairing.status.model_copy(update={"lender": LenderStatus(state="Connected")})
    quiet = Want(LENT.pairing.model_copy(update={"status": present}), LENT.side, LENT.attributes)
    assert report.end(quiet, Finding(seen=connected(), unreachable=Unreachable("x"))).state == "Connected"


def test_an_agent_that_has_just_started_keeps_what_is_known_of_a_silent_guest() -> None:
    before = status(Finding(seen=connected()), (LENT,))
    after = status(Finding(unreachable=Unreachable("x", "NotConnected")), (LENT,), before)
    assert (after.kernel_release, after.boot_id, after.memory) == (before.kernel_release, before.boot_id, before.memory)
    ready = find(after.conditions, "Ready")
    assert ready is not None
    assert ready.reason == "NotConnected"


def test_nothing_is_written_when_nothing_has_changed() -> None:
    first = status(Finding(seen=observation()))
    again = status(Finding(seen=observation()), before=first)
    assert first == again
    assert not report.worth_writing(again, first, LONG, WAIT)


def sharing(
    at: str, *each: tuple[Side, MemoryPairing, float], before: GuestStatus | None = None, silent: bool = False
) -> GuestStatus:
    """What a guest `x` of a namespace says that has these pairings, each with so many times 16 MiB."""
    wants = [(want(side, one), size) for side, one, size in each]
    peers = {
        one.key: Peer({"enabled": "1"}, dict.fromkeys(("lent_pages", "catalog_pages"), int(size * 16 * 256)))
        for one, size in wants
    }
    seen, names = observation(loaded=True, peers=peers), frozenset(one.name for one, _ in wants)
    found = Finding(seen=None if silent else seen, paired=names)
    return report.guest(machine("x", namespace=at), "node1", found, tuple(one for one, _ in wants), before).status


def abroad(uid: str, lender: str, borrower: str) -> MemoryPairing:
    """A pairing whose lender is of the namespace `far`."""
    made = pairing(uid, lender=lender, borrower=borrower)
    end = made.spec.lender.model_copy(update={"namespace": "far"})
    return made.model_copy(update={"spec": made.spec.model_copy(update={"lender": end})})


def test_a_guest_says_with_whom_it_shares_memory() -> None:
    """Issue 28, who has whose memory: those with most come first; a lender of another namespace is named, too."""
    found = sharing(
        "default",
        (Side.LENDERS, pairing("1", lender="l", borrower="x"), 8),
        (Side.LENDERS, abroad("2", "l", "x"), 64),
        (Side.BORROWERS, pairing("3", lender="x", borrower="b"), 16),
    )
    assert [(one.namespace, one.guest, one.role, one.held_bytes // (16 * MIB)) for one in found.peers] == [
        ("far", "l", Role.LENDER, 64),
        ("default", "b", Role.BORROWER, 16),
        ("default", "l", Role.LENDER, 8),
    ]
    assert found.more_peers is None


def test_a_lender_names_nobody_of_another_namespace_who_borrows() -> None:
    """Who may read it there may not list them: the namespace is what a MemoryGrant says of them as well."""
    found = sharing(
        "far",
        (Side.BORROWERS, abroad("1", "x", "secret-b"), 16),
        (Side.BORROWERS, abroad("2", "x", "secret-c"), 32),
    )
    assert [one.to_dict() for one in found.peers] == [
        {"namespace": "default", "role": "Borrower", "heldBytes": 48 * 16 * MIB}
    ]
    assert "secret" not in json.dumps(found.to_dict())


def test_of_many_with_whom_a_guest_shares_the_rest_is_counted() -> None:
    each = [(Side.BORROWERS, pairing(str(at), lender="x", borrower=f"b{at:02}"), at) for at in range(20)]
    found = sharing("default", *each)
    assert [one.guest for one in found.peers] == [f"b{at:02}" for at in range(19, 3, -1)]
    assert found.more_peers == 4


def test_what_hovers_at_an_edge_is_not_written_each_time() -> None:
    lent = Side.BORROWERS, pairing("1", lender="x", borrower="b")
    first = sharing("default", (*lent, 8.1))
    assert sharing("default", (*lent, 7.9), before=first).peers == first.peers
    assert sharing("default", (*lent, 6.9), before=first).peers != first.peers


def test_a_silent_guest_shares_with_those_only_with_whom_it_has_a_pairing() -> None:
    one, other = ((Side.BORROWERS, pairing(name, lender="x", borrower=name), 8) for name in "bc")
    before = sharing("default", one, other)
    assert [peer.guest for peer in sharing("default", one, before=before, silent=True).peers] == ["b"]
    assert sharing("default", before=before, silent=True).peers == ()


def test_with_whom_is_a_figure_and_nobody_writes_for_its_sake_alone() -> None:
    one = (Side.BORROWERS, pairing("1", lender="x", borrower="b"), 8)
    before = sharing("default", one)
    after = sharing("default", one, (Side.BORROWERS, pairing("2", lender="x", borrower="c"), 0))
    assert before.peers != after.peers
    assert not report.worth_writing(after, before, timedelta(0), WAIT)
    assert report.worth_writing(after, before, WAIT, WAIT)


def test_figures_alone_wait_and_everything_else_does_not() -> None:
    before = status(Finding(seen=observation()))
    moved = status(Finding(seen=observation(available_bytes=64 * MIB)), before=before)
    assert not report.worth_writing(moved, before, timedelta(seconds=29), WAIT)
    assert report.worth_writing(moved, before, timedelta(seconds=30), WAIT)
    assert not report.worth_writing(moved, before, timedelta(seconds=30), 4 * WAIT)
    silent = status(Finding(seen=observation(), unreachable=Unreachable("x")), before=before)
    assert report.worth_writing(silent, before, timedelta(0), WAIT)


def test_a_guest_that_needs_its_memory_does_not_wait() -> None:
    """Its lending ends at once, however large the cluster is (issue 28, fault 10)."""
    before = status(Finding(seen=observation(stalls={"memory some": 3, "memory full": 0})))
    uneasy = status(Finding(seen=observation(stalls={"memory some": 19, "memory full": 0})), before=before)
    assert not report.worth_writing(uneasy, before, timedelta(0), WAIT)
    pressed = status(Finding(seen=observation(stalls={"memory some": 25, "memory full": 0})), before=before)
    assert report.worth_writing(pressed, before, timedelta(0), WAIT)


def test_a_guest_in_no_pairing_reports_figures_seldom() -> None:
    assert report.guest_wait((LENT,), WAIT) == WAIT
    assert report.guest_wait((), WAIT) == 4 * WAIT
    assert report.guest_wait((), 5 * WAIT) == 5 * WAIT


def test_all_figures_of_a_large_cluster_are_a_bounded_number_of_writes() -> None:
    """10,000 guests and 5,000 pairings with two ends each, all of which move all the time."""
    assert 20_000 / cadence.figures_seconds(10_000, 5_000) <= cadence.AGENTS_WRITES
    assert cadence.figures_seconds(100, 50) == cadence.LEAST_SECONDS


def test_what_a_guest_says_is_no_command_to_a_terminal_and_no_line_of_a_log() -> None:
    """A condition may quote the guest, and people look at it with tools that print what they are given."""
    error = Unsupported("its system is \x1b[2Jnice\nERROR all is lost\u202e\x9b")
    error.add_note("\x07")
    assert str(error) == "its system is �[2Jnice�ERROR all is lost��; �"
    assert said(Finding(unreachable=error), "GuestAgentReady")[2] == str(error)
    zoned = report.guest(machine(addresses=("fe80::1%\x1b[2J",)), "node1", Finding(seen=observation()), (), None)
    assert zoned.ready is not None
    assert zoned.ready.message.endswith("; of no use to them: fe80::1%�[2J")
    for passes in (1400, 1500):
        reach = Reach("10.0.0.1\x1b[2J", passes, 1500)
        (one,) = report.end(BORROWED, replace(borrower(), losing={BORROWED.key: reach})).conditions
        assert "10.0.0.1�[2J" in one.message


def test_figures_that_no_guest_can_have_are_cut_down_to_what_the_api_takes() -> None:
    """Else whoever is root in a guest has each of its agent's rounds fail, and its pairings never let go."""
    most = guestfs.MAX_NUMBER
    lends = report.end(LENT, Finding(seen=connected(lent_pages=most)))
    assert lends.to_dict()["lentBytes"] == MOST_BYTES
    told = report.end(BORROWED, borrower(catalog_pages=most, get_hits=most, get_misses=most, get_late=most)).to_dict()
    assert (told["usedBytes"], told["hits"], told["misses"]) == (MOST_BYTES, MOST_COUNT, MOST_COUNT)
    twice = {(Side.BORROWERS, name): Peer({"enabled": "1"}, {"lent_pages": most}) for name in "ab"}
    found = Finding(seen=observation(loaded=True, peers=twice))
    memory = status(found, (LENT,)).memory
    assert memory is not None
    assert memory.lent_bytes == MOST_BYTES
    assert said(found, "LendingPaired")[1] == "WithoutPairing"


def test_hits_and_misses_are_never_written_for_their_own_sake() -> None:
    one, later = report.end(BORROWED, borrower(get_hits=97)), report.end(BORROWED, borrower(get_hits=99))
    assert not report.worth_writing(later, one, LONG, WAIT)


def test_errors_name_a_reason_that_a_condition_can_have() -> None:
    for kind in (*GuestError.__subclasses__(), GuestError):
        assert kind.reason.isalnum()
        assert kind.reason[0].isupper()


def test_a_balloon_is_reported_until_it_is_empty() -> None:
    """Whether the guest answers or not; an agent that has just started keeps what it does not know yet."""
    held = GuestBalloon(full_bytes=8 << 30, gathered_bytes=2 << 30, reserve_bytes=1 << 30)
    found = balloonreport.Standing(held, condition("BalloonReady", True, "Gathering", "it gives"))
    alone = Finding(unreachable=Excluded("x"), left_alone=True)
    for state in (Finding(seen=observation()), Finding(unreachable=Unreachable("x")), alone):
        before = report.guest(machine(), "node1", replace(state, balloon=found), (), None).status
        assert before.balloon == held
        still = report.guest(machine(), "node1", state, (), before).status
        assert still.balloon == held
        for one in (before, still):
            said = find(one.conditions, "BalloonReady")
            assert said is not None
            assert said.reason == "Gathering"
        over = report.guest(machine(), "node1", replace(state, balloon=balloonreport.NOTHING), (), still).status
        assert over.balloon is None
        assert find(over.conditions, "BalloonReady") is None


def test_what_a_balloon_holds_is_a_figure_and_that_it_is_one_is_not() -> None:
    """An agent that ends has written whom the next one has to look at; how much that is can wait."""
    empty, held = (GuestStatus(balloon=GuestBalloon(full_bytes=8 << 30, gathered_bytes=size)) for size in (0, 2 << 30))
    wait, a_moment = timedelta(minutes=5), timedelta(seconds=1)
    assert report.worth_writing(empty, GuestStatus(), a_moment, wait)
    assert not report.worth_writing(held, empty, a_moment, wait)
    assert report.worth_writing(held, empty, wait, wait)
