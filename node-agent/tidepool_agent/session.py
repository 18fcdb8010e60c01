"""The way to one machine: its libvirt daemon, its guest agent, and the thread through which all of that goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tidepool_agent.backing import has_swap, host_side
from tidepool_agent.balloondevice import has_note
from tidepool_agent.errors import CommandsBlocked
from tidepool_agent.guest import Guest
from tidepool_agent.guestfs import Observation
from tidepool_agent.hypervisor import Domain, Lane
from tidepool_agent.losses import Reach
from tidepool_agent.plan import Load, Source, Step
from tidepool_agent.provider import Machine
from tidepool_agent.qga import GuestAgent
from tidepool_agent.store import Store
from tidepool_api import GuestKey, Interface, Provider
from tidepool_api.turns import in_turn

T = TypeVar("T")

LOOK_SECONDS = 45
STEP_SECONDS = 180
BUILD_SECONDS = 700
PLACE_SECONDS = 5.0  # after which a call that takes long makes room for another guest's, and goes on

# Where the libvirt daemon of a machine listens.
Endpoint = Callable[[Machine], str]


class Session:
    """Talks to one machine for as long as it is that machine.

    `slots` limits how many are talked to at a time; who takes long is none of them after a while.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        endpoint: Endpoint,
        store: Store,
        slots: asyncio.Semaphore,
        proc: Path,
        gathered: Callable[[GuestKey], None] = lambda _: None,
    ) -> None:
        """`gathered` is told of a machine whose domain says that memory was gathered from it."""
        self.machine = machine
        self._gathered = gathered
        self._proc = proc
        self._domain = Domain(lambda: endpoint(machine), machine.domain)
        self._guest = Guest(GuestAgent(self._domain.command), store)
        self._lane = Lane(f"guest {machine.key}")
        self._slots = slots
        self._known: Observation | None = None
        self._is_gathered = False

    def is_for(self, machine: Machine) -> bool:
        """Whether this still is the way to the machine."""
        mine = self.machine
        return (mine.uid, mine.place, mine.domain) == (machine.uid, machine.place, machine.domain)

    async def look(self) -> Observation:
        """The state of the guest now."""
        try:
            return await self._in_turn(self._look, LOOK_SECONDS)
        finally:
            if self._is_gathered:  # also of a guest that does not answer
                self._gathered(self.machine.key)

    async def reach(self, address: str) -> Reach | None:
        """How large a packet gets from the guest to an address; None where it cannot tell."""
        return await self._in_turn(lambda: self._guest.reach(address), LOOK_SECONDS)

    async def holders(self) -> tuple[str, ...]:
        """The first processes of the guest that have programs' device open, for people to read."""
        return await self._in_turn(self._guest.holders, LOOK_SECONDS)

    async def do(self, step: Step, release: str) -> None:
        """Carries out one step in the guest, whose kernel is of that release."""
        if step == Load(Source.DKMS):
            self._known = None
            # Takes minutes in which the agent only asks whether it is done.
            await self._lane.call(lambda: self._guest.carry_out(step, release), BUILD_SECONDS)
            return
        await self._in_turn(lambda: self._guest.carry_out(step, release), STEP_SECONDS)

    async def _in_turn(self, call: Callable[[], T], seconds: float) -> T:
        """A call when there is room for it."""
        return await in_turn(self._slots, PLACE_SECONDS, lambda: asyncio.ensure_future(self._lane.call(call, seconds)))

    def close(self) -> None:
        """Gives up the connection and the thread, without waiting for a call that hangs."""
        self._lane.close(self._domain.close)

    def _look(self) -> Observation:
        self._domain.check_running()
        described = self._domain.description()
        self._is_gathered = has_note(described)
        try:
            self._known = replace(self._probe(), interfaces=self._interfaces())
        except CommandsBlocked:
            self._known = None  # somebody changed the guest agent: next time ask what it allows
            raise
        return replace(self._known, host=host_side(described, swap=has_swap(self._proc)))

    def _interfaces(self) -> tuple[Interface, ...]:
        """What the guest itself says; of KubeVirt's it is part of their instances."""
        return self._guest.interfaces() if self.machine.provider is Provider.LIBVIRT else ()

    def _probe(self) -> Observation:
        """A probe; once per boot it also asks what does not change until the next."""
        if self._known is None:
            self._guest.check()
            return self._guest.probe(installed=True)
        seen = self._guest.probe()
        if seen.boot_id != self._known.boot_id:
            return self._guest.probe(installed=True)
        return replace(seen, installed=self._known.installed, buildable=self._known.buildable)
