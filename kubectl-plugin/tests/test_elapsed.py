"""Rates after a pause: what was counted while a machine was suspended belongs to no time that is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from objects import PAIRING, exposition, pairing, parsed

from tidepool_api import ObjectKey
from tidepool_kubectl.elapsed import Moment
from tidepool_kubectl.figures import Figures, parse
from tidepool_kubectl.snapshot import Lendings
from tidepool_kubectl.ui.reading import Reader

KEY = ObjectKey("ns", PAIRING)
NIGHT = 8 * 3600.0


@pytest.mark.parametrize(
    ("later", "seconds"),
    [
        ((105, 1005), 5),
        ((105, 1005.4), 5),  # the clock is set a little
        ((105, 1005 + NIGHT), 0),  # suspended
        ((105, 905), 0),  # the clock is set back
        ((100, 1000), 0),
    ],
)
def test_only_a_machine_that_was_awake_has_counted(later: tuple[float, float], seconds: float) -> None:
    assert Moment(100, 1000).until(Moment(*later)) == seconds


def test_both_clocks_go_on() -> None:
    begun = Moment.now()
    later = Moment.now()
    assert later.running >= begun.running
    assert 0 <= begun.until(later) < 5


@dataclass
class Agents:
    """A cluster whose pairing answers 100 reads a second, by the clock of the day, and takes a while to say so."""

    moment: Moment = field(default_factory=lambda: Moment(100, 1000))
    slept_while_read: float = 0
    """How long the machine is suspended while it waits for the figures."""

    def pass_by(self, running: float, asleep: float = 0) -> None:
        self.moment = Moment(self.moment.running + running, self.moment.day + running + asleep)

    def lendings(self) -> Lendings:
        return Lendings(parsed(pairing())["pairings"])

    def figures(self) -> Figures:
        self.pass_by(0, self.slept_while_read)
        return parse(exposition(int(100 * self.moment.day), 0))


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def reader(agents: Agents) -> Reader:
    """One that has read twice, and reads whenever it is asked."""
    made = Reader(agents, every=0, clock=lambda: agents.moment)  # type: ignore[arg-type]  # all that it needs of one
    assert made.now().spared == {}
    agents.pass_by(5)
    assert made.now().spared == {KEY: 100}
    return made


def test_a_night_in_a_bag_is_no_rate(agents: Agents, reader: Reader) -> None:
    """Eight hours of reads are not those of five seconds; the next reading has a rate again."""
    agents.pass_by(5, asleep=NIGHT)
    assert reader.now().spared == {}
    agents.pass_by(5)
    assert reader.now().spared == {KEY: 100}


def test_nor_is_one_that_begins_within_a_reading(agents: Agents, reader: Reader) -> None:
    """The figures come when the machine is awake again; the time was taken before."""
    agents.pass_by(5)
    agents.slept_while_read = NIGHT
    assert reader.now().spared == {}
    agents.slept_while_read = 0
    agents.pass_by(5)
    assert reader.now().spared == {}
    agents.pass_by(5)
    assert reader.now().spared == {KEY: 100}


def test_what_nobody_looked_at_for_long_is_no_rate_of_now(agents: Agents, reader: Reader) -> None:
    agents.pass_by(600)
    assert reader.now().spared == {}
