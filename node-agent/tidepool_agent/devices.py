"""What has to be done so that a guest's block devices and swap are as its pairings ask: pure, like `plan`.

A device that somebody uses is never taken from them. Where lenders are to be no longer, it goes on as its disk alone,
and is given up when nobody uses it. A swap area is emptied only while what is in it fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api import SWAP_NAME, MemoryPairing, Swap, SwapBacking, mapped_name, swap_name

if TYPE_CHECKING:
    from tidepool_agent.guestfs import Observation
    from tidepool_agent.mapped import Mapped
    from tidepool_agent.plan import Source

KEPT_FREE = 16  # this part of a guest's memory stays free when a swap area is emptied


@dataclass(frozen=True)
class Block:
    """The block devices of a guest that lenders are to be in front of."""

    devices: tuple[str, ...] = ()
    """Disks by their paths."""
    swap: Swap | None = None
    forced: frozenset[str] = frozenset()
    """Paths of those that are taken whatever lies on them."""

    @property
    def paths(self) -> Mapping[str, str]:
        """The path of each disk by its mapped name; without swap."""
        return {mapped_name(path): path for path in self.devices}

    @property
    def swap_name(self) -> str:
        """The mapped name of the swap area; empty without one."""
        return swap_name(self.swap) if self.swap else ""

    @property
    def names(self) -> frozenset[str]:
        """All mapped names."""
        return frozenset((*self.paths, self.swap_name)) - {""}

    def is_met(self, one: Mapped) -> bool:
        """Whether one of them is as it should be."""
        if not one.is_swap or self.swap is None:
            return one.is_lent
        return one.is_lent and one.swapped_bytes is not None and self.has_size(one)

    def has_size(self, one: Mapped) -> bool:
        """Whether a swap area is as large as it should be; one on a disk may be all of that."""
        size = self.swap.size_bytes if self.swap else 0
        return not size or one.size_bytes == size


NONE = Block()


def block(borrowed: Iterable[MemoryPairing]) -> Block:
    """What pairings ask of their borrower: those of a pool agree, but for one that has not been told of an edit yet."""
    ends = [one.spec.borrower for one in sorted(borrowed, key=lambda one: one.metadata.uid)]
    swaps = [end.swap for end in ends if end.swap and end.swap.backing is not SwapBacking.NONE]
    devices = dict.fromkeys(path for end in ends for path in end.devices)
    forced = frozenset(path for end in ends for path in end.force)
    return Block(tuple(devices), swaps[0] if swaps else None, forced)


@dataclass(frozen=True)
class LoadTarget:
    """Bring the device-mapper target into the guest, beside the module."""

    source: Source


@dataclass(frozen=True)
class UnloadTarget:
    """Take the target out of the guest."""


@dataclass(frozen=True)
class Map:
    """Put lenders in front of a disk that nobody uses."""

    path: str
    forced: bool

    @property
    def name(self) -> str:
        """Its mapped name."""
        return mapped_name(self.path)


@dataclass(frozen=True)
class Attach:
    """Put lenders in front of a device that goes on without."""

    name: str


@dataclass(frozen=True)
class Detach:
    """Take the lenders from a device, which goes on."""

    name: str


@dataclass(frozen=True)
class Unmap:
    """Give up a device that nobody uses."""

    name: str


@dataclass(frozen=True)
class SwapOn:
    """Make a swap area with lenders in front, and use it before all other swap."""

    swap: Swap
    forced: bool

    @property
    def name(self) -> str:
        """Its mapped name."""
        return swap_name(self.swap)


@dataclass(frozen=True)
class SwapOff:
    """Empty a swap area, and give it up."""

    name: str


_WORDS = {
    Map: "put lenders in front of",
    Attach: "put lenders back in front of",
    Detach: "take the lenders from",
    Unmap: "give up",
    SwapOn: "begin to swap to",
    SwapOff: "end swapping to",
}

OfDevice = Map | Attach | Detach | Unmap | SwapOn | SwapOff
BlockStep = LoadTarget | UnloadTarget | OfDevice


def subject(step: BlockStep) -> tuple[str, ...]:
    """What a step is about: after a failure, steps about the same thing wait."""
    match step:
        case LoadTarget():
            return ("target",)
        case UnloadTarget():
            return ("target removal",)
        case _:
            return ("device", step.name)


def step_name(step: BlockStep) -> str:
    """A step in words, for logs."""
    match step:
        case LoadTarget(source):
            return f"load the device-mapper target {source.value}"
        case UnloadTarget():
            return "unload the device-mapper target"
        case _:
            return f"{_WORDS[type(step)]} {step.name}"


def steps(wanted: Block, seen: Observation, where: Source | None, *, is_settled: bool = True) -> list[BlockStep]:
    """What leads from the devices that were seen to those that are wanted, in order; the module is loaded then.

    Nothing is taken away of a guest that is not `settled`: what it is to have is not known yet.
    """
    away = _away(wanted, seen)
    due = _due(wanted, seen)
    if due and not seen.has_target:
        due = [] if where is None else [LoadTarget(where), *due]
    return [*(away if is_settled else ()), *due]


def released(seen: Observation) -> list[BlockStep]:
    """What leads to a guest without the target, whose devices go on without lenders."""
    lent = [Detach(one.name) for one in seen.mapped.values() if one.is_lent]
    return [*lent, *([UnloadTarget()] if seen.has_target else ())]


def given_up(seen: Observation) -> list[BlockStep]:
    """The same of a guest that is to have no such devices: those that nobody uses are given up."""
    return [*_away(NONE, seen), *([UnloadTarget()] if seen.has_target else ())]


def _away(wanted: Block, seen: Observation) -> list[BlockStep]:
    """What is there and not wanted; a swap file, too, that lies on a disk since before a reboot."""
    found = [step for one in seen.mapped.values() if one.name not in wanted.names for step in _taken(one, seen)]
    is_left = seen.has_swap_file and SWAP_NAME not in wanted.names | seen.mapped.keys()
    return [*found, *([SwapOff(SWAP_NAME)] if is_left else ())]


def is_shared(path: str, seen: Observation) -> bool:
    """Whether other guests may write to a disk, which lenders would not hear of."""
    return seen.host is not None and any(one.is_at(path) for one in seen.host.shared)


def _due(wanted: Block, seen: Observation) -> list[BlockStep]:
    found: list[BlockStep] = []
    for name, path in wanted.paths.items():
        one = seen.mapped.get(name)
        if is_shared(path, seen):
            continue
        if one is None:
            found.append(Map(path, path in wanted.forced))
        elif not one.is_lent:
            found.append(Attach(name))
    if wanted.swap is None or is_shared(wanted.swap.device or "", seen):
        return found
    return found + _swap_due(wanted.swap, wanted, seen)


def _swap_due(swap: Swap, wanted: Block, seen: Observation) -> list[BlockStep]:
    one, make = seen.mapped.get(wanted.swap_name), SwapOn(swap, swap.device in wanted.forced)
    if one is None or one.swapped_bytes is None:
        return [make]
    if not wanted.has_size(one) and excess(one, seen) == 0:
        return [SwapOff(one.name), make]
    return [] if one.is_lent else [Attach(one.name)]


def _taken(one: Mapped, seen: Observation) -> list[BlockStep]:
    """The way of a device that is wanted no more: given up if that costs nobody anything, else on without lenders.

    To empty a swap area takes minutes, in which lenders would wait, and which a pool that comes back would spare it:
    that is for another round.
    """
    if not one.is_swap and not one.is_open:
        return [Unmap(one.name)]
    if one.is_lent:
        return [Detach(one.name)]
    return [SwapOff(one.name)] if one.is_swap and excess(one, seen) == 0 else []


def room(seen: Observation) -> int:
    """Memory that a swap area may be emptied into, in bytes."""
    return max(0, seen.available_bytes - seen.total_bytes // KEPT_FREE)


def excess(one: Mapped, seen: Observation) -> int:
    """How much of what is swapped out does not fit into memory, in bytes."""
    return max(0, (one.swapped_bytes or 0) - room(seen))
