"""Makes one namespace as the planner says, and says on its objects what became of it.

Every step asks what is and does only what is missing, so it can be repeated, interrupted and begun anew at any point.
"""

from __future__ import annotations

import logging
import time
import traceback
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import (
    ConditionType,
    MemoryPairing,
    MemoryPool,
    PairingPhase,
    PoolKey,
    PoolPhase,
    PoolStatus,
    Reason,
    Ref,
    Role,
    cadence,
    find,
    names,
    now,
)
from tidepool_api.kube import Refused
from tidepool_api.reading import as_far_as_understood
from tidepool_api.turns import at_once
from tidepool_operator.cluster.cross_namespace import Grants, age, is_granted, pairings_elsewhere
from tidepool_operator.cluster.donors import Donors, Mark
from tidepool_operator.cluster.nodelenders import NodeLenders
from tidepool_operator.cluster.queue import SLOWEST_RETRY_SECONDS
from tidepool_operator.cluster.quotas import Quotas
from tidepool_operator.cluster.writing import Turns, Writer, gist
from tidepool_operator.planning import adoption, build, changes, identities
from tidepool_operator.planning.changes import TOLD_AT_MOST, Create, Delete, Update, described
from tidepool_operator.planning.identities import Claims
from tidepool_operator.planning.inventory import Inventory
from tidepool_operator.planning.planner import Plan, plan
from tidepool_operator.planning.roles import Why
from tidepool_operator.planning.selection import listed, unbelieved
from tidepool_operator.status import report
from tidepool_operator.status.outcome import PATIENCE_SECONDS as PATIENCE_WITH_WRITES
from tidepool_operator.status.outcome import REVOKED, Outcome
from tidepool_operator.status.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from tidepool_api import ApiObject, Condition, MemoryGuest
    from tidepool_operator.cluster.api import Cluster
    from tidepool_operator.cluster.heartbeats import Heartbeats
    from tidepool_operator.cluster.state import Objects, State, Unreadable
    from tidepool_operator.metrics import Metrics
    from tidepool_operator.planning.changes import Change
    from tidepool_operator.planning.placement import Assignment

log = logging.getLogger(__name__)

T = TypeVar("T")

SOON_SECONDS = 0.5  # when somebody else was faster
PATIENCE_SECONDS = 120  # with a live agent that does not manage to take its side down
LOST_AT_MOST = 100  # guests that are gone and remembered, of a namespace
POOLS_AT_MOST = 100  # of a namespace, that are planned: who makes thousands is to hold up nobody else
LOOK_AGAIN_SECONDS = 5.0  # while something is being taken down, or a guest is where no agent is known
TOLD_ONE_BY_ONE = 5  # pairings that are connected now; of more at a time their pool's Event says how many there are
FIGURES_SECONDS = 15.0  # a status whose figures alone have changed is written at most this often

_FIGURES = ("used_bytes", "used", "hit_ratio", "hit_shares")

_BAD_NEWS = (PairingPhase.FAILED, PairingPhase.UNSTABLE)

# What an Event about a change of role is called.
_TURNS = {
    (Role.NONE, Role.LENDER): "BeginToLend",
    (Role.NONE, Role.BORROWER): "BeginToBorrow",
    (Role.LENDER, Role.NONE): "EndToLend",
    (Role.LENDER, Role.BORROWER): "EndToLend",
    (Role.BORROWER, Role.NONE): "EndToBorrow",
    (Role.BORROWER, Role.LENDER): "EndToBorrow",
}


@dataclass
class _Round:
    """One pass over a namespace."""

    namespace: str
    guests: dict[Ref, MemoryGuest]
    silent: frozenset[str]
    inventory: Inventory
    outcome: Outcome
    claimed: dict[Ref, str] = field(default_factory=dict)
    others: Mapping[str, Ref] = field(default_factory=dict)  # identities of guests in pairings elsewhere -> guest
    claims: Claims = field(default_factory=Claims)
    defects: dict[str, str] = field(default_factory=dict)  # pool -> which error of ours keeps it as it is
    defers: bool = False  # whether changes wait until other borrowers are connected, as their pairings' status says
    connected: int = 0  # pairings that were not in the pass before
    again: float | None = None
    planning: float = 0.0  # seconds of this thread's processor: it waits for nothing, and others' work does not count

    @cached_property
    def paused(self) -> set[Ref]:
        """The guests whose virtual machines are paused, as far as is known."""
        known = ((name, one.ready) for name, one in self.guests.items() if one.spec.node_name not in self.silent)
        return {name for name, ready in known if ready is not None and ready.reason == Reason.PAUSED}

    def look_again(self, seconds: float) -> None:
        """Asks for another pass, at the latest after so long."""
        self.again = seconds if self.again is None else min(self.again, seconds)


