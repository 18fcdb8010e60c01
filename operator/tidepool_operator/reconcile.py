"""Makes one namespace as the planner says, and says on its objects what became of it.

Every step asks what is and does only what is missing, so it can be repeated, interrupted and begun anew at any point.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tidepool_api import (
    ConditionType,
    MemoryPairing,
    MemoryPool,
    PairingPhase,
    PoolPhase,
    PoolStatus,
    Reason,
    Role,
    condition,
    find,
    merge,
    names,
    now,
)
from tidepool_operator import build, changes, identities, report
from tidepool_operator.abroad import age, is_granted, look_abroad, pairings_elsewhere
from tidepool_operator.changes import TOLD_AT_MOST, Create, Delete, Update, described
from tidepool_operator.cluster import Refused, at_once
from tidepool_operator.identities import Claims
from tidepool_operator.inventory import Inventory
from tidepool_operator.planner import Plan, plan
from tidepool_operator.roles import Why
from tidepool_operator.selection import listed
from tidepool_operator.writing import Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidepool_api import ApiObject, MemoryGuest
    from tidepool_operator.changes import Change
    from tidepool_operator.cluster import Cluster
    from tidepool_operator.heartbeats import Heartbeats
    from tidepool_operator.metrics import Metrics
    from tidepool_operator.placement import Assignment
    from tidepool_operator.state import Objects, State, Unreadable

log = logging.getLogger(__name__)

SOON_SECONDS = 0.5  # when somebody else was faster
PATIENCE_SECONDS = 120  # with a live agent that does not manage to take its side down
LOOK_AGAIN_SECONDS = 5.0  # while something is being taken down
FIGURES_SECONDS = 15.0  # a status whose figures alone have changed is written at most this often

_FIGURES = ("used_bytes", "used", "hit_ratio")

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
    guests: dict[str, MemoryGuest]
    silent: frozenset[str]
    inventory: Inventory
    claimed: dict[str, str] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    again: float | None = None
    planning: float = 0.0  # seconds of this thread's processor: it waits for nothing, and others' work does not count

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
        self._written: dict[str, float] = {}  # UID of a pool -> when its status was written last
        self._shown: set[tuple[str, str]] = set()  # pools in the metrics

    async def namespace(self, namespace: str) -> float | None:
        """Goes over a namespace; returns after how many seconds it should be looked at again, if at all.

        Pools are planned one after the other, the oldest first, for each leaves the guests that it claims to no other;
        what that takes to be written is written for many of them at a time.
        """
        await self._revoke(namespace)
        scene = self._round(namespace)
        pools = sorted(self._state.pools.in_namespace(namespace), key=age)
        plans = [(pool, self._plan(scene, pool)) for pool in pools if not pool.terminating]
        await self._name_guests(scene)
        going = (self._take_down(scene, pool) for pool in pools if pool.terminating)
        await at_once(chain(going, (self._tend(scene, pool, wanted) for pool, wanted in plans)))
        for broken in self._state.pools.unreadable(namespace):
            await (
                self._delete_all(scene, broken.head) if broken.head.terminating else self._complain(namespace, broken)
            )
        await self._drop_orphans(scene)
        await self._release_abandoned(scene)
        self._forget_gone_pools(namespace)
        self._metrics.reconciles.inc()
        self._metrics.pass_seconds.observe(scene.planning)
        return scene.again

    def forget_gone(self) -> None:
        """Drops what is remembered of objects that no longer exist."""
        alive = self._state.uids()
        self._writer.keep(alive)
        self._written = {uid: at for uid, at in self._written.items() if uid in alive}

    def step_down(self) -> None:
        """Forgets what only the one that acts knows and shows."""
        for key in self._shown:
            self._metrics.forget(*key)
        self._shown.clear()
        self._written.clear()
        self._writer.keep(())

    def _round(self, namespace: str) -> _Round:
        begin = time.thread_time()
        guests = {one.name: one for one in self._state.guests.in_namespace(namespace)}
        ends = [end.node_name for one in self._state.pairings.in_namespace(namespace) for end in _ends(one)]
        nodes = {one.spec.node_name for one in guests.values()} | set(ends)
        lending = {one for pool in self._state.pools.in_namespace(namespace) for one in pool.spec.lenders.namespaces}
        nodes |= {one.spec.node_name for other in lending for one in self._state.guests.in_namespace(other)}
        silent = self._heartbeats.silent(nodes)
        pairings = self._state.pairings.in_namespace(namespace)
        inventory = Inventory(
            guests.values(),
            pairings,
            namespace=namespace,
            elsewhere=pairings_elsewhere(namespace, self._state),
            nodes=self._state.nodes.known,
            silent=silent,
        )
        guests |= {one.lender_ref: lender for one in pairings if (lender := self._lender(one))}
        return _Round(namespace, guests, silent, inventory, planning=time.thread_time() - begin)

    def _lender(self, pairing: MemoryPairing) -> MemoryGuest | None:
        """The guest of another namespace that lends, if it does and is still there."""
        namespace = pairing.lender_namespace
        return None if namespace == pairing.namespace else self._state.guests.get(namespace, pairing.spec.lender.guest)

    # --- a pool that is wanted ----------------------------------------------------------------------------------------

    async def _tend(self, scene: _Round, pool: MemoryPool, wanted: Plan) -> None:
        if names.POOL_FINALIZER not in pool.metadata.finalizers:
            await self._set_finalizers(
                scene, self._state.pools, pool, (*pool.metadata.finalizers, names.POOL_FINALIZER)
            )
        todo = changes.between(pool, wanted.assignments, self._of(pool), scene.guests)
        held = _held(pool)
        if not held:
            await self._tell_turns(pool, wanted)
            await self._carry_out(scene, pool, todo)
        pairings = await self._judge(scene, pool)
        pending = report.Pending(held, changes.told(todo)) if held else None
        status = report.pool_status(pool, wanted, pairings, pending)
        self._metrics.show(pool, status, pairings)
        self._shown.add((pool.namespace, pool.name))
        await self._write_pool_status(scene, pool, status)

    def _plan(self, scene: _Round, pool: MemoryPool) -> Plan:
        begin = time.thread_time()
        abroad = look_abroad(pool, self._state)
        scene.guests |= abroad.guests
        claimed = scene.claimed | abroad.claimed if abroad.claimed else scene.claimed
        made = plan(pool, scene.inventory, claimed=claimed, abroad=abroad.guests, at=now())
        seconds = time.thread_time() - begin
        scene.planning += seconds
        self._metrics.plan_seconds.observe(seconds)
        scene.claimed |= dict.fromkeys(made.assigned if pool.is_dry_run else made.claims, pool.name)
        if made.again is not None:
            scene.look_again(made.again)
        return made

    async def _tell_turns(self, pool: MemoryPool, wanted: Plan) -> None:
        """Says which guests change their roles."""
        groups: dict[tuple[str, str], list[str]] = {}
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
                await self._delete(pairing, pool)
            case Create(assignment, spec):
                spec = identities.introduced(spec, assignment.lender, assignment.borrower, scene.claims)
                if await self._create(pool, assignment, spec):
                    created.append(f"{assignment.lender} lends {spec['size']} to {assignment.borrower}")
            case Update(pairing, patch):
                await self._update(pool, pairing, patch)

    async def _create(self, pool: MemoryPool, assignment: Assignment, spec: build.Body) -> bool:
        body = build.pairing(pool, assignment, spec)
        try:
            self._state.pairings.put(await self._cluster.create(names.PAIRINGS, body))
        except Refused as refusal:
            if refusal.is_conflict:  # made already: its event is on the way
                return False
            raise
        log.info("pairing %s/%s created", pool.namespace, body["metadata"]["name"])
        return True

    async def _update(self, pool: MemoryPool, present: MemoryPairing, patch: build.Body) -> None:
        if not patch:
            return
        log.info("pairing %s/%s changes: %s", present.namespace, present.name, patch)
        if "size" in patch:
            text = f"{described(present)}: {present.spec.size} becomes {patch['size']}"
            await self._writer.say(pool, "Normal", "PairingResized", text)
        for side in ("lender", "borrower"):
            if side in patch:
                place = ", ".join(f"{key} {value}" for key, value in sorted(patch[side].items()))
                await self._writer.say(
                    pool, "Normal", "GuestMoved", f"{described(present)}: the {side} has now {place}"
                )
        await self._writer.patch(self._state.pairings, present, {"spec": patch})

    async def _delete(self, one: MemoryPairing, pool: MemoryPool | None) -> None:
        try:
            answer = await self._cluster.delete(names.PAIRINGS, one.namespace, one.name, one.metadata.uid)
        except Refused as refusal:
            if not (refusal.is_gone or refusal.is_conflict):
                raise
            self._state.pairings.remove(one.namespace, one.name, one.metadata.uid)
            return
        if answer.get("kind") == "MemoryPairing":
            self._state.pairings.put(answer)
        log.info("pairing %s/%s deleted", one.namespace, one.name)
        if pool is not None:
            await self._writer.say(pool, "Normal", "PairingDeleted", f"{described(one)} is no longer wanted")

    # --- who the guests are -------------------------------------------------------------------------------------------

    async def _name_guests(self, scene: _Round) -> None:
        """Writes the identities that guests report into their pairings, whatever their pools say.

        A guest that has rebooted has another one; that its pairings go on is no change of what was planned.
        """
        pairings = self._state.pairings.in_namespace(scene.namespace)
        scene.claims = identities.claims(scene.guests, pairings)
        await at_once(self._name(one, scene.claims) for one in pairings if not one.terminating)

    async def _name(self, pairing: MemoryPairing, known: Claims) -> None:
        patch = identities.news(pairing, known)
        if not patch:
            return
        log.info("pairing %s/%s: the identity of its %s is new", pairing.namespace, pairing.name, " and ".join(patch))
        await self._writer.patch(self._state.pairings, pairing, {"spec": patch})
        for side in (one for one in patch if getattr(pairing.spec, one).identity):
            text = f"the {side}'s module was loaded anew, and {patch[side]['identity']} is its identity now"
            await self._writer.say(pairing, "Normal", "IdentityChanged", text)

    # --- what became of it --------------------------------------------------------------------------------------------

    async def _judge(self, scene: _Round, pool: ApiObject) -> list[report.Judged]:
        at = now()
        judged = [report.Judged(one, report.judge(one, at, scene.silent)) for one in self._of(pool)]
        await at_once(self._write_pairing_status(scene, one) for one in judged)
        return judged

    async def _write_pairing_status(self, scene: _Round, one: report.Judged) -> None:
        pairing, verdict = one.pairing, one.verdict
        exchange = identities.judge(pairing, scene.claims, now())
        _wait_for(scene, pairing, verdict)
        status = report.pairing_status(pairing, verdict, exchange)
        patch = build.difference(pairing.status.to_dict(), status.to_dict())
        if not patch:
            return
        await self._writer.patch(self._state.pairings, pairing, {"status": patch}, status=True)
        if verdict.phase is PairingPhase.CONNECTED and pairing.status.phase is not PairingPhase.CONNECTED:
            await self._writer.say(pairing, "Normal", "Connected", verdict.message)
        elif verdict.phase is PairingPhase.FAILED or verdict.reason == Reason.AGENT_NOT_RESPONDING:
            await self._writer.say(pairing, "Warning", verdict.reason, verdict.message)
        if identities.is_bad_news(pairing, exchange):
            await self._writer.say(pairing, "Warning", "IdentitiesNotExchanged", exchange.message)

    async def _write_pool_status(self, scene: _Round, pool: MemoryPool, status: PoolStatus) -> None:
        patch = build.replacement(pool.status.to_dict(), status.to_dict())
        if not patch:
            return
        since = time.monotonic() - self._written.get(pool.metadata.uid, -FIGURES_SECONDS)
        if _only_figures(pool.status, status) and since < FIGURES_SECONDS:
            scene.look_again(FIGURES_SECONDS - since)
            return
        self._written[pool.metadata.uid] = time.monotonic()
        await self._writer.patch(self._state.pools, pool, {"status": patch}, status=True)
        await self._announce(pool, status)

    async def _announce(self, pool: MemoryPool, status: PoolStatus) -> None:
        if status.phase is PoolPhase.DEGRADED:
            why = find(status.conditions, ConditionType.DEGRADED)
            if why is not None:
                await self._writer.say(pool, "Warning", why.reason, why.message)
        elif status.phase is PoolPhase.READY and pool.status.phase is not PoolPhase.READY:
            text = f"{report.count(status.pairings or 0, 'pairing')} connected"
            await self._writer.say(pool, "Normal", "Ready", text)

    async def _complain(self, namespace: str, broken: Unreadable) -> None:
        """Says on a pool that cannot be read what is wrong with it; its pairings stay as they are."""
        text = f"{broken.why}; correct the pool, what was there before stays as it is until then"
        try:
            present = PoolStatus.model_validate(broken.status)
        except ValidationError:
            present = PoolStatus()
        ready, degraded = (
            condition(type_, value, "InvalidSpec", text)
            for type_, value in ((ConditionType.READY, False), (ConditionType.DEGRADED, True))
        )
        conditions = merge(present.conditions, ready, degraded)
        status = present.model_copy(update={"phase": PoolPhase.DEGRADED, "conditions": conditions})
        if patch := build.difference(present.to_dict(), status.to_dict()):
            await self._cluster.patch(names.POOLS, namespace, broken.name, {"status": patch}, status=True)

    # --- taking down --------------------------------------------------------------------------------------------------

    async def _take_down(self, scene: _Round, pool: MemoryPool) -> None:
        """Deletes the pairings of a pool that is being deleted, and lets it go when they are gone."""
        left = await self._delete_all(scene, pool)
        if left:
            status = report.terminating_status(pool, [one.pairing for one in left])
            self._metrics.show(pool, status, left)
            await self._write_pool_status(scene, pool, status)

    async def _delete_all(self, scene: _Round, pool: ApiObject) -> list[report.Judged]:
        """Deletes all pairings of a pool, and its finalizer when none is left; returns those that are left."""
        for one in self._of(pool):
            if not one.terminating:
                await self._delete(one, None)
        left = await self._judge(scene, pool)
        if left:
            scene.look_again(LOOK_AGAIN_SECONDS)
        elif names.POOL_FINALIZER in pool.metadata.finalizers:
            rest = tuple(name for name in pool.metadata.finalizers if name != names.POOL_FINALIZER)
            await self._set_finalizers(scene, self._state.pools, pool, rest)
            log.info("pool %s/%s is gone", pool.namespace, pool.name)
        return left

    async def _revoke(self, namespace: str) -> None:
        """Deletes pairings whose lender no MemoryGrant allows, also while their pool is paused or on a dry run."""
        for one in self._state.pairings.in_namespace(namespace):
            if not one.terminating and not is_granted(one, self._state):
                what = f"no MemoryGrant of namespace {one.lender_namespace} lets pool {one.spec.pool} borrow from"
                await self._writer.say(one, "Warning", "NotGranted", f"{what} {one.spec.lender.guest}")
                await self._delete(one, None)

    async def _drop_orphans(self, scene: _Round) -> None:
        """Deletes pairings whose pool is gone without having waited for them."""
        pools = {one.name for one in self._state.pools.in_namespace(scene.namespace)}
        pools |= {one.name for one in self._state.pools.unreadable(scene.namespace)}
        for one in self._state.pairings.in_namespace(scene.namespace):
            if one.spec.pool not in pools and not one.terminating:
                await self._delete(one, None)

    async def _release_abandoned(self, scene: _Round) -> None:
        """Takes over for agents that can no longer tear their side down: guest gone, or agent dead."""
        for one in self._state.pairings.in_namespace(scene.namespace):
            if not one.terminating:
                continue
            scene.look_again(LOOK_AGAIN_SECONDS)
            abandoned = dict(_abandoned(one, scene))
            rest = tuple(name for name in one.metadata.finalizers if name not in abandoned)
            if len(rest) == len(one.metadata.finalizers):
                continue
            text = "; ".join(abandoned[name] for name in one.metadata.finalizers if name in abandoned)
            log.warning("pairing %s/%s is let go: %s", one.namespace, one.name, text)
            await self._writer.say(one, "Warning", "SideAbandoned", text)
            await self._set_finalizers(scene, self._state.pairings, one, rest)

    async def _set_finalizers(
        self, scene: _Round, objects: Objects[Any], one: ApiObject, finalizers: tuple[str, ...]
    ) -> None:
        if not await self._writer.set_finalizers(objects, one, finalizers):
            scene.look_again(SOON_SECONDS)

    def _of(self, pool: ApiObject) -> list[MemoryPairing]:
        """The pairings of a pool as known now, by name."""
        return sorted(self._state.pairings.in_group(pool.namespace, pool.name), key=lambda one: one.name)

    def _forget_gone_pools(self, namespace: str) -> None:
        present = {one.name for one in self._state.pools.in_namespace(namespace)}
        for key in [key for key in self._shown if key[0] == namespace and key[1] not in present]:
            self._metrics.forget(*key)
            self._shown.discard(key)


def _wait_for(scene: _Round, pairing: MemoryPairing, verdict: report.Verdict) -> None:
    """Asks for another pass where a pairing is to be judged otherwise though nothing happens."""
    if report.is_rejected(pairing) and verdict.phase is not PairingPhase.FAILED:
        scene.look_again(report.REJECTED_AFTER.total_seconds())
    limit = identities.overdue_at(pairing)
    if limit is not None and limit > now():
        scene.look_again((limit - now()).total_seconds())


def _ends(pairing: MemoryPairing) -> tuple[Any, Any]:
    return pairing.spec.lender, pairing.spec.borrower


def _held(pool: MemoryPool) -> str:
    """Why nothing is changed; empty when it may be."""
    return "Paused" if pool.spec.paused else "DryRun" if pool.is_dry_run else ""


def _abandoned(pairing: MemoryPairing, scene: _Round) -> Iterable[tuple[str, str]]:
    """The finalizers that nobody will remove, each with the reason."""
    for finalizer, role, name in (
        (names.LENDER_FINALIZER, "lender", pairing.lender_ref),
        (names.BORROWER_FINALIZER, "borrower", pairing.spec.borrower.guest),
    ):
        guest = scene.guests.get(name)
        if guest is None:
            yield finalizer, f"{role} {name} is gone"
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
    """Whether a person would hardly care: nothing is new but how much is used and how well."""
    if before.hit_ratio is None and after.hit_ratio is not None:
        return False
    same = {name: getattr(before, name) for name in _FIGURES}
    return after.model_copy(update=same) == before
