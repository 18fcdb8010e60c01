"""Reading a status: what of it is understood counts, and the rest is left out.

A newer version may have written words into it that this one does not know, and it stays when that version is gone. It
must never keep anybody from reading the spec.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable
from functools import reduce
from operator import getitem
from typing import Annotated, Any, TypeVar

from pydantic import ValidationError, WrapValidator

T = TypeVar("T")
Path = tuple[int | str, ...]


def as_far_as_understood(values: Any, read: Callable[[Any], T]) -> T:
    """What is read of the values without those that are refused, and without what is nothing without those.

    Raises pydantic's ValidationError where not even an empty object is taken.
    """
    while True:
        try:
            return read(values)
        except ValidationError as error:
            if values == {}:
                raise
            wrong = {_place(values, one["loc"]) for one in error.errors()} - {()}
            values = _without(values, wrong) if wrong else {}


def _place(values: Any, loc: Path) -> Path:
    """Where something is wrong, as deep as there is anything: what a part lacks is not there."""
    found: list[int | str] = []
    for one in loc:
        if one not in _keys(values):
            break
        found.append(one)
        values = values[one]
    return tuple(found)


def _keys(values: Any) -> Container[int | str]:
    return values if isinstance(values, dict) else range(len(values)) if isinstance(values, list) else ()


def _without(values: Any, paths: Iterable[Path]) -> Any:
    """A copy without what is at these paths; the last ones go first, so that those before them keep their places."""
    rest = copy.deepcopy(values)
    for *way, last in sorted(paths, reverse=True):
        del reduce(getitem, way, rest)[last]
    return rest


Understood = Annotated[T, WrapValidator(as_far_as_understood)]
