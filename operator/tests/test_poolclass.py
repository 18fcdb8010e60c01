"""What a pool leaves out its MemoryPoolClass gives (issue 28: what an administrator misses, item 4)."""

from __future__ import annotations

import asyncio
from typing import Any

from test_handlers import BANK, Watched, body, settled
from world import BORROWER, LENDER, MIB, carried_out, guest, mib, pairing, plan

from tidepool_api import Classes, MemoryPool, MemoryPoolClass, PoolStatus, Status, complete, find, names
from tidepool_operator.cluster.state import State
from tidepool_operator.planning import changes
from tidepool_operator.planning.inventory import Inventory
from tidepool_operator.status import report

GOLD: dict[str, Any] = {"lenders": {"maxLend": "1Gi"}, "encryption": "None"}
LEND = {"maxLend": "1Gi"}
LENDS: dict[str, Any] = {"selector": {"matchLabels": LENDER}}
GUESTS = [guest("l", LENDER, total=4096), *(guest(name, BORROWER) for name in "abcd")]


def pool_class(version: int, *, name: str = "gold", default: bool = False, **spec: Any) -> dict[str, Any]:
    """A class as a watch brings it."""
    made = body("", name, version, spec=spec or GOLD)
    annotations = {names.DEFAULT_CLASS_ANNOTATION: "true"} if default else {}
    metadata = {key: value for key, value in made["metadata"].items() if key != "namespace"}
    return made | {"metadata": metadata | {"annotations": annotations}}


def silent_pool(status: PoolStatus | None = None, **spec: Any) -> MemoryPool:
    """A pool that says who takes part, how much each gets, and nothing else."""
    ends = {"lenders": LENDS}
    ends["borrowers"] = {"selector": {"matchLabels": BORROWER}, "size": "256Mi"}
    said = {"status": status.to_dict()} if status else {}
    return MemoryPool.parse(
        {"metadata": {"name": "pool", "namespace": "ns", "uid": "pool"}, "spec": ends | {"className": "gold"} | spec}
        | said
    )


def of_gold(pool: MemoryPool, **spec: Any) -> MemoryPool:
    """A pool with what a class of these values gives it."""
    return complete(pool, Classes({"gold": MemoryPoolClass.parse(pool_class(1, **spec))}))


def without_class(pool: MemoryPool) -> MemoryPool:
    """A pool whose class is gone."""
    return complete(pool, Classes())


# --- planning ---------------------------------------------------------------------------------------------------------


def test_a_pool_is_planned_with_what_its_class_gives() -> None:
    made = plan(of_gold(silent_pool()), GUESTS, [])
    assert sum(mib(made).values()) == 1024
    assert plan(of_gold(silent_pool(), lenders={"maxLend": "512Mi"}), GUESTS, []).unserved == ("c", "d")


def test_what_a_class_keeps_from_a_pool_is_said_to_be_the_classs() -> None:
    """Nobody finds it in the pool's spec."""
    one = of_gold(silent_pool(), **GOLD, placement={"require": "SameNode"}, network={"cidrs": ["10.9.0.0/16"]})
    made = plan(one, [guest("l", LENDER), guest("b", BORROWER)], [])
    assert "no address on MemoryPoolClass gold's network (10.9.0.0/16): l has 10.0.0.1" in made.problems[0].message
    near = of_gold(silent_pool(), **GOLD, placement={"require": "SameNode"})
    made = plan(near, [guest("l", LENDER, node="n2"), guest("b", BORROWER)], [])
    assert "guest b: MemoryPoolClass gold's placement (require: SameNode) keeps them from" in made.problems[0].message


def test_a_class_that_changes_disturbs_few_at_a_time() -> None:
    """As if each pool had been edited: by maxUnavailable, be that the class's own, where a change takes pages."""
    one = of_gold(silent_pool())
    present = carried_out(plan(one, GUESTS, []), connected=True)
    assert plan(one, GUESTS, present).deferred == ()
    changed = GOLD | {"encryption": "AES-GCM"}
    assert len(plan(of_gold(one, **changed), GUESTS, present).deferred) == 3
    assert len(plan(of_gold(one, **changed, maxUnavailable=2), GUESTS, present).deferred) == 2
    assert plan(of_gold(one, **GOLD, strategy="Exclusive"), GUESTS, present).deferred == ()


