"""Whether a report says anything but figures that can wait for their namespace's next pass, or what we wrote. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidepool_api import MemoryGuest, MemoryPairing, MemoryPool, Role

if TYPE_CHECKING:
    from tidepool_api import ApiModel, ApiObject

M = TypeVar("M", bound="ApiModel")

_OF_GUEST = (
    "memory",
    "pressure",
    "curve",
    "curve_references",
    "misses_per_second",
    "peers",
    "more_peers",
    "observed_at",
)
_OURS = ("phase", "observed_generation", "conditions")  # of a pairing's status; a pool's is ours as a whole
_OF_END = {"lender": ("lent_bytes",), "borrower": ("used_bytes", "hits", "misses", "hit_ratio")}


def are_all(before: ApiObject | None, after: ApiObject | None) -> bool:
    """Whether two versions of an object differ in figures alone, and not in those of a lender.

    That one may need its memory itself. What a guest without a part has to spare, or what a borrower would gain by
    more, need not be known within a second.
    """
    match before, after:
        case MemoryGuest(), MemoryGuest():
            return after.status.role is not Role.LENDER and _same(before, after, _like(after.status, before.status))
        case MemoryPairing(), MemoryPairing():
            ends = {side: _end(before, after, side) for side in _OF_END}
            return _same(before, after, after.status.model_copy(update=ends))
        case _:
            return False


def are_ours(before: ApiObject | None, after: ApiObject | None) -> bool:
    """Whether two versions of an object differ in nothing but what the operator says in its status."""
    match before, after:
        case MemoryPool(), MemoryPool():
            return _same(before, after, before.status)
        case MemoryPairing(), MemoryPairing():
            return _same(before, after, _like(after.status, before.status, _OURS))
        case _:
            return False


def _same(before: Any, after: Any, status: ApiModel) -> bool:
    """Whether only the status differs, and this one does not."""
    meta = [one.metadata.model_copy(update={"resource_version": ""}) for one in (before, after)]
    return bool(meta[0] == meta[1] and before.spec == after.spec and before.status == status)


def _like(status: M, figures: M, names: tuple[str, ...] = _OF_GUEST) -> M:
    """A status with the figures of another."""
    return status.model_copy(update={name: getattr(figures, name) for name in names})


def _end(before: MemoryPairing, after: MemoryPairing, side: str) -> Any:
    """An end's report with the figures of the one before."""
    old, new = getattr(before.status, side), getattr(after.status, side)
    return new if old is None or new is None else _like(new, old, _OF_END[side])
