"""What holds for every plan, whatever the cluster looks like (issue 4: the planner's properties, items 1, 2 and 4)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from world import BORROWER, LENDER, LONG_AGO, MIB, TEAM, auto_pool, carried_out, guest, lent, pairing, plan, pool

from tidepool_api import GuestRole, MemoryGuest, MemoryPairing, MemoryPool, Role
from tidepool_operator.planning.inventory import Node
from tidepool_operator.planning.placement import LEAST, priority
from tidepool_operator.planning.planner import Plan
from tidepool_operator.planning.quotas import Bound, Limits, Side
from tidepool_operator.planning.shares import GRAIN

LENDERS = ["l1", "l2", "l3"]
BORROWERS = ["b1", "b2", "b3", "b4"]
ZONES = {"n1": Node(zone="a"), "n2": Node(zone="a"), "n3": Node(zone="b")}
PASSES = 8  # after which nothing moves: of 10,000 worlds under quotas one in a hundred needs three, none more than six
LABELS: list[dict[str, str]] = [{}, LENDER, BORROWER, LENDER | BORROWER]


@dataclass(frozen=True)
class World:
    """Everything that the planner is told."""

    pool: MemoryPool
    guests: list[MemoryGuest]
    pairings: list[MemoryPairing]
    claimed: dict[str, str]
    silent: frozenset[str]
    limits: Limits = field(default_factory=Limits)

    def plan(self) -> Plan:
        """The plan for it."""
        told = {"claimed": self.claimed, "silent": self.silent, "nodes": ZONES, "limits": self.limits}
        return plan(self.pool, self.guests, self.pairings, **told)

    def after(self, done: Plan) -> World:
        """The world in which the plan is carried out; other pools' pairings are as before, what was going is gone."""
        others = [one for one in self.pairings if one.spec.pool != self.pool.name and not one.terminating]
        return replace(self, pairings=[*others, *carried_out(done)])


def guest_named(name: str) -> st.SearchStrategy[MemoryGuest]:
    """Mostly of the role that the name stands for, so that lenders have several borrowers and the other way round.

    That is by its labels; its report, by which an Auto pool goes, may say anything.
    """
    usual = LENDER if name in LENDERS else BORROWER
    return st.builds(
        guest,
        st.just(name),
        st.builds(
            lambda role, app: role | TEAM | app,
            st.just(usual) | st.just(usual) | st.just(usual) | st.sampled_from(LABELS),
            st.sampled_from([{}, {"app": "db"}]),
        ),
        total=st.integers(128, 4096),
        available=st.integers(0, 4096),
        overcommitted=st.sampled_from([0, 0, 128, 1024]),
        node=st.sampled_from([*ZONES, "n0"]),
        ready=st.just(value=True) | st.just(value=True) | st.booleans(),
        stalled=st.sampled_from([0, 0, 3, 15, 50]),
        io_wait=st.sampled_from([0, 30]),
        refaults=st.sampled_from([0, 30, 100]),
    )


guests = st.lists(st.sampled_from(LENDERS + BORROWERS), unique=True).flatmap(
    lambda chosen: st.tuples(*map(guest_named, chosen)).map(list)
)
pairings = st.lists(
    st.builds(
        pairing,
        st.sampled_from(BORROWERS) | st.sampled_from(LENDERS + BORROWERS),
        st.sampled_from(LENDERS) | st.sampled_from(LENDERS + BORROWERS),
        st.integers(16, 2048).map(lambda size: size * MIB),
        of=st.sampled_from(["pool", "pool", "pool", "other"]),
        terminating=st.sampled_from([False, False, False, True]),
    ).filter(lambda one: one.spec.lender.guest != one.spec.borrower.guest),
    unique_by=lambda one: one.name,
    max_size=10,
)
limits = {
    "max_lend": st.integers(16, 2048),
    "reserve": st.integers(16, 1024),
    "overcommitted": st.sampled_from(["Exclude", "Exclude", "Lend"]),
}
wishes = {
    "placement": st.sampled_from([{}, {}, {"require": "SameNode"}, {"require": "SameZone"}, {"apart": "Node"}]),
    "priorities": st.sampled_from([{}, {"db": 5}]),
}
fixed = st.builds(pool, size=st.integers(16, 3000), spread=st.sampled_from([1, 1, 2, 3]), **limits, **wishes)
planned = st.builds(
    pool,
    between=st.tuples(st.integers(16, 1024), st.integers(0, 2048)).map(lambda two: (two[0], sum(two))),
    margin=st.sampled_from([0, 0, 64]),
    **limits,
    **wishes,
)


