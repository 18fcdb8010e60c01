"""When a borrower leaves a slow lender alone: the latency breaker of the module, as pools and pairings name it."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tidepool_api.base import ApiModel
from tidepool_api.fields import Threshold, are_durations, rule, rules
from tidepool_api.names import LatencyMode
from tidepool_api.units import parse_duration


class Thresholds(ApiModel):
    """Two latencies: from the higher one on the lender is left alone, below the lower one it is used again."""

    resume: Threshold
    """Below this the lender is used again."""

    stop: Threshold
    """From this on the lender is left alone."""

    model_config = {
        "json_schema_extra": rules(
            rule(
                f"!({are_durations('self.resume', 'self.stop')}) || duration(self.resume) < duration(self.stop)",
                says="'resume (' + self.resume + ') must be less than stop (' + self.stop + '), "
                "or the lender would be dropped and taken up all the time'",
            )
        )
    }

    @model_validator(mode="after")
    def _resume_is_less(self) -> Self:
        if self.resume_us >= self.stop_us:
            raise ValueError(f"resume ({self.resume}) must be less than stop ({self.stop})")
        return self

    @property
    def resume_us(self) -> int:
        """`resume` in microseconds."""
        return parse_duration(self.resume)

    @property
    def stop_us(self) -> int:
        """`stop` in microseconds."""
        return parse_duration(self.stop)


class Latency(ApiModel):
    """When a borrower leaves a slow lender alone and reads from its own disk."""

    mode: LatencyMode = LatencyMode.AUTOMATIC
    """Automatic: while the lender is slower than the borrower's own disk, as measured.

    Thresholds: by short and long, each with its default where it is not given. Off: never.
    """

    short: Thresholds = Thresholds(resume="1500us", stop="40ms")
    """Thresholds for the mean round trip of the last 15 s, which sees a peak."""

    long: Thresholds = Thresholds(resume="1ms", stop="1500us")
    """Thresholds for the moving average of the round trips, which sees what is always slow."""
