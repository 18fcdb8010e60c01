"""What has to be done so that programs of a guest have the memory that its pairings give them: pure, like `plan`.

Nobody is killed for it. Where a program has the device open, the module stays until it ends, and the core module with
it; meanwhile nothing more is put, and nobody else opens the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api import MemoryPairing
from tidepool_api.applications import ROOT, ROOT_ALONE

if TYPE_CHECKING:
    from tidepool_agent.appmem import AppMemory
    from tidepool_agent.plan import Source


@dataclass(frozen=True)
class Offer:
    """How much programs may keep, and who may open the device."""

    size_bytes: int
    mode: str
    group: str

    def is_met(self, there: AppMemory) -> bool:
        """Whether it is so in a guest."""
        return (there.size_bytes, there.mode, there.group) == (self.size_bytes, self.mode, self.group)


# What there is where nothing is wanted, and programs that have the device open keep the module.
CLOSED = Offer(0, ROOT_ALONE, ROOT)


@dataclass(frozen=True)
class LoadApp:
    """Bring the module for programs into the guest, beside the core module, and give them the device."""

    source: Source
    offer: Offer


@dataclass(frozen=True)
class Give:
    """Change how much programs may keep, or who may open the device; what they have stays."""

    offer: Offer


@dataclass(frozen=True)
class UnloadApp:
    """Take the module for programs out of the guest; what is in its pools is gone."""


AppStep = LoadApp | Give | UnloadApp


def offer(borrowed: Iterable[MemoryPairing]) -> Offer | None:
    """What pairings give to programs of their borrower, or None.

    Those of a pool agree, but for one that has not been told of an edit yet: the one with the lowest UID counts.
    """
    ends = [one.spec.borrower.applications for one in sorted(borrowed, key=lambda one: one.metadata.uid)]
    return next((Offer(one.size_bytes, one.effective_mode, one.effective_group) for one in ends if one), None)


def subject(step: AppStep) -> tuple[str, ...]:
    """What a step is about: after a failure, steps about the same thing wait; what is asked anew is tried at once."""
    match step:
        case LoadApp(_, wish) | Give(wish):
            return ("application", f"bytes={wish.size_bytes}", f"mode={wish.mode}", f"group={wish.group}")
        case UnloadApp():
            return ("application removal",)


def step_name(step: AppStep) -> str:
    """A step in words, for logs."""
    match step:
        case LoadApp(source, wish):
            return f"load the module for programs {source.value}, and give them {_words(wish)}"
        case Give(wish):
            return f"give programs {_words(wish)}"
        case UnloadApp():
            return "unload the module for programs"


def _words(wish: Offer) -> str:
    return f"{wish.size_bytes} bytes, mode {wish.mode}, group {wish.group}"


def steps(
    wanted: Offer | None, there: AppMemory | None, where: Source | None, *, is_settled: bool = True
) -> list[AppStep]:
    """What leads from what is there to what is wanted; the core module is loaded then.

    Nothing is taken away of a guest that is not `settled`: what it is to have is not known yet.
    """
    if wanted is None:
        return given_up(there) if is_settled else []
    if there is None:
        return [] if where is None else [LoadApp(where, wanted)]
    return [] if wanted.is_met(there) else [Give(wanted)]


def given_up(there: AppMemory | None) -> list[AppStep]:
    """What leads to a guest without it: while a program has the device open, nothing more is put."""
    if there is None:
        return []
    if there.is_held:
        return [] if CLOSED.is_met(there) else [Give(CLOSED)]
    return [UnloadApp()]


def released(there: AppMemory | None) -> list[AppStep]:
    """What leads to a guest whose core module can be replaced; none does while a program has the device open."""
    return [UnloadApp()] if there and not there.is_held else []


def is_held(there: AppMemory | None) -> bool:
    """Whether it keeps the core module where it is."""
    return there is not None and there.is_held
