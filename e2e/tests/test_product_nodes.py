"""A cluster in which no guest lends: nodes do, and a borrower's evicted pages come back from one."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pods_memory import Pods, read_again, take
from product import BORROWER, GUESTS, LENDER, MIB, STRESS, Object, Product, until

import docs
from demo import lab

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE, FILE_MIB = "/mnt/file", 240
GRANT = "nodes-for-default"
GATHERED = 100 * MIB  # the least that a guest with 300 MiB of idle files is to give
GATHERED_SECONDS = 600  # a little at a time
# The node lender's own memory may differ by that: what it remembers of pages, and its buffers.
TOLERANCE = 32 * MIB
# Of all pods' memory: what is left for one more, and what it takes beyond that.
ROOM_MIB, TAKEN_MIB = 64, 96
# As docs/how-to/lend-nodes.md has them, and as this machine can.
SIZES = {"32Gi": "600Mi", "8Gi": "256Mi", "36Gi": "1Gi"}


def pool(size: str = "512Mi") -> Object:
    """A pool that names nodes, and no guest that lends."""
    return {
        "apiVersion": "tidepool.dev/v1alpha1",
        "kind": "MemoryPool",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {
            "lenders": {"nodes": {"maxLend": "600Mi", "reserve": "256Mi"}},
            "borrowers": {"selector": {"matchLabels": {"vm.kubevirt.io/name": BORROWER}}, "size": size},
            "encryption": "None",
            "latency": {"mode": "Off"},
        },
    }


def grant() -> Object:
    """The administrator lets the namespace use nodes."""
    return {
        "apiVersion": "tidepool.dev/v1alpha1",
        "kind": "MemoryGrant",
        "metadata": {"name": GRANT, "namespace": lab.SYSTEM},
        "spec": {"to": [{"namespace": "default"}]},
    }


@pytest.fixture
def lending(product: Product) -> Iterator[Product]:
    """The lab with node lenders, which are gone again after the test."""
    line = docs.command("lend-nodes")
    for documented, here in SIZES.items():
        line = line.replace(documented, here)
    docs.run(line)
    for workload in ("daemonset/tidepool-node-lender", "daemonset/tidepool-agent"):
        lab.kubectl("rollout", "status", "-n", lab.SYSTEM, workload, "--timeout=4m")
    yield product
    lab.kubectl("delete", "memorypools", "--all", "--timeout=4m")
    lab.kubectl("delete", "memorygrants", "-n", lab.SYSTEM, "--all")
    docs.run(docs.command("reload"))


def nodes() -> list[Object]:
    """The nodes that lend."""
    return [one for one in lab.items("memoryguests", "-n", lab.SYSTEM) if one["spec"]["provider"] == "Node"]


def condition(one: Object, kind: str) -> Object:
    return next((each for each in one["status"].get("conditions", []) if each["type"] == kind), {})


def test_pages_come_back_from_a_node(lending: Product) -> None:
    """Granted, applied, read, deleted: with every page verified, and no guest that lends."""
    until("a node is ready", lambda: any(condition(one, "Ready").get("status") == "True" for one in nodes()))
    lending.apply(pool())
    said = lending.wait_condition("memorypool", "pool", "LendersGranted", "False", "NotGranted")
    assert f"no MemoryGrant of namespace {lab.SYSTEM}" in said
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(grant()))
    lending.wait_condition("memorypool", "pool", "Ready", "True")
    assert [lending.loaded(guest) for guest in GUESTS] == [guest == BORROWER for guest in GUESTS]
    lender = lending.pairing_of(BORROWER)["spec"]["lender"]
    assert (lender["namespace"], lender["guest"]) == (lab.SYSTEM, lender["nodeName"])
    lending.stress(f"fill {FILE} mib={FILE_MIB}")
    lending.stress(f"sequential {FILE} passes=2")
    before = lending.hits()
    report = lending.stress(f"random {FILE} reads=20000 threads=4")
    assert report["wrong_pages"] == report["errors"] == 0
    assert lending.hits() > before + 2000
    _assert_shown(lending, lender["guest"])
    _assert_given_way(lending, lender["guest"])
    lending.stress(f"sequential {FILE} passes=2")
    lending.assert_sound(BORROWER)
    lent, pod, pods = _lent(lending, lender["guest"]), *seen_by_kubelet(lender["guest"])
    lending.delete()
    until("the node has its memory back", lambda: _lent(lending, lender["guest"]) == 0)
    _assert_not_counted(lent, pod, pods, lender["guest"])
    lending.assert_nothing_left()
    assert lending.stress(f"sequential {FILE}")["wrong_pages"] == 0


def test_a_node_gets_what_a_guest_has_idle(lending: Product) -> None:
    """By its balloon, without a module in it; all of it comes back when the pool goes."""
    full = total(LENDER)
    lab.guest(LENDER, f"{STRESS} fill /root/idle mib=300 && sync")  # its page cache is memory that it has touched
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(grant()))
    one = pool()
    donors = {"selector": {"matchLabels": {"memory": "spare"}}, "reserve": "128Mi"}
    one["spec"]["lenders"]["nodes"]["balloon"] = donors
    lending.apply_ready(one)
    lending.wait_condition("memoryguest", LENDER, "BalloonReady", "True", "Gathering")
    until("the guest has less", lambda: total(LENDER) < full - GATHERED, GATHERED_SECONDS)
    assert not lending.loaded(LENDER)
    status = lab.get("memoryguest", LENDER)["status"]["balloon"]
    assert status["gatheredBytes"] > 0  # what the guest had reported free was the node's already
    assert re.search(rf"^{LENDER} .* \d+Mi ", lab.kubectl("get", "memoryguest", LENDER, "-o", "wide"), re.MULTILINE)
    lending.delete()
    until("it has all of its memory", lambda: total(LENDER) == full)
    until("nothing is said of its balloon", lambda: "balloon" not in lab.get("memoryguest", LENDER)["status"])
    lab.guest(LENDER, "rm /root/idle")


def total(guest: str) -> int:
    """The memory that a guest has, in bytes."""
    return int(lab.guest(guest, "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")) << 10


def seen_by_kubelet(node: str) -> tuple[Object, Object]:
    """The memory of the node lender's pod and of all its node's pods by kubelet's summary, looked at from now on.

    By that of all pods kubelet evicts when they exceed what the node has allocatable. By that of the whole node, too:
    but that is the machine's here, on which more than the lab may run.
    """
    asked = datetime.now(UTC)

    def looked() -> tuple[Object, Object] | None:
        said = json.loads(lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        pod = next(one for one in said["pods"] if one["podRef"]["name"].startswith("tidepool-node-lender"))
        pods = next(one for one in said["node"]["systemContainers"] if one["name"] == "pods")
        found = pod["memory"], pods["memory"]
        return found if all(datetime.fromisoformat(one["time"]) > asked for one in found) else None

    both: tuple[Object, Object] = until("kubelet has looked again", looked)
    return both


def _assert_not_counted(lent: float, pod: Object, pods: Object, name: str) -> None:
    """What was lent was the pod's, and in no working set, its own or of all pods: kubelet does not evict for it."""

    def given_back() -> tuple[Object, Object] | None:
        now = seen_by_kubelet(name)
        print(f"lent {lent / MIB:.0f} MiB; the pod {pod}, now {now[0]}; all pods {pods}, now {now[1]}")
        return now if pod["usageBytes"] - now[0]["usageBytes"] > lent * 0.8 else None

    pod_after, pods_after = until("kubelet sees that the pod has given it back", given_back)
    assert abs(pod["workingSetBytes"] - pod_after["workingSetBytes"]) < TOLERANCE
    assert abs(pods["workingSetBytes"] - pods_after["workingSetBytes"]) < lent / 2


