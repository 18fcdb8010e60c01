"""Memory for programs: what is done for which wish, and what is said of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects import BOOT, RELEASE, key, machine, observation, pairing, want
from test_worker import Here, Without, last_of

from tidepool_agent import applications, plan, report
from tidepool_agent.applicationreport import Standing
from tidepool_agent.applications import CLOSED, Give, LoadApp, Offer, UnloadApp
from tidepool_agent.appmem import AppMemory, AppPool
from tidepool_agent.errors import ApplicationsRefused, UnloadFailed
from tidepool_agent.guestfs import Observation, Peer, Side, parse
from tidepool_agent.histogram import Histogram
from tidepool_agent.metrics import MOST_POOLS, Figures, Sample
from tidepool_agent.plan import Load, Measure, Remove, Replace, Source, Step, Unload
from tidepool_agent.report import Finding
from tidepool_agent.retry import Failures
from tidepool_agent.store import Store
from tidepool_agent.worker import Tools, step_name
from tidepool_api import GuestStatus, MemoryGuest, MemoryPairing, find, now
from tidepool_api.fields import MOST_COUNT

GIB = 1 << 30
REDIS = Offer(GIB, "0660", "redis")
APPS = {"size": "1Gi", "mode": "0660", "group": "redis"}


def there(offer: Offer = REDIS, opened: int = 0, **stats: int) -> AppMemory:
    return AppMemory(offer.size_bytes, offer.mode, offer.group, opened, stats)


def borrows(app: AppMemory | None = None, one: MemoryPairing | None = None, **fields: Any) -> Observation:
    """A borrower that is connected, with this memory for programs."""
    one = one or pairing(block={"applications": APPS})
    peer = Peer({**want(Side.LENDERS, one).attributes, "enabled": "1", "state": "Connected"})
    return observation(loaded=True, peers={(Side.LENDERS, one.metadata.uid): peer}, app=app, **fields)


def steps(seen: Observation, *pairings: MemoryPairing, where: Source | None = Source.STORE, **how: Any) -> list[Step]:
    return plan.steps(plan.desired(key("borrower"), pairings), seen, where, **how)


# --- what is done -----------------------------------------------------------------------------------------------------

APPLIED = pairing(block={"applications": APPS})
GONE = Remove(((Side.LENDERS, "p1"),))


def test_a_borrower_from_nothing_gets_the_core_module_first() -> None:
    made = steps(observation(), APPLIED)
    assert (made[0], made[-1]) == (Load(Source.STORE), LoadApp(Source.STORE, REDIS))
    assert steps(observation(), APPLIED, where=None) == []


@pytest.mark.parametrize(
    ("app", "made"),
    [
        (None, [LoadApp(Source.STORE, REDIS)]),
        (there(), []),
        (there(opened=7), []),
        (there(Offer(GIB >> 1, "0660", "redis"), 7), [Give(REDIS)]),
        (there(Offer(GIB, "0600", "redis")), [Give(REDIS)]),
        (there(Offer(GIB, "0660", "107")), [Give(REDIS)]),
        (there(CLOSED, 7), [Give(REDIS)]),
    ],
)
def test_what_differs_is_done_while_it_is_used(app: AppMemory | None, made: list[Step]) -> None:
    assert steps(borrows(app), APPLIED) == made


def test_what_nobody_asks_for_goes_when_no_program_has_it_open() -> None:
    """Till then nothing more is put, and nobody else opens it."""
    assert steps(borrows(there()), pairing()) == [UnloadApp()]
    assert steps(borrows(there(opened=2)), pairing()) == [Give(CLOSED)]
    assert steps(borrows(there(CLOSED, 2)), pairing()) == []


def test_the_core_module_goes_after_it_and_stays_while_a_program_has_it_open() -> None:
    assert steps(borrows(there())) == [GONE, UnloadApp(), Unload()]
    assert steps(borrows(there(opened=2))) == [GONE, Give(CLOSED)]
    assert steps(replace(borrows(there(CLOSED, 2)), peers={})) == []


def test_it_goes_before_the_module_is_replaced_which_waits_for_programs() -> None:
    made = steps(borrows(there()), APPLIED, replace=True)
    assert made[:3] == [UnloadApp(), GONE, Replace()]
    assert not any(isinstance(step, LoadApp) for step in made), "it is loaded when the core module is the new one"
    assert steps(borrows(there(opened=1)), APPLIED, replace=True) == []


def test_nothing_is_taken_from_a_guest_whose_pairings_have_not_followed_it() -> None:
    seen = borrows(there())
    for each in ((), (pairing("p2"),)):
        wanted = replace(plan.desired(key("borrower"), each), following=frozenset({"p1"}))
        made = plan.steps(wanted, seen, Source.STORE)
        assert not any(isinstance(step, UnloadApp | Give | Unload) for step in made)


def test_the_pairings_of_a_borrower_are_one_wish_and_a_lender_has_none() -> None:
    """Those that know of an edit and those that do not; no pairing that is being deleted counts."""
    half = {"applications": APPS | {"size": "512Mi"}}
    each = [
        pairing("a", block={"applications": APPS}, terminating=True),
        pairing("b"),
        pairing("c", block=half),
        pairing("d", block={"applications": APPS}),
    ]
    for order in (each, each[::-1]):
        assert plan.desired(key("borrower"), order).applications == Offer(GIB >> 1, "0660", "redis")
    assert plan.desired(key("lender"), each).applications is None
    alone = pairing(block={"applications": {"size": "1Gi"}})
    assert applications.offer([alone]) == Offer(GIB, "0600", "root")


def test_another_wish_does_not_wait_because_one_before_has_failed() -> None:
    """Whoever follows the advice of a condition sees at once that it was right."""
    failures = Failures()
    failures.failed(plan.subject(Give(REDIS)), ApplicationsRefused("no", "NoGroup"), 0, now())
    assert not failures.due(plan.subject(LoadApp(Source.STORE, REDIS)), 0)
    assert failures.due(plan.subject(Give(Offer(GIB, "0660", "valkey"))), 0)
    assert failures.error("application") is not None
    given = "give them 1073741824 bytes, mode 0660, group redis"
    loaded = f"load the module for programs {Source.STORE.value}, and {given}"
    assert step_name(LoadApp(Source.STORE, REDIS)) == loaded
    assert step_name(Give(CLOSED)) == "give programs 0 bytes, mode 0600, group root"
    assert step_name(UnloadApp()) == "unload the module for programs"


OFFERS = st.sampled_from([None, REDIS, Offer(GIB >> 2, "0640", "valkey")])


@given(st.lists(st.tuples(OFFERS, st.integers(0, 2)), max_size=8))
def test_any_sequence_of_wishes_and_programs_is_followed(each: list[tuple[Offer | None, int]]) -> None:
    """In two rounds all is as asked, and nothing is taken from a program that has the device open."""
    app: AppMemory | None = None
    for wish, opened in each:
        app = replace(app, opened=opened) if app else None
        for _ in range(2):
            for step in applications.steps(wish, app, Source.STORE):
                assert not (isinstance(step, UnloadApp) and opened and app)
                app = None if isinstance(step, UnloadApp) else there(step.offer, app.opened if app else 0)
        assert applications.steps(wish, app, Source.STORE) == []
        assert app is None or (wish or CLOSED).is_met(app)


# --- what is said -----------------------------------------------------------------------------------------------------


def said(app: AppMemory | None, before: GuestStatus | None = None, **standing: Any) -> tuple[GuestStatus, Any]:
    """The status of a guest, and its condition."""
    found = Finding(seen=observation(loaded=True, app=app), programs=Standing(**standing))
    status = report.guest(machine("borrower"), "node1", found, (), before).status
    return status, find(status.conditions, "ApplicationsReady")


NO_GROUP = ApplicationsRefused("the guest has no group redis", "NoGroup")
WHO = ("process 812 (redis-server)", "process 900 (python3)")
OPEN = "/dev/tidepool is open in the guest (process 812 (redis-server), process 900 (python3))"


@pytest.mark.parametrize(
    ("app", "standing", "expected"),
    [
        (there(), {"wanted": REDIS}, ("True", "Given", "/dev/tidepool has mode 0660 and group redis")),
        (None, {"wanted": REDIS}, ("False", "SettingUp", "/dev/tidepool is being set up")),
        (None, {"wanted": REDIS, "failed": NO_GROUP}, ("False", "NoGroup", "the guest has no group redis")),
        (
            there(Offer(GIB, "0640", "web")),
            {"wanted": REDIS, "failed": NO_GROUP},
            ("False", "NoGroup", f"{NO_GROUP}; until then /dev/tidepool keeps mode 0640 and group web"),
        ),
        (there(), {}, ("False", "SettingUp", "/dev/tidepool is being given up")),
        (there(), {"failed": UnloadFailed("in use")}, ("False", "UnloadFailed", "in use")),
        (
            there(CLOSED, 3),
            {"holders": WHO},
            ("False", "StillInUse", f"{OPEN}, and nothing more is put there: end what uses it"),
        ),
    ],
)
def test_what_is_not_as_asked_says_what_to_do(
    app: AppMemory | None, standing: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    condition = said(app, **standing)[1]
    assert (condition.status, condition.reason, condition.message) == expected


def test_a_guest_without_it_says_nothing() -> None:
    status, condition = said(None)
    assert (status.applications, condition) == (None, None)


def test_a_status_has_what_programs_keep_and_figures_alone_are_not_written() -> None:
    stats = {"pools": 3, "values": 9, "hits": 5, "misses": 4, "lost": 1, "puts": 8, "page_hits": 7}
    stats |= {"local": 2, "front_bytes": 8192, "spilled": 6}
    first = said(there(opened=2, bytes=100 << 20, **stats), wanted=REDIS)[0]
    one = first.applications
    assert one is not None
    assert (one.size_bytes, one.used_bytes, one.mode, one.group) == (GIB, 96 << 20, "0660", "redis")
    assert (one.opened, one.pools, one.values) == (2, 3, 9)
    assert (one.hits, one.misses, one.lost, one.puts, one.page_hits) == (5, 4, 1, 8, 7)
    assert (one.local_hits, one.front_bytes, one.disk_reads) == (2, 8192, 6)
    more = said(there(opened=3, bytes=101 << 20, values=10, hits=50, page_hits=8), first, wanted=REDIS)[0]
    day = timedelta(days=1)
    assert not report.worth_writing(more, first, day, timedelta())
    fuller = said(there(bytes=200 << 20), first, wanted=REDIS)[0]
    assert report.worth_writing(fuller, first, day, timedelta())
    assert not report.worth_writing(fuller, first, timedelta(), day)


def test_what_is_over_is_said_no_more() -> None:
    before = said(there(CLOSED, 1))[0]
    after, condition = said(None, before)
    assert condition is None
    assert report.worth_writing(after, before, timedelta(), timedelta(days=1))


def samples(*apps: AppMemory | None, **labels: str) -> dict[str, float]:
    """What is exported with just these labels beside the guest's, after it was seen like that, one after the other."""
    figures = Figures()
    for app in apps:
        figures.put(key("borrower"), Sample(observation(loaded=True, app=app), "KubeVirt"))
    each = (one for family in figures.collect() for one in family.samples if "value" in one.name)
    wanted = {"namespace": "default", "guest": "borrower"} | labels
    return {one.name: one.value for one in each if one.labels == wanted}


