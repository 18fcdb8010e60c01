"""Where the chart's pods run: on nodes that can do what they are for, and elsewhere only as the values say."""

from __future__ import annotations

from typing import Any

import pytest

from tidepool_api_testing.chart import CHART, helm, rendered

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
KUBEVIRT = {"key": "kubevirt.io/schedulable", "operator": "Exists"}


def pods(component: str, *settings: str) -> list[dict[str, Any]]:
    """What the pods of a component's workloads and Jobs are like."""
    found = [one["spec"].get("template") for one in rendered(component, *settings) if "spec" in one]
    return [one["spec"] for one in found if one]


def terms(component: str, *settings: str) -> list[Any]:
    """Of which a node has to meet one; those of all pods of a component are the same."""
    first, *others = (
        pod["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] for pod in pods(component, *settings)
    )
    assert all(one == first for one in others)
    return first


def test_agents_run_where_kubevirt_does() -> None:
    """Whether it takes new guests there or not: its own are there."""
    assert terms("agent") == [{"matchExpressions": [LINUX, AMD64, KUBEVIRT]}]
    assert terms("agent", "agent.providers={KubeVirt,Libvirt}") == [{"matchExpressions": [LINUX, AMD64]}]


@pytest.mark.parametrize("component", ["operator", "release"])
def test_others_run_where_there_is_an_image(component: str) -> None:
    assert terms(component) == [{"matchExpressions": [LINUX, AMD64]}]
    both = AMD64 | {"values": ["amd64", "arm64"]}
    assert terms(component, "image.architectures={amd64,arm64}") == [{"matchExpressions": [LINUX, both]}]


def test_an_affinity_of_the_values_is_kept_and_opens_no_other_nodes() -> None:
    """Of several terms one is enough, so each of them says what a node must be."""
    own = "agent.affinity"
    term = f"{own}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    settings = [
        f"{term}[0].matchExpressions[0].key=disk",
        f"{term}[0].matchExpressions[0].operator=Exists",
        f"{term}[1].matchFields[0].key=metadata.name",
        f"{own}.podAntiAffinity.{REQUIRED}[0].topologyKey=zone",
    ]
    must = [LINUX, AMD64, KUBEVIRT]
    assert terms("agent", *settings) == [
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}, *must]},
        {"matchExpressions": must, "matchFields": [{"key": "metadata.name"}]},
    ]
    (pod,) = pods("agent", *settings)
    assert pod["affinity"]["podAntiAffinity"] == {REQUIRED: [{"topologyKey": "zone"}]}
    assert terms("operator", *settings) == terms("operator")


@pytest.mark.parametrize("replicas", [0, 1, 2, 3])
def test_several_operators_are_drained_one_after_the_other(replicas: int) -> None:
    """One alone may go: another one is started elsewhere, and nothing waits for it but the plans."""
    objects = rendered("operator", f"operator.replicas={replicas}")
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    budgets = [one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    expected = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": deployment["spec"]["selector"],
    }
    assert budgets == ([expected] if replicas > 1 else [])


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("image.architectures=amd64", "/image/architectures"),
        ("image.architectures={x86_64}", "/image/architectures/0"),
        ("agent.affinity.nodes=all", "/agent/affinity"),
        ("operator.affinity.nodeAffinity={a}", "/operator/affinity/nodeAffinity"),
    ],
)
def test_what_makes_no_sense_is_refused(setting: str, place: str) -> None:
    answer = helm("template", "t", str(CHART), f"--set={setting}")
    assert answer.returncode != 0
    assert f"at '{place}'" in answer.stderr
