"""The chart's dashboard: what it shows is exported, and Prometheus understands how it asks."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import yaml
from cast import TOP, lab
from test_alerts import RECORDED, asked, exported

from tidepool_api_testing.chart import rendered

if TYPE_CHECKING:
    from pathlib import Path

DASHBOARD: dict[str, Any] = json.loads((TOP / "charts/tidepool/dashboards/tidepool.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel.get("targets", [])]
VARIABLES: list[str] = [one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one]


def test_it_asks_for_metrics_that_are_there() -> None:
    for query in QUERIES + VARIABLES:
        assert asked(query), query
        assert asked(query) <= exported() | RECORDED, query


def test_it_shows_every_metric_but_the_operators_own() -> None:
    """One that is exported and never looked at would be a figure nobody needs."""
    rules = (TOP / "charts/tidepool/rules/tidepool.yaml").read_text()
    shown = {name.removesuffix("_bucket") for query in [*QUERIES, *VARIABLES, rules] for name in asked(query)}
    unseen = {name.removesuffix("_bucket") for name in exported() if not name.endswith(("_count", "_sum"))} - shown
    assert unseen == {
        "tidepool_pool_lent_bytes",  # of these three the recording rules have the agents' newer figures
        "tidepool_pool_used_bytes",
        "tidepool_pool_hit_ratio",
        "tidepool_pool_guests",
        "tidepool_operator_reconciles_total",
        "tidepool_operator_api_writes_total",
    }


def test_prometheus_understands_its_queries(tmp_path: Path) -> None:
    """As expressions of rules, with every variable chosen."""
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    answer = subprocess.run(
        [lab("path", "promtool"), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr


def test_its_rows_are_what_somebody_looks_for() -> None:
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    beside = "Files, devices, swap and applications"
    assert rows == ["Pools", "Pairings", beside, "Guests", "The lenders' safety"]
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_the_chart_has_it_where_grafana_looks() -> None:
    (found,) = [one for one in rendered() if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert json.loads(found["data"]["tidepool.json"]) == DASHBOARD