auto = st.builds(
    auto_pool,
    size=st.integers(16, 3000),
    roles=st.lists(
        st.builds(
            GuestRole,
            guest=st.sampled_from(LENDERS + BORROWERS),
            role=st.sampled_from(Role),
            since=st.just(LONG_AGO) | st.just(LONG_AGO - timedelta(hours=1)),
            reason=st.just("HasMemoryToSpare"),
        ),
        unique_by=lambda one: one.guest,
        max_size=3,
    ),
    **limits,
)


def worlds_with(pools: st.SearchStrategy[MemoryPool]) -> st.SearchStrategy[World]:
    """Worlds with one of these pools."""
    return st.builds(
        World,
        pools,
        guests,
        pairings,
        st.dictionaries(st.sampled_from(LENDERS + BORROWERS), st.sampled_from(["pool", "older"]), max_size=1),
        st.sets(st.sampled_from(["n1", "n2"]), max_size=1).map(frozenset),
    )


worlds = worlds_with(fixed)  # where every borrower has its size
any_worlds = worlds_with(fixed | planned | auto)


def bound(side: Side) -> st.SearchStrategy[Bound | None]:
    """What quotas leave to the pool, if there is one."""
    some = st.integers(0, 4096).map(lambda size: Bound("quota", "ns", side, size * MIB, room=size * MIB))
    return st.none() | some


def lender_named(name: str) -> st.SearchStrategy[MemoryGuest]:
    """One that is ready, uses a part of its memory, and whose pod requests a part of it."""
    sizes = st.tuples(st.integers(512, 4096), st.floats(0, 1), st.floats(0, 0.9))
    return sizes.map(lambda all_of: _lender(name, *all_of))


def _lender(name: str, total: int, unused: float, unbacked: float) -> MemoryGuest:
    return guest(name, LENDER, total=total, available=int(total * unused), overcommitted=int(total * unbacked))


busy_worlds = st.builds(  # in which most lenders lend already, be it too much
    World,
    fixed | planned,
    st.tuples(*map(lender_named, LENDERS)).map(lambda some: [*some, *(guest(name, BORROWER) for name in BORROWERS)]),
    st.lists(
        st.builds(
            pairing,
            st.sampled_from(BORROWERS),
            st.sampled_from(LENDERS),
            st.integers(64, 2048).map(lambda size: size * MIB),
            connected=st.booleans(),
        ),
        unique_by=lambda one: one.name,
        max_size=6,
    ),
    st.just({}),
    st.just(frozenset()),
)


def moving_world(
    pool: MemoryPool, lenders: list[MemoryGuest], borrowers: list[MemoryGuest], pairings: list[MemoryPairing]
) -> World:
    """One of guests that are all well; pairings are of these, and of who is gone."""
    return World(pool, [*lenders, *borrowers], pairings, {}, frozenset())


def somewhere(name: str) -> st.SearchStrategy[MemoryGuest]:
    """A borrower, who may have moved since it has got what it has."""
    labels = st.sampled_from([BORROWER, BORROWER, BORROWER | {"app": "db"}])
    return st.builds(guest, st.just(name), labels, node=st.sampled_from([*ZONES]))


