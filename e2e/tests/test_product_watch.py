"""What people look at, against a real pool: the kubectl plugin, the dashboard's queries, and an alert that fires."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from product import BORROWER, LENDER, ONE_TO_ONE, POOL, Object, Product, until

import docs
from demo import lab, workload
from tidepool_lab import paths

CHART = paths.ROOT / "charts/tidepool"
RECONNECTIONS = 8
FILE = "/mnt/watched"
OF_DEVICES = ("tidepool_guest_device_", "tidepool_guest_swapped_bytes")  # they have one disk, with a file system
OF_PROGRAMS = ("tidepool_guest_value",)  # their memory is in no pool here
OF_BALLOONS = ("tidepool_guest_gathered_bytes",)
OF_CURVES = ("tidepool_pool_forecast_", "tidepool_pool_unneeded_")  # of guests that had the module and borrowed nothing


def ask(expression: str) -> list[Object]:
    """What Prometheus answers."""
    found: list[Object] = json.loads(lab.call("query", expression))
    return found


@pytest.mark.usefixtures("plugin")
def test_a_pool_at_work_can_be_watched(product: Product, tmp_path: Path) -> None:
    """The plugin finds all well, the dashboard has data, docs/ can be followed, and flapping is reported."""
    for line in docs.commands("up"):  # beside those guests that there are
        docs.run(line)
    product.apply_ready(ONE_TO_ONE)
    product.stress(f"fill {FILE} mib=240")
    product.stress(f"sequential {FILE} passes=2")
    _assert_the_plugin_knows()
    _assert_the_page_shows_it(product, tmp_path)
    _assert_the_dashboard_has_data()
    _assert_the_documentation_can_be_followed()
    _assert_the_lab_can_be_used()
    _assert_flapping_is_reported(product)
    product.assert_sound()
    _assert_a_pairing_is_replaced(product)
    docs.run(docs.filled_in(docs.command("give-back")))
    product.assert_nothing_left(BORROWER, LENDER)


def _assert_a_pairing_is_replaced(product: Product) -> None:
    """As it is said to be when somebody deletes it."""
    former = product.pairing_of(BORROWER)["metadata"]["uid"]
    docs.run(docs.filled_in(docs.command("delete")))
    until("there is another pairing", lambda: product.pairing_of(BORROWER).get("metadata", {}).get("uid") != former)
    product.wait_condition("memorypool", POOL, "Ready", "True")


def _assert_the_plugin_knows() -> None:
    everything = lab.kubectl("tidepool", "check")
    assert "✗" not in everything
    assert re.search(r"pairing default/\S+: connected, round trip \d", everything), everything
    worth = re.compile(rf"it borrows from {LENDER}, is Connected; \d+% of the reads")
    until("what it is worth is explained", lambda: worth.search(lab.kubectl("tidepool", "explain", BORROWER)))
    shown = lab.kubectl("tidepool", "top", "--once", "--interval", "1")
    assert re.search(
        rf"default +{POOL} +{BORROWER} +{LENDER} +Connected +512Mi +\d+Mi +\d+\.\d% +[\d.]+[mµ]s", shown
    ), shown


def _assert_the_page_shows_it(product: Product, folder: Path) -> None:
    """In a Chromium, while the borrower reads; the documents' pictures are made like this."""
    reading = product.start_stress(f"random {FILE} seconds=900")
    subprocess.run([sys.executable, "-m", "demo.page", folder, BORROWER], check=True)
    product.end_stress(reading)
    assert {one.name for one in folder.glob("*.png")} == {"ui-map.png", "ui-guest.png"}


def _assert_the_dashboard_has_data() -> None:
    """Those queries that show only what is not well are left out, and those of what this pool's guests have not."""
    panels = json.loads((CHART / "dashboards/tidepool.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    queries = [re.sub(r"\$\w+", ".*", one) for one in queries if not one.endswith((" > 0", " < 1"))]
    absent = OF_DEVICES + OF_PROGRAMS + OF_BALLOONS + OF_CURVES
    for query in [one for one in queries if not any(metric in one for metric in absent)]:
        until(f"the dashboard's query finds something: {query}", lambda: ask(query))  # noqa: B023


def _assert_the_documentation_can_be_followed() -> None:
    """What it says to look at, in the cluster, in Prometheus and in a guest, with this pool's names put in."""
    for line in docs.commands("look"):
        docs.run(docs.filled_in(line))
    for query in docs.commands("query"):
        ask(docs.filled_in(query))
    for script in docs.scripts("guest"):
        said = lab.guest(BORROWER, f"({chr(10).join(script)}) 2>&1 || true")
        assert "No such file" not in said, f"{script}: {said}"
        assert "not found" not in said, f"{script}: {said}"
    reach = docs.command("reach").replace("ADDRESS", workload.pod_address(LENDER))
    assert lab.guest(BORROWER, reach).strip() == "open"
    measured = lab.guest(LENDER, "; ".join(["set -e", "sleep() { true; }", *docs.commands("ghost")]))
    assert "hit_ratio " in measured
    assert "sampled_references " in measured


def _assert_the_lab_can_be_used() -> None:
    """As it is said for one that is kept; the demo's pool comes second here, and gets no guest."""
    for line in docs.commands("lab"):
        docs.run(line)
    lab.kubectl("delete", "memorypool", "demo")


def _assert_flapping_is_reported(product: Product) -> None:
    """The lender ends the session again and again, and the borrower comes back each time."""
    enabled = f"/sys/kernel/config/tidepool/borrowers/{product.pairing_of(BORROWER)['metadata']['uid']}/enabled"
    for _ in range(RECONNECTIONS):
        before = product.connects()
        lab.guest(LENDER, f"echo 0 > {enabled}; echo 1 > {enabled}")
        until("the borrower comes back", lambda: product.connects() > before, every=0.5)  # noqa: B023
    alert = 'ALERTS{alertname="TidepoolPairingFlapping", alertstate="firing"}'
    (firing,) = until("the alert fires", lambda: ask(alert))
    assert (firing["metric"]["guest"], firing["metric"]["pool"]) == (BORROWER, POOL)
    assert firing["metric"]["severity"] == "warning"
