"""Two operators, one of which acts: real processes against a real API server (issue 4, item 6: Scale, failover)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cast import OWN_NAMESPACE, Agent, OperatorProcess, wait_for

from tidepool_api import names
from tidepool_operator.cluster.election import GIVE_UP_SECONDS, LEASE_SECONDS, RENEW_SECONDS, Rival

if TYPE_CHECKING:
    from pathlib import Path

    from tidepool_api_testing.server import Server

LENDS = {"memory": "spare"}
BORROWS = {"memory": "short"}
FAILOVER_SECONDS = 60


def pair(agent: Agent, borrower: str) -> None:
    """One more borrower, which whoever acts gives its pairing."""
    agent.guest(borrower, BORROWS, address="10.0.0.2")
    wait_for(f"pairing of {borrower}", lambda: f"pool.{borrower}.l" in agent.pairings(), FAILOVER_SECONDS)


def writes(one: OperatorProcess) -> float:
    return one.figure("tidepool_operator_api_writes_total")


def holder(cluster: Server) -> str:
    """Whose place it is; empty when it is nobody's."""
    return str(cluster.get("-n", OWN_NAMESPACE, "lease", names.OPERATOR_LEASE)["spec"].get("holderIdentity", ""))


def is_leading(one: OperatorProcess) -> bool:
    return one.figure("tidepool_operator_leading") == 1


def test_one_acts_and_the_other_takes_over(cluster: Server, agent: Agent, tmp_path: Path) -> None:
    """One hangs: its place is taken, and it does not act when it wakes up. One ends: it has given its place up.

    Passes when every borrower gets its pairing from whoever leads, and none is made twice.
    """
    first = OperatorProcess(cluster, tmp_path / "first")
    second = OperatorProcess(cluster, tmp_path / "second", is_ready_at_once=False)
    with first, second:
        agent.guest("l", LENDS, total=4 << 30)
        agent.pool(lenders={"selector": {"matchLabels": LENDS}, "maxLend": "3Gi"})
        pair(agent, "a")
        wait_for("second is up", lambda: second.get("/healthz"))
        assert (is_leading(first), is_leading(second), writes(second)) == (True, False, 0)
        uids = {name: one["metadata"]["uid"] for name, one in agent.pairings().items()}
        first.freeze(frozen=True)
        pair(agent, "b")
        assert is_leading(second)
        first.freeze(frozen=False)
        wait_for("first has noticed", lambda: not is_leading(first))
        done = writes(first)
        pair(agent, "c")
        assert (is_leading(first), is_leading(second), writes(first)) == (False, True, done)
        former = holder(cluster)
        second.terminate()
        assert holder(cluster) != former
        pair(agent, "d")
        assert is_leading(first)
        assert uids.items() <= {name: one["metadata"]["uid"] for name, one in agent.pairings().items()}.items()
    assert cluster.get("-n", OWN_NAMESPACE, "lease", names.OPERATOR_LEASE)["spec"]["leaseTransitions"] >= 3


def test_a_lease_is_taken_only_when_it_has_not_been_renewed_for_long() -> None:
    """By this machine's clock since the last change, whatever time the other one wrote."""
    rival = Rival()
    rival.look({"holderIdentity": "other", "renewTime": "2001-01-01T00:00:00Z"}, 100)
    assert not rival.is_gone(100 + LEASE_SECONDS)
    rival.look({"holderIdentity": "other", "renewTime": "2001-01-01T00:00:02Z"}, 110)
    assert not rival.is_gone(100 + LEASE_SECONDS + 1)
    assert rival.is_gone(110 + LEASE_SECONDS + 1)
    rival.look({"holderIdentity": ""}, 111)
    assert rival.is_gone(111)
    assert GIVE_UP_SECONDS + 2 * RENEW_SECONDS < LEASE_SECONDS
