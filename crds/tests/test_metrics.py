"""The metrics: described all, named as Prometheus wants it, documented as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidepool_api import Metric
from tidepool_api.metrics import DESCRIPTIONS, MetricType, page

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


def test_the_page_has_not_drifted() -> None:
    """Else run `python -m tidepool_api.metrics > docs/reference/metrics.md` with PYTHONPATH=crds."""
    assert PAGE.read_text() == page()


def test_every_metric_is_described() -> None:
    assert set(DESCRIPTIONS) == set(Metric)


@pytest.mark.parametrize("metric", Metric)
def test_names_end_with_what_they_count(metric: Metric) -> None:
    one = DESCRIPTIONS[metric]
    assert metric.endswith("_total") == (one.type is MetricType.COUNTER)
    assert (one.unit in ("bytes", "seconds", "ratio")) == (metric.rpartition("_")[2] in ("bytes", "seconds", "ratio"))
    if one.unit in ("bytes", "seconds", "ratio"):
        assert metric.endswith(f"_{one.unit}")
