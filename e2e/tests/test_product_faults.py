"""What breaks while pages flow: the application notices nothing but, at most, the speed of its own disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, POOL, Object, Product, until

import docs
from demo import lab, module, workload

FILE = "/mnt/file"
FILL = f"fill {FILE} mib=240"
# Without a deadline a reader waits until the lender is given up, 4 s at least.
IN_TIME_US = 3_500_000
AWAY_SECONDS = 8  # longer than it takes to give a lender up
AT_ONCE_SECONDS = 60  # no longer than it takes to give an agent up
STATE, CONNECTED = f"cat {module.TREE}/lenders/*/state 2> /dev/null || :", "Connected"


@pytest.fixture
def flowing(product: Product) -> Product:
    """A pool whose lender has most of a file."""
    product.apply_ready(ONE_TO_ONE)
    product.stress(FILL)
    product.stress(f"sequential {FILE} passes=1")
    return product


def test_lender_killed_during_reads(flowing: Product) -> None:
    """SIGKILL of its QEMU: no error, no wrong byte, no read that waits; the pool says so, and repairs itself."""
    reads = flowing.start_stress(f"random {FILE} seconds=900 threads=4")
    until_flowing(flowing)
    lab.call("guest", "kill", LENDER)
    message = flowing.wait_condition("memorypool", POOL, "Degraded", "True", "NoLenders")
    assert f"VMI {LENDER} is Failed: start it again" in message
    assert flowing.phase("memorypool", POOL) == "Degraded"
    until("the borrower gives the lender up", lambda: CONNECTED not in lab.guest(BORROWER, STATE))
    seen = flowing.end_stress(reads)
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["max_us"] < IN_TIME_US, f"a read took {seen['max_us'] / 1e6:.2f} s"
    flowing.stress(f"sequential {FILE}")
    flowing.restart_lender()
    flowing.wait_condition("memorypool", POOL, "Ready", "True")
    flowing.stress(f"sequential {FILE} passes=2")
    assert flowing.hits() > 0
    flowing.assert_sound()


def test_operator_and_agent_killed(flowing: Product) -> None:
    """Neither is needed for page traffic; when they are back they find everything as it is."""
    begun = flowing.sessions_begun()
    reads = flowing.start_stress(f"random {FILE} seconds=900 threads=2")
    lab.kubectl("delete", "pods", "-n", lab.SYSTEM, "--all", "--force", "--grace-period=0")
    until_flowing(flowing)
    lab.kubectl("wait", "-n", lab.SYSTEM, "pods", "--all", "--for=condition=Ready", "--timeout=4m")
    flowing.wait_condition("memorypool", POOL, "Ready", "True")
    seen = flowing.end_stress(reads)
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["max_us"] < IN_TIME_US
    assert flowing.sessions_begun() == begun, "the pairing was set up anew"
    flowing.assert_sound()


def test_pool_deleted_while_the_agent_is_gone(flowing: Product) -> None:
    """No finalizer hangs, and none has to be waited for; the agent that comes back cleans up the guests."""
    with _no_agent():
        _let_go_by_hand(flowing.pairing_of(BORROWER)["metadata"])
        flowing.delete()
        assert lab.kubectl("get", "memorypairings", "-o", "name").strip() == ""
        assert flowing.loaded(BORROWER)
        assert flowing.stress(f"sequential {FILE}")["wrong_pages"] == 0
    until("the modules are gone", lambda: not flowing.loaded(BORROWER) and not flowing.loaded(LENDER))
    flowing.assert_nothing_left()


def test_reads_go_on_without_a_way_to_the_lender(flowing: Product) -> None:
    """The lender cannot be reached for a while: reads come from disk, and from the lender again afterwards."""
    address = workload.pod_address(LENDER)
    reads = flowing.start_stress(f"random {FILE} seconds=900 threads=4")
    until_flowing(flowing)
    lab.guest(BORROWER, f"ip route add blackhole {address}; sleep {AWAY_SECONDS}; ip route del blackhole {address}")
    until_flowing(flowing)
    seen = flowing.end_stress(reads)
    assert seen["wrong_pages"] == seen["errors"] == 0
    assert seen["max_us"] < IN_TIME_US
    flowing.wait_condition("memorypool", POOL, "Ready", "True")
    flowing.assert_sound()


def until_flowing(product: Product) -> None:
    """Until pages come from the lender."""
    before = product.hits()
    until("pages flow", lambda: product.hits() > before + 100)


def _let_go_by_hand(pairing: Object) -> None:
    """At once, and not after the time for which the operator waits for the agent; the pool makes another."""
    lab.kubectl("delete", "memorypairing", pairing["name"], "--wait=false")
    docs.run(docs.filled_in(docs.command("let-go")))
    uids = lambda: {one["metadata"]["uid"] for one in lab.items("memorypairings")}  # noqa: E731
    until("the pairing is gone", lambda: pairing["uid"] not in uids(), AT_ONCE_SECONDS)


@contextmanager
def _no_agent() -> Iterator[None]:
    """No agent pod anywhere, as on a node whose agent cannot start."""
    agent = lab.kubectl("get", "daemonset", "-n", lab.SYSTEM, "-o", "name").strip()
    _place(agent, {"tidepool.dev/nowhere": "yes"})
    until("the agent is gone", lambda: not _agent_pods())
    try:
        yield
    finally:
        _place(agent, {"tidepool.dev/nowhere": None})
        lab.kubectl("rollout", "status", "-n", lab.SYSTEM, agent, "--timeout=4m")


def _place(agent: str, node_selector: dict[str, str | None]) -> None:
    patch = json.dumps({"spec": {"template": {"spec": {"nodeSelector": node_selector}}}})
    lab.kubectl("patch", "-n", lab.SYSTEM, agent, "--type=merge", "-p", patch)


def _agent_pods() -> str:
    selector = "app.kubernetes.io/component=agent"
    return lab.kubectl("get", "pods", "-n", lab.SYSTEM, "-l", selector, "-o", "name").strip()
