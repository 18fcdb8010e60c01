"""Prometheus' text format, as much of it as is needed to read a counter of one guest. Pure."""

from __future__ import annotations

import re

_SAMPLE = re.compile(r"(?P<name>[a-z_:][a-z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def total(text: str, name: str, **labels: str) -> float | None:
    """The sum of all samples of that name that carry these labels; None when there is no such sample."""
    found = [value for labelled, value in _samples(text, name) if labels.items() <= labelled.items()]
    return sum(found) if found else None


def _samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    matches = (_SAMPLE.fullmatch(line.strip()) for line in text.splitlines() if line.startswith(name))
    return [
        (dict(_LABEL.findall(match["labels"] or "")), float(match["value"]))
        for match in matches
        if match and match["name"] == name
    ]