def overdrawn_with(**of_pool: st.SearchStrategy[object]) -> st.SearchStrategy[World]:
    """Worlds of planned sizes in which lenders need more themselves by now, and borrowers come and go and move."""
    lenders = st.tuples(
        *(
            st.builds(
                guest,
                st.just(name),
                st.just(LENDER),
                total=st.integers(1024, 4096),
                available=st.integers(0, 2048),
                node=st.sampled_from([*ZONES]),
            )
            for name in LENDERS
        )
    ).map(list)
    borrowers = st.lists(st.sampled_from(BORROWERS), unique=True, min_size=1).flatmap(
        lambda chosen: st.tuples(*map(somewhere, chosen)).map(list)
    )
    lending = st.builds(
        pairing,
        st.sampled_from(BORROWERS),
        st.sampled_from(LENDERS),
        st.integers(16, 1024).map(lambda size: size * MIB),
    )
    pools = st.builds(
        pool,
        between=st.tuples(st.integers(16, 256), st.integers(0, 2048)).map(lambda two: (two[0], sum(two))),
        max_lend=st.integers(256, 2048),
        margin=st.sampled_from([0, 64]),
        priorities=st.sampled_from([{}, {"db": 5}]),
        placement=st.sampled_from([{}, {"require": "SameNode"}, {"require": "SameZone"}]),
        **of_pool,
    )
    return st.builds(
        moving_world, pools, lenders, borrowers, st.lists(lending, unique_by=lambda one: one.name, max_size=8)
    )


def limited(worlds: st.SearchStrategy[World]) -> st.SearchStrategy[World]:
    """The same under quotas, where there are some."""
    return st.builds(
        lambda world, borrowed, lent: replace(world, limits=Limits(borrowed, {"": lent} if lent else {})),
        worlds,
        bound(Side.BORROWED),
        bound(Side.LENT),
    )


limited_worlds = limited(any_worlds)
overdrawn_worlds = overdrawn_with()
spread_worlds = overdrawn_with(spread=st.sampled_from([1, 1, 2, 3]))

thorough = settings(max_examples=100)


@thorough
@given(any_worlds)
def test_no_lender_gives_more_than_it_may(world: World) -> None:
    """Neither maxLend nor the reserve is touched, in sum over all borrowers."""
    known = {one.name: one for one in world.guests}
    made = carried_out(world.plan())
    for lender in {one.spec.lender.guest for one in made}:
        memory = known[lender].status.memory
        assert memory is not None
        assert lent(made, lender) <= world.pool.spec.max_lend_bytes
        assert lent(made, lender) <= memory.total_bytes - world.pool.spec.reserve_bytes


@thorough
@given(any_worlds)
def test_what_is_new_fits_beside_what_the_lender_uses_itself(world: World) -> None:
    """A lender that is given more than before has it free now, even beside what is still on its way out."""
    known = {one.name: one for one in world.guests}
    mine = [one for one in world.pairings if one.spec.pool == world.pool.name and not one.terminating]
    made = carried_out(world.plan())
    kept = {(one.spec.borrower.guest, one.spec.lender.guest): one.spec.size_bytes for one in mine}
    for one in made:
        before = kept.get((one.spec.borrower.guest, one.spec.lender.guest), 0)
        if one.spec.size_bytes > before:
            memory = known[one.spec.lender.guest].status.memory
            assert memory is not None
            leaving = [old for old in world.pairings if old.terminating or old.spec.pool != world.pool.name]
            together = lent(made, one.spec.lender.guest) + lent(leaving, one.spec.lender.guest)
            assert together <= memory.available_bytes - world.pool.spec.reserve_of(known[one.spec.lender.guest].status)


