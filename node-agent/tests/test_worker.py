"""How soon a guest is looked at again, and what is said of one that has come from another node."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from objects import RELEASE, key, machine, observation, pairing, want

from tidepool_agent import plan, report, rounds, worker
from tidepool_agent.balloonreport import Standing
from tidepool_agent.devices import Detach, LoadTarget, Map, SwapOff, UnloadTarget
from tidepool_agent.errors import DeviceRefused, Excluded, Frozen, UnloadFailed
from tidepool_agent.guestfs import Observation, Peer, Side
from tidepool_agent.losses import Reach
from tidepool_agent.mapped import Mapped
from tidepool_agent.metrics import Figures
from tidepool_agent.provider import Machine
from tidepool_agent.report import Finding
from tidepool_agent.store import Store
from tidepool_agent.worker import COLLECT_EVERY, IDLE_EVERY, SETTLING_SECONDS, SOON, Tools, Worker, next_look
from tidepool_api import GuestBalloon, MemoryGuest, MemoryPairing, find, now
from tidepool_api.kube import Refused

BORROWED = want(Side.LENDERS, pairing(address="10.0.0.2"))
WANTED = plan.desired(key("borrower"), [BORROWED.pairing])


def pause(state: str, address: str = "10.0.0.2", idle: float = SETTLING_SECONDS) -> float:
    """Until the next look at a borrower whose module says this of its lender."""
    peer = Peer({**BORROWED.attributes, "enabled": "1", "state": state, "address": address})
    return next_look(WANTED, observation(loaded=True, peers={BORROWED.key: peer}), idle)


def test_a_session_at_an_address_that_is_no_longer_named_is_watched() -> None:
    """Its lender may have moved: when it ends the borrower is sent on at once, while the lender still has its pages."""
    assert pause("Connected") == COLLECT_EVERY
    assert pause("Connected", "10.0.0.9") == SOON


def test_what_was_done_is_soon_seen() -> None:
    assert (pause("Connecting", idle=1), pause("Connected", idle=1)) == (SOON, COLLECT_EVERY)
    assert (pause("Connecting"), next_look(plan.desired(key("x"), []), observation(), 99)) == (
        COLLECT_EVERY,
        IDLE_EVERY,
    )


ARRIVED = machine(addresses=("10.0.0.9",))


class Silent:
    """What a guest says that does not answer."""

    machine = ARRIVED

    def is_for(self, _: Any) -> bool:
        return True

    async def look(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing is open."""


class Elsewhere:
    """An API server by which the guest is on another node, whose agent lets it go when it has been asked for once."""

    node = "node2"

    def __init__(self) -> None:
        self.refusals = [
            Refused(403, "apply", "the guest is reported by the agent of node node1, which has not let it go")
        ]
        self.written = asyncio.Queue[MemoryGuest]()

    def machine(self, _: Any) -> Machine:
        return ARRIVED

    def guest(self, _: Any) -> None:
        """There is none of this node."""

    def excluded(self, _: Any) -> None:
        """It takes part."""

    def pairings(self, _: Any) -> list[Any]:
        return []

    async def claim(self, _: MemoryGuest) -> MemoryGuest:
        if self.refusals:
            raise self.refusals.pop()
        before = report.guest(machine(addresses=("10.0.0.2",)), "node1", Finding(seen=observation()), (), None)
        return before.model_copy(update={"status": before.status.model_copy(update={"observed_at": now()})})

    async def write_guest(self, guest: MemoryGuest) -> None:
        self.written.put_nowait(guest)