def _assert_given_way(product: Product, node: str) -> None:
    """Another pod takes what all pods may not have beside what is lent: lent pages go, and nothing else on the node."""
    pods, lent = Pods(node), _lent(product, node)
    before = [pods.endings(), *map(read_again, GUESTS)]
    with pods.limited(pods.usage() + ROOM_MIB * MIB):
        assert take(node, ROOM_MIB + TAKEN_MIB) == "Succeeded: has it"
    assert [pods.endings(), *map(read_again, GUESTS)] == before
    until("lent pages have gone", lambda: _lent(product, node) < lent - TAKEN_MIB * MIB / 2)


def _assert_shown(product: Product, node: str) -> None:
    """By kubectl and in metrics; as a node."""
    assert "Node" in lab.kubectl("get", "memoryguest", "-n", lab.SYSTEM, node)
    until("the node reports what it lends", lambda: _lent(product, node) > 50 * MIB)
    assert (product.exported("tidepool_guest_lent_bytes", guest=node) or 0) > 50 * MIB
    shown = lab.kubectl("get", "memorypairings")
    assert node in shown
    assert LENDER not in shown


def _lent(product: Product, node: str) -> float:
    """What a node lends, by its agent's metrics."""
    return product.exported("tidepool_guest_lent_bytes", guest=node) or 0
