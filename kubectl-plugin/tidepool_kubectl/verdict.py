"""What `explain` and `check` say: steps that hold, that fail, or that one cannot see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Console
from rich.markup import escape

from tidepool_api import printable


class Mark(StrEnum):
    """How a step came out."""

    GOOD = "✓"
    BAD = "✗"
    UNKNOWN = "?"


_COLOURS = {Mark.GOOD: "green", Mark.BAD: "red", Mark.UNKNOWN: "yellow"}


@dataclass(frozen=True)
class Step:
    """One thing that was looked at, and what to do where it is not well."""

    mark: Mark
    text: str
    advice: str = ""


def good(text: str) -> Step:
    """It holds."""
    return Step(Mark.GOOD, text)


def bad(text: str, advice: str = "") -> Step:
    """It does not hold."""
    return Step(Mark.BAD, text, advice)


def unknown(text: str, advice: str = "") -> Step:
    """It cannot be seen, or not yet."""
    return Step(Mark.UNKNOWN, text, advice)


def show(console: Console, steps: Iterable[Step]) -> bool:
    """Prints the steps; whether none of them is bad."""
    is_well = True
    for step in steps:
        console.print(
            f"[{_COLOURS[step.mark]}]{step.mark}[/] {escape(printable(step.text))}", soft_wrap=True, highlight=False
        )
        if step.advice:
            console.print(f"  → {escape(printable(step.advice))}", soft_wrap=True, highlight=False)
        is_well = is_well and step.mark is not Mark.BAD
    return is_well
