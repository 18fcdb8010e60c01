"""`kubectl tidepool check`: whether all is well, from the workloads to the round trip of each pairing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidepool_api import ConditionType, MemoryPairing, PairingPhase, PoolPhase, Reason, Status, find
from tidepool_kubectl.explain import strangers, unstable
from tidepool_kubectl.figures import Figures, between, quantile
from tidepool_kubectl.snapshot import Snapshot, Workload
from tidepool_kubectl.top import duration
from tidepool_kubectl.verdict import Step, bad, good, unknown
from tidepool_kubectl.who import stray

LEFT_ALONE = (Reason.EXCLUDED, Reason.SYSTEM_UNSUPPORTED)


def check(now: Snapshot, before: Figures) -> list[Step]:
    """Everything, in the order in which one thing rests on another."""
    return [
        *_workloads(now),
        *_heartbeats(now),
        *_kernels(now),
        *_guests(now),
        *_strays(now),
        *_pools(now),
        *_pairings(now, before),
        *(unknown(f"metrics of {one}", "round trips of its guests' pairings are missing") for one in now.unread),
    ]


def _workloads(now: Snapshot) -> Iterator[Step]:
    if now.workloads is None:
        yield unknown("operator and agents: you may not list them", "ask somebody who may, or give --system NAMESPACE")
        return
    for component in ("operator", "agent"):
        found = now.workloads.get(component)
        if found is None:
            yield bad(f"no {component} is installed there", "install the chart, or give --system NAMESPACE")
        else:
            yield _workload(component, found)


def _workload(component: str, found: Workload) -> Step:
    text = f"{component}: {found.ready} of {found.wanted} ready ({found.name})"
    if found.wanted == 0:
        return bad(text, "none is wanted: replicas is 0, or no node is to have one")
    return good(text) if found.ready >= found.wanted else bad(text, found.advice)


def _heartbeats(now: Snapshot) -> Iterator[Step]:
    nodes = sorted({guest.spec.node_name for guest in now.guests})
    if now.heartbeats is None or not nodes:
        return
    silent = [node for node in nodes if now.is_silent(node)]
    if silent:
        yield bad(f"no heartbeat of the agents on {', '.join(silent)}", "what is shown of their guests is old")
    else:
        yield good(f"heartbeats of the agents on all nodes that have guests: {len(nodes)}")


def _kernels(now: Snapshot) -> Iterator[Step]:
    """One line for each kernel, with how many guests run it."""
    guests = [one for one in now.guests if not one.is_node]
    releases = Counter(guest.status.kernel_release for guest in guests if guest.status.kernel_release)
    for release, count in sorted(releases.items()):
        of = [guest for guest in guests if guest.status.kernel_release == release]
        found = [find(guest.status.conditions, ConditionType.MODULE_AVAILABLE) for guest in of]
        without = [one for one in found if one and one.status is Status.FALSE]
        text = f"kernel {release} ({count} guests)"
        if without:
            yield bad(f"{text}: no module for {len(without)} of them", without[0].message)
        else:
            yield good(f"{text}: there is a module")


def _guests(now: Snapshot) -> Iterator[Step]:
    if not now.guests:
        yield bad("no MemoryGuest", "start a virtual machine on a node where an agent runs")
        return
    nodes = [one for one in now.guests if one.is_node]
    guests = [one for one in now.guests if not one.is_node]
    for found, what in ((guests, "guests can lend or borrow"), (nodes, "nodes can lend")):
        ready = [one for one in found if one.ready and one.ready.status is Status.TRUE]
        if ready:
            yield good(f"{len(ready)} of {len(found)} {what}")
    alone = [one for one in now.guests if one.ready and one.ready.reason in LEFT_ALONE]
    if alone:
        yield good(f"left alone, as their owners or their systems want it: {len(alone)}")
    for guest in now.guests:
        if guest in alone:
            continue
        if guest.ready and guest.ready.status is not Status.TRUE and guest.ready.reason != "NoModuleForKernel":
            advice = f"{guest.ready.reason}: {guest.ready.message}"
            what = f"node {guest.name} cannot lend" if guest.is_node else f"guest {guest.key} cannot lend or borrow"
            yield bad(what, advice)


def _strays(now: Snapshot) -> Iterator[Step]:
    for guest in now.guests:
        if why := stray(guest):
            yield bad(f"guest {guest.key} lends memory of which no pairing tells", why)


def _pools(now: Snapshot) -> Iterator[Step]:
    for pool in now.pools:
        degraded = find(pool.status.conditions, ConditionType.DEGRADED)
        text = f"pool {pool.key}: {pool.status.phase or 'not gone over yet'}"
        if degraded and degraded.status is Status.TRUE:
            yield bad(text, degraded.message)
        elif pool.status.phase is PoolPhase.PAUSED:
            pending = find(pool.status.conditions, ConditionType.CHANGES_PENDING)
            yield unknown(text, pending.message if pending else "")
        else:
            yield good(text) if pool.status.phase else unknown(text, "is the operator running?")


def _pairings(now: Snapshot, before: Figures) -> Iterator[Step]:
    for one in now.pairings:
        yield _pairing(one, now, before)


def _pairing(one: MemoryPairing, now: Snapshot, before: Figures) -> Step:
    text = f"pairing {one.key}"
    ready = find(one.status.conditions, ConditionType.READY)
    if one.status.phase is not PairingPhase.CONNECTED and (why := strangers(one)):
        return bad(f"{text}: {one.status.phase}, for the two guests do not know each other", why)
    if why := unstable(one):
        return bad(f"{text}: {one.status.phase}, its connection does not last", why)
    if one.status.phase is not PairingPhase.CONNECTED:
        said = f"{ready.reason}: {ready.message}" if ready else "the operator has not looked at it yet"
        return (bad if one.status.phase is PairingPhase.FAILED else unknown)(f"{text}: {one.status.phase}", said)
    figures = now.figures.pairings.get(one.key)
    if figures is None:
        return unknown(f"{text}: connected; its round trip could not be read")
    lately = between(before.pairings.get(one.key), figures)
    trip = quantile(lately.ping, 0.5) or quantile(figures.ping, 0.5)
    text = f"{text}: connected, round trip {duration(trip)}"
    if figures.is_stopped:
        return bad(f"{text}, left alone", "the lender is slower than spec.latency allows; see TidepoolBreakerOpen")
    return good(text)
