"""The parameters of a request: of a wrong one its name, its value and what would be right are said. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qs

from tidepool_api import GuestKey, parse_quantity
from tidepool_api.fields import MOST_MEMORY

T = TypeVar("T")
SHOWN = 60  # characters of a value


class Wrong(ValueError):
    """A request that cannot be answered as it is."""


def parameters(query: str) -> dict[str, str]:
    """By name, each given once."""
    found = parse_qs(query, keep_blank_values=True)
    for name, values in found.items():
        if len(values) > 1:
            raise Wrong(f"{_short(name)} is given {len(values)} times; give it once")
    return {name: value for name, (value,) in found.items()}


def nothing(given: Mapping[str, str]) -> None:
    """Of what takes no parameters."""
    _known(given)


def guest_and_size(given: Mapping[str, str]) -> tuple[GuestKey, int | None]:
    """The guest that is asked for, and the size in bytes of what if, where one is given."""
    _known(given, "guest", "size")
    guest = _read("guest", given.get("guest", ""), GuestKey.parse)
    return guest, _read("size", given["size"], _size) if "size" in given else None


def _known(given: Mapping[str, str], *names: str) -> None:
    for name in given.keys() - set(names):
        raise Wrong(f"there is no parameter {_short(name)}; there is {' and '.join(names) or 'none'}")


def _read(name: str, value: str, read: Callable[[str], T]) -> T:
    try:
        return read(value)
    except ValueError as error:
        raise Wrong(f"{name}: {str(error).replace(value, _short(value)) if value else error}") from error


def _size(text: str) -> int:
    size = parse_quantity(text)
    if size > parse_quantity(MOST_MEMORY):
        raise ValueError(f"{text!r} is too much; the most is {MOST_MEMORY}")
    return size


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
