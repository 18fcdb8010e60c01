"""A release in the lab: images and chart go into a registry, and nodes and Helm have nothing but that registry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from product import BORROWER, GUESTS, ONE_TO_ONE, Product, until
from released import Dist, Place
from test_product_release import OURS, rolled_out

import docs
from demo import lab
from tidepool_lab import host, registry
from tidepool_release.archives import members

FILE, FILE_MIB = "/mnt/file", 240
PREFIX = f"{registry.ADDRESS}/tidepool"
WORKLOADS = ("tidepool-operator", "tidepool-agent")
PULLED = re.compile(r'"GET /v2/tidepool/([a-z-]+)/manifests/(sha256:[0-9a-f]{64}) [^"]*" 200 .*"containerd/')


@pytest.fixture
def from_registry(dist: Dist, session_lab: Product, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """The lab without Tidepool, and a registry with the release; afterwards it has what `e2e/lab reload` makes."""
    docs.run(docs.command("uninstall"))
    docs.run(docs.command("delete-crds"))
    registry.start()
    try:
        pushed = dist.push(PREFIX, Place(host.in_netns([]), registry.environment()))
        assert pushed.returncode == 0, pushed.stderr
        for name, value in registry.environment().items():
            monkeypatch.setenv(name, value)
        yield session_lab
        session_lab.delete()
    finally:
        registry.stop()
        docs.run(docs.command("reload"))


@pytest.mark.long
def test_a_release_installs_from_a_registry(dist: Dist, from_registry: Product) -> None:
    """README's commands as they stand: pods of exactly these images, and pages that flow; upgraded, and removed."""
    product = from_registry
    docs.run(docs.command("install-release").replace("MY/PREFIX", PREFIX))
    rolled_out()
    for name in WORKLOADS:
        assert running(name) == {f"{PREFIX}/{name}@{digest(dist.folder, name)}"}
    assert pulled() >= {(name, digest(dist.folder, name)) for name in WORKLOADS}
    until("every guest is found", lambda: len(lab.items("memoryguests")) == len(GUESTS))
    pages_flow(product)
    upgrade = docs.command("upgrade").replace("charts/tidepool", f"oci://{PREFIX}/charts/tidepool")
    docs.run(upgrade)
    rolled_out()
    assert product.stress(f"random {FILE} reads=2000 threads=2")["wrong_pages"] == 0
    product.assert_sound()
    docs.run(docs.command("uninstall"))
    product.assert_nothing_left(*GUESTS)


def pages_flow(product: Product) -> None:
    """A pool, a file that does not fit, and reads of it that the lender answers."""
    product.apply_ready(ONE_TO_ONE)
    product.assert_pages_come_back(FILE, FILE_MIB)
    assert product.hits(BORROWER) > 0


def digest(folder: Path, name: str) -> str:
    """Of an image, as the released chart has it."""
    (packed,) = (folder / "chart").glob("*.tgz")
    values = yaml.safe_load(dict(members(packed))["tidepool/values.yaml"])
    return str(values["image"]["digests"][name.removeprefix("tidepool-")])


def running(name: str) -> set[str]:
    """The images of a workload's pods, as their node names them."""
    labels = f"{OURS},app.kubernetes.io/component={name.removeprefix('tidepool-')}"
    pods = lab.items("pods", "-n", lab.SYSTEM, "-l", labels)
    return {one["imageID"] for pod in pods for one in pod["status"]["containerStatuses"]}


def pulled() -> set[tuple[str, str]]:
    """Names and digests that the node's containerd was given."""
    found = (PULLED.search(line) for line in registry.asked())
    return {(match[1], match[2]) for match in found if match}
