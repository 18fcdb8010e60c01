"""The metrics: described all, named as Prometheus wants it, documented as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tidepool_api import Metric
from tidepool_api.metrics import DESCRIPTIONS, RULES, MetricType, page

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_page_has_not_drifted() -> None:
    """Else run `python -m tidepool_api.metrics > docs/reference/metrics.md` with PYTHONPATH=crds."""
    assert PAGE.read_text() == page()


def test_every_metric_is_described() -> None:
    assert set(DESCRIPTIONS) == set(Metric)


def test_every_recording_rule_is_described() -> None:
    groups = yaml.safe_load((PAGE.parents[2] / "charts/tidepool/rules/tidepool.yaml").read_text())["groups"]
    assert set(RULES) == {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


@pytest.mark.parametrize("metric", Metric)
def test_names_end_with_what_they_count(metric: Metric) -> None:
    one = DESCRIPTIONS[metric]
    assert metric.endswith("_total") == (one.type is MetricType.COUNTER)
    assert (one.unit in ("bytes", "seconds", "ratio")) == (metric.rpartition("_")[2] in ("bytes", "seconds", "ratio"))
    if one.unit in ("bytes", "seconds", "ratio"):
        assert metric.endswith(f"_{one.unit}")


def test_metrics_that_are_named_are_exported() -> None:
    """By whatever page."""
    for shown in (PAGE.parents[2] / "README.md", *PAGE.parents[1].rglob("*.md")):
        found = re.findall(r"`(tidepool_(?:pool|guest|operator)_[a-z_]+)`", shown.read_text())
        assert {one.removesuffix("_bucket") for one in found} <= set(Metric), shown.name
