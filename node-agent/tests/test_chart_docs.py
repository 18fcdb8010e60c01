"""What the documentation shows of values and of Kubernetes' own objects is what chart and cluster take."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cast import TOP

from tidepool_api import names
from tidepool_api_testing.chart import CHART, helm, program, rendered

if TYPE_CHECKING:
    from pathlib import Path

FENCED = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
SHOWN = [(page.name, yaml.safe_load(block)) for page in PAGES for block in FENCED.findall(page.read_text())]
SECTIONS = set(yaml.safe_load((CHART / "values.yaml").read_text()))
VALUES = [(page, one) for page, one in SHOWN if set(one) <= SECTIONS]
OTHERS = re.compile(r"(tidepool\.dev|kubevirt\.io)/")
OBJECTS = [(page, one) for page, one in SHOWN if "kind" in one and not OTHERS.match(one["apiVersion"])]

# What of the chart's kinds a bundle may hold: operator-registry, pkg/lib/bundle/supported_resources.go, v1.55.
IN_OLM = {
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "NetworkPolicy", "Role", "RoleBinding",
    "ServiceAccount",
}  # fmt: skip


def test_there_are_some() -> None:
    assert {"monitor.md", "strict-clusters.md"} <= {page for page, _ in VALUES}
    assert {"Namespace", "NetworkPolicy"} <= {one["kind"] for _, one in OBJECTS}


@pytest.mark.parametrize("values", [one for _, one in VALUES], ids=[page for page, _ in VALUES])
def test_the_chart_takes_values_that_are_shown(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    answer = helm("template", "t", str(CHART), "-f", str(file))
    assert answer.returncode == 0, answer.stderr


def test_kubernetes_takes_objects_that_are_shown() -> None:
    """By the schemas of the lab's API server, which know each property."""
    schemas = f"{program('schemas')}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    answer = subprocess.run(
        [program("kubeconform"), "-strict", "-verbose", "-schema-location", schemas],
        input="\n---\n".join(json.dumps(one) for _, one in OBJECTS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.count(" is valid") == len(OBJECTS)


def test_the_kinds_that_no_bundle_of_olm_holds_are_named() -> None:
    """Those of the chart, on OpenShift with nodes that lend, which OLM does not list."""
    page = (TOP / "docs/how-to/strict-clusters.md").read_text()
    section = page.partition("## OLM\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)[1:]
    settings = ("nodeLender.enabled=true", "openshift.securityContextConstraints=Always")
    assert {kind for row in rows for kind in row.split(", ")} == {
        one["kind"] for one in rendered("", *settings)
    } - IN_OLM


def test_a_rendering_is_the_same_for_each_kubernetes_that_the_chart_takes() -> None:
    """For an older one it is refused in the words of docs/how-to/plain-manifests.md, which names the option."""
    least, now, later, older = (
        helm("template", "t", str(CHART), *options)
        for options in (["--kube-version=1.32"], [], ["--kube-version=1.99"], ["--kube-version=1.31"])
    )
    assert least.stdout
    assert least.stdout == now.stdout == later.stdout
    assert "chart requires kubeVersion" in older.stderr


def test_the_namespace_that_is_shown_is_the_charts() -> None:
    (shown,) = [one["metadata"] for _, one in OBJECTS if one["kind"] == "Namespace"]
    (own,) = [one["metadata"] for one in rendered("namespace", "namespace.create=true")]
    assert shown["name"] == own["name"]
    assert shown["labels"].items() <= own["labels"].items()


def test_policies_that_are_shown_are_for_the_port_of_lenders() -> None:
    policies = [one["spec"] for _, one in OBJECTS if one["kind"] == "NetworkPolicy"]
    rules = [rule for one in policies for rule in one.get("ingress", one.get("egress"))]
    assert [rule["ports"] for rule in rules] == [[{"port": names.DEFAULT_PORT, "protocol": "TCP"}]] * 2