class Reconciler:
    """Knows the cluster's state, and writes to it."""

    def __init__(self, cluster: Cluster, state: State, heartbeats: Heartbeats, metrics: Metrics) -> None:
        self._cluster = cluster
        self._state = state
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._writer = Writer(cluster)
        self.grants = Grants(state)
        self._quotas, self._nodes = Quotas(state), NodeLenders(state)
        self._donors = Donors(state, self._nodes)
        self._written: dict[str, float] = {}  # UID of a pool -> when its status was written last
        self._turns = Turns(cadence.OPERATOR_WRITES)
        self._waits = Waits()
        self._shown: set[PoolKey] = set()  # pools in the metrics
        self._outcomes: dict[str, Outcome] = {}  # namespace -> what became of its last pass
        self._met: dict[str, dict[Ref, dict[str, str]]] = {}  # namespace -> guests, some of them gone -> labels

    async def namespace(self, namespace: str) -> float | None:
        """Goes over a namespace; returns after how many seconds it should be looked at again, if at all.

        Pools are planned one after the other, the oldest first, for each leaves the guests that it claims to no other;
        what that takes to be written is written for many of them at a time. What the API server refuses holds up
        nothing else: at the end each pool says how it is, and what was refused.
        """
        before = self._outcomes.setdefault(namespace, Outcome(namespace))
        outcome = Outcome(namespace, before, patience=PATIENCE_WITH_WRITES + self._cluster.waited)
        await self._revoke(namespace, outcome)
        scene = self._round(namespace, outcome)
        pools = sorted(self._state.pools.in_namespace(namespace), key=age)
        broken = self._state.pools.unreadable(namespace)
        self._quotas.look()
        self._nodes.look()
        every = [pool for pool in pools if not pool.terminating]
        live, late = every[:POOLS_AT_MOST], every[POOLS_AT_MOST:]
        for pool in late:
            self._keep_guests(scene, pool)
        plans = [(pool, wanted) for pool in live if (wanted := self._plan_alone(scene, pool))]
        going = [one for one in (*pools, *(unread.head for unread in broken)) if one.terminating]
        await self._name_guests(scene)
        guests = self._state.guests.in_namespace(namespace)
        await at_once(self._offer(scene, guest) for guest in adoption.abandoned(guests, scene.silent))
        await at_once(self._mark(scene, one) for one in self._marks(scene))
        await at_once(self._alone(scene, pool, partial(self._act, scene, pool, wanted)) for pool, wanted in plans)
        await at_once(self._delete(scene, one, None) for pool in going for one in self._of(pool))
        await at_once(self._delete(scene, one, None) for one in self._orphans(namespace))
        await self._release_abandoned(scene)
        await at_once(
            self._alone(scene, pool, partial(self._tell, scene, pool, wanted))
            for pool, wanted in plans
            if pool.name not in scene.defects
        )
        await at_once(self._confess(scene, pool) for pool in live if pool.name in scene.defects)
        await at_once(self._leave_out(scene, pool) for pool in late)
        await at_once(self._let_go(scene, pool) for pool in going)
        await at_once(self._complain(scene, unread) for unread in broken if not unread.head.terminating)
        await self._judge(scene, self._orphans(namespace))
        self._conclude(scene)
        return scene.again

    def _conclude(self, scene: _Round) -> None:
        """Remembers and shows what became of a pass."""
        self._forget_gone_pools(scene.namespace)
        scene.outcome.forget_answered()
        self._outcomes[scene.namespace] = scene.outcome
        self._metrics.show_refused(scene.namespace, scene.outcome.pools)
        if scene.outcome.failures or scene.defects:
            self._metrics.errors.inc()
        if scene.outcome.again is not None:
            scene.look_again(scene.outcome.again)
        self._metrics.reconciles.inc()
        self._metrics.pass_seconds.observe(scene.planning)

    def forget_gone(self) -> None:
        """Drops what is remembered of objects that no longer exist."""
        alive = self._state.uids()
        self._writer.keep(alive)
        self._turns.keep(alive)
        self._waits.keep(alive)
        self._quotas.forget_gone()
        self._nodes.forget_gone()
        self._written = {uid: at for uid, at in self._written.items() if uid in alive}
        served = self._state.namespaces()
        self.grants.keep(served | self._state.guests.namespaces())
        self._outcomes = {name: one for name, one in self._outcomes.items() if name in served}
        self._met = {name: one for name, one in self._met.items() if name in served}

    def step_down(self) -> None:
        """Forgets what only the one that acts knows and shows."""
        for key in self._shown:
            self._metrics.forget(*key)
        for namespace, outcome in self._outcomes.items():
            self._metrics.show_refused(namespace, {})
            outcome.end()
        self._shown.clear()
        self._outcomes.clear()
        self._met.clear()
        self._written.clear()
        self._quotas, self._nodes = Quotas(self._state), NodeLenders(self._state)
        self._donors = Donors(self._state, self._nodes)
        self._waits = Waits()
        self._writer.end()

    def _round(self, namespace: str, outcome: Outcome) -> _Round:
        begin = time.thread_time()
        every = self._state.guests.in_namespace(namespace)
        guests = {Ref(one.name): one for one in every if not one.has_ended}
        ends = [end.node_name for one in self._state.pairings.in_namespace(namespace) for end in _ends(one)]
        nodes = {one.spec.node_name for one in guests.values()} | set(ends)
        lending = {one for pool in self._state.pools.in_namespace(namespace) for one in self._state.lending(pool)}
        nodes |= {one.spec.node_name for other in lending for one in self._state.guests.in_namespace(other)}
        silent = self._heartbeats.silent(nodes)
        pairings = self._state.pairings.in_namespace(namespace)
        elsewhere = pairings_elsewhere(namespace, self._state)
        inventory = Inventory(
            every,
            pairings,
            namespace=namespace,
            elsewhere=elsewhere,
            nodes=self._state.nodes.known,
            silent=silent,
            gone=self._missing(namespace, {name: one for name, one in guests.items() if not one.is_node}),
            home=self._state.home,
            node_lenders=len(self._state.node_lenders()),
            lending=self.grants.lending(pairings),
        )
        guests |= {one.lender_ref: lender for one in pairings if (lender := self._lender(one))}
        held = [one.name for one in self._state.pools.in_namespace(namespace) if one.is_held]
        claimed = {guest: pool for pool in held for guest, _ in inventory.roles_in(pool)}
        others = identities.elsewhere(namespace, elsewhere)
        planning = time.thread_time() - begin
        return _Round(namespace, guests, silent, inventory, outcome, claimed, others=others, planning=planning)

    def _missing(self, namespace: str, guests: Mapping[Ref, MemoryGuest]) -> dict[Ref, dict[str, str]]:
        """The guests that were there in some earlier pass, with their labels."""
        met = self._met.get(namespace, {}) | {name: one.metadata.labels for name, one in guests.items()}
        lost = {name: labels for name, labels in met.items() if name not in guests}
        forgotten = set(list(lost)[:-LOST_AT_MOST])
        self._met[namespace] = {name: labels for name, labels in met.items() if name not in forgotten}
        return {name: labels for name, labels in lost.items() if name not in forgotten}

    def _lender(self, pairing: MemoryPairing) -> MemoryGuest | None:
        """The guest of another namespace that lends, if it does and is still there."""
        one = None if pairing.lender.namespace == pairing.namespace else self._state.guests.get(*pairing.lender)
        return None if one is not None and one.has_ended else one

    # --- a pool that an error of ours keeps as it is ------------------------------------------------------------------

    def _plan_alone(self, scene: _Round, pool: MemoryPool) -> Plan | None:
        """The plan for a pool; None if there is none for a defect, which is no other pool's. It keeps its guests."""
        try:
            return self._plan(scene, pool)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._note_defect(scene, pool, error)
            self._keep_guests(scene, pool)
            return None

    def _keep_guests(self, scene: _Round, pool: MemoryPool) -> None:
        """No other pool gets the guests of one that is not planned."""
        scene.claimed = {guest: pool.name for guest, _ in scene.inventory.roles_in(pool.name)} | scene.claimed

    async def _alone(self, scene: _Round, pool: MemoryPool, step: Callable[[], Awaitable[object]]) -> None:
        """A step for a pool, whose defects are no other pool's."""
        try:
            await step()
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._note_defect(scene, pool, error)

    def _note_defect(self, scene: _Round, pool: MemoryPool, error: Exception) -> None:
        """Remembers and logs it. What it says in words may be of guests elsewhere, and is for the log alone."""
        scene.defects[pool.name] = where(error)
        scene.look_again(SLOWEST_RETRY_SECONDS)
        log.error("pool %s: %s", pool.key, error, exc_info=error)

    async def _confess(self, scene: _Round, pool: MemoryPool) -> None:
        """Says on a pool that there is a defect."""
        text = (
            f"a defect of the operator ({scene.defects[pool.name]}) keeps the pool as it is; "
            "report it with the operator's log; it is tried again each minute"
        )
        await self._stay(scene, pool, "OperatorDefect", text)

    async def _leave_out(self, scene: _Round, pool: MemoryPool) -> None:
        """Says on a pool that there are too many of them."""
        text = f"only the {POOLS_AT_MOST} oldest pools of a namespace are gone over, and this one stays as it is"
        await self._stay(scene, pool, "TooManyPools", f"{text}; delete pools of namespace {pool.namespace}")

    async def _stay(self, scene: _Round, pool: MemoryPool, reason: str, text: str) -> None:
        """Says why a pool is not gone over; its pairings stay as they are, and say how they are."""
        await self._alone(scene, pool, partial(self._judge, scene, self._of(pool)))
        status = report.stuck_status(pool.status, reason, text)
        self._metrics.show_stuck(pool.key)
        self._shown.add(pool.key)
        await self._write_pool_status(scene, pool, status)

    # --- a pool that is wanted ----------------------------------------------------------------------------------------

    async def _act(self, scene: _Round, pool: MemoryPool, wanted: Plan) -> None:
        if names.POOL_FINALIZER not in pool.metadata.finalizers:
            await self._set_finalizers(
                scene, self._state.pools, pool, (*pool.metadata.finalizers, names.POOL_FINALIZER)
            )
        if pool.is_held:
            pairings = self._of(pool)
            await self._carry_out(scene, pool, changes.following(pairings, self._whereabouts(scene, pairings)))
        else:
            await self._tell_turns(pool, wanted)
            await self._carry_out(scene, pool, self._todo(scene, pool, wanted))

    def _todo(self, scene: _Round, pool: MemoryPool, wanted: Plan) -> list[Change]:
        pairings = self._of(pool)
        return changes.between(pool, wanted, pairings, self._whereabouts(scene, pairings))

    def _whereabouts(self, scene: _Round, pairings: list[MemoryPairing]) -> Mapping[Ref, MemoryGuest]:
        """The guests where they are believed to be."""
        strays = adoption.strays(pairings, scene.guests, self._heartbeats.nodes)
        if strays:
            scene.look_again(LOOK_AGAIN_SECONDS)  # an agent that has just started may not have been noticed yet
        return scene.guests | strays if strays else scene.guests

    async def _tell(self, scene: _Round, pool: MemoryPool, wanted: Plan) -> None:
        """Says on a pool and its pairings how they are."""
        pairings = await self._judge(scene, self._of(pool))
        is_known = pool.is_held and pool.source.lack is None
        pending = changes.told(self._todo(scene, pool, wanted)) if is_known else None
        paired = {one.pairing.borrower_ref for one in pairings if not one.pairing.terminating}
        borrowers = [scene.guests[name].status for name in sorted(paired & scene.guests.keys())]
        refused = scene.outcome.of_pool(pool.name)
        status = report.pool_status(pool, wanted, pairings, pending, borrowers=borrowers, refused=refused)
        self._metrics.show(pool, status, pairings)
        self._shown.add(pool.key)
        await self._write_pool_status(scene, pool, status)

    def _plan(self, scene: _Round, pool: MemoryPool) -> Plan:
        begin = time.thread_time()
        granted, nodes = self.grants.granted(pool), self._nodes.of(pool)
        scene.guests |= granted.guests | nodes
        claimed = scene.claimed | granted.claimed if granted.claimed else scene.claimed
        without = self.grants.ungranted(pool)
        made = plan(
            pool,
            scene.inventory,
            claimed={name: owner for name, owner in claimed.items() if name not in nodes} if nodes else claimed,
            granted=granted.guests | nodes,
            ended=granted.ended,
            at=now(),
            ungranted=without,
            limits=self._quotas.limits(pool),
            promised=self._nodes.promises(pool, nodes.values()),
        )
        self._quotas.count(pool, made)
        self._nodes.count(pool, made)
        seconds = time.thread_time() - begin
        scene.planning += seconds
        scene.defers |= bool(made.deferred)
        self._metrics.plan_seconds.observe(seconds)
        scene.claimed |= {} if pool.is_held else dict.fromkeys(made.claims, pool.name)
        if made.again is not None:
            scene.look_again(made.again)
        return made

    async def _tell_turns(self, pool: MemoryPool, wanted: Plan) -> None:
        """Says which guests change their roles."""
        groups: dict[tuple[str, str], list[Ref]] = {}
        for turn in wanted.turns:
            groups.setdefault((_TURNS[turn.before, turn.role.role], turn.role.reason), []).append(turn.guest)
        for (what, why), guests in groups.items():
            kind = "Warning" if why == Why.RELIEVED else "Normal"
            await self._writer.say(pool, kind, what, f"{listed(guests)}: {why}")

    async def _carry_out(self, scene: _Round, pool: MemoryPool, todo: Iterable[Change]) -> None:
        created: list[str] = []
        await at_once(self._bring_about(scene, pool, one, created) for one in todo)
        if created:
            more = f"; and {len(created) - TOLD_AT_MOST} more" if len(created) > TOLD_AT_MOST else ""
            await self._writer.say(pool, "Normal", "PairingCreated", "; ".join(sorted(created)[:TOLD_AT_MOST]) + more)

    async def _bring_about(self, scene: _Round, pool: MemoryPool, one: Change, created: list[str]) -> None:
        match one:
            case Delete(pairing):
                await self._delete(scene, pairing, pool)
            case Create(assignment, spec):
                spec = identities.introduced(spec, assignment.lender, assignment.borrower, scene.claims)
                if await self._create(scene, pool, assignment, spec):
                    created.append(f"{assignment.lender} lends {spec['size']} to {assignment.borrower}")
            case Update(pairing, patch) if patch:
                write = partial(self._update, pool, pairing, patch)
                await self._attempt(scene, pairing, f"change pairing {pairing.name}", patch, write)

    async def _attempt(
        self, scene: _Round, pairing: MemoryPairing, what: str, wish: object, write: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Writes something of a pairing."""
        return await scene.outcome.attempt(pairing.spec.pool, pairing.metadata.uid, what, wish, write)

    async def _create(self, scene: _Round, pool: MemoryPool, assignment: Assignment, spec: build.Body) -> bool:
        body = build.pairing(pool, assignment, spec)
        what, write = f"make pairing {body['metadata']['name']}", partial(self._create_now, scene, body)
        return bool(await scene.outcome.attempt(pool.name, pool.metadata.uid, what, body, write))

    async def _create_now(self, scene: _Round, body: build.Body) -> bool:
        try:
            self._state.pairings.put(await self._cluster.create(names.PAIRINGS, body))
        except Refused as refusal:
            if refusal.is_conflict:  # made already: its event is on the way; or a quota was counted anew meanwhile
                scene.look_again(LOOK_AGAIN_SECONDS)
                return False
            raise
        log.info("pairing %s/%s created", scene.namespace, body["metadata"]["name"])
        return True

    async def _update(self, pool: MemoryPool, present: MemoryPairing, patch: build.Body) -> None:
        await self._writer.patch(self._state.pairings, present, {"spec": patch})
        log.info("pairing %s changes: %s", present.key, patch)
        if "size" in patch:
            text = f"{described(present)}: {present.spec.size} becomes {patch['size']}"
            await self._writer.say(pool, "Normal", "PairingResized", text)
        for side in ("lender", "borrower"):
            if side in patch:
                place = ", ".join(f"{key} {value}" for key, value in sorted(patch[side].items()))
                await self._writer.say(
                    pool, "Normal", "GuestMoved", f"{described(present)}: the {side} has now {place}"
                )

    async def _delete(self, scene: _Round, one: MemoryPairing, pool: MemoryPool | None) -> None:
        if not one.terminating:
            write = partial(self._delete_now, one, pool)
            await self._attempt(scene, one, f"delete pairing {one.name}", None, write)

    async def _delete_now(self, one: MemoryPairing, pool: MemoryPool | None) -> None:
        try:
            answer = await self._cluster.delete(names.PAIRINGS, one.namespace, one.name, one.metadata.uid)
        except Refused as refusal:
            if not (refusal.is_gone or refusal.is_conflict):
                raise
            self._state.pairings.remove(one.namespace, one.name, one.metadata.uid)
            return
        if answer.get("kind") == "MemoryPairing":
            self._state.pairings.put(answer)
        log.info("pairing %s deleted", one.key)
        if pool is not None:
            await self._writer.say(pool, "Normal", "PairingDeleted", f"{described(one)} is no longer wanted")

    # --- who the guests are -------------------------------------------------------------------------------------------

    async def _name_guests(self, scene: _Round) -> None:
        """Writes the identities that guests report into their pairings, whatever their pools say.

        A guest that has rebooted has another one; that its pairings go on is no change of what was planned. What is no
        guest has none: an agent that makes one up would dispute whatever any other reports.
        """
        pairings = self._state.pairings.in_namespace(scene.namespace)
        real = {name: one for name, one in scene.guests.items() if not unbelieved(one, scene.inventory)}
        scene.claims = identities.claims(real, pairings, scene.others)
        await at_once(self._name(scene, one) for one in pairings if not one.terminating)

    async def _name(self, scene: _Round, pairing: MemoryPairing) -> None:
        if patch := identities.news(pairing, scene.claims):
            what, write = f"write identities into pairing {pairing.name}", partial(self._name_now, pairing, patch)
            await self._attempt(scene, pairing, what, patch, write)

    async def _name_now(self, pairing: MemoryPairing, patch: build.Body) -> None:
        await self._writer.patch(self._state.pairings, pairing, {"spec": patch})
        log.info("pairing %s: the identity of its %s is new", pairing.key, " and ".join(patch))
        for side in (one for one in patch if getattr(pairing.spec, one).identity):
            text = f"the {side}'s module was loaded anew, and {patch[side]['identity']} is its identity now"
            await self._writer.say(pairing, "Normal", "IdentityChanged", text)

    async def _offer(self, scene: _Round, guest: MemoryGuest) -> None:
        """Lets a guest go in place of its agent, which is dead."""
        what, write = f"let guest {guest.name} go", partial(self._cluster.offer, adoption.leaving(guest))
        await scene.outcome.attempt("", guest.metadata.uid, what, None, write)

    # --- from whom memory is gathered ---------------------------------------------------------------------------------

    def _marks(self, scene: _Round) -> list[Mark]:
        """The guests whose agents are to gather memory from them, or to do so no more."""
        is_unknown = bool(scene.defects or self._state.pools.unreadable(scene.namespace))
        return self._donors.news(scene.namespace, scene.claimed, steady=is_unknown)

    async def _mark(self, scene: _Round, one: Mark) -> None:
        """Tells a guest's agent, before the guest gets a pairing in which it lends."""
        what, write = f"mark guest {one.guest.name}", partial(self._mark_now, one)
        await scene.outcome.attempt(one.pool, one.guest.metadata.uid, what, one.reserve, write)

    async def _mark_now(self, one: Mark) -> None:
        await self._writer.patch(self._state.guests, one.guest, one.patch)
        log.info("guest %s: %s", one.guest.key, f"keeps {one.reserve}" if one.reserve else "keeps all of its memory")

    # --- what became of it --------------------------------------------------------------------------------------------

    async def _judge(self, scene: _Round, pairings: Iterable[MemoryPairing]) -> list[report.Judged]:
        at = now()
        verdicts = ((one, report.judge(one, scene.silent, scene.paused)) for one in pairings)
        judged = [report.Judged(one, self._waits.judged(one, verdict, at)) for one, verdict in verdicts]
        await at_once(self._tell_pairing(scene, one) for one in judged)
        return judged

    async def _tell_pairing(self, scene: _Round, one: report.Judged) -> None:
        """Says on a pairing how it is."""
        pairing = one.pairing
        exchange = identities.judge(pairing, scene.claims, now())
        _wait_for(scene, pairing, one.verdict)
        refused = scene.outcome.of_object(pairing.metadata.uid)
        status = report.pairing_status(pairing, one.verdict, exchange, refused)
        if patch := build.difference(pairing.status.to_dict(), status.to_dict()):
            what = f"write the status of pairing {pairing.name}"
            write = partial(self._tell_now, scene, one, patch, exchange)
            await self._attempt(scene, pairing, what, None, write)

    async def _tell_now(self, scene: _Round, one: report.Judged, patch: build.Body, exchange: Condition) -> None:
        pairing, verdict = one.pairing, one.verdict
        patched = {"status": patch}
        await self._writer.patch(self._state.pairings, pairing, patched, status=True, wakes=scene.defers)
        if verdict.phase is PairingPhase.CONNECTED and pairing.status.phase is not PairingPhase.CONNECTED:
            scene.connected += 1
            if scene.connected <= TOLD_ONE_BY_ONE:
                await self._writer.say(pairing, "Normal", "Connected", verdict.message)
        elif verdict.phase in _BAD_NEWS or verdict.reason == Reason.AGENT_NOT_RESPONDING:
            await self._writer.say(pairing, "Warning", verdict.reason, verdict.message)
        if identities.is_bad_news(pairing, exchange):
            await self._writer.say(pairing, "Warning", "IdentitiesNotExchanged", exchange.message)

    async def _write_pool_status(self, scene: _Round, pool: MemoryPool, status: PoolStatus) -> None:
        patch = build.replacement(pool.status.to_dict(), status.to_dict())
        if not patch:
            return
        if _only_figures(pool.status, status) and (wait := self._wait_with_figures(pool)):
            scene.look_again(wait)
            return
        write = partial(self._write_pool_status_now, pool, status, patch)
        what = f"write the status of pool {pool.name}"
        await scene.outcome.attempt(pool.name, pool.metadata.uid, what, None, write, anyway=True)

    async def _write_pool_status_now(self, pool: MemoryPool, status: PoolStatus, patch: build.Body) -> None:
        await self._writer.patch(self._state.pools, pool, {"status": patch}, status=True, wakes=False)
        self._written[pool.metadata.uid] = time.monotonic()
        await self._announce(pool, status)

    def _wait_with_figures(self, pool: MemoryPool) -> float:
        """The seconds until a status may be written whose figures alone have changed; 0 for now."""
        left = self._written.get(pool.metadata.uid, -FIGURES_SECONDS) + FIGURES_SECONDS - time.monotonic()
        return left if left > 0 else self._turns.wait(pool.metadata.uid)

    async def _announce(self, pool: MemoryPool, status: PoolStatus) -> None:
        if status.phase is PoolPhase.DEGRADED:
            why = find(status.conditions, ConditionType.DEGRADED)
            if why is not None:
                await self._writer.say(pool, "Warning", why.reason, why.message)
        elif status.phase is PoolPhase.READY and pool.status.phase is not PoolPhase.READY:
            text = f"{report.count(status.pairings or 0, 'pairing')} connected"
            await self._writer.say(pool, "Normal", "Ready", text)

    async def _complain(self, scene: _Round, broken: Unreadable) -> None:
        """Says on a pool that cannot be read what is wrong with it; its pairings stay as they are."""
        text = f"{broken.why}; correct the pool, what was there before stays as it is until then"
        present = as_far_as_understood(broken.status, PoolStatus.model_validate)
        status = report.stuck_status(present, "InvalidSpec", text)
        if patch := build.difference(present.to_dict(), status.to_dict()):
            body, what = {"status": patch}, f"write the status of pool {broken.name}"
            write = partial(self._cluster.patch, names.POOLS, scene.namespace, broken.name, body, status=True)
            await scene.outcome.attempt(broken.name, broken.head.metadata.uid, what, None, write)

    # --- taking down --------------------------------------------------------------------------------------------------

    async def _let_go(self, scene: _Round, pool: ApiObject) -> None:
        """Says whom a pool that is being deleted waits for, and lets it go when there is nobody."""
        left = await self._judge(scene, (one for one in self._of(pool) if not one.is_taken_down))
        gathers = not isinstance(pool, MemoryPool) or pool.spec.balloon is not None
        marked = [one.guest.name for one in self._marks(scene) if one.reserve is None] if gathers else []
        if left or marked:
            scene.look_again(LOOK_AGAIN_SECONDS)
        elif names.POOL_FINALIZER in pool.metadata.finalizers:
            rest = tuple(name for name in pool.metadata.finalizers if name != names.POOL_FINALIZER)
            await self._set_finalizers(scene, self._state.pools, pool, rest)
        refused = scene.outcome.of_pool(pool.name)
        if isinstance(pool, MemoryPool) and (left or marked or refused):
            status = report.terminating_status(pool, [one.pairing for one in left], marked, refused)
            self._metrics.show(pool, status, left)
            await self._write_pool_status(scene, pool, status)

    def _orphans(self, namespace: str) -> list[MemoryPairing]:
        """The pairings whose pool is gone without having waited for them."""
        pools = {one.name for one in self._state.pools.in_namespace(namespace)}
        pools |= {one.name for one in self._state.pools.unreadable(namespace)}
        return [one for one in self._state.pairings.in_namespace(namespace) if one.spec.pool not in pools]

    async def _revoke(self, namespace: str, outcome: Outcome) -> None:
        """Deletes pairings whose lender no MemoryGrant allows, also while their pool is paused or on a dry run."""
        live = [one for one in self._state.pairings.in_namespace(namespace) if not one.terminating]
        await at_once(self._revoke_one(one, outcome) for one in live if not is_granted(one, self._state))

    async def _revoke_one(self, one: MemoryPairing, outcome: Outcome) -> None:
        why = f"no MemoryGrant of namespace {one.lender.namespace} lets pool {one.spec.pool} borrow from"
        await self._writer.say(one, "Warning", "NotGranted", f"{why} {one.spec.lender.guest}")
        what, write = f"delete pairing {one.name}", partial(self._delete_now, one, None)
        # What hangs in the namespace of those who borrow keeps nobody's memory from its owner.
        await outcome.attempt(one.spec.pool, one.metadata.uid, what, None, write, group=REVOKED)

    async def _release_abandoned(self, scene: _Round) -> None:
        """Takes over for agents that can no longer tear their side down: guest gone, or agent dead."""
        going = [one for one in self._state.pairings.in_namespace(scene.namespace) if one.terminating]
        await at_once(self._release(scene, one) for one in going if not one.is_taken_down)

    async def _release(self, scene: _Round, one: MemoryPairing) -> None:
        """Takes off the finalizers of a pairing that nobody else will."""
        scene.look_again(LOOK_AGAIN_SECONDS)
        abandoned = dict(_abandoned(one, scene))
        rest = tuple(name for name in one.metadata.finalizers if name not in abandoned)
        if len(rest) < len(one.metadata.finalizers):
            if text := "; ".join(abandoned[name] for name in one.metadata.finalizers if abandoned.get(name)):
                await self._writer.say(one, "Warning", "SideAbandoned", text)
            await self._set_finalizers(scene, self._state.pairings, one, rest)

    async def _set_finalizers(
        self, scene: _Round, objects: Objects[Any], one: ApiObject, finalizers: tuple[str, ...]
    ) -> None:
        pool = one.spec.pool if isinstance(one, MemoryPairing) else one.name
        what = f"set the finalizers of {'pairing' if isinstance(one, MemoryPairing) else 'pool'} {one.name}"
        write = partial(self._writer.set_finalizers, objects, one, finalizers)
        if await scene.outcome.attempt(pool, one.metadata.uid, what, finalizers, write) is False:
            scene.look_again(SOON_SECONDS)

    def _of(self, pool: ApiObject) -> list[MemoryPairing]:
        """The pairings of a pool as known now, by name."""
        return sorted(self._state.pairings.in_group(pool.namespace, pool.name), key=lambda one: one.name)

    def _forget_gone_pools(self, namespace: str) -> None:
        present = {one.name for one in self._state.pools.in_namespace(namespace)}
        for key in [key for key in self._shown if key.namespace == namespace and key.name not in present]:
            self._metrics.forget(*key)
            self._shown.discard(key)


def _wait_for(scene: _Round, pairing: MemoryPairing, verdict: report.Verdict) -> None:
    """Asks for another pass where a pairing is to be judged otherwise though nothing happens."""
    for limit in (identities.overdue_at(pairing), verdict.late):
        if limit is not None and limit > now():
            scene.look_again((limit - now()).total_seconds())


def where(error: Exception) -> str:
    """Of which kind an error is, and the line of ours that it came to, such as `KeyError in shares.py, line 88`."""
    steps = [(frame.f_globals["__name__"], frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [step for step in steps if step[0].startswith("tidepool_")] or steps
    _, last, line = ours[-1]
    return f"{type(error).__name__} in {Path(last.f_code.co_filename).name}, line {line}"


def _ends(pairing: MemoryPairing) -> tuple[Any, Any]:
    return pairing.spec.lender, pairing.spec.borrower


def _abandoned(pairing: MemoryPairing, scene: _Round) -> Iterable[tuple[str, str]]:
    """Finalizers that nobody will remove, each with why something may be left; nothing is of a guest that is gone."""
    for finalizer, role, name in (
        (names.LENDER_FINALIZER, "lender", pairing.lender_ref),
        (names.BORROWER_FINALIZER, "borrower", pairing.borrower_ref),
    ):
        guest = scene.guests.get(name)
        if guest is None:
            yield finalizer, ""
        elif guest.spec.node_name in scene.silent:
            what = f"the agent on node {guest.spec.node_name} does not answer"
            yield finalizer, f"{what}; when it is back it takes down {role} {name}"
        elif _is_overdue(pairing):
            what = f"the agent on node {guest.spec.node_name} could not take down {role} {name}"
            yield finalizer, f"{what} in {PATIENCE_SECONDS} s; it goes on trying by itself"


def _is_overdue(pairing: MemoryPairing) -> bool:
    since = pairing.metadata.deletion_timestamp
    return since is not None and (now() - since).total_seconds() > PATIENCE_SECONDS


def _only_figures(before: PoolStatus, after: PoolStatus) -> bool:
    """Whether a person would hardly care: nothing is new but how much is used and how well, or numbers in messages."""
    if before.hit_ratio is None and after.hit_ratio is not None:
        return False
    same = {name: getattr(before, name) for name in _FIGURES}
    return _without_numbers(after.model_copy(update=same)) == _without_numbers(before)


def _without_numbers(status: PoolStatus) -> PoolStatus:
    conditions = tuple(one.model_copy(update={"message": gist(one.message)}) for one in status.conditions)
    return status.model_copy(update={"conditions": conditions})
