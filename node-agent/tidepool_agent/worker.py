"""One guest's reconcile loop: look, compare, act, look again, report; again when something changes or time has passed.

Level-triggered: every round starts from what the guest and the API server say now. What is remembered between rounds
only makes the agent patient (with a guest that is silent for a moment) and slow (with what has failed before).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidepool_agent import applicationreport, applications, devices, plan, report
from tidepool_agent.applications import Give, LoadApp, UnloadApp
from tidepool_agent.cluster import Cluster
from tidepool_agent.devicereport import Standing
from tidepool_agent.donors import Donors
from tidepool_agent.errors import (
    Excluded,
    GuestError,
    ModulesRefused,
    ModuleUnavailable,
    Unreachable,
    Unsupported,
    UpgradeWaits,
)
from tidepool_agent.guestfs import Observation, Side
from tidepool_agent.losses import Losses, Paths, Reach
from tidepool_agent.metrics import Figures, Sample
from tidepool_agent.needs import Trend
from tidepool_agent.plan import Configure, Desired, Key, Load, Replace, Step, Turn, Unload
from tidepool_agent.provider import Machine
from tidepool_agent.report import Finding
from tidepool_agent.retry import Failures
from tidepool_agent.rounds import COLLECT_EVERY, IDLE_EVERY, Rounds
from tidepool_agent.session import Session
from tidepool_agent.store import Store
from tidepool_api import GuestKey, MemoryGuest, MemoryPairing, now
from tidepool_api.kube import Refused

log = logging.getLogger(__name__)

SOON, SILENT_EVERY = 2.0, 60.0
# A guest that is left alone: whoever lets it take part wakes the worker, but not a new system in an old disk.
LEFT_ALONE_EVERY = 600.0
# So long a guest that comes from another node waits for the agent there to let it go, and so often that is tried.
ARRIVING_SECONDS, ARRIVING_EVERY = 30, 1.0
# So long after a change the guest is looked at often, so that its new state is reported soon.
SETTLING_SECONDS = 60
# A guest boots in about a minute, more when it is emulated: so long it is asked often whether its agent is there.
BOOT_SECONDS = 180
# One late answer is no reason to call a guest unready.
PATIENCE_SECONDS = 30
# Who has programs' device open is asked so often, where the module is to go: the guest looks at all its processes then.
HOLDERS_EVERY = 60.0
# What fails of these ends a round: without the module there is nothing to set up, without its target no device, and
# what is still in use, by peers, devices or programs, is neither replaced nor unloaded.
DECISIVE = frozenset({("module",), ("target",), ("removal",), ("target removal",), ("application removal",)})


@dataclass(frozen=True)
class Tools:
    """What every worker needs."""

    cluster: Cluster
    store: Store
    figures: Figures
    replacing: asyncio.Semaphore
    """How many guests get another build of the module at a time."""
    connect: Callable[[Machine], Session]
    may_build: bool = False
    """Whether DKMS may build the module in guests."""
    donors: Donors | None = None
    """Those from which memory is gathered."""


class Worker(Rounds):
    """Looks after one guest until it is cancelled."""

    def __init__(self, machine: Machine, tools: Tools) -> None:
        super().__init__(tools.cluster, tools.figures)
        self._tools = tools
        self.behind = False
        """Whether the guest uses another build of the module than the store has, and will get that one."""
        self._begin(machine)

    def _begin(self, machine: Machine) -> None:
        """Everything about a machine that does not hold for another one of the same name."""
        self._missing_since: float | None = None
        self._session = self._tools.connect(machine)
        self._found = Finding()
        self._claimed: MemoryGuest | None = None
        self._failures = Failures()
        self._trend = Trend()
        self._losses, self._paths = Losses(), Paths()
        self._holders: tuple[float, tuple[str, ...]] | None = None
        self._rejected: tuple[str, GuestError | None] = "", None
        self._silent_since: float | None = None
        self._acted = 0.0

    def _close(self) -> None:
        self._session.close()
        self._figures.drop(self._session.machine.key)

    def _patience(self, error: Refused) -> float:
        """How long until it is tried again after a refusal."""
        return ARRIVING_EVERY if self._is_arriving() and not error.is_gone else super()._patience(error)

    def _is_passing(self, error: Refused) -> bool:
        """Whether nobody need do anything about a refusal: the agent of another node may be about to let it go."""
        return self._is_arriving() or super()._is_passing(error)

    def _is_arriving(self) -> bool:
        """Whether its MemoryGuest is not this node's yet, as of a machine that has just come, or for a moment not.

        So one that somebody has said to be elsewhere is back before the agent there, which has no such machine,
        deletes it.
        """
        since = self._missing_since
        return since is not None and time.monotonic() - since < ARRIVING_SECONDS

    async def _round(self) -> float:
        key = self._session.machine.key
        machine = self._tools.cluster.machine(key)
        if machine is None:
            return IDLE_EVERY  # the controller ends this worker
        if not self._session.is_for(machine):
            self._session.close()
            self._begin(machine)
        pairings = self._tools.cluster.pairings(key)
        wanted = plan.desired(key, pairings, migrating=machine.migrating)
        if self._is_short(wanted):
            return SOON
        if self._tools.cluster.guest(key) is None:
            self._missing_since = self._missing_since or time.monotonic()
            await self._announce(machine, wanted)
        self._missing_since = None
        found = await self._look(machine, wanted)
        balloon = self._tools.donors.standing(key) if self._tools.donors else None
        self._found = replace(found, paired=frozenset(one.metadata.uid for one in pairings), balloon=balloon)
        self._collect(machine, pairings)
        try:
            await self._report(machine, self._found, wanted)
        except Refused:  # no guest can keep a pairing from its end by what it says
            await self._release(machine, pairings, wanted)
            raise
        released = await self._release(machine, pairings, wanted)
        return self._pause(wanted) if released else SOON

    def _is_short(self, wanted: Desired) -> bool:
        """Whether the guest is to lend, and is about to get its own memory back first."""
        lends = any(want.side is Side.BORROWERS for want in wanted.peers)
        return lends and self._tools.donors is not None and self._tools.donors.keeps(self._session.machine.key)

    async def _announce(self, machine: Machine, wanted: Desired) -> None:
        """Reports the machine before its guest is asked anything: only who may report a guest may touch it.

        What the agent of another node has said of it stays until there is news, but for where it is reached.
        """
        unasked = self._tools.cluster.excluded(machine) or Unreachable(
            "the agent has found the machine and is about to ask its guest", "NotAskedYet"
        )
        fresh = report.guest(machine, self._tools.cluster.node, Finding(unreachable=unasked), wanted.peers, None)
        self._claimed = await self._tools.cluster.claim(fresh)
        if self._claimed is not None and self._claimed.status.observed_at is not None:
            moved = self._claimed.status.model_copy(update={"addresses": fresh.status.addresses})
            fresh = fresh.model_copy(update={"status": moved})
        await self._tools.cluster.write_guest(fresh)

    @property
    def _about(self) -> GuestKey:
        return self._session.machine.key

    @property
    def _name(self) -> str:
        return str(self._about)

    # ---------------------------------------------------------------------------------------------- look, compare, act

    async def _look(self, machine: Machine, wanted: Desired) -> Finding:
        """Looks at the guest, unless it is one to be left alone."""
        excluded = self._tools.cluster.excluded(machine)
        return await (self._keep_out(machine, excluded) if excluded else self._find(machine, wanted))

    async def _keep_out(self, machine: Machine, why: Excluded) -> Finding:
        """Takes the module out of a guest that it is in; beside that no command is given to the guest."""
        self.behind = False
        if not self._is_inside(machine):
            self._silent_since = None
            return Finding(unreachable=why, left_alone=True)
        try:
            seen = await self._session.look()
            for _ in range(2):  # a swap area is emptied when no lender is in front of it any more
                if await self._follow(plan.steps(Desired(), seen, None), seen):
                    seen = await self._session.look()
        except GuestError as error:
            why.add_note(f"the module is still in it: {error}")
            return replace(self._silent(error), unreachable=why)
        self._silent_since = None
        return Finding(seen=seen, unreachable=why) if seen.module else Finding(unreachable=why, left_alone=True)

    def _is_inside(self, machine: Machine) -> bool:
        """Whether the guest has the module, by what is known; nobody but an agent reports an identity."""
        if self._found.seen:
            return self._found.seen.module is not None
        present = self._tools.cluster.guest(machine.key)
        return present is not None and _same(machine, present) and present.status.identity is not None

    async def _find(self, machine: Machine, wanted: Desired) -> Finding:
        """Looks at the guest, does what is due, and says how it is now."""
        try:
            seen = await self._session.look()
            await self._note_reboot(machine, wanted, seen)
            in_store = self._tools.store.has(seen.release)
            where = plan.source(seen, in_store=in_store, may_build=self._tools.may_build)
            barred = None if seen.module else self._refusal_of(seen, where)
            wanted = replace(wanted, following=await self._following(machine, wanted, seen))
            if await self._act(wanted, seen, None if barred else where):
                seen = await self._session.look()
        except Unsupported as error:
            self._silent_since = None
            return Finding(unreachable=error, left_alone=True)
        except GuestError as error:
            return self._silent(error)
        self._silent_since = None
        return Finding(
            seen=seen,
            rates=self._trend.add(seen),
            source=where or plan.Source.STORE,
            unavailable=barred or (None if where else self._no_module(seen)),
            refused=self._failures.error("module"),
            rejected=self._rejected[1] or await self._waits(seen, where),
            failed=self._failed(wanted),
            losing=await self._lost(seen),
            block=self._standing(wanted, seen, where),
            programs=await self._programs(wanted, seen, where),
        )

    async def _lost(self, seen: Observation) -> Mapping[Key, Reach | None]:
        """The lenders that are lost again and again, each with what gets there; now and then that is tried anew.

        None of one of which the guest does not say it, as while a backup has frozen it.
        """
        losing = self._losses.add(seen, time.monotonic())
        for key in self._paths.due(losing, time.monotonic()):
            reach: Reach | None = None
            with contextlib.suppress(GuestError):
                reach = await self._session.reach(seen.peers[key].attributes.get("address", ""))
            self._paths.note(key, reach, time.monotonic())
        return self._paths.known

    def _standing(self, wanted: Desired, seen: Observation, where: plan.Source | None) -> Standing:
        """How far the guest is with its block devices."""
        names = wanted.block.names | seen.mapped.keys()
        errors = {name: self._failures.error("device", name) for name in names}
        target = self._failures.error("target") or self._failures.error("module")
        if where is None and not seen.has_target:
            target = target or self._no_module(seen)
        return Standing(wanted.block, {name: error for name, error in errors.items() if error}, target)

    async def _programs(
        self, wanted: Desired, seen: Observation, where: plan.Source | None
    ) -> applicationreport.Standing:
        """How far the guest is with the memory of its programs."""
        failed = self._failures.error("application") or self._failures.error("application removal")
        failed = failed or self._failures.error("module")
        if seen.app is None and wanted.applications:
            failed = failed or self._rejected[1] or (None if where else self._no_module(seen))
        is_to_go = wanted.applications is None and not wanted.following
        holders = await self._who_holds() if is_to_go and applications.is_held(seen.app) else ()
        return applicationreport.Standing(wanted.applications, failed, holders)

    async def _waits(self, seen: Observation, where: plan.Source | None) -> UpgradeWaits | None:
        """Why another build of the module is not used yet: programs hold the one that is there."""
        if not applications.is_held(seen.app):
            self._holders = None
            return None
        if not self._outdated(seen, where):
            return None
        held = applicationreport.held(await self._who_holds())
        return UpgradeWaits(f"{held}: end or restart what uses it, and another build of the module is loaded")

    async def _who_holds(self) -> tuple[str, ...]:
        """Processes that have programs' device open, asked for now and then; none where the guest does not say."""
        if self._holders is None or time.monotonic() - self._holders[0] >= HOLDERS_EVERY:
            found: tuple[str, ...] = ()
            with contextlib.suppress(GuestError):
                found = await self._session.holders()
            self._holders = time.monotonic(), found
        return self._holders[1]

    def _no_module(self, seen: Observation) -> ModuleUnavailable:
        error = ModuleUnavailable(self._tools.store.advice(seen.release))
        if seen.buildable:
            error.add_note("it has what building one takes, which agent.buildInGuests, the chart's value, would allow")
        return error

    async def _following(self, machine: Machine, wanted: Desired, seen: Observation) -> frozenset[str]:
        """Those of the guest's peers that nobody wants here yet: their pairings follow it from another node.

        A pairing that is being deleted is seen here first, so most of the time there is nothing to ask.
        """
        cluster = self._tools.cluster
        ending = {one.metadata.uid for one in cluster.pairings(machine.key) if one.terminating}
        strange = {name for _, name in seen.peers} - {want.name for want in wanted.peers} - ending
        return frozenset(strange & await cluster.paired(machine.key)) if strange else frozenset()

    async def _act(self, wanted: Desired, seen: Observation, where: plan.Source | None) -> bool:
        """Does what is due; whether the guest may have changed. So many guests at a time get another module."""
        outdated = self._outdated(seen, where) and not wanted.following and not applications.is_held(seen.app)
        self.behind = outdated and bool(wanted.peers)
        turns = self._tools.replacing
        if not outdated or turns.locked():
            return await self._follow(self._fitting(plan.steps(wanted, seen, where), seen, where), seen)
        async with turns:
            return await self._follow(plan.steps(wanted, seen, where, replace=True), seen)

    def _fitting(self, steps: list[Step], seen: Observation, where: plan.Source | None) -> list[Step]:
        """The steps without a module for programs that was built with another core module than is there."""
        is_other = seen.module is not None and self._offered(seen) != seen.module.srcversion
        if where is not plan.Source.STORE or not is_other:
            return steps
        return [step for step in steps if not isinstance(step, LoadApp)]

    async def _follow(self, steps: list[Step], seen: Observation) -> bool:
        self._failures.keep({plan.subject(step) for step in steps})
        return await self._carry_out(steps, seen)

    async def _carry_out(self, steps: list[Step], seen: Observation) -> bool:
        """Carries out the steps that are due; whether the guest may have changed."""
        tried = False
        for step in steps:
            subject = plan.subject(step)
            if self._failures.due(subject, time.monotonic()):
                tried = True
                await self._try(step, seen)
                if not isinstance(step, Turn):  # which is repeated for as long as a lender is nowhere
                    self._acted = time.monotonic()
            if subject in DECISIVE and self._failures.error(*subject):
                break
        return tried

    async def _try(self, step: Step, seen: Observation) -> None:
        try:
            await self._session.do(step, seen.release)
        except GuestError as error:
            await self._has_failed(step, error, seen)
            if isinstance(error, Unreachable):
                raise
        else:
            log.log(logging.DEBUG if isinstance(step, Turn) else logging.INFO, "%s: %s", self._name, step_name(step))
            self._failures.succeeded(plan.subject(step))
            if isinstance(step, Load | Replace | Unload):
                await self._event(*_news(step, seen.release))

    async def _has_failed(self, step: Step, error: GuestError, seen: Observation) -> None:
        log.warning("%s: %s: %s", self._name, step_name(step), error)
        if isinstance(step, Replace):
            self._reject(error, seen)
        else:
            self._failures.failed(plan.subject(step), error, time.monotonic(), now())
        if isinstance(step, Load | Replace | Unload):
            await self._event("ModuleRefused", f"{step_name(step)}: {error}", warning=True)

    async def _note_reboot(self, machine: Machine, wanted: Desired, seen: Observation) -> None:
        """A reboot undoes everything in the guest; it is reported before it is repaired."""
        present = self._tools.cluster.guest(machine.key)
        before = self._found.seen.boot_id if self._found.seen else _last_boot(machine, present)
        if before in (None, seen.boot_id):
            return
        log.info("%s: rebooted, kernel %s", self._name, seen.release)
        self._failures = Failures()
        self._found = Finding(seen=seen, rebooted=bool(wanted.peers), block=Standing(wanted.block))
        await self._event("GuestRebooted", f"kernel {seen.release}")
        await self._report(machine, self._found, wanted)

    def _silent(self, error: GuestError) -> Finding:
        """What to say of a guest that gives no usable answer."""
        since = self._silent_since = self._silent_since or time.monotonic()
        self.behind = False  # nobody waits for a guest that does not answer
        passing = isinstance(error, Unreachable) and self._found.seen is not None
        if passing and time.monotonic() - since < PATIENCE_SECONDS:
            return self._found
        if time.monotonic() - since >= BOOT_SECONDS:
            error.add_note(f"it is asked ever more seldom, at least every {SILENT_EVERY:.0f} s")
        if self._found.unreachable is None:
            log.info("%s: %s: %s", self._name, error.reason, error)
        return replace(self._found, unreachable=error)

    def _outdated(self, seen: Observation, where: plan.Source | None) -> bool:
        """Whether the store has another build than the one that is loaded, and not one that has failed here before."""
        if where is not plan.Source.STORE or seen.module is None:
            return False
        offered = self._offered(seen)
        other = offered not in (None, seen.module.srcversion, self._rejected[0])
        return other and self._refusal_of(seen, where) is None

    def _offered(self, seen: Observation) -> str | None:
        try:
            return self._tools.store.build(seen.release).srcversion
        except ModuleUnavailable:
            return None

    def _reject(self, error: GuestError, seen: Observation) -> None:
        """A build that has failed in this guest is not tried there again: each time would cost it its remote cache."""
        if not isinstance(error, Unreachable):
            self._rejected = self._offered(seen) or "", error

    def _refusal_of(self, seen: Observation, where: plan.Source | None) -> ModulesRefused | None:
        """Why it would be of no use to try to load the module, if it is known to be."""
        if not seen.refusal or where is None:
            return None
        if seen.refusal == "SignatureRequired" and self._may_be_trusted(seen, where):
            return None
        return ModulesRefused(seen.refusal)

    def _may_be_trusted(self, seen: Observation, where: plan.Source) -> bool:
        """Whether the module may have the signature that the guest asks for; one of the guest's own may."""
        if where is not plan.Source.STORE:
            return True
        try:
            return self._tools.store.build(seen.release).signed
        except ModuleUnavailable:
            return False

    def _failed(self, wanted: Desired) -> dict[tuple[Side, str], GuestError]:
        """Why peers could not be set up; settings that were refused concern every borrower."""
        settings = self._failures.error("settings")
        errors = {want.key: self._failures.error("peer", *want.key) for want in wanted.peers}
        if settings:
            errors |= {key: error or settings for key, error in errors.items() if key[0] is Side.BORROWERS}
        return {key: error for key, error in errors.items() if error}

    # ---------------------------------------------------------------------------------------------------------- report

    def _collect(self, machine: Machine, pairings: list[MemoryPairing]) -> None:
        if self._found.seen:
            by_uid = {one.metadata.uid: (one.spec.pool, one.name) for one in pairings}
            stale = self._silent_since is not None
            named = self._found.block.wanted.names
            self._figures.put(machine.key, Sample(self._found.seen, machine.provider.value, by_uid, named, stale))
        elif self._found.left_alone:
            self._figures.leave_alone(machine.key)

    async def _report(self, machine: Machine, found: Finding, wanted: Desired) -> None:
        cluster = self._tools.cluster
        present = cluster.guest(machine.key) or self._claimed
        before = present.status if present and _same(machine, present) else None
        fresh = report.guest(machine, cluster.node, found, wanted.peers, before)
        self._figures.judge(machine.key, fresh.status.conditions)
        await self._write(fresh, present, before, wanted.peers, found)

    # --------------------------------------------------------------------------------------------------------- release

    async def _release(self, machine: Machine, pairings: list[MemoryPairing], wanted: Desired) -> bool:
        """Removes this side's finalizer where it is done; False when that has to be tried again."""
        return await self._let_pairings_go(machine.key, pairings, lambda one: self._torn_down(one, wanted))

    def _torn_down(self, pairing: MemoryPairing, wanted: Desired) -> bool:
        seen = self._found.seen
        if self._found.left_alone:
            return True
        if seen is None or self._silent_since is not None:
            return False
        gone = all(name != pairing.metadata.uid for _, name in seen.peers)
        return gone and (seen.module is None or bool(wanted.peers) or applications.is_held(seen.app))

    def _pause(self, wanted: Desired) -> float:
        """How long until the next round, if nothing happens before."""
        moment = time.monotonic()
        if self._found.left_alone:
            return LEFT_ALONE_EVERY
        if self._silent_since is not None:
            silent = moment - self._silent_since
            return SOON if silent < BOOT_SECONDS else min(silent / 20, SILENT_EVERY)
        return next_look(wanted, self._found.seen, moment - self._acted)