def pool_names(*apps: AppMemory) -> set[str]:
    """The pools of which something is exported then."""
    names = ({f"pool{n}" for n in range(100)} | {"redis"}) & {name for app in apps for name in app.pools}
    return {name for name in names if samples(*apps, value_pool=name)}


def with_pools(**sizes: int) -> AppMemory:
    return replace(there(), pools={name: AppPool({"bytes": size}) for name, size in sizes.items()})


def test_programs_figures_are_metrics_of_their_guest() -> None:
    """All pools together."""
    stats = {"bytes": 4096, "pools": 2, "values": 3, "hits": 4, "misses": 5, "lost": 1, "puts": 6, "page_hits": 7}
    stats |= {"local": 2, "front_bytes": 8192, "spilled": 9}
    took = {"get": Histogram(((100, 3),)), "put": Histogram(((200, 4),))}
    assert samples(replace(there(opened=8, **stats), latency=took)) == {
        "tidepool_guest_values_limit_bytes": GIB,
        "tidepool_guest_values_bytes": 4096,
        "tidepool_guest_values": 3,
        "tidepool_guest_value_pools": 2,
        "tidepool_guest_values_opened": 8,
        "tidepool_guest_value_hits_total": 4,
        "tidepool_guest_value_misses_total": 5,
        "tidepool_guest_values_lost_total": 1,
        "tidepool_guest_value_puts_total": 6,
        "tidepool_guest_value_page_hits_total": 7,
        "tidepool_guest_value_local_hits_total": 2,
        "tidepool_guest_values_front_bytes": 8192,
        "tidepool_guest_value_disk_reads_total": 9,
        "tidepool_guest_value_get_duration_seconds_count": 3,
        "tidepool_guest_value_get_duration_seconds_sum": pytest.approx(0.0003),
        "tidepool_guest_value_put_duration_seconds_count": 4,
        "tidepool_guest_value_put_duration_seconds_sum": pytest.approx(0.0008),
    }
    assert samples(None) == {}


