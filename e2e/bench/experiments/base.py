"""What an experiment is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, ClassVar

from bed.sources import LOADED_APART, digest
from bench.trial import Result, Trial

Rows = list[dict[str, Any]]


class Experiment(ABC):
    """Trials, how one is measured, and what is made of the results."""

    name: ClassVar[str]
    title: ClassVar[str]

    loads: ClassVar[Collection[str]] = ()  # layers that are modules of their own

    def sources(self) -> Iterable[Path]:
        """What its results are of beside the module."""
        return ()

    def identity(self) -> str:
        """What its results are of: results of other sources do not mix with these."""
        also = b"".join(file.read_bytes() for file in self.sources())
        return digest(also, LOADED_APART.keys() - set(self.loads))

    @abstractmethod
    def trials(self, repetitions: int) -> list[Trial]:
        """All of it, sides alternating."""

    @abstractmethod
    def measure(self, trial: Trial) -> list[Result]:
        """Boots the guests, sets the side up, measures."""

    def end(self) -> None:  # noqa: B027
        """Gives back what stays from one trial to the next."""

    @abstractmethod
    def draw(self, rows: Rows, target: Path) -> None:
        """The picture."""

    @abstractmethod
    def table(self, rows: Rows) -> str:
        """The figures in Markdown."""

    @abstractmethod
    def goals(self, rows: Rows) -> list[tuple[str, str, bool]]:
        """What is aimed at, what was measured, and whether that is reached."""
