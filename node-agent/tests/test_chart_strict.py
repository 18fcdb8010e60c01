"""The chart on clusters that let no pod do what it was not given: OpenShift's constraints, Pod Security."""

from __future__ import annotations

from typing import Any

import pytest

from tidepool_api_testing.chart import CHART, NAMESPACE, RELEASE, helm, rendered

ALWAYS = "openshift.securityContextConstraints=Always"


def constraints(*settings: str) -> dict[str, Any]:
    (found,) = [one for one in rendered("agent", *settings) if one["kind"] == "SecurityContextConstraints"]
    return found


def used(component: str, *settings: str) -> list[list[str]]:
    """Which constraints the pods of a component may run under."""
    roles = [one for one in rendered(component, *settings) if one["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"] if "securitycontextconstraints" in rule["resources"]]
    assert all(rule["verbs"] == ["use"] for rule in rules)
    return [rule["resourceNames"] for rule in rules]


@pytest.mark.parametrize(
    ("wanted", "cluster", "expected"),
    [
        ("Auto", "", False),
        ("Auto", "security.openshift.io/v1", True),
        ("Always", "", True),
        ("Never", "security.openshift.io/v1", False),
    ],
)
def test_openshift_is_recognised_by_its_api(wanted: str, cluster: str, expected: bool) -> None:
    settings = [
        f"--set=openshift.securityContextConstraints={wanted}",
        *([f"--api-versions={cluster}"] * bool(cluster)),
    ]
    answer = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, *settings)
    assert answer.returncode == 0
    assert ("security.openshift.io" in answer.stdout) == expected
    assert ("kind: SecurityContextConstraints" in answer.stdout) == expected


@pytest.mark.parametrize("providers", ["KubeVirt", "Libvirt"])
def test_the_constraints_are_what_the_agents_ask_for(providers: str) -> None:
    """The pod is let in, and one that asks for more is not."""
    settings = [ALWAYS, f"agent.providers={{{providers}}}", "agent.runAsUser=162"]
    (daemons,) = [one for one in rendered("agent", *settings) if one["kind"] == "DaemonSet"]
    pod = daemons["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    found = constraints(*settings)
    assert found["metadata"]["name"] == "tidepool-agent"
    assert "namespace" not in found["metadata"]
    assert {key: value for key, value in found.items() if key.startswith("allow")} == {
        "allowHostPID": pod["hostPID"],
        "allowHostIPC": False,
        "allowHostNetwork": False,
        "allowHostPorts": False,
        "allowHostDirVolumePlugin": False,
        "allowPrivilegedContainer": False,
        "allowPrivilegeEscalation": container["securityContext"]["allowPrivilegeEscalation"],
        "allowedCapabilities": container["securityContext"]["capabilities"]["add"],
    }
    assert found["requiredDropCapabilities"] == container["securityContext"]["capabilities"]["drop"]
    assert found["readOnlyRootFilesystem"] == container["securityContext"]["readOnlyRootFilesystem"]
    assert found["runAsUser"] == {"type": "MustRunAs", "uid": pod["securityContext"]["runAsUser"]}
    groups = [{"min": group, "max": group} for group in pod["securityContext"]["supplementalGroups"]]
    assert found["supplementalGroups"] == {"type": "MustRunAs", "ranges": groups}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["seccompProfiles"] == ["runtime/default"]
    # The token of the service account is a projected volume of each pod.
    assert set(found["volumes"]) == {"projected"} | {key for one in pod["volumes"] for key in one if key != "name"}
    assert found["seLinuxContext"] == {"type": "MustRunAs", "seLinuxOptions": {"type": "spc_t", "level": "s0"}}


def test_each_component_may_use_its_constraints_and_no_others() -> None:
    assert used("agent", ALWAYS) == [["tidepool-agent"]]
    assert used("operator", ALWAYS) == [["nonroot-v2"]]
    assert used("release", ALWAYS) == [["nonroot-v2"]]
    assert [used(component) for component in ("agent", "operator", "release")] == [[], [], []]


@pytest.mark.parametrize("component", ["operator", "release"])
def test_the_others_fit_nonroot(component: str) -> None:
    """A user of their own that is not root, the runtime's seccomp profile, no capability, no volume of the host."""
    specs = [one["spec"]["template"]["spec"] for one in rendered(component) if one["kind"] in ("Deployment", "Job")]
    assert specs
    for pod in specs:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostIPC", "hostNetwork"} & set(pod)
        assert {key for one in pod["volumes"] for key in one if key != "name"} == {"emptyDir"}
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_namespace_lets_the_agents_in() -> None:
    """Where the chart makes it; by default it is somebody else's."""
    assert not [one for one in rendered() if one["kind"] == "Namespace"]
    (own,) = [one for one in rendered("", "namespace.create=true") if one["kind"] == "Namespace"]
    assert own["metadata"]["name"] == NAMESPACE
    labels = own["metadata"]["labels"]
    for mode in ("enforce", "audit", "warn"):
        assert labels[f"pod-security.kubernetes.io/{mode}"] == "privileged"


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("openshift.securityContextConstraints=true", "/openshift/securityContextConstraints"),
        ("openshift.enabled=true", "/openshift"),
        ("namespace.create=maybe", "/namespace/create"),
        ("namespace.name=other", "/namespace"),
    ],
)
def test_what_makes_no_sense_is_refused(setting: str, place: str) -> None:
    answer = helm("template", RELEASE, str(CHART), f"--set={setting}")
    assert answer.returncode != 0
    assert f"at '{place}'" in answer.stderr
