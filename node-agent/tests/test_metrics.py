"""What Prometheus gets."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from objects import machine, observation
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidepool_agent import server
from tidepool_agent.errors import Unreachable
from tidepool_agent.guestfs import Module, Observation, Peer, Side
from tidepool_agent.histogram import Histogram
from tidepool_agent.mapped import Mapped
from tidepool_agent.metrics import MOST_BUILDS, MOST_SIZES, REASONS, Figures, Sample
from tidepool_agent.provider import Machine
from tidepool_agent.session import Session
from tidepool_agent.store import Store
from tidepool_api import ConditionType, condition
from tidepool_api.metrics import AGENT
from tidepool_api_testing.pace import within

BORROWER = Peer(
    {"enabled": "1", "state": "Connected"},
    {
        "connects": 3,
        "get_hits": 90,
        "get_misses": 5,
        "get_late": 3,
        "get_errors": 2,
        "puts": 100,
        "drop_lost": 4,
        "catalog_pages": 10,
    }
    | {"get_corrupt": 1}
    | {"breaker_open": 1, "breaker_opened": 2, "get_skipped": 8, "get_skipped_sequential": 9, "drop_breaker": 11}
    | {"get_unasked": 5, "get_incomplete": 6},
    {"get": Histogram(((63, 10), (127, 20), (float("inf"), 1)))}
    | {"ping": Histogram(((63, 1),)), "put": Histogram(((127, 2),))},
)
PAIRING = "pool.vm1.vm2"
NAMED = frozenset({"tidepool-vdb", "tidepool.swap"})
Key = tuple[str, tuple[tuple[str, str], ...]]


def exported(seen: Observation, *, stale: bool = False) -> dict[Key, float]:
    figures = Figures()
    figures.put(("ns", "vm1"), Sample(seen, "KubeVirt", {"u1": ("pool", PAIRING)}, NAMED, stale))
    return samples_of(figures)


def samples_of(figures: Figures) -> dict[Key, float]:
    registry = CollectorRegistry()
    registry.register(figures)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: dict[Key, float], name: str, **labels: str) -> float:
    if "pairing" in labels:
        labels["pool"] = "pool" if labels["pairing"] else ""
    return samples[name, tuple(sorted(({"namespace": "ns", "guest": "vm1"} | labels).items()))]


def borrowing(peer: Peer = BORROWER) -> Observation:
    return observation(loaded=True, stats={"misses": 7, "drop_gate": 6}, peers={(Side.LENDERS, "u1"): peer})


def test_a_borrowers_figures() -> None:
    samples = exported(borrowing())
    pairing = "pool.vm1.vm2"
    assert value(samples, "tidepool_guest_get_hits_total", pairing=pairing) == 90
    assert value(samples, "tidepool_guest_get_misses_total", pairing=pairing) == 5
    assert value(samples, "tidepool_guest_get_late_total", pairing=pairing) == 5
    assert value(samples, "tidepool_guest_get_corrupt_total", pairing=pairing) == 1
    assert value(samples, "tidepool_guest_puts_total", pairing=pairing) == 100
    assert value(samples, "tidepool_guest_connects_total", pairing=pairing) == 3
    assert value(samples, "tidepool_guest_puts_dropped_total", pairing=pairing, reason="lost") == 4
    assert value(samples, "tidepool_guest_puts_dropped_total", pairing="", reason="gate") == 6
    assert value(samples, "tidepool_guest_used_bytes", pairing=pairing) == 40960
    assert value(samples, "tidepool_guest_connected", pairing=pairing, side="borrower") == 1
    assert value(samples, "tidepool_guest_disk_reads_total") == 7


def test_devices_and_swap_are_shown_apart() -> None:
    """Only those that a pairing names; without lenders they have no counters, and what is no swap has none swapped."""
    stats = {"hits": 5, "misses": 3, "fallbacks": 1, "puts": 8}
    each = [
        Mapped("tidepool-vdb", 1 << 30, is_lent=True, stats=stats),
        Mapped("tidepool.swap", 1 << 20, is_lent=False, swapped_bytes=4096),
        Mapped("tidepool-invented", 1, is_lent=True),
    ]
    samples = exported(replace(borrowing(), mapped={one.name: one for one in each}))
    device = {"front_end": "device", "device": "tidepool-vdb"}
    swap = {"front_end": "swap", "device": "tidepool.swap"}
    for name, of_device, of_swap in (
        ("device_bytes", 1 << 30, 1 << 20),
        ("device_lent", 1, 0),
        ("device_hits_total", 5, 0),
        ("device_disk_reads_total", 4, 0),
        ("device_puts_total", 8, 0),
    ):
        assert value(samples, f"tidepool_guest_{name}", **device) == of_device
        assert value(samples, f"tidepool_guest_{name}", **swap) == of_swap
    assert value(samples, "tidepool_guest_swapped_bytes", **swap) == 4096
    assert {dict(labels).get("device") for _, labels in samples} == {None, "tidepool-vdb", "tidepool.swap"}


def test_latencies_are_seconds_in_buckets_that_are_the_same_for_every_guest() -> None:
    samples = exported(borrowing())
    name, pairing = "tidepool_guest_get_duration_seconds", "pool.vm1.vm2"
    assert value(samples, f"{name}_bucket", pairing=pairing, le="6.4e-05") == 10
    assert value(samples, f"{name}_bucket", pairing=pairing, le="0.000128") == 30
    assert value(samples, f"{name}_bucket", pairing=pairing, le="+Inf") == 31
    assert value(samples, f"{name}_count", pairing=pairing) == 31


def test_what_the_breaker_and_the_filter_did() -> None:
    samples = exported(borrowing())
    pairing = "pool.vm1.vm2"
    assert value(samples, "tidepool_guest_breaker_open", pairing=pairing) == 1
    assert value(samples, "tidepool_guest_breaker_opened_total", pairing=pairing) == 2
    assert value(samples, "tidepool_guest_get_skipped_total", pairing=pairing, reason="breaker") == 8
    assert value(samples, "tidepool_guest_get_skipped_total", pairing=pairing, reason="sequential") == 9
    assert value(samples, "tidepool_guest_get_skipped_total", pairing=pairing, reason="unasked") == 5
    assert value(samples, "tidepool_guest_get_skipped_total", pairing=pairing, reason="incomplete") == 6
    assert value(samples, "tidepool_guest_puts_dropped_total", pairing=pairing, reason="breaker") == 11


def test_each_reason_that_the_module_counts_is_exported() -> None:
    """One that it has come to count would be missing from every sum."""
    shown = Path(__file__, "../../../kernel-module/control/show.c").resolve().read_text()
    assert set(REASONS) == set(re.findall(r"TIDE_COUNTER\(\w+, drop_(\w+)\)", shown))


def test_the_disk_is_measured_beside_the_pool() -> None:
    samples = exported(replace(borrowing(), module=Module("0.1.0", "A", latency={"disk": Histogram(((8191, 3),))})))
    assert value(samples, "tidepool_guest_disk_read_duration_seconds_count") == 3
    assert value(samples, "tidepool_guest_disk_read_duration_seconds_bucket", le="0.008192") == 3
    assert value(samples, "tidepool_guest_put_duration_seconds_count", pairing="pool.vm1.vm2") == 2
    assert value(samples, "tidepool_guest_ping_duration_seconds_count", pairing="pool.vm1.vm2") == 1


@given(st.lists(st.tuples(st.integers(0, 1 << 30) | st.just(float("inf")), st.integers(0, 1 << 40)), max_size=20))
def test_buckets_never_fall(buckets: list[tuple[float, int]]) -> None:
    samples = exported(borrowing(Peer({}, {}, {"get": Histogram(tuple(sorted(buckets)))})))
    get = "tidepool_guest_get_duration_seconds_bucket"
    found = [(float(dict(labels)["le"]), count) for (name, labels), count in samples.items() if name == get]
    assert found
    counts = [count for _, count in sorted(found)]
    assert all(a <= b for a, b in itertools.pairwise(counts))


def test_a_guest_cannot_invent_labels() -> None:
    """Neither peers that belong to no pairing, nor counters that the module does not have."""
    samples = exported(
        observation(
            loaded=True,
            stats={"drop_evil": 1},
            peers={(Side.LENDERS, f"x{n}"): Peer({}, {"get_hits": 1, "drop_more": 1}) for n in range(100)},
        )
    )
    assert not [labels for _, labels in samples if "pairing" in dict(labels) and dict(labels)["pairing"]]
    assert not [labels for _, labels in samples if dict(labels).get("reason") in ("evil", "more")]


def test_what_a_guest_says_of_itself_makes_only_so_many_series() -> None:
    """Release, version and sizes are its own words; what was shown before stays, and there is one build at a time."""
    figures, seen = Figures(), set[Key]()
    for turn in range(300):
        module = Module(f"0.{turn}", "A", ghost="NonInclusive", curve=((turn, 0.5),), sampled_references=1000)
        figures.put(("ns", "vm1"), Sample(replace(observation(), release=f"6.1-{turn}", module=module), "KubeVirt"))
        samples = samples_of(figures)
        assert len([name for name, _ in samples if name == "tidepool_guest_info"]) == 1
        figures.leave_alone(("ns", "vm1"))
        assert samples_of(figures) == {}
        seen |= {key for key in samples if key[0] in ("tidepool_guest_info", "tidepool_guest_forecast_hit_ratio")}
    assert len(seen) == MOST_BUILDS + 1 + MOST_SIZES
    assert {dict(labels)["kernel"] for name, labels in seen if name == "tidepool_guest_info"} >= {"", "6.1-0", "6.1-15"}
    figures.drop(("ns", "vm1"))
    figures.put(("ns", "vm1"), Sample(replace(observation(), release="6.1-299"), "KubeVirt"))
    (info,) = [dict(labels) for name, labels in samples_of(figures) if name == "tidepool_guest_info"]
    assert info["kernel"] == "6.1-299"


def test_old_figures_are_marked() -> None:
    assert value(exported(borrowing(), stale=True), "tidepool_guest_stale") == 1
    assert value(exported(borrowing()), "tidepool_guest_stale") == 0


def test_what_a_guest_needs() -> None:
    stalls = {"memory some": 12, "io full": 3}
    samples = exported(observation(working_set_bytes=5, refaults=77, stalls=stalls))
    assert value(samples, "tidepool_guest_working_set_bytes") == 5
    assert value(samples, "tidepool_guest_refaults_total") == 77
    assert value(samples, "tidepool_guest_pressure_ratio", resource="memory", kind="some") == 0.12
    assert value(samples, "tidepool_guest_pressure_ratio", resource="io", kind="full") == 0.03


def test_what_a_pool_would_be_worth() -> None:
    """While the ghost mode is on, and only as far as it rests on enough reads."""
    measured = Module("0.1.0", "A", ghost="NonInclusive", curve=((1 << 28, 0.25), (1 << 29, 0.75)), references=9000)
    samples = exported(replace(observation(), module=replace(measured, sampled_references=1000)))
    assert value(samples, "tidepool_guest_ghost_reads_total") == 9000
    assert value(samples, "tidepool_guest_forecast_hit_ratio", size="268435456") == 0.25
    assert value(samples, "tidepool_guest_forecast_hit_ratio", size="536870912") == 0.75
    few = exported(replace(observation(), module=replace(measured, sampled_references=999)))
    assert value(few, "tidepool_guest_ghost_reads_total") == 9000
    off = exported(replace(observation(), module=replace(measured, ghost="Off", sampled_references=1000)))
    for found in (few.keys(), off.keys()):
        assert "tidepool_guest_forecast_hit_ratio" not in {name for name, _ in found}
    assert "tidepool_guest_ghost_reads_total" not in {name for name, _ in off}


def test_a_hundred_guests_are_scraped_in_less_than_a_second() -> None:
    """Item 11: over HTTP, from what was collected before; every guest borrows from two lenders."""
    figures, registry = Figures(), CollectorRegistry()
    registry.register(figures)
    full = Histogram(tuple((float(1 << n), n + 1) for n in range(4, 25)))
    peer = replace(BORROWER, latency=dict.fromkeys(("get", "put", "ping"), full))
    for number in range(100):
        seen = replace(borrowing(), peers={(Side.LENDERS, uid): peer for uid in ("u1", "u2")})
        figures.put(("ns", f"vm{number}"), Sample(seen, "KubeVirt", {"u1": f"p{number}", "u2": f"q{number}"}))
    port = server.start("127.0.0.1", 0, registry, {})

    def scrape() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert answer.read().count(b"\ntidepool_guest_info{") == 100

    assert within(1, scrape)


def test_probes_and_prometheus_come_by_either_protocol() -> None:
    """In a cluster of IPv6 alone the pod has no other address."""
    port = server.start("", 0, CollectorRegistry(), {"/healthz": lambda: True})
    for host in ("127.0.0.1", "[::1]" if socket.has_dualstack_ipv6() else "localhost"):
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"


def test_at_most_so_many_guests_are_talked_to_at_a_time(tmp_path: Path) -> None:
    """Item 11: the others wait for their turn, and each gets it."""
    lock, present, most, asked = threading.Lock(), 0, 0, set[str]()

    def endpoint(one: Machine) -> str:
        nonlocal present, most
        with lock:
            present += 1
            most = max(most, present)
            asked.add(one.name)
        time.sleep(0.05)
        with lock:
            present -= 1
        raise Unreachable("nobody is there")

    async def ask_all() -> None:
        slots = asyncio.Semaphore(3)
        sessions = [
            Session(machine(f"vm{n}"), endpoint=endpoint, store=Store(tmp_path), slots=slots, proc=tmp_path)
            for n in range(12)
        ]
        answers = await asyncio.gather(*(one.look() for one in sessions), return_exceptions=True)
        assert all(isinstance(answer, Unreachable) for answer in answers)
        for one in sessions:
            one.close()

    asyncio.run(ask_all())
    assert (most, len(asked)) == (3, 12)


def test_a_guest_that_is_gone_leaves_nothing() -> None:
    figures = Figures()
    figures.put(("ns", "vm1"), Sample(borrowing(), "KubeVirt"))
    figures.drop(("ns", "vm1"))
    assert all(not family.samples for family in figures.collect())


def test_a_guest_that_never_answered_has_its_conditions() -> None:
    """No figures are known of it, and what is in its way is what somebody will look for."""
    figures, blocked = Figures(), condition(ConditionType.GUEST_AGENT_READY, False, "CommandsBlocked", "allow them")
    figures.judge(("ns", "vm1"), (blocked, condition(ConditionType.MODULE_AVAILABLE, None, "KernelUnknown")))
    samples, name = samples_of(figures), "tidepool_guest_condition"
    assert value(samples, name, type="GuestAgentReady", reason="CommandsBlocked") == 0
    assert value(samples, name, type="ModuleAvailable", reason="KernelUnknown") == -1
    figures.drop(("ns", "vm1"))
    assert samples_of(figures) == {}


def test_what_goes_wrong_is_counted_by_the_guests_namespace() -> None:
    figures = Figures()
    for namespace in ("ns", "quiet"):
        figures.answer_for("node1", namespace)
    for namespace in ("ns", "ns", "other"):
        figures.failed("node1", namespace)
    figures.answer_for("node1", "ns")
    name = "tidepool_agent_errors_total"
    assert samples_of(figures) == {
        (name, (("agent", "node1"), ("namespace", "ns"))): 2,
        (name, (("agent", "node1"), ("namespace", "quiet"))): 0,
        (name, (("agent", "node1"), ("namespace", "other"))): 1,
    }


def test_it_exports_what_is_documented() -> None:
    """Every metric of an agent in docs/reference/metrics.md, and no other."""
    assert {family.name for family in Figures().collect()} == {name.removesuffix("_total") for name in AGENT}
