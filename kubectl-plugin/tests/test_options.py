"""What options take, and what is said of what they do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer

from tidepool_kubectl import options


@pytest.mark.parametrize(("value", "port"), [("0", 0), (0, 0), ("80", 80), ("65535", 65535)])
def test_ports(value: str | int, port: int) -> None:
    assert options.port(value) == port


@pytest.mark.parametrize(("value", "seconds"), [("0", 0), (5, 5), ("2.5", 2.5), ("86400", 86400)])
def test_times(value: str | float, seconds: float) -> None:
    assert options.seconds(value) == seconds


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (options.port, "65536", "'65536' is no port; give 1 to 65535, or 0 for any that is free"),
        (options.port, "-1", "'-1' is no port"),
        (options.port, "http", "'http' is no port"),
        (options.port, "٣", "'٣' is no port"),
        (options.port, "9" * 5000, "is no port"),
        (options.seconds, "-1", "'-1' is no time; give 0 to 86400 seconds"),
        (options.seconds, "nan", "'nan' is no time"),
        (options.seconds, "inf", "'inf' is no time"),
        (options.seconds, "soon", "'soon' is no time"),
        (options.interval, "0.1", "'0.1' is no time; give 0.5 to 86400 seconds"),
    ],
)
def test_what_is_none_is_said(read: Callable[[str], object], value: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        read(value)
    assert said in str(refused.value)
