"""What the agent says about a guest's block devices and swap: pure, from what was found to a status and conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidepool_agent.devices import NONE, Block, excess, is_shared
from tidepool_agent.errors import GuestError
from tidepool_agent.guestfs import Observation
from tidepool_agent.mapped import Mapped
from tidepool_agent.needs import GRAIN, memory, settled
from tidepool_api import Condition, ConditionType, GuestDevice, GuestStatus, Reason, condition, path_of
from tidepool_api.devices import MOST_DEVICES
from tidepool_api.fields import MOST_COUNT, readable

KINDS = (ConditionType.DEVICES_READY, ConditionType.SWAP_READY)


@dataclass(frozen=True)
class Standing:
    """How far a guest is with the block devices that it is to have."""

    wanted: Block = NONE
    failed: Mapping[str, GuestError] = field(default_factory=dict)
    """Why one of them could not be set up or given up, by its mapped name."""
    target: GuestError | None = None
    """Why lenders cannot be put in front of any."""


@dataclass(frozen=True)
class Trouble:
    """What is not as it should be, and what to do about it."""

    reason: str
    message: str


def described(seen: Observation, wanted: Block, before: GuestStatus) -> dict[str, Any]:
    """The devices that a guest has, as its status has them; of two swap areas the one that is wanted."""
    old = {one.name: one for one in (*before.devices, *([before.swap] if before.swap else ()))}
    found = [_device(one, old.get(one.name)) for one in seen.mapped.values() if not one.is_swap]
    swaps = [one for one in seen.mapped.values() if one.is_swap]
    swaps.sort(key=lambda one: one.name != wanted.swap_name)
    swap = _device(swaps[0], old.get(swaps[0].name)) if swaps else None
    return {"devices": tuple(found[:MOST_DEVICES]), "swap": swap}


def _device(one: Mapped, before: GuestDevice | None) -> GuestDevice:
    used = one.swapped_bytes
    return GuestDevice(
        name=one.name,
        below=one.file or path_of(one.name),
        size_bytes=one.size_bytes,
        lent=one.is_lent,
        hits=one.stats.get("hits", 0),
        misses=min(one.stats.get("misses", 0) + one.stats.get("fallbacks", 0), MOST_COUNT),
        puts=one.stats.get("puts", 0),
        swapped_bytes=None if used is None else settled(used, before.swapped_bytes if before else None),
    )


def conditions(seen: Observation, standing: Standing, before: GuestStatus) -> list[Condition]:
    """DevicesReady and SwapReady, each while there is something to say, after what was said before."""
    found = []
    for kind in KINDS:
        is_swap = kind is ConditionType.SWAP_READY
        names = standing.wanted.names - standing.wanted.paths.keys() if is_swap else standing.wanted.paths.keys()
        present = {name: one for name, one in seen.mapped.items() if one.is_swap == is_swap}
        if names or present:
            found.append(_condition(kind, names, [*_troubles(seen, standing, names, present, before)]))
    return found


def _condition(kind: ConditionType, names: Collection[str], troubles: list[Trouble]) -> Condition:
    if not troubles:
        reason = "InUse" if kind is ConditionType.SWAP_READY else "Mapped"
        return condition(kind, True, reason, ", ".join(f"/dev/mapper/{name}" for name in sorted(names)))
    grave = [one for one in troubles if one.reason != Reason.SETTING_UP] or troubles
    return condition(kind, False, grave[0].reason, "; ".join(dict.fromkeys(one.message for one in grave)))


def _troubles(
    seen: Observation, standing: Standing, names: Collection[str], present: Mapping[str, Mapped], before: GuestStatus
) -> Iterator[Trouble]:
    for name in sorted(names):
        if is_shared(name, seen) or not (name in present and standing.wanted.is_met(present[name])):
            yield _unmet(seen, standing, name, present.get(name), before)
        elif present[name].is_refused:
            yield _refused(present[name])
    for name, one in sorted(present.items()):
        if name not in names:
            yield _leftover(seen, standing, one, before)


def _unmet(seen: Observation, standing: Standing, name: str, one: Mapped | None, before: GuestStatus) -> Trouble:
    """Why a device is not as it should be."""
    path = standing.wanted.paths.get(name) or path_of(name)
    if is_shared(name, seen):
        message = f"other guests share {path}, and lenders would not hear of what those write; name another device"
        return Trouble("DeviceShared", message)
    if error := standing.failed.get(name) or standing.target:
        return Trouble(error.reason, str(error))
    if one and one.is_gone:
        return _gone(one)
    if one and one.is_odd:
        return _changed(one)
    if one and one.is_swap and one.swapped_bytes and not standing.wanted.has_size(one) and excess(one, seen):
        return Trouble("SwapDoesNotFit", f"{_too_much(one, seen, before)}; until then it keeps its former size")
    return Trouble(Reason.SETTING_UP, f"{name} is being set up")


def _leftover(seen: Observation, standing: Standing, one: Mapped, before: GuestStatus) -> Trouble:
    """Why a device is still there that nobody asks for."""
    if one.is_gone and one.is_open:
        return _gone(one)
    if one.is_odd and one.is_open:
        return _changed(one)
    if one.is_refused:
        return _refused(one)
    if one.is_swap and excess(one, seen):
        return Trouble("SwapDoesNotFit", f"{_too_much(one, seen, before)}; until then it goes on without a lender")
    if error := standing.failed.get(one.name):
        return Trouble(error.reason, str(error))
    if one.is_swap or not one.is_open:
        return Trouble(Reason.SETTING_UP, f"{one.name} is being given up")
    message = (
        f"{one.name} is in use in the guest, and goes on without a lender: unmount it, or end what uses it, "
        f"to free {path_of(one.name)}"
    )
    return Trouble("StillInUse", message)


def _gone(one: Mapped) -> Trouble:
    """That a disk was taken out of the guest."""
    path = path_of(one.name) or "the disk of its file"
    use = f"end what uses {one.name}, which gets nothing but errors, and " if one.is_open else ""
    message = f"{path} has been taken out of the guest: {use}attach it again, or name another device"
    return Trouble("DeviceGone", message)


def _refused(one: Mapped) -> Trouble:
    """That what was swapped out is in a log, and goes no further."""
    disk = path_of(one.name) or one.file or one.name
    message = (
        f"the disk of {disk} does not take what is swapped out to it: make room on it, or mend it; until then the "
        "guest keeps that in memory, and what it swaps out besides fails or waits"
    )
    return Trouble("DiskRefuses", message)


def _changed(one: Mapped) -> Trouble:
    """That somebody has given a device another table."""
    message = (
        f"somebody has given {one.name} a table that is none of the agent's: end what uses it, and remove it with "
        f"dmsetup remove {one.name}"
    )
    return Trouble("DeviceChanged", message)


def _too_much(one: Mapped, seen: Observation, before: GuestStatus) -> str:
    """How much of what is in a swap area does not fit into memory, by figures that rest."""
    lack = max(GRAIN, excess(*_at_rest(one, seen, before)))
    return (
        f"{readable(lack)} of what is swapped out to {one.name} do not fit into memory: end something in the guest, or "
        "give it more memory"
    )


def _at_rest(one: Mapped, seen: Observation, before: GuestStatus) -> tuple[Mapped, Observation]:
    """A swap area, and its guest, with the figures that their status shows."""
    known = before.swap.swapped_bytes if before.swap and before.swap.name == one.name else None
    used = settled(one.swapped_bytes or 0, known)
    available = memory(seen, before.memory, lent=0, borrowed=0).available_bytes
    return replace(one, swapped_bytes=used), replace(seen, available_bytes=available)