def test_pools_of_programs_have_figures_by_name() -> None:
    stats = {"bytes": 9, "hits": 4, "misses": 5, "lost": 1, "puts": 6, "local": 2, "front_bytes": 8192, "spilled": 3}
    took = {"get": Histogram(((100, 3), (300, 1))), "put": Histogram(((200, 6),))}
    app = replace(there(), pools={"redis": AppPool(stats, took)})
    found = samples(app, value_pool="redis")
    assert {name.removeprefix("tidepool_guest_value_pool_"): one for name, one in found.items()} == {
        "bytes": 9,
        "hits_total": 4,
        "misses_total": 5,
        "lost_total": 1,
        "puts_total": 6,
        "local_hits_total": 2,
        "front_bytes": 8192,
        "disk_reads_total": 3,
        "get_duration_seconds_count": 4,
        "get_duration_seconds_sum": pytest.approx(0.0006),
        "put_duration_seconds_count": 6,
        "put_duration_seconds_sum": pytest.approx(0.0012),
    }
    below = samples(app, value_pool="redis", le="0.000128")
    assert below["tidepool_guest_value_pool_get_duration_seconds_bucket"] == 3
    assert samples(app, None, value_pool="redis") == {}


def test_a_guest_brings_no_more_than_so_many_names() -> None:
    """Those that hold most; others are no labels later either, whatever goes and comes."""
    many = with_pools(**{f"pool{n}": n for n in range(MOST_POOLS + 5)})
    assert pool_names(many) == {f"pool{n}" for n in range(5, MOST_POOLS + 5)}
    assert pool_names(with_pools(redis=1), many) == {f"pool{n}" for n in range(6, MOST_POOLS + 5)}
    assert pool_names(many, with_pools(redis=99)) == set()
    assert pool_names(many, with_pools(redis=99, pool7=1)) == {"pool7"}