async def last_of(queue: asyncio.Queue[Any], guest: Machine, tools: Tools, count: int = 1) -> Any:
    """Has a worker do its rounds until so much has come into a queue; the last of it."""
    task = asyncio.create_task(Worker(guest, tools).run())
    try:
        async with asyncio.timeout(COLLECT_EVERY / 2):
            return [await queue.get() for _ in range(count)][-1]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_guest_that_has_come_is_soon_taken_over_and_says_at_once_where_it_is(tmp_path: Path) -> None:
    """Its borrowers look for it there before it has answered; what is known of it stays."""

    async def first_report() -> MemoryGuest:
        cluster: Any = Elsewhere()
        session: Any = Silent()
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
        found: MemoryGuest = await last_of(cluster.written, ARRIVED, tools)
        return found

    status = asyncio.run(first_report()).status
    assert (status.addresses, status.kernel_release) == (("10.0.0.9",), RELEASE)


class Without:
    """A guest without device-mapper, whose module is set up but for that."""

    def __init__(self, one: Machine, seen: Observation) -> None:
        self.machine, self._seen, self.done = one, seen, list[plan.Step]()

    def is_for(self, _: Any) -> bool:
        return True

    async def look(self) -> Observation:
        return self._seen

    async def do(self, step: plan.Step, _: str) -> None:
        self.done.append(step)
        if isinstance(step, LoadTarget | Map):
            raise DeviceRefused("install its extra modules", "NoDeviceMapper")

    def close(self) -> None:
        """Nothing is open."""


class Here(Elsewhere):
    """An API server by which a guest of this node borrows."""

    figures_wait = timedelta()

    def __init__(self, one: MemoryPairing) -> None:
        super().__init__()
        self.refusals, self._pairing = [], one

    def machine(self, _: Any) -> Machine:
        return machine("borrower")

    def pairings(self, _: Any) -> list[Any]:
        return [self._pairing]

    async def write_end(self, *_: Any) -> None:
        """What is asked for is about the guest."""

    async def event(self, *_: Any, **__: Any) -> None:
        """The steps say it."""


