"""`make scale` itself, with a few guests: that its figures can be had, not what they are."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidepool_scale.__main__ import measure
from tidepool_scale.plot import draw

if TYPE_CHECKING:
    from pathlib import Path


def test_figures_come_out_of_a_run(tmp_path: Path) -> None:
    """Item 6: an operator with the chart's rights serves all guests, also after a churn, and every figure is told."""
    found = asyncio.run(measure(30, steady_seconds=1))
    assert found.guests == 30
    assert 0 < found.plan_seconds < 1
    assert 0 < found.rss_mib < 500
    assert found.seconds_to_converge_after_1pct_churn > 0
    draw([asdict(found)], tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 0
