"""What Helm does to an installation at work: upgrade, rollback, uninstall."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from product import BORROWER, GUESTS, ONE_TO_ONE, POOL, Object, Product, until

import docs
from demo import lab
from tidepool_lab import images, paths, published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE, FILE_MIB = "/mnt/released", 240
CHART = paths.ROOT / "charts/tidepool"
CRD = ("crd", "memorypools.tidepool.dev")
PAUSED = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/paused"
CLUSTER_WIDE = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
MONITORS = "podmonitors,prometheusrules"
OURS = "app.kubernetes.io/name=tidepool"


def fields_of_pools() -> Object:
    crd: Object = json.loads(lab.kubectl("get", *CRD, "-o", "json"))
    found: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def pods() -> set[str]:
    """Those of operator and agents that are not on their way out."""
    found = json.loads(lab.kubectl("get", "pods", "-n", lab.SYSTEM, "-l", OURS, "-o", "json"))["items"]
    return {one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]}


def next_release(folder: Path) -> Path:
    """The chart as another version of it, whose values say where its images are: those that the lab has.

    There is no former release to upgrade from; what is different between two is not tried.
    """
    chart = folder / "tidepool"
    shutil.copytree(CHART, chart)
    about, values = chart / "Chart.yaml", chart / "values.yaml"
    about.write_text(re.sub(r"^(version|appVersion): .*", r'\1: "99.0.0"', about.read_text(), flags=re.MULTILINE))
    values.write_text(values.read_text().replace('tag: ""', f'tag: "{paths.VERSION}"'))
    return chart


def rolled_out() -> None:
    """Waits until operator and agents are those of the present release."""
    for workload in ("deployment/tidepool-operator", "daemonset/tidepool-agent"):
        lab.kubectl("rollout", "status", "-n", lab.SYSTEM, workload, "--timeout=4m")


def test_upgrade_and_rollback_lose_nothing(product: Product, tmp_path: Path) -> None:
    """As docs/how-to/upgrade.md says: operator and agents are others, the pairing and what it holds the same.

    The CRDs are brought along, and values that the new version brings hold.
    """
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib={FILE_MIB}")
    product.stress(f"sequential {FILE} passes=2")
    pairing, begun = product.pairing_of(BORROWER)["metadata"]["uid"], product.sessions_begun()
    reads = product.start_stress(f"random {FILE} seconds=900 threads=2")
    lab.kubectl("patch", *CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": PAUSED}]))
    assert "paused" not in fields_of_pools()
    upgrade = docs.command("upgrade").replace("charts/tidepool", str(next_release(tmp_path)))
    for line in (upgrade, docs.command("rollback")):
        before, hits = pods(), product.hits()
        docs.run(line)
        rolled_out()
        until("all pods are new", lambda: pods() and not pods() & before)  # noqa: B023
        assert "paused" in fields_of_pools()
        until("pages flow", lambda: product.hits() > hits + 100)  # noqa: B023
    seen = product.end_stress(reads)
    assert seen["wrong_pages"] == seen["errors"] == 0
    product.wait_condition("memorypool", POOL, "Ready", "True")
    assert (product.pairing_of(BORROWER)["metadata"]["uid"], product.sessions_begun()) == (pairing, begun)
    lab.kubectl("patch", *CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": PAUSED}]))
    docs.run(docs.command("crds"))
    assert "paused" in fields_of_pools()
    product.assert_sound()


@pytest.fixture
def installed_again(product: Product) -> Iterator[Product]:
    """Whatever has been installed or not, the tests that follow have what `e2e/lab reload` makes."""
    yield product
    docs.run(docs.command("reload"))


@pytest.fixture
def prometheus_operator() -> Iterator[None]:
    """Its kinds, by the CRDs that it publishes, for there is no Prometheus operator in the lab."""
    crds = [f"--filename={path}" for path in published.crds().glob("monitoring.coreos.com_*.yaml")]
    lab.kubectl("create", *crds)
    lab.kubectl("wait", "--for=condition=Established", *crds)
    yield
    lab.kubectl("delete", *crds)


@pytest.mark.usefixtures("prometheus_operator")
def test_uninstall_leaves_nothing(installed_again: Product, tmp_path: Path) -> None:
    """With a pool at work: guests, cluster and namespace are as before, but for the CRDs."""
    docs.run(docs.command("monitoring"))
    assert len(lab.items(MONITORS, "-n", lab.SYSTEM, "-l", "release=kube-prometheus-stack")) == 2
    installed_again.apply_ready(ONE_TO_ONE)
    installed_again.stress(f"fill {FILE} mib={FILE_MIB}")
    installed_again.stress(f"sequential {FILE}")
    docs.run(docs.command("uninstall"))
    installed_again.assert_nothing_left(*GUESTS)
    assert lab.kubectl("get", "memoryguests,memorypools,memorypairings", "-A", "-o", "name") == ""
    assert lab.kubectl("get", CLUSTER_WIDE, "-l", OURS, "-o", "name") == ""
    inside = "pods,jobs,leases,secrets,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
    assert lab.kubectl("get", MONITORS, "-A", "-o", "name") == ""
    names = lambda: lab.kubectl("get", inside, "-n", lab.SYSTEM, "-o", "name").split()  # noqa: E731
    until("only the cluster's own is left", lambda: names() == ["configmap/kube-root-ca.crt", "serviceaccount/default"])
    assert installed_again.stress(f"sequential {FILE}")["wrong_pages"] == 0
    _assert_it_can_be_installed_again(installed_again, next_release(tmp_path))


def _assert_it_can_be_applied_and_removed(product: Product, chart: Path) -> None:
    """As plain manifests, without Helm: another version is applied to a pool at work, and all goes while it is."""
    docs.run(docs.command("crds"))
    install, leave, *removal = docs.commands("plain")
    docs.run(install.replace("MY/PREFIX", images.PREFIX))
    rolled_out()
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"sequential {FILE}")
    pairing, before = product.pairing_of(BORROWER)["metadata"]["uid"], pods()
    docs.run(install.replace("MY/PREFIX", images.PREFIX).replace("charts/tidepool", str(chart)))
    rolled_out()
    until("all pods are new", lambda: pods() and not pods() & before)
    product.wait_condition("memorypool", POOL, "Ready", "True")
    assert (product.pairing_of(BORROWER)["metadata"]["uid"], product.sessions_begun()) == (pairing, 1)
    docs.run(leave)
    until("no guest has the module", lambda: not any(product.loaded(guest) for guest in GUESTS))
    product.assert_nothing_left(*GUESTS)
    for line in [*removal, docs.command("delete-crds")]:
        docs.run(line)


def _assert_it_can_be_installed_again(product: Product, chart: Path) -> None:
    """On a cluster without even its CRDs: where there is KubeVirt; then for hosts with their own libvirt, and back."""
    docs.run(docs.command("delete-crds"))
    _assert_it_can_be_applied_and_removed(product, chart)
    docs.run(docs.command("install").replace("MY/PREFIX", images.PREFIX))
    rolled_out()
    until("every guest is found", lambda: len(lab.items("memoryguests")) == len(GUESTS))
    upgrade, namespace = docs.commands("openstack")
    docs.run(upgrade.replace("MY/PREFIX", images.PREFIX))
    assert "--providers=Libvirt'" in str(lab.get("daemonset", "tidepool-agent", "-n", lab.SYSTEM))
    docs.run(namespace)
    lab.kubectl("delete", "namespace", namespace.split()[-1])
    docs.run(docs.command("rollback"))
    _assert_there_are_ways_out()


def _assert_there_are_ways_out() -> None:
    """The last revision once more, and away without hooks; operator/tests/test_release.py tries it in need."""
    docs.run(docs.command("keep").replace("REVISION", "3"))
    rolled_out()
    docs.run(docs.command("give-up"))
    assert lab.kubectl("get", "deployments,daemonsets", "-n", lab.SYSTEM, "-o", "name") == ""