def next_look(wanted: Desired, seen: Observation | None, idle: float) -> float:
    """How long until a guest that answers is looked at again, so many seconds after something was done in it."""
    if seen and any(plan.is_adrift(want, seen.peers.get(want.key)) for want in wanted.peers):
        return SOON  # a connection to where the lender was before is about to end, and the next one is elsewhere
    connected = seen and all(peer.state == "Connected" for peer in seen.peers.values())
    if idle < SETTLING_SECONDS and not connected:
        return SOON
    return COLLECT_EVERY if wanted.peers or (seen and seen.module) else IDLE_EVERY


def _last_boot(machine: Machine, present: MemoryGuest | None) -> str | None:
    """The boot that an agent before this one has seen of the machine."""
    return present.status.boot_id if present and _same(machine, present) else None


def _same(machine: Machine, present: MemoryGuest) -> bool:
    """Whether a MemoryGuest is about this machine, and not about an earlier one of its name."""
    return present.spec.vm.uid == machine.uid


def _news(step: Load | Replace | Unload, release: str) -> tuple[str, str]:
    """Reason and message of the Event after a step that concerns the module."""
    match step:
        case Load(source):
            return "ModuleLoaded", f"tidepool.ko {source.value}, kernel {release}"
        case Replace():
            return "ModuleReplaced", f"tidepool.ko {plan.Source.STORE.value}, kernel {release}"
        case _:
            return "ModuleUnloaded", "no pairing needs it"