@thorough
@given(busy_worlds)
def test_nobody_lends_what_its_host_has_not_promised(world: World) -> None:
    """Issue 28, point 2: not even beside its own use, whatever it lent before; unless the pool says so."""
    known = {one.name: one for one in world.guests}
    made = carried_out(world.plan())
    for lender in {one.spec.lender.guest for one in made}:
        status = known[lender].status
        assert status.memory is not None
        assert status.backing is not None
        if status.overcommitted_bytes and world.pool.spec.lenders.overcommitted == "Exclude":
            own_use = status.memory.total_bytes - status.memory.spare_bytes
            assert own_use + lent(made, lender) <= (status.backing.request_bytes or 0)


@thorough
@given(any_worlds)
def test_no_guest_has_two_roles(world: World) -> None:
    made = world.plan()
    assert {one.lender for one in made.assignments}.isdisjoint(one.borrower for one in made.assignments)
    assert set(made.lenders).isdisjoint(made.borrowers)
    assert not {name for name in made.claims if world.claimed.get(name, world.pool.name) != world.pool.name}


@thorough
@given(any_worlds)
def test_lenders_are_where_the_pool_wants_them(world: World) -> None:
    """Near enough to their borrowers and apart from each other, whatever there was before."""
    nodes = {one.name: one.spec.node_name for one in world.guests}
    zones = {name: ZONES[node].zone if node in ZONES else node for name, node in nodes.items()}
    placement, made = world.pool.spec.placement, world.plan().assignments
    if placement.require is not None:
        where = nodes if placement.require == "SameNode" else zones
        assert all(where[one.borrower] == where[one.lender] for one in made)
    if placement.apart is not None:
        assert len({(one.borrower, nodes[one.lender]) for one in made}) == len(made)


@thorough
@given(worlds)
def test_nobody_who_comes_first_goes_short_of_what_is_new_to_others(world: World) -> None:
    """Of two new borrowers on one node the one that is served is not the one of lower priority alone."""
    made = replace(world, pairings=[]).plan()
    known = {one.name: one for one in world.guests}
    served = [name for name in made.borrowers if name not in made.unserved]
    for name in set(made.unserved) & {name for problem in made.problems for name in problem.guests}:
        for other in served:
            if known[name].spec.node_name == known[other].spec.node_name:
                ranks = [priority(world.pool, known[one]) for one in (name, other)]
                assert ranks[0] <= ranks[1] or name in _not_ready(made)


def _not_ready(made: Plan) -> set[str]:
    return {name for one in made.problems if one.reason.value == "GuestNotReady" for name in one.guests}


@thorough
@given(any_worlds, st.randoms(use_true_random=False))
def test_order_does_not_matter(world: World, chance: random.Random) -> None:
    shuffled = replace(world, guests=list(world.guests), pairings=list(world.pairings))
    chance.shuffle(shuffled.guests)
    chance.shuffle(shuffled.pairings)
    assert shuffled.plan() == world.plan()


@thorough
@given(worlds)
def test_a_plan_that_was_carried_out_is_not_changed(world: World) -> None:
    """Planning again gives the same; where something had to go first, once it is gone."""
    first = world.plan()
    if not _leaves_room(world, first):
        assert world.after(first).plan().assignments == first.assignments
    settled = world.after(first)
    second = settled.plan()
    assert settled.after(second).plan() == second


def _leaves_room(world: World, made: Plan) -> bool:
    """Whether pairings go away."""
    assigned = {(one.borrower, one.lender) for one in made.assignments}
    mine = [one for one in world.pairings if one.spec.pool == world.pool.name]
    kept = [(one.spec.borrower.guest, one.spec.lender.guest) in assigned for one in mine]
    return not all(kept) or any(one.terminating for one in world.pairings)


@thorough
@given(worlds_with(planned))
def test_planned_sizes_come_to_rest(world: World) -> None:
    """What was planned from nothing is planned again unchanged, and whatever there was before settles soon."""
    first = replace(world, pairings=[]).plan()
    assert replace(world, pairings=carried_out(first)).plan().assignments == first.assignments
    for _ in range(4):
        world = world.after(world.plan())
    assert world.after(world.plan()).plan().assignments == world.plan().assignments


