"""What Helm does to an installation at work: upgrade, rollback, uninstall."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from product import BORROWER, GUESTS, ONE_TO_ONE, POOL, SPECS, Object, Product, report, until

from demo import lab
from tidepool_lab import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE, FILE_MIB = "/mnt/released", 240
RELEASE, CHART = "tidepool", paths.ROOT / "charts/tidepool"
CRD = ("crd", "memorypools.tidepool.dev")
PAUSED = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/paused"
CLUSTER_WIDE = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
OURS = "app.kubernetes.io/name=tidepool"


def helm(*arguments: str) -> str:
    return lab.call("helm", *arguments, "-n", lab.SYSTEM, "--wait", "--timeout", "8m", patience=600)


def fields_of_pools() -> Object:
    crd: Object = json.loads(lab.kubectl("get", *CRD, "-o", "json"))
    found: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def pods() -> set[str]:
    """Those of operator and agents that are not on their way out."""
    found = json.loads(lab.kubectl("get", "pods", "-n", lab.SYSTEM, "-l", OURS, "-o", "json"))["items"]
    return {one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]}


def next_release(folder: Path) -> Path:
    """The chart as another version of it: of the same images, which the lab has."""
    chart = folder / RELEASE
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    about.write_text(re.sub(r"^(version|appVersion): .*", r'\1: "99.0.0"', about.read_text(), flags=re.MULTILINE))
    return chart


def test_upgrade_and_rollback_lose_nothing(product: Product, tmp_path: Path) -> None:
    """Operator and agents are others afterwards, the pairing and what it holds the same; CRDs are brought along."""
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    pairing, connects = product.pairing_of(BORROWER)["metadata"]["uid"], product.connects()
    reads = product.start_stress(f"random {FILE} seconds=60 threads=2")
    lab.kubectl("patch", *CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": PAUSED}]))
    assert "paused" not in fields_of_pools()
    upgrade = ("upgrade", RELEASE, str(next_release(tmp_path)), "--set", f"image.tag={paths.VERSION}")
    for command in (upgrade, ("rollback", RELEASE)):
        before, hits = pods(), product.hits()
        helm(*command)
        until("all pods are new", lambda: pods() and not pods() & before, 60)  # noqa: B023
        assert "paused" in fields_of_pools()
        until("pages flow on", lambda: product.hits() > hits + 100, 20)  # noqa: B023
    seen = report(reads.result(patience=150))
    assert seen["wrong_pages"] == seen["errors"] == 0
    product.wait_condition("memorypool", POOL, "Ready", "True", patience=60)
    assert (product.pairing_of(BORROWER)["metadata"]["uid"], product.connects()) == (pairing, connects)
    product.assert_sound()


@pytest.fixture
def installed_again(product: Product) -> Iterator[Product]:
    yield product
    lab.call("up", *(argument for spec in SPECS for argument in ("--guest", spec)), show=True, patience=600)


def test_uninstall_leaves_nothing(installed_again: Product) -> None:
    """With a pool at work: guests, cluster and namespace are as before, but for the CRDs."""
    installed_again.apply_ready(ONE_TO_ONE)
    installed_again.stress(f"fill {FILE} mib={FILE_MIB}")
    installed_again.stress(f"sequential {FILE}")
    helm("uninstall", RELEASE)
    installed_again.assert_nothing_left(*GUESTS)
    assert lab.kubectl("get", "memoryguests,memorypools,memorypairings", "-A", "-o", "name") == ""
    assert lab.kubectl("get", CLUSTER_WIDE, "-l", OURS, "-o", "name") == ""
    inside = "pods,jobs,leases,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
    left = lab.kubectl("get", inside, "-n", lab.SYSTEM, "-o", "name").split()
    assert left == ["configmap/kube-root-ca.crt", "serviceaccount/default"]
    assert installed_again.stress(f"sequential {FILE}")["wrong_pages"] == 0