def test_a_guest_without_device_mapper_says_so_and_lends_no_file_less(tmp_path: Path) -> None:
    """Its devices wait for the target, which is tried again ever more seldom; the rest is as ever."""
    one = pairing(block={"devices": ["/dev/vdb"], "swap": {"backing": "File", "size": "1Gi"}})
    peer = Peer({**want(Side.LENDERS, one).attributes, "enabled": "1", "state": "Connected"})
    seen = observation(loaded=True, peers={(Side.LENDERS, one.metadata.uid): peer}, installed=True)

    async def reports() -> tuple[MemoryGuest, list[plan.Step]]:
        cluster: Any = Here(one)
        session: Any = Without(machine("borrower"), seen)
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
        return await last_of(cluster.written, machine("borrower"), tools, 2), session.done

    guest, done = asyncio.run(reports())
    assert done == [Map("/dev/vdb", forced=False), LoadTarget(plan.Source.INSTALLED)]
    for kind in ("DevicesReady", "SwapReady"):
        found = find(guest.status.conditions, kind)
        assert found is not None
        assert (found.status, found.reason) == ("False", "NoDeviceMapper")
        assert found.message.startswith("install its extra modules; tried 1 time, again at ")
    ready = find(guest.status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "True"


class Newer:
    """A store with another build than the one that is loaded."""

    def has(self, _: str) -> bool:
        return True

    def build(self, _: str) -> Any:
        return SimpleNamespace(srcversion="of-another-build", signed=True)


class Holding(Without):
    """A guest whose target does not go, as something that has failed still holds it."""

    async def do(self, step: plan.Step, _: str) -> None:
        self.done.append(step)
        if isinstance(step, UnloadTarget):
            raise UnloadFailed("rmmod: Module tidepool_block is in use")


@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_module_that_a_device_still_needs_is_not_replaced_and_costs_no_cache(*, is_leaving: bool) -> None:
    """A peer that is to go goes all the same."""
    one = pairing(terminating=is_leaving)
    peer = (Side.LENDERS, one.metadata.uid)
    seen = observation(loaded=True, has_target=True, peers={peer: Peer({**want(*peer[:1], pairing()).attributes})})

    class Told(Here):
        async def release(self, *_: Any) -> bool:
            return True

    async def steps() -> list[plan.Step]:
        cluster: Any = Told(one)
        session: Any = Holding(machine("borrower"), seen)
        store: Any = Newer()
        tools = Tools(cluster, store, Figures(), asyncio.Semaphore(), lambda _: session)
        await last_of(cluster.written, machine("borrower"), tools, 2)
        return session.done

    assert asyncio.run(steps()) == [*([plan.Remove((peer,))] if is_leaving else ()), UnloadTarget()]


class Choosy(Here):
    """An API server that refuses what is said of the guest."""

    def __init__(self, one: MemoryPairing) -> None:
        super().__init__(one)
        self.released = asyncio.Queue[MemoryPairing]()

    def guest(self, _: Any) -> MemoryGuest:
        return report.guest(machine("borrower"), self.node, Finding(seen=observation()), (), None)

    async def write_guest(self, guest: MemoryGuest) -> None:
        raise Refused(422, "apply", f"{guest.name}: what its guest says is none that there can be")

    async def release(self, one: MemoryPairing, _: str) -> bool:
        self.released.put_nowait(one)
        return True


def test_a_guest_whose_report_is_refused_keeps_no_pairing_from_its_end(tmp_path: Path) -> None:
    one = pairing(terminating=True)

    async def released() -> MemoryPairing:
        cluster: Any = Choosy(one)
        session: Any = Without(machine("borrower"), observation())
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
        found: MemoryPairing = await last_of(cluster.released, machine("borrower"), tools)
        return found

    assert asyncio.run(released()) == one


class Forbidding(Here):
    """An API server that refuses what is said of the guest, and of one of its two pairings."""

    def __init__(self, *, status: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(pairing("p1"))
        self._refusal = Refused(status, "PATCH", "exceeded quota", reason)
        self.ends, self.events = asyncio.Queue[str](), list[tuple[str, str]]()

    def guest(self, _: Any) -> MemoryGuest:
        return report.guest(machine("borrower"), self.node, Finding(seen=observation()), (), None)

    def pairings(self, _: Any) -> list[Any]:
        return [pairing("p1"), pairing("p2", lender="other")]

    async def write_guest(self, _: MemoryGuest) -> None:
        raise self._refusal

    async def write_end(self, one: MemoryPairing, _: Any) -> None:
        self.ends.put_nowait(one.metadata.uid)
        if one.metadata.uid == "p1":
            raise self._refusal

    async def event(self, _: MemoryGuest, reason: str, message: str, *, warning: bool = False) -> None:
        if warning:
            self.events.append((reason, message))


def failures(figures: Figures) -> list[float]:
    """How often something went wrong, by what is exported; nothing did where there is nothing."""
    (family,) = [one for one in figures.collect() if one.name == "tidepool_agent_errors"]
    return [one.value for one in family.samples if one.value]


def after_rounds(cluster: Any, folder: Path, ends: int) -> tuple[str, Figures]:
    """The last end of a pairing that a worker wrote, or tried to, after so many; and what it counted."""
    figures, session = Figures(), Without(machine("borrower"), observation())

    async def written() -> str:
        async def again() -> None:
            while True:
                await asyncio.sleep(0.01)
                looking.wake()

        connected: Any = session
        tools = Tools(cluster, Store(folder), figures, asyncio.Semaphore(), lambda _: connected)
        looking = Worker(session.machine, tools)
        tasks = [asyncio.create_task(one) for one in (looking.run(), again())]
        try:
            async with asyncio.timeout(COLLECT_EVERY / 2):
                return [await cluster.ends.get() for _ in range(ends)][-1]
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.wait(tasks)

    return asyncio.run(written()), figures


def test_one_write_that_is_refused_holds_up_no_other_and_is_told(tmp_path: Path) -> None:
    """Issue 28, fault 3: each time as a figure, once as an Event; the log alone is read by nobody."""
    cluster = Forbidding()
    last, figures = after_rounds(cluster, tmp_path, 6)
    assert last == "p2"
    assert cluster.events == [("WriteRefused", "could not PATCH: exceeded quota (403)")]
    assert failures(figures)[0] >= 2


@pytest.mark.parametrize(("status", "reason"), [(404, "NotFound"), (409, "Conflict")])
def test_a_refusal_for_what_has_just_changed_is_nothing_to_tell(tmp_path: Path, status: int, reason: str) -> None:
    """A pairing that is gone, a namespace that is not there, a pairing that is another one by now."""
    cluster = Forbidding(status=status, reason=reason)
    _, figures = after_rounds(cluster, tmp_path, 6)
    assert (cluster.events, failures(figures)) == ([], [])


def test_a_refusal_that_lasts_is_told_again_before_its_event_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "REPEAT_SECONDS", 0)
    cluster = Forbidding()
    after_rounds(cluster, tmp_path, 6)
    assert len(cluster.events) >= 2


def test_a_guest_that_is_let_go_in_a_moment_is_nothing_to_tell(tmp_path: Path) -> None:
    """The agent that it comes from refuses it so long; who waits longer has something to say."""
    cluster: Any = Elsewhere()
    cluster.refusals *= 2
    figures = Figures()

    async def arrived() -> MemoryGuest:
        session: Any = Silent()
        tools = Tools(cluster, Store(tmp_path), figures, asyncio.Semaphore(), lambda _: session)
        found: MemoryGuest = await last_of(cluster.written, ARRIVED, tools)
        return found

    asyncio.run(arrived())
    assert failures(figures) == []


class Stolen(Here):
    """An API server by which somebody has said that a guest is on another node, whose agent soon lets it go."""

    def __init__(self) -> None:
        super().__init__(pairing())
        self._is_stolen, self.back = False, asyncio.Queue[MemoryGuest]()

    def pairings(self, _: Any) -> list[Any]:
        return []

    async def claim(self, guest: MemoryGuest) -> MemoryGuest:
        if self.refusals:
            raise self.refusals.pop()
        if self._is_stolen:
            self.back.put_nowait(guest)
        return guest

    async def write_guest(self, guest: MemoryGuest) -> None:
        await super().write_guest(guest)
        if self.written.qsize() > 1 and not self._is_stolen:  # it was announced, and has answered
            self._is_stolen = True
            self.refusals = [Refused(403, "apply", "the agent of node node1 has not let it go")] * 3


def test_a_guest_that_is_said_to_be_elsewhere_is_soon_asked_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 28, fault 4: before the agent there deletes it, however long it has been this node's."""
    for name in ("ARRIVING_EVERY", "IDLE_EVERY"):
        monkeypatch.setattr(worker, name, 0.05)
    cluster: Any = Stolen()

    async def back() -> None:
        session: Any = Without(machine("borrower"), observation())
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
        await last_of(cluster.back, machine("borrower"), tools)

    asyncio.run(back())


class Leaving(Without):
    """A guest that is to be left alone, and does each step."""

    async def look(self) -> Observation:
        for step in self.done:
            if isinstance(step, Detach):
                mapped = {step.name: replace(self._seen.mapped[step.name], is_lent=False)}
                self._seen = replace(self._seen, mapped=mapped, module=None, has_target=False)
        if any(isinstance(step, SwapOff) for step in self.done):
            self._seen = replace(self._seen, mapped={})
        return self._seen


def test_a_guest_that_is_excluded_gets_rid_of_swap_before_it_is_left_alone(tmp_path: Path) -> None:
    """Nobody would come back to empty it when no lender is in front of it any more."""
    swap = Mapped("tidepool.swap", 1 << 30, is_lent=True, is_open=True, swapped_bytes=0)
    seen = observation(loaded=True, mapped={swap.name: swap}, has_target=True)
    excluded = Excluded("the virtual machine has the label")

    class Unwilling(Here):
        def excluded(self, _: Any) -> Excluded:
            return excluded

        def guest(self, _: Any) -> MemoryGuest:
            return report.guest(machine("borrower"), "node2", Finding(seen=seen), (), None)

    async def steps() -> list[plan.Step]:
        cluster: Any = Unwilling(pairing())
        session: Any = Leaving(machine("borrower"), seen)
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
        await last_of(cluster.written, machine("borrower"), tools)
        return session.done

    assert asyncio.run(steps()) == [Detach(swap.name), UnloadTarget(), plan.Unload(), SwapOff(swap.name)]


class Losing:
    """A guest that knows how large a packet gets to an address, and notes what it was asked."""

    machine = machine("borrower")

    def __init__(self) -> None:
        self.asked = list[str]()

    async def reach(self, address: str) -> Reach:
        self.asked.append(address)
        return Reach(address, 1400, 1500)


def test_full_packets_are_sent_to_a_lender_that_is_lost_again_and_again(tmp_path: Path) -> None:
    """Issue 28, fault 9: once, and not before; at the address that the module uses."""
    session: Any = Losing()
    cluster: Any = None
    tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
    borrowing = Worker(session.machine, tools)

    def lost(times: int) -> dict[Any, Any]:
        peer = Peer({"state": "Connected", "address": "10.0.0.9"}, {"disconnects": times})
        return dict(asyncio.run(borrowing._lost(observation(loaded=True, peers={BORROWED.key: peer}))))  # noqa: SLF001

    assert [lost(times) for times in range(3)] == [{}] * 3
    assert session.asked == []
    assert [lost(times) for times in (3, 4)] == [{BORROWED.key: Reach("10.0.0.9", 1400, 1500)}] * 2
    assert session.asked == ["10.0.0.9"]


def test_a_guest_that_is_frozen_when_packets_are_to_be_sent_loses_no_round(tmp_path: Path) -> None:
    """It has just been looked at, which is reported; only what gets to its lender is not known."""

    class Freezing(Losing):
        async def reach(self, _: str) -> Reach:
            raise Frozen

    session: Any = Freezing()
    cluster: Any = None
    tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session)
    borrowing = Worker(session.machine, tools)
    for times in (0, 3):
        peer = Peer({"state": "Connected", "address": "10.0.0.9"}, {"disconnects": times})
        seen = observation(loaded=True, peers={BORROWED.key: peer})
        known = asyncio.run(borrowing._lost(seen))  # noqa: SLF001 - a part of its round
    assert known == {BORROWED.key: None}


