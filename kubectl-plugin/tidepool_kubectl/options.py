"""What options take: what is wrong is said with the value and with what would be right. Pure."""

from __future__ import annotations

import typer

from tidepool_api import parse_quantity
from tidepool_api.fields import LEAST_MEMORY

HIGHEST_PORT = 65535
LONGEST_SECONDS = 86400


def memory(text: str) -> int:
    """An amount of memory, in bytes."""
    try:
        size = parse_quantity(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if size < parse_quantity(LEAST_MEMORY):
        raise typer.BadParameter(f"{text} is too little; the least is {LEAST_MEMORY}")
    return size


def port(value: str | int) -> int:
    """A TCP port, or 0."""
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= HIGHEST_PORT):
        raise typer.BadParameter(f"{text!r} is no port; give 1 to {HIGHEST_PORT}, or 0 for any that is free")
    return int(text)


def seconds(value: str | float) -> float:
    """How long to watch."""
    return _seconds(value, 0)


def interval(value: str | float) -> float:
    """How often to look."""
    return _seconds(value, 0.5)


def _seconds(value: str | float, least: float) -> float:
    try:
        found = float(value)
    except ValueError:
        found = float("nan")
    if not least <= found <= LONGEST_SECONDS:  # nor is it no number at all
        raise typer.BadParameter(f"{str(value)!r} is no time; give {least:g} to {LONGEST_SECONDS} seconds")
    return found
