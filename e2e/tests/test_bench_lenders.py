"""The part of the benchmark that is of nodes and balloons: its clients against the model of a lender, and its goals."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from bed.protocol import Frame, KeyPair, Lender, point_of
from bench.experiments import donor, host_memory, node_lender, pressure
from bench.load import FILE, Client, content, together
from bench.node import DAEMON, KERNEL, Terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.experiments.base import Experiment

MIB = 1 << 20


@pytest.fixture
def lender() -> Iterator[Lender]:
    one = Lender()
    yield one
    one.close()


def client(lender: Lender) -> closing[Client]:
    return closing(Client(("127.0.0.1", lender.port), KeyPair(), point_of(lender.identity), 64 * MIB))


def test_pages_come_back_as_they_were_put(lender: Lender) -> None:
    """In batches and one by one; what is not there is not counted."""
    with client(lender) as one:
        assert one.fill(range(300)) == 300
        assert one.read(range(400)) == 300
        assert len(one.times([7, 299])) == 2


def test_another_page_is_seen(lender: Lender) -> None:
    """A lender that mixes pages up is no faster than one that does not."""
    with client(lender) as one:
        one.fill(range(64))
        lender.pages[FILE, 3] = (4, bytes(16), content(4))
        with pytest.raises(AssertionError, match="page 3"):
            one.read(range(64))
        with pytest.raises(AssertionError, match="page 3"):
            one.times([3])


def test_several_put_at_once(lender: Lender) -> None:
    with client(lender) as one, client(lender) as other:
        assert together({"one": one, "other": other}, range(128)) > 0


class Full(Lender):
    """Keeps one page of each batch."""

    def _keep(self, frame: Frame) -> int:
        return super()._keep(frame) & 1


def test_who_is_not_served_is_named() -> None:
    """Speed counts only where all pages are kept."""
    refused = pytest.raises(AssertionError, match="not all pages were kept of one")
    with closing(Full()) as lender, client(lender) as one, refused:
        together({"one": one}, range(128))


def test_the_daemon_is_told_who_may_borrow() -> None:
    own = KeyPair()
    lines = Terms({"one": own}, 256, 48).toml().splitlines()
    assert {'max_lend = "256Mi"', "[borrowers.one]", f'identity = "{own.identity}"', 'quota = "48Mi"'} <= {*lines}


def row(side: str, setting: Mapping[str, Any], *results: tuple[dict[str, Any], dict[str, float]]) -> dict[str, Any]:
    found = [{"varied": varied, "figures": figures} for varied, figures in results]
    return {"side": side, "setting": setting, "repetition": 1, "results": found}


def reached(experiment: Experiment, rows: list[dict[str, Any]]) -> dict[str, bool]:
    """The goals, by the first words of each, and whether they are."""
    return {what: good for what, _, good in experiment.goals(rows)}


@pytest.mark.parametrize(("get", "puts", "good"), [(110.0, 101.0, True), (111.0, 100.0, False)])
def test_a_node_is_held_to_the_kernel(get: float, puts: float, good: bool) -> None:
    """A get takes no more than 1.1 times as long, and as many puts are not ahead."""

    def lenders(daemon: dict[str, float], kernel: dict[str, float]) -> list[Any]:
        return [({"lender": DAEMON}, daemon), ({"lender": KERNEL}, kernel)]

    wire = lenders({"get_p50_us": get, "eight_per_s": puts}, {"get_p50_us": 100.0, "eight_per_s": 100.0})
    found = reached(node_lender.NodeLender(), [row(node_lender.BOTH, {"part": node_lender.WIRE}, *wire)])
    assert len(found) == 2
    assert {*found.values()} == {good}


def test_a_node_under_pressure_is_held_to_its_goals() -> None:
    """Time beside nothing lent, worst page beside those who watch PSI; nobody killed, nothing swapped or read again."""

    def sides(**ours: float) -> list[dict[str, Any]]:
        usual = {"seconds": 1.0, "max_us": 1000.0, "refaults": 0.0, "killed": 0.0, "swapped": 0.0}
        return [
            row(side, setting, ({}, {**usual, "max_us": 900.0, **ours} if side == DAEMON else usual))
            for setting in (pressure.HUGE, pressure.SMALL)
            for side in pressure.SIDES
        ]

    good = reached(pressure.Pressure(), sides())
    assert all(good.values())
    for ours in ({"seconds": 1.2}, {"max_us": 1000.0}, {"refaults": 1000.0}, {"killed": 1.0}, {"swapped": 1.0}):
        found = reached(pressure.Pressure(), sides(**ours))
        assert not all(found.values()), ours


def test_a_program_that_was_killed_has_no_time() -> None:
    """It is said how often, and no worst page is sooner than that of a program which got its memory."""
    lived = {name: 1.0 for _, name in pressure.LINES}
    killed = dict.fromkeys(("refaults", "waited_ms", "left_mib", "killed", "swapped"), 1.0)
    rows = [row(side, {}, ({}, killed if side == pressure.IN_STEPS else lived)) for side in pressure.SIDES]
    rows += [row(side, pressure.SMALL, ({}, lived)) for side in pressure.WITH_SMALL]
    assert pressure.Pressure().table(rows).count("| killed 1 of 1 times |") == 3
    (said,) = [said for what, said, good in pressure.Pressure().goals(rows) if good and pressure.IN_STEPS in what]
    assert said == "killed there 1 of 1 times"


def test_a_donor_is_held_to_its_goals() -> None:
    """Two percent of its work, and no program waits longer for memory than beside a pool or a timer."""

    def rows(loss: float, wait: float) -> list[dict[str, Any]]:
        work = {"loss_gathering": loss, "loss_held": 0.0, "mib_per_s": 1.0, "held_mib": 1.0}
        names = [name for _, name in donor.WAIT_LINES]
        waits = {side: dict.fromkeys(names, wait if side == donor.AGENT else 1.0) for side in donor.WAITS}
        memory = [row(side, {"part": donor.MEMORY}, ({}, each)) for side, each in waits.items()]
        return [row(donor.AGENT, {"part": donor.WORK}, ({}, work)), *memory]

    assert all(reached(donor.Donor(), rows(0.02, 1.0)).values())
    assert not all(reached(donor.Donor(), rows(0.021, 1.0)).values())
    assert not all(reached(donor.Donor(), rows(0.02, 1.1)).values())


def test_a_lenders_cost_is_held_to_its_goals() -> None:
    """What is lent and no more, all of it back, and nothing of it for KSM beside what it had before."""

    def sides(**ours: float) -> list[dict[str, Any]]:
        held = {"before_mib": 100.0, "during_mib": 200.0, "after_mib": 105.0, "lent_mib": 96.0}
        usual = {**held, "merged_before_mib": 45.0, "merged_mib": 45.0}
        return [row(side, {}, ({}, {**usual, **ours})) for side in host_memory.SIDES]

    good = reached(host_memory.HostMemory(), sides())
    assert len(good) == 3
    assert all(good.values())
    for ours in ({"during_mib": 230.0}, {"after_mib": 120.0}, {"merged_mib": 46.0}):
        found = reached(host_memory.HostMemory(), sides(**ours))
        assert sum(found.values()) == 2, ours