@thorough
@given(limited(spread_worlds))
def test_planned_sizes_come_to_rest_under_quotas(world: World) -> None:
    """Whatever lenders need, quotas allow and borrowers have brought: those that lack take turns, and end."""
    for _ in range(PASSES):
        world = world.after(world.plan())
    assert world.after(world.plan()).pairings == world.pairings


@thorough
@given(overdrawn_worlds)
def test_nobody_gives_up_what_nobody_gets(world: World) -> None:
    """Once all that has to go is gone, everybody loses something only to another. Less than a grain is no one's."""
    world = world.after(world.plan())
    for _ in range(3):
        world, before = world.after(world.plan()), borrowed(world)
        after = borrowed(world)
        if any(size > before.get(name, 0) for name, size in after.items()):
            continue
        assert all(after.get(name, 0) > size - GRAIN for name, size in before.items())


def borrowed(world: World) -> dict[str, int]:
    """What each borrower has, in bytes."""
    sizes: dict[str, int] = {}
    for one in world.pairings:
        sizes[one.spec.borrower.guest] = sizes.get(one.spec.borrower.guest, 0) + one.spec.size_bytes
    return sizes


@thorough
@given(overdrawn_worlds)
def test_nobody_lacks_the_minimum_that_another_could_give(world: World) -> None:
    """Of the same rank or a lower one, and out of what it has beyond its own minimum; of one lender in reach.

    Who lacks less than a grain keeps what it has: that is no pairing of its own.
    """
    for _ in range(2):
        world = world.after(world.plan())
    sizes, least = borrowed(world), world.pool.spec.least_bytes
    known = {one.name: one for one in world.guests}
    for needy in (known[name] for name in BORROWERS if name in known and lacks(sizes.get(name, 0), least)):
        lower = {one.name for one in world.guests if priority(world.pool, one) <= priority(world.pool, needy)}
        for lender in (known[name] for name in LENDERS if is_near(world.pool, known[name], needy)):
            stay = [
                one.spec.size_bytes - min(one.spec.size_bytes, max(0, sizes[name] - least) if name in lower else 0)
                for one in world.pairings
                if one.spec.lender.guest == lender.name and (name := one.spec.borrower.guest) != needy.name
            ]
            assert lends_anew(world.pool, lender) - sum(stay) < least


def lacks(size: int, least: int) -> bool:
    """Whether a pairing could help."""
    return least - size >= (GRAIN if size else 1)


def is_near(pool: MemoryPool, lender: MemoryGuest, borrower: MemoryGuest) -> bool:
    """Whether the one may lend to the other, by where they are."""
    nodes = [one.spec.node_name or "" for one in (lender, borrower)]
    where = {"SameNode": nodes, "SameZone": [ZONES[node].zone for node in nodes]}
    return len(set(where.get(pool.spec.placement.require or "", ["", ""]))) == 1


def lends_anew(pool: MemoryPool, lender: MemoryGuest) -> int:
    """What a lender that has promised all its memory could lend in all, had it lent nothing."""
    memory, spec = lender.status.memory, pool.spec
    assert memory is not None
    spare = min(memory.available_bytes, memory.total_bytes) - spec.reserve_bytes - spec.margin_bytes
    return min(spec.max_lend_bytes, spare)


@thorough
@given(worlds, st.integers(0, 2048), st.integers(0, 2048))
def test_more_capacity_takes_from_nobody(world: World, cap: int, memory: int) -> None:
    """Monotone in capacity: with more to lend, whoever has something has at least as much."""
    settled = world.after(world.plan())
    settled = settled.after(settled.plan())
    before = {(one.borrower, one.lender): one.size for one in settled.plan().assignments}
    after = {(one.borrower, one.lender): one.size for one in _grown(settled, cap, memory).plan().assignments}
    assert all(after[key] >= size for key, size in before.items())


