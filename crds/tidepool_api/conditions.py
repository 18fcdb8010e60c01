"""Conditions as Kubernetes means them: the time of the last transition moves only when the status does."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from tidepool_api.base import ApiModel, Time, now

MESSAGE_LIMIT = 4096


def printable(text: str) -> str:
    """A text without what a terminal would take for a command, or a log for another line."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


class Status(StrEnum):
    """What a condition says of itself."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, value: bool | None) -> Status:
        """True, False, and Unknown for None."""
        return cls.UNKNOWN if value is None else cls.TRUE if value else cls.FALSE


class Condition(ApiModel):
    """One observation about an object: what, whether, why, and what to do about it."""

    type: str = Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z]*$")
    """What is observed."""

    status: Status
    """True, False or Unknown."""

    reason: str = Field(min_length=1, max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*$")
    """Why, in one word, for programs."""

    message: str = Field(default="", max_length=MESSAGE_LIMIT)
    """Why, and what to do, for people."""

    observed_generation: int | None = Field(default=None, ge=0)
    """The generation of the object that was looked at."""

    last_transition_time: Time
    """When the status last changed."""


def condition(
    type_: str,
    status: Status | bool | None,
    reason: str,
    message: str = "",
    *,
    observed_generation: int | None = None,
    at: datetime | None = None,
) -> Condition:
    """A condition that begins now; put it among the present ones with `merge`."""
    return Condition(
        type=str(type_),
        status=status if isinstance(status, Status) else Status.of(status),
        reason=str(reason),
        message=message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…",
        observed_generation=observed_generation,
        last_transition_time=at or now(),
    )


def merge(present: Iterable[Condition], *fresh: Condition) -> tuple[Condition, ...]:
    """The present conditions with fresh ones in place of those of their type.

    A fresh condition whose status is not new keeps the old time of transition. Types keep their places and new ones
    come last, so that equal observations give equal lists and nothing is written for nothing.
    """
    merged = {one.type: one for one in present}
    for new in fresh:
        old = merged.get(new.type)
        since = old.last_transition_time if old and old.status == new.status else new.last_transition_time
        merged[new.type] = new.model_copy(update={"last_transition_time": since})
    return tuple(merged.values())


def without(present: Iterable[Condition], *types: str) -> tuple[Condition, ...]:
    """The present conditions but for these types."""
    return tuple(one for one in present if one.type not in types)


def find(present: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type."""
    return next((one for one in present if one.type == type_), None)


def is_true(present: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of that type is there and True."""
    found = find(present, type_)
    return found is not None and found.status is Status.TRUE