def test_a_pool_whose_class_is_gone_keeps_what_it_has() -> None:
    """Nothing is planned, so nothing goes; its guests stay its own, and where they are is followed."""
    one = of_gold(silent_pool())
    present = carried_out(plan(one, GUESTS[:-1], []), connected=True)
    lost = without_class(one)
    made = plan(lost, GUESTS, present)
    assert (made.lenders, made.borrowers, made.assignments) == (("l",), ("a", "b", "c"), ())
    assert lost.is_held
    moved = {one.name: one for one in (guest("l", LENDER, total=4096, node="n9"), *GUESTS[1:])}
    patches = [update.patch for update in changes.following(present, moved)]
    assert patches == [{"lender": {"nodeName": "n9"}}] * 3
    assert {name for name, _ in Inventory(GUESTS, present).roles_in("pool")} == {"l", "a", "b", "c"}


def test_a_pool_whose_default_class_is_gone_keeps_what_it_has() -> None:
    """Its pages do not leave the network that the class named."""
    gold = pool_class(1, default=True, **GOLD, network={"cidrs": ["10.0.0.0/24"]})
    unnamed: dict[str, Any] = {"className": None, "lenders": LENDS | LEND}
    one = complete(silent_pool(**unnamed), Classes({"gold": MemoryPoolClass.parse(gold)}))
    present = carried_out(plan(one, GUESTS, []), connected=True)
    lost = without_class(silent_pool(status_of(one), **unnamed))
    assert (lost.is_held, plan(lost, GUESTS, present).assignments) == (True, ())
    assert not any(update.patch for update in changes.following(present, {guest.name: guest for guest in GUESTS}))
    status = status_of(lost)
    assert status == status_of(without_class(silent_pool(status, **unnamed)))
    assert (status.class_name, status.from_class) == ("gold", one.source.given)


# --- status -----------------------------------------------------------------------------------------------------------


def status_of(pool: MemoryPool, present: int = 1) -> PoolStatus:
    """What is said of a pool with so many connected pairings."""
    pairings = [pairing(name, "l", 256 * MIB, connected=True) for name in "abcd"[:present]]
    judged = [report.Judged(one, report.judge(one)) for one in pairings]
    return report.pool_status(pool, plan(pool, GUESTS[: present + 1], pairings), judged)


def test_the_status_says_what_comes_from_the_class() -> None:
    status = status_of(of_gold(silent_pool(encryption="AES-GCM")))
    assert status.to_dict()["className"] == "gold"
    assert status.to_dict()["fromClass"] == {"lenders": {"maxLend": "1Gi"}}
    complete_ = find(status.conditions, "SpecComplete")
    assert complete_ is not None
    assert (complete_.status, complete_.message) == (Status.TRUE, "MemoryPoolClass gold gives lenders.maxLend: 1Gi")
    alone = status_of(without_class(silent_pool(className="", lenders=LENDS | LEND)))
    assert {"className", "fromClass"}.isdisjoint(alone.to_dict())


def test_a_pool_whose_class_is_gone_says_so_and_what_it_has() -> None:
    before = status_of(of_gold(silent_pool()))
    status = status_of(without_class(silent_pool(before)))
    for type_, value in (("SpecComplete", Status.FALSE), ("Ready", Status.FALSE), ("Degraded", Status.TRUE)):
        found = find(status.conditions, type_)
        assert found is not None
        assert (found.status, found.reason) == (value, "ClassNotFound")
        assert "spec.className is gold, and there is no MemoryPoolClass of that name" in found.message
    assert (status.class_name, status.from_class) == ("gold", before.from_class)
    assert (status.lenders, status.borrowers, status.pairings, status.ready_pairings) == (1, 1, 1, 1)
    assert find(status.conditions, "ChangesPending") is None
    again = status_of(of_gold(silent_pool(status)))
    assert again.phase == before.phase


# --- what the operator knows ------------------------------------------------------------------------------------------


