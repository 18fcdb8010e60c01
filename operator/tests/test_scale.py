"""`make scale` itself, with a few guests: that its figures can be had and are judged."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tidepool_scale.__main__ import GOALS, measure
from tidepool_scale.plot import draw

if TYPE_CHECKING:
    from pathlib import Path


def test_figures_come_out_of_a_run(tmp_path: Path) -> None:
    """Several namespaces with grants are served by an operator with the chart's rights, also after a churn."""
    found = asyncio.run(measure(30, steady_seconds=1))
    assert (found.guests, found.namespaces) == (30, 5)
    assert 0 < found.plan_seconds < 1
    assert 0 < found.rss_mib < 500
    assert 0 < found.writes_per_second_moving < 50
    assert found.seconds_to_converge_after_1pct_churn > 0
    draw([asdict(found)], GOALS, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 0
    slow = replace(found, plan_seconds=1.5, rss_mib=0, writes_per_minute_idle=0, seconds_to_converge_after_1pct_churn=1)
    assert slow.missed() == ["plan_seconds is 1.5, not at most 1"]
