"""The dashboard that has KubeVirt's figures beside ours: each query finds the VM, by the labels that both give it."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from cast import TOP, lab
from test_alerts import asked, exported

from tidepool_api_testing.chart import rendered

if TYPE_CHECKING:
    from pathlib import Path

DASHBOARD: dict[str, Any] = json.loads((TOP / "charts/tidepool/dashboards/kubevirt.json").read_text())
QUERIES: dict[str, str] = {
    f"{panel['title']}, {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
LABELS = {"kubevirt": 'namespace="ns",name="vm",node="n1"', "tidepool": 'namespace="ns",guest="vm",pairing="p"'}


def metrics(query: str) -> set[str]:
    return set(re.findall(r"\b(?:kubevirt|tidepool)_\w+", query))


def series(name: str) -> dict[str, str]:
    """It grows by 60 a minute, or as a figure stands at what it began with."""
    values = "0+60x20" if name.endswith("_total") else "4096x20"
    return {"series": f"{name}{{{LABELS[name.partition('_')[0]]}}}", "values": values}


def expected(title: str, query: str) -> float:
    if "Share" in title:
        return 0.5
    return 1 if "rate(" in query else 4096


def test_it_asks_for_metrics_that_are_there() -> None:
    for query in QUERIES.values():
        assert asked(query) <= exported()


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_finds_the_vm(tmp_path: Path, title: str) -> None:
    """With every variable chosen, in Prometheus' own engine: one series, of that name and namespace."""
    query = re.sub(r"\$(namespace|name)\b", ".*", QUERIES[title])
    samples = [{"labels": '{name="vm", namespace="ns"}', "value": expected(title, query)}]
    one = {"expr": query, "eval_time": "10m", "exp_samples": samples}
    found = [series(name) for name in sorted(metrics(query))]
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": found, "promql_expr_test": [one]}]}))
    done = subprocess.run([lab("path", "promtool"), "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_has_it_where_grafana_looks() -> None:
    (found,) = [one for one in rendered() if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert json.loads(found["data"]["kubevirt.json"]) == DASHBOARD