# --- what a guest says ------------------------------------------------------------------------------------------------

BASE = f"""\
/proc/sys/kernel/random/boot_id:{BOOT}
/proc/sys/kernel/osrelease:{RELEASE}
"""
LOADED = f"{BASE}/sys/module/tidepool_app/srcversion:ABC\n"
PROBED = f"""{LOADED}\
/sys/module/tidepool_app/refcnt:2
/sys/module/tidepool_app/parameters/size_bytes:1073741824
/sys/class/misc/tidepool/stats:bytes 4096
/sys/class/misc/tidepool/stats:page_hits 7
/sys/class/misc/tidepool/latency:get 127 3
/sys/class/misc/tidepool/latency:get inf 1
/sys/class/misc/tidepool/latency:put 63 9
application/pool:redis 107 0600 900 800 7 600 5 4 3 2 1 4096 8 127:3,inf:1 -
application/pool:not\\040plain 107 0600 900 800 7 600 5 4 3 2 1 4096 8 127:3,inf:1 -
application/pool:before 107 0600 900 800 7 600 5 4 3 2
application/pool:odd 107 0600 x 800 7 600 5 4 3 2 1 4096 8 127:3,inf:1 -
application/device:660 107
application/group:redis 107
"""


def test_what_the_probe_prints_is_understood() -> None:
    assert parse(PROBED).app == replace(
        there(opened=2, bytes=4096, page_hits=7),
        latency={"get": Histogram(((127, 3), (float("inf"), 1))), "put": Histogram(((63, 9),))},
        pools={
            "redis": AppPool(
                {
                    "quota": 900,
                    "bytes": 800,
                    "values": 7,
                    "value_bytes": 600,
                    "hits": 5,
                    "misses": 4,
                    "lost": 3,
                    "puts": 2,
                    "local": 1,
                    "front_bytes": 4096,
                    "spilled": 8,
                },
                {"get": Histogram(((127, 3), (float("inf"), 1))), "put": Histogram()},
            )
        },
    )
    assert parse(BASE).app is None
    assert parse(LOADED).app == AppMemory()