class Lender(Here):
    """An API server by which the guest of this node is to lend."""

    def machine(self, _: Any) -> Machine:
        return machine("lender")


def test_a_guest_that_is_to_lend_has_its_own_memory_first(tmp_path: Path) -> None:
    """Its balloon is emptied before anything is run in it; what is said of that goes into its report."""
    one = pairing()
    wants = want(Side.BORROWERS, one)
    peer = Peer(dict(wants.attributes) | {"enabled": "1"})
    held = Standing(GuestBalloon(full_bytes=8 << 30, gathered_bytes=1 << 30))

    class Giving:
        holds = True

        def keeps(self, _: Any) -> bool:
            return self.holds

        def standing(self, _: Any) -> Standing:
            return held

    giving = Giving()
    donors: Any = giving

    class Watched(Without):
        async def look(self) -> Observation:
            assert not giving.holds
            return await super().look()

    async def report_of() -> MemoryGuest:
        cluster: Any = Lender(one)
        session: Any = Watched(machine("lender"), observation(loaded=True, peers={wants.key: peer}))
        tools = Tools(cluster, Store(tmp_path), Figures(), asyncio.Semaphore(), lambda _: session, donors=donors)
        asyncio.get_running_loop().call_later(SOON / 2, setattr, giving, "holds", False)
        return await last_of(cluster.written, machine("lender"), tools, 2)

    assert asyncio.run(report_of()).status.balloon == held.balloon