def _grown(world: World, cap: int, memory: int) -> World:
    """The same with a higher maxLend, and with more memory in every guest, in MiB."""
    spec = world.pool.spec
    lenders = spec.lenders.model_copy(update={"max_lend": str(spec.max_lend_bytes + cap * MIB)})
    larger = world.pool.model_copy(update={"spec": spec.model_copy(update={"lenders": lenders})})
    return replace(world, pool=larger, guests=[_with_memory(one, memory * MIB) for one in world.guests])


def _with_memory(guest: MemoryGuest, more: int) -> MemoryGuest:
    memory = guest.status.memory
    assert memory is not None
    sizes = {"total_bytes": memory.total_bytes + more, "available_bytes": memory.available_bytes + more}
    status = guest.status.model_copy(update={"memory": memory.model_copy(update=sizes)})
    return guest.model_copy(update={"status": status})


@thorough
@given(worlds, st.sampled_from(LABELS), st.integers(128, 4096))
def test_a_new_guest_moves_nobody(world: World, labels: dict[str, str], total: int) -> None:
    """When a guest appears, whatever exists stays exactly as it is."""
    settled = world.after(world.plan())
    settled = settled.after(settled.plan())
    before = set(settled.plan().assignments)
    grown = replace(settled, guests=[*settled.guests, guest("newcomer", labels, total=total)])
    assert before <= set(grown.plan().assignments)


@thorough
@given(worlds)
def test_a_guest_that_goes_takes_only_its_own_pairings(world: World) -> None:
    """Churn is bounded by what the guest had; the others keep theirs, or get more."""
    settled = world.after(world.plan())
    settled = settled.after(settled.plan())
    before = settled.plan().assignments
    for gone in settled.guests:
        rest = replace(settled, guests=[one for one in settled.guests if one.name != gone.name])
        after = {(one.borrower, one.lender): one.size for one in rest.plan().assignments}
        for one in before:
            if gone.name not in (one.borrower, one.lender):
                assert after[one.borrower, one.lender] >= one.size


@thorough
@given(any_worlds)
def test_pairings_are_of_a_useful_size_and_few(world: World) -> None:
    """No sliver, at most eight lenders for a borrower, never more than the pool's size."""
    made = world.plan()
    for borrower in made.borrowers:
        shares = [one.size for one in made.assignments if one.borrower == borrower]
        assert all(size >= LEAST for size in shares)
        assert sum(shares) <= world.pool.spec.most_bytes
        assert len(shares) <= 8 or len(shares) <= len(world.pairings)


@thorough
@given(limited_worlds)
def test_nothing_new_is_planned_beyond_a_quota(world: World) -> None:
    """Issue 28, what an administrator misses, point 4: what is too much goes, now or later, and nothing comes to it."""
    made = world.plan()
    mine = [one for one in world.pairings if one.spec.pool == world.pool.name]
    before = {(one.spec.borrower.guest, one.spec.lender.guest): one.spec.size_bytes for one in mine}
    after = {(one.borrower, one.lender): one.size for one in made.assignments}
    is_more = any(size > before.get(key, 0) for key, size in after.items())
    leaving = sum(size for key, size in before.items() if key not in after) if is_more else 0
    for one in filter(None, (world.limits.borrowed, world.limits.lent.get(""))):
        assert sum(after.values()) + leaving <= one.room or (made.deferred and not is_more)


@thorough
@given(limited_worlds)
def test_every_shortage_is_explained(world: World) -> None:
    """A borrower with less than it should have is waiting, or a problem says why."""
    made = world.plan()
    explained = set(made.waiting) | {name for problem in made.problems for name in problem.guests}
    no_lenders = not made.lenders
    assert no_lenders or set(made.unserved) <= explained
    assert all(problem.message for problem in made.problems)