@pytest.mark.parametrize(
    ("group", "number", "name"),
    [
        ("redis 107", "107", "redis"),
        ("redis 108", "107", "107"),
        ("root 0", "0", "root"),
        ("wheel 0", "0", "wheel"),
        ("", "0", "root"),
        ("Über 107", "107", "107"),
        ("-R 107", "107", "107"),
        (f"{'a' * 33} 107", "107", "107"),
        ("redis 107 x", "107", "107"),
    ],
)
def test_a_group_is_what_the_agent_has_written_for_its_number(group: str, number: str, name: str) -> None:
    seen = parse(f"{LOADED}application/device:660 {number}\napplication/group:{group}\n").app
    assert seen is not None
    assert (seen.mode, seen.group) == ("0660", name)


def test_nothing_that_a_guest_says_is_too_much_for_a_status() -> None:
    nines = "9" * 20
    counts = "".join(f"/sys/class/misc/tidepool/stats:{name} {nines}\n" for name in ("bytes", "hits", "values", "x y"))
    seen = parse(
        f"{LOADED}/sys/module/tidepool_app/refcnt:{nines}\n"
        f"/sys/module/tidepool_app/parameters/size_bytes:{nines}\n{counts}"
        "application/device:99999 $(reboot)\n"
    ).app
    assert seen is not None
    status = said(seen)[0].applications
    assert status is not None
    assert (status.mode, status.group, status.hits, status.opened) == ("", "", MOST_COUNT, MOST_COUNT)


# --- rounds of a worker -----------------------------------------------------------------------------------------------


class Store2(Store):
    """A store with the build that is loaded, or with another one."""

    offered = "ABCDEF"

    def has(self, _: str) -> bool:
        return True

    def build(self, _: str) -> Any:
        return SimpleNamespace(srcversion=self.offered, signed=True)


class Held(Without):
    """A guest in which programs have the device open."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.asked = 0

    async def holders(self) -> tuple[str, ...]:
        self.asked += 1
        return WHO

    async def do(self, step: plan.Step, _: str) -> None:
        self.done.append(step)


def rounds(
    one: MemoryPairing, seen: Observation, offered: str, tmp_path: Path, released: list[str] | None = None
) -> tuple[MemoryGuest, list[Step], Held]:
    """The guest after two rounds, what was done, and the guest's session."""

    class Told(Here):
        async def release(self, pairing: MemoryPairing, _: str) -> bool:
            (released if released is not None else []).append(pairing.name)
            return True

    async def all_of() -> tuple[MemoryGuest, list[Step], Held]:
        cluster: Any = Told(one)
        session: Any = Held(machine("borrower"), seen)
        store = Store2(tmp_path)
        store.offered = offered
        tools = Tools(cluster, store, Figures(), asyncio.Semaphore(), lambda _: session)
        return await last_of(cluster.written, machine("borrower"), tools, 2), session.done, session

    return asyncio.run(all_of())


def test_another_build_waits_for_programs_and_says_for_which(tmp_path: Path) -> None:
    """They go on, with what their lenders have; nobody waits for this guest when agents are replaced."""
    guest, done, session = rounds(APPLIED, borrows(there(opened=2)), "of-another-build", tmp_path)
    loaded = find(guest.status.conditions, "ModuleLoaded")
    ready = find(guest.status.conditions, "ApplicationsReady")
    assert loaded is not None
    assert ready is not None
    assert done == []
    assert (loaded.status, loaded.reason, ready.status) == ("True", "UpgradeWaits", "True")
    advice = "end or restart what uses it, and another build of the module is loaded"
    assert loaded.message == f"ABCDEF stays: {OPEN}: {advice}"
    assert session.asked == 1


def test_a_module_of_another_build_is_not_loaded_beside_the_core_module(tmp_path: Path) -> None:
    """Not before that is replaced, either."""
    done = rounds(APPLIED, borrows(), "of-another-build", tmp_path)[1]
    assert not any(isinstance(step, LoadApp) for step in done)
    assert any(isinstance(step, Replace) for step in done)
    assert rounds(APPLIED, borrows(), "ABCDEF", tmp_path)[1][0] == LoadApp(Source.STORE, REDIS)


def test_programs_keep_no_pairing_from_its_end(tmp_path: Path) -> None:
    """Its peers are gone; the module stays for them, and the guest says who they are."""
    ending = pairing(terminating=True)
    released: list[str] = []
    held = replace(borrows(there(CLOSED, 1)), peers={})
    guest, done, _ = rounds(ending, held, "ABCDEF", tmp_path, released)
    assert not any(isinstance(step, Unload | UnloadApp | Measure) for step in done)
    assert released
    condition = find(guest.status.conditions, "ApplicationsReady")
    assert condition is not None
    assert (condition.reason, WHO[0] in condition.message) == ("StillInUse", True)
