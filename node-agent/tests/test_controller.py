"""What goes when a guest or a node has gone."""

from __future__ import annotations

import pytest
from objects import machine, pairing

from tidepool_agent.cluster import owned
from tidepool_agent.controller import orphaned
from tidepool_api import names

BOTH = [names.LENDER_FINALIZER, names.BORROWER_FINALIZER]


HOME = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}


def test_a_guest_of_the_nodes_own_libvirt_goes_with_the_node() -> None:
    """Issue 28, fault 4: nobody else would delete its MemoryGuest; KubeVirt's go with their instances."""
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": "u"}
    assert owned(machine(), HOME).owner == HOME
    assert owned(machine(), None).owner == {}
    assert owned(machine(owner=instance), HOME).owner == instance


def test_a_granted_lender_is_looked_for_in_its_own_namespace() -> None:
    """Issue 28, fault 12: else its finalizer goes at once, while it still holds the borrower's pages."""
    granted = pairing()
    spec = granted.spec.model_copy(update={"lender": granted.spec.lender.model_copy(update={"namespace": "rich"})})
    granted = granted.model_copy(update={"spec": spec})
    machines = {("rich", "lender"), ("default", "borrower")}
    assert orphaned(granted, "node1", machines) == []
    assert orphaned(granted, "node1", {("default", "lender"), ("default", "borrower")}) == [names.LENDER_FINALIZER]


@pytest.mark.parametrize(
    ("node", "machines", "gone"),
    [
        ("node1", {("default", "lender"), ("default", "borrower")}, []),
        ("node1", {("default", "lender")}, [names.BORROWER_FINALIZER]),
        ("node1", set(), BOTH),
        ("node2", set(), []),
    ],
)
def test_ends_of_guests_that_are_gone(node: str, machines: set[tuple[str, str]], gone: list[str]) -> None:
    assert orphaned(pairing(), node, machines) == gone
