"""What has to be done so that a guest's block devices and swap are as its pairings ask: pure, like `plan`.

A device that somebody uses is never taken from them. Where lenders are to be no longer, it goes on as its disk alone,
and is given up when nobody uses it. A swap area is emptied only while what is in it fits into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_agent.guestfs import PAGE
from tidepool_api import SWAP_NAME, MemoryPairing, Swap, SwapBacking, SwapWrite, mapped_name, path_of, swap_name

if TYPE_CHECKING:
    from tidepool_agent.backing import SharedDisk
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
        is_there = one.is_lent and not one.is_gone
        if not one.is_swap or self.swap is None:
            return is_there
        return is_there and one.swapped_bytes is not None and self.has_size(one) and is_written(self.swap, one)

    def has_size(self, one: Mapped) -> bool:
        """Whether a swap area is as large as it should be; one on a disk may be all of that, in whole pages."""
        disk = one.disk_bytes or one.size_bytes
        return one.size_bytes == ((self.swap.size_bytes if self.swap else 0) or disk - disk % PAGE)


NONE = Block()

# What the target calls it.
POLICIES = {SwapWrite.THROUGH: "writethrough", SwapWrite.BEHIND: "behind"}


def is_written(swap: Swap, one: Mapped) -> bool:
    """Whether what is swapped out is written to the disk when it should be."""
    return one.is_behind == (swap.write is SwapWrite.BEHIND)


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
    """Make a device on a disk that nobody uses: with lenders in front if the target is there, or else for later."""

    path: str
    forced: bool
    shared: tuple[SharedDisk, ...] = ()
    """None of which it may be, by whatever path."""

    @property
    def name(self) -> str:
        """Its mapped name."""
        return mapped_name(self.path)


@dataclass(frozen=True)
class Attach:
    """Put lenders in front of a device that goes on without, or that writes at another time than it should."""

    name: str
    write: SwapWrite = SwapWrite.THROUGH


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
    shared: tuple[SharedDisk, ...] = ()
    """None of which it may be on."""

    @property
    def name(self) -> str:
        """Its mapped name."""
        return swap_name(self.swap)


@dataclass(frozen=True)
class SwapOff:
    """Empty a swap area, and give it up."""

    name: str


_WORDS = {
    Map: "set up",
    Attach: "put lenders back in front of",
    Detach: "take the lenders from",
    Unmap: "give up",
    SwapOn: "begin to swap to",
    SwapOff: "end swapping to",
}

OfDevice = Map | Attach | Detach | Unmap | SwapOn | SwapOff
BlockStep = LoadTarget | UnloadTarget | OfDevice


def subject(step: BlockStep) -> tuple[str, ...]:
    """What a step is about: after a failure, steps about the same thing wait; what is asked anew is tried at once."""
    match step:
        case LoadTarget():
            return ("target",)
        case UnloadTarget():
            return ("target removal",)
        case Map(_, forced, _):
            return ("device", step.name, f"forced={forced}")
        case SwapOn(swap, forced, _):
            return ("device", step.name, f"forced={forced}", f"bytes={swap.size_bytes}", f"write={swap.write}")
        case Attach(_, SwapWrite.BEHIND):
            return ("device", step.name, f"write={step.write}")
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
    """What leads from the devices that were seen to those that are wanted, in order; the module is loaded then."""
    return [*plain(wanted, seen, is_settled=is_settled), *lent(wanted, seen, where)]


def plain(wanted: Block, seen: Observation, *, is_settled: bool = True) -> list[BlockStep]:
    """What takes no module: programs use the devices, which have to be there with lenders or without.

    Nothing is taken away of a guest that is not `settled`: what it is to have is not known yet.
    """
    return [*(_away(wanted, seen) if is_settled else ()), *_exposed(wanted, seen), *_disks(wanted, seen)]


def lent(wanted: Block, seen: Observation, where: Source | None) -> list[BlockStep]:
    """What takes the target, which comes from there; without it, a swap area would be no better than another."""
    due = _due(wanted, seen)
    if not due or seen.has_target:
        return due
    return [] if where is None else [LoadTarget(where), *due]


def released(seen: Observation) -> list[BlockStep]:
    """What leads to a guest without the target, whose devices go on without lenders."""
    held = [Detach(one.name) for one in seen.mapped.values() if one.is_lent]
    return [*held, *unloaded(seen)]


def given_up(seen: Observation) -> list[BlockStep]:
    """What leads to a guest that is to have no such devices: those that nobody uses are given up."""
    return _away(NONE, seen)


def unloaded(seen: Observation) -> list[BlockStep]:
    """What leads to a guest without the target, in which no lender is in front of anything."""
    return [UnloadTarget()] if seen.has_target else []


def _away(wanted: Block, seen: Observation) -> list[BlockStep]:
    """What is there and not wanted; a swap file, too, that lies on a disk since before a reboot."""
    found = [step for one in seen.mapped.values() if one.name not in wanted.names for step in _taken(one, seen)]
    is_left = seen.has_swap_file and SWAP_NAME not in wanted.names | seen.mapped.keys()
    return [*found, *([SwapOff(SWAP_NAME)] if is_left else ())]


def shared(seen: Observation) -> tuple[SharedDisk, ...]:
    """The disks that other guests may write to, which lenders would not hear of."""
    return seen.host.shared if seen.host else ()


def is_shared(name: str, seen: Observation) -> bool:
    """Whether what has that mapped name, or is to have it, lies on such a disk, as far as is known."""
    one = seen.mapped.get(name)
    below = one.below if one else ()
    return any(disk.is_at(path_of(name)) or any(map(disk.is_below, below)) for disk in shared(seen))


def _disks(wanted: Block, seen: Observation) -> list[BlockStep]:
    found: list[BlockStep] = []
    for name, path in wanted.paths.items():
        one = seen.mapped.get(name)
        if (one is None or one.is_odd) and not is_shared(name, seen):
            found.append(Map(path, path in wanted.forced, shared(seen)))
        elif one and one.is_gone and not one.is_open:
            found.append(Unmap(name))
    return found


def _exposed(wanted: Block, seen: Observation) -> list[BlockStep]:
    """Lenders go from disks that have turned out to be shared."""
    there = (one for one in seen.mapped.values() if one.name in wanted.names)
    return [Detach(one.name) for one in there if one.is_lent and not one.is_gone and is_shared(one.name, seen)]


def _due(wanted: Block, seen: Observation) -> list[BlockStep]:
    found: list[BlockStep] = [Attach(name) for name in wanted.paths if _lacks_lenders(name, seen)]
    if wanted.swap is None or is_shared(wanted.swap_name, seen):
        return found
    return found + _swap_due(wanted.swap, wanted, seen)


def _lacks_lenders(name: str, seen: Observation) -> bool:
    """Whether a device goes on, or has been made just now, without lenders; with the target it is made with them."""
    one = seen.mapped.get(name)
    if is_shared(name, seen):
        return False
    if one is None or one.is_odd:
        return not seen.has_target
    return not (one.is_lent or one.is_gone)


def _swap_due(swap: Swap, wanted: Block, seen: Observation) -> list[BlockStep]:
    one, make = seen.mapped.get(wanted.swap_name), SwapOn(swap, swap.device in wanted.forced, shared(seen))
    if one is None or one.swapped_bytes is None:
        return [make]
    if one.is_odd or one.is_gone:
        return []
    if not wanted.has_size(one) and excess(one, seen) == 0:
        return [SwapOff(one.name), make]
    return [] if one.is_lent and is_written(swap, one) else [Attach(one.name, swap.write)]


def _taken(one: Mapped, seen: Observation) -> list[BlockStep]:
    """The way of a device that is wanted no more: given up if that costs nobody anything, else on without lenders.

    To empty a swap area takes minutes, in which lenders would wait, and which a pool that comes back would spare it:
    that is for another round.
    """
    if not one.is_swap and not one.is_open:
        return [Unmap(one.name)]
    if one.is_lent and not one.is_gone:
        return [Detach(one.name)]
    return [SwapOff(one.name)] if one.is_swap and not one.is_odd and excess(one, seen) == 0 else []


def room(seen: Observation) -> int:
    """Memory that a swap area may be emptied into, in bytes."""
    return max(0, seen.available_bytes - seen.total_bytes // KEPT_FREE)


def excess(one: Mapped, seen: Observation) -> int:
    """How much of what is swapped out does not fit into memory, in bytes."""
    return max(0, (one.swapped_bytes or 0) - room(seen))