def step_name(step: Step) -> str:
    """A step in words, for logs and Events."""
    match step:
        case Configure() | plan.Change() | Turn():
            return _peer_step_name(step)
        case LoadApp() | Give() | UnloadApp():
            return applications.step_name(step)
        case Load() | Replace() | plan.Remove() | plan.Set() | plan.Measure() | Unload():
            return _module_step_name(step)
        case _:
            return devices.step_name(step)


def _module_step_name(step: Load | Replace | plan.Remove | plan.Set | plan.Measure | Unload) -> str:
    match step:
        case Load(source):
            return f"load the module {source.value}"
        case Replace():
            return "replace the module"
        case plan.Remove(peers):
            return f"remove {', '.join(f'{side}/{name}' for side, name in peers)}"
        case plan.Set(settings):
            return f"set {', '.join(f'{name}={value}' for name, value in settings.items())}"
        case plan.Measure(mode):
            return f"switch ghost mode to {mode}"
        case Unload():
            return "unload the module"


def _peer_step_name(step: Configure | plan.Change | Turn) -> str:
    peer = f"{step.want.side}/{step.want.name} (pairing {step.want.pairing.name})"
    match step:
        case Configure():
            return f"configure {peer}"
        case plan.Change(_, attributes):
            return f"change {', '.join(attributes)} of {peer}"
        case Turn(_, address):
            return f"try {address} for {peer}"