def test_pools_have_what_classes_give_in_whatever_order_they_come() -> None:
    state = State()
    spec = silent_pool().written.said()
    state.pools.put(body("ns", "pool", 1, spec=spec))
    state.pools.put(body("ns", "other", 2, spec=spec | {"className": "silver"}))

    def found(name: str) -> MemoryPool:
        one = state.pools.get("ns", name)
        assert one is not None
        return one

    assert found("pool").source.lack is not None
    changes_before = state.pools.changes("ns")
    state.classes.put(pool_class(3))
    assert state.pools.renew() == {"ns"}
    assert state.pools.changes("ns") == changes_before + 1, "the other one has no class as before"
    assert (found("pool").source.lack, found("pool").spec.lenders.max_lend) == (None, "1Gi")
    assert found("other").source.lack is not None
    assert state.pools.renew() == set()
    state.pools.put(body("ns", "pool", 4, spec=spec, status={"lenders": 1}))
    assert found("pool").spec.lenders.max_lend == "1Gi"


def test_a_class_that_cannot_be_read_any_more_still_counts_as_it_was() -> None:
    state = State()
    state.classes.put(pool_class(1))
    state.pools.put(body("ns", "pool", 2, spec=silent_pool().written.said()))
    state.classes.put(pool_class(3, **GOLD, strategy="Odd"))
    assert state.pools.renew() == {"ns"}
    found = state.pools.get("ns", "pool")
    assert found is not None
    assert (found.source.lack, found.spec.encryption) == (None, "None")
    complete_ = find(status_of(found).conditions, "SpecComplete")
    assert complete_ is not None
    assert "it has become one that cannot be read (spec.strategy: Input should be" in complete_.message
    state.classes.put(pool_class(4))
    assert state.pools.renew() == {"ns"}
    fresh = State()
    fresh.classes.put(pool_class(3, **GOLD, strategy="Odd"))
    fresh.pools.put(body("ns", "pool", 2, spec=silent_pool().written.said()))
    one = fresh.pools.get("ns", "pool")
    assert one is not None
    assert one.source.lack is not None
    assert "MemoryPoolClass gold cannot be read: spec.strategy: Input should be" in one.source.lack.message


def test_a_class_that_says_what_would_hold_anyway_is_heard() -> None:
    """A value of its own that is the API's default: nothing else is planned, and the status says whose it is."""
    state = State()
    state.classes.put(pool_class(1))
    state.pools.put(body("ns", "pool", 2, spec=silent_pool().written.said()))
    for version, strategy in ((3, {"strategy": "NonInclusive"}), (4, {})):
        state.classes.put(pool_class(version, **GOLD, **strategy))
        assert state.pools.renew() == {"ns"}
        found = state.pools.get("ns", "pool")
        assert found is not None
        assert status_of(found).to_dict()["fromClass"] == GOLD | strategy
        assert state.pools.renew() == set()


async def story() -> None:
    """A class comes, changes, is made the default, and goes, once seen by a watch and once missed by it."""
    world = Watched()
    ends = silent_pool().written.said()
    world.state.pools.put(body("named", "pool", 20, spec=ends))
    world.state.pools.put(body("silent", "pool", 21, spec={key: ends[key] for key in ("lenders", "borrowers")}))
    world.state.pools.put(body("without", "pool", 22, spec=ends | {"className": "", "lenders": LENDS | LEND}))
    world.queue.start()
    teams = {f"team-{at}" for at in range(10)}

    async def after(step: Any) -> set[str]:
        world.woken.clear()
        await step
        await settled()
        return set(world.woken)

    take_in = world.operator.take_in_class
    assert await after(take_in("ADDED", pool_class(1))) == {"named"}
    assert await after(take_in("MODIFIED", pool_class(2))) == set()
    assert await after(take_in("MODIFIED", pool_class(3, **GOLD, strategy="Exclusive"))) == {"named"}
    assert await after(take_in("MODIFIED", pool_class(4, default=True))) == {"named", "silent", *teams}
    assert await after(take_in("DELETED", pool_class(4, default=True))) == {"named", "silent", *teams}
    far = ends | {"className": "far", "lenders": LENDS | {"namespaces": [BANK]}}
    world.state.pools.put(body("far", "pool", 23, spec=far))
    news = take_in("ADDED", pool_class(5, name="far"))
    assert await after(news) == {"far", *teams}, "it may want what others have of the same lenders"
    made_anew = pool_class(9)
    made_anew["metadata"]["uid"] = "another"
    world.server.objects = {names.CLASSES: [made_anew]}
    assert "named" in await after(world.operator.relist())
    assert not (await after(world.operator.relist())) & {"named", "silent", "without"}
    await world.queue.stop()


def test_who_has_a_class_hears_of_it() -> None:
    asyncio.run(story())
