"""The benchmark's arithmetic, its record, and that its page shows what was measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bed.page import MARK
from bed.sources import digest
from bench import beside, compiling, devices, node, redis, report
from bench.experiments import EXPERIMENTS
from bench.experiments.application import NO_POOL, OTHERS, POOLS, Aim
from bench.experiments.comparison import Comparison
from bench.experiments.random_reads import on_the_papers_network
from bench.experiments.raw import throughput
from bench.record import Record
from bench.summary import Cell, cells, estimate, ratio
from bench.trial import REPETITIONS, Result, Trial, alternating


def test_sides_alternate() -> None:
    """Every side is measured once before any is measured again."""
    trials = alternating([("pool", {"mib": 1}), ("none", {})], "some", 3)
    assert [one.side for one in trials] == ["pool", "none"] * 3
    assert [one.repetition for one in trials] == [1, 1, 2, 2, 3, 3]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """What was measured is known to the next run, unless it was of another module."""
    trial = Trial("some", "pool", 1, {"mib": 64})
    Record(tmp_path, "some", "this", "boot").add(trial, [Result({"depth": 4}, {"iops": 7.0})], 12.34)
    known = Record(tmp_path, "some", "this", "another boot")
    assert known.has(trial)
    assert not known.has(Trial("some", "pool", 2, {"mib": 64}))
    assert not Record(tmp_path, "some", "other", "boot").has(trial)
    assert known.typical_seconds(trial) == 12.3


@pytest.mark.parametrize(("boot", "kept"), [("first", [1, 1, 2]), ("second", [1, 1])])
def test_a_repetition_is_of_one_boot(tmp_path: Path, boot: str, kept: list[int]) -> None:
    """What one boot of the host did not finish another begins anew; only whole repetitions are shown."""

    def trials(repetitions: int) -> list[Trial]:
        return alternating([("pool", {}), ("none", {})], "some", repetitions)

    record = Record(tmp_path, "some", "this", "first")
    for trial in trials(2)[:3]:
        record.add(trial, [Result({}, {"iops": 7.0})], 1.0)
    again = Record(tmp_path, "some", "this", boot)
    again.drop_unfinished(trials)
    assert [row["repetition"] for row in again.rows] == kept
    assert [row["repetition"] for row in again.complete(trials)] == [1, 1]


def test_a_side_that_was_added_later_has_its_place(tmp_path: Path) -> None:
    """Results come in the order of the trials, in whichever they were measured."""

    def trials(repetitions: int) -> list[Trial]:
        return alternating([("none", {}), ("pool", {})], "some", repetitions)

    record = Record(tmp_path, "some", "this", "boot")
    for side in ("pool", "none"):
        for trial in trials(2):
            if trial.side == side:
                record.add(trial, [Result({}, {"iops": 7.0})], 1.0)
    assert [(row["repetition"], row["side"]) for row in record.complete(trials)] == [
        (1, "none"), (1, "pool"), (2, "none"), (2, "pool"),
    ]  # fmt: skip


def test_repetitions_of_a_cell_come_together() -> None:
    """By side, setting, and what was varied."""
    rows = [
        {"side": "pool", "repetition": number, "setting": {"mib": 1}, "results": [
            {"varied": {"depth": depth}, "figures": {"iops": float(number * depth)}} for depth in (1, 4)]}
        for number in (2, 1)
    ]  # fmt: skip
    assert cells(rows)[Cell.of("pool", {"mib": 1}, {"depth": 4})] == {"iops": [4.0, 8.0]}
    assert Cell.of("pool", {"mib": 1}, {"depth": 4}).parameters == {"mib": 1, "depth": 4}


def test_a_median_has_an_interval() -> None:
    """It is around the median, within what was measured, and wider where repetitions differ more."""
    near, far = estimate([10, 11, 10, 12, 11]), estimate([10, 20, 5, 12, 40])
    assert near.low <= near.median == 11 <= near.high <= 12
    assert far.high - far.low > near.high - near.low
    assert estimate([3.0]) == type(near)(3.0, 3.0, 3.0, 1)


def test_ratios_are_of_the_same_repetition() -> None:
    """A machine that was half as fast in one repetition was so for both sides."""
    times = ratio([100.0, 50.0, 100.0], [10.0, 5.0, 10.0])
    assert (times.low, times.median, times.high) == (10.0, 10.0, 10.0)


def test_a_faster_network_takes_time_off_each_get() -> None:
    """2 ms a read of which a get took 1.15 ms: with one of 0.15 ms it is 1 ms, ten times as fast as a disk of 10 ms."""

    def row(side: str, mib: int, **figures: float) -> dict[str, object]:
        results = [{"varied": {"depth": 1}, "figures": figures}]
        return {"side": side, "setting": {"pool_mib": mib}, "repetition": 1, "results": results}

    rows = [
        row("no pool", 0, iops=100.0, get_p50_us=0.0, gets_per_read=0.0),
        row("NonInclusive", 320, iops=500.0, get_p50_us=1150.0, gets_per_read=1.0),
    ]
    (line,) = [line for line in on_the_papers_network(rows).splitlines() if "NonInclusive" in line]
    assert "5.00 times" in line
    assert "10.00 times" in line
    assert "no pool |" not in line


def test_the_papers_speed_is_asked_of_the_sides_it_is_of() -> None:
    """What the paper reached with the filter is compared with the sides that have it, the rest with those without."""
    speeds = {0: 1.4, 1: 1.44}  # of pools, by whether they filter
    sides = [(*NO_POOL, 1.0), *((*one, speeds[one[1]["filter"]]) for one in POOLS), *((*one, 1.0) for one in OTHERS)]
    rows = [
        {"side": side, "setting": setting, "repetition": 1, "results": [{"varied": {}, "figures": {"per_s": per_s}}]}
        for side, setting, per_s in sides
    ]
    reached = {what: good for what, _, good in EXPERIMENTS["blast"].goals(rows)}
    assert reached[str(Aim(1.3, "figure 5c"))]
    assert not reached[str(Aim(1.45, "figure 5c", filter=1))]
    assert not reached[str(Aim(2.49, "table 2"))]


COMPARED = {name: one for name, one in EXPERIMENTS.items() if isinstance(one, Comparison)}
COMPARISONS = [*COMPARED.values()]


def _compared(experiment: Comparison, speeds: dict[str, float]) -> list[dict[str, Any]]:
    """Two repetitions of each workload, in which a side is so fast; it was not measured if it has no speed."""
    figures = dict.fromkeys(("disk_reads", "disk_writes", "gets", "puts"), 0.0)

    def result(side: str, workload: str) -> dict[str, Any]:
        if side not in speeds:
            return {"varied": {"workload": workload, "not_measured": f"there is no `{side}`"}, "figures": {}}
        return {"varied": {"workload": workload}, "figures": {**figures, "per_s": speeds[side]}}

    return [
        {
            "side": one.side,
            "setting": one.setting,
            "repetition": one.repetition,
            "module": "abc",
            "results": [result(one.side, workload.name) for workload in experiment.workloads],
        }
        for one in experiment.trials(2)
    ]


@pytest.mark.parametrize("experiment", COMPARISONS, ids=lambda one: one.name)
def test_every_side_does_every_workload(experiment: Comparison) -> None:
    """By turns, and each is a side that can be made; swap is on every policy of Tidepool's target."""
    sides = [*experiment.sides]
    assert [one.side for one in experiment.trials(1)] == sides
    assert [devices.make(side, 320, experiment.strategy).name for side in sides] == sides
    assert {*experiment.ours} <= {*devices.TARGETS} == {*COMPARED["swap"].ours}
    assert {"no pool", *experiment.rivals} <= {*sides} - {*experiment.ours}
    assert {aim.workload for aim in experiment.aims} <= {one.name for one in experiment.workloads}


@pytest.mark.parametrize("experiment", COMPARISONS, ids=lambda one: one.name)
def test_the_best_policy_is_held_to_the_aims(experiment: Comparison) -> None:
    """As fast as others have measured, and faster than each rival: as fast is not ahead."""
    best, *slower = experiment.ours
    others = {side: 1.0 for side in experiment.sides if side not in ("no pool", *experiment.ours)}
    bounds = [(aim, part) for aim in experiment.aims for part in (1, 0.99)]
    for aim, part in bounds:
        times, reached = aim.times * part, part == 1
        rows = _compared(experiment, {"no pool": 1.0, best: times, **dict.fromkeys(slower, 0.5), **others})
        found = {what: (said, good) for what, said, good in experiment.goals(rows)}
        assert found[str(aim)] == (f"{best}: {times:.2f} times ({times:.2f} to {times:.2f})", reached)
    rows = _compared(experiment, {"no pool": 0.9, **dict.fromkeys(experiment.ours, 1.0), **others})
    ahead = {what: good for what, _, good in experiment.goals(rows) if "ahead of" in what}
    for workload in experiment.workloads:
        assert ahead[f"{workload.name}: ahead of no pool"]
        held = {rival: ahead.get(f"{workload.name}: ahead of {rival}") for rival in experiment.rivals}
        assert held == {rival: None if rival in workload.unheld else False for rival in experiment.rivals}


def test_what_was_not_measured_is_said() -> None:
    """A side without figures is in no table and no goal, and the report says of which workloads, how often and why."""
    swap = COMPARED["swap"]
    missing = swap.rivals[0]
    speeds = {side: 1.0 for side in swap.sides if side != missing}
    text = report.text(swap, _compared(swap, speeds))
    names = ", ".join(f"{workload.name}: 2 times" for workload in swap.workloads)
    assert text.count(f"Not measured: {missing} ({names}): there is no `{missing}`.") == 1
    assert f"| {missing} |" not in text
    assert f"ahead of {missing}" not in text
    assert "Not measured" not in report.text(swap, _compared(swap, {**speeds, missing: 1.0}))


def test_a_workload_that_was_added_later_is_still_to_come() -> None:
    """Figures from before have nothing of it: the report says so, and shows the others."""
    swap = COMPARED["swap"]
    speeds = dict.fromkeys(swap.sides, 1.0)
    rows, last = _compared(swap, speeds), swap.workloads[-1].name
    for row in rows:
        del row["results"][-1]
    text = report.text(swap, rows)
    assert f"\n\nNot measured yet: {last}.\n\n" in text
    assert f"| {last}, " not in text
    assert {name for what, _, _ in swap.goals(rows) if (name := what.partition(":")[0]) == last} == set()
    assert f"| {swap.workloads[0].name}, " in text
    assert "Not measured yet" not in report.text(swap, _compared(swap, speeds))


def test_what_an_experiment_does_not_load_outdates_nothing() -> None:
    """Its results are of the layers that took part."""
    assert EXPERIMENTS["random"].identity() == digest(without=["appmem", "block"])
    assert {one.identity() for one in COMPARED.values()} == {digest(without=["appmem"])}
    daemon = b"".join(file.read_bytes() for file in node.sources())
    of_nodes = {EXPERIMENTS[name].identity() for name in ("node-lender", "pressure")}
    assert of_nodes == {digest(daemon, ["appmem", "block"])}


def test_the_version_that_was_measured_is_named() -> None:
    """Figures outlive the module that they are of."""
    swap = COMPARED["swap"]
    assert "of module abc;" in report.text(swap, _compared(swap, dict.fromkeys(swap.sides, 1.0)))


def test_what_redis_says() -> None:
    """Values that were found, and those that were not."""
    said = "# Stats\r\nkeyspace_hits:1203\r\nkeyspace_misses:4\r\n"
    assert [redis.figure(said, f"keyspace_{what}") for what in ("hits", "misses")] == [1203, 4]


def test_what_is_compiled_says_whether_it_was_compiled_right(tmp_path: Path) -> None:
    """A program of some units prints what is known without a compiler; the sources are the same each time."""
    units = [compiling.Unit(number, 20) for number in (1, 2)]
    files = compiling.sources(units)
    assert files == compiling.sources(units)
    assert units[0].of(1) != units[1].of(1)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["sh", "-c", compiling.build(str(tmp_path))], check=True)
    said = subprocess.run([tmp_path / compiling.PROGRAM], check=True, capture_output=True, text=True).stdout
    assert int(said) == compiling.printed(units)


def test_what_dbench_says() -> None:
    """Its throughput; one that did not get so far says none."""
    said = "  8  1200  3.10 MB/sec  execute  1 sec\n\nThroughput 4.25 MB/sec  8 clients  8 procs  max_latency=1.0 ms\n"
    assert throughput(said) == 4.25
    with pytest.raises(ValueError, match=r"no throughput: .*open failed"):
        throughput("open failed")


def test_few_repetitions_are_called_few() -> None:
    """Whoever reads a median knows of how many it is, and when more are still to come."""
    assert report.repetitions(REPETITIONS) == f"{REPETITIONS} repetitions"
    assert report.repetitions(1) == f"**1 of {REPETITIONS} repetitions so far**"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_shows_what_was_measured(name: str) -> None:
    """Its part of docs/evaluation.md is what the raw results beside the page give."""
    found = [one[0] for one in MARK.finditer(report.PAGE.read_text()) if one[1] == name]
    assert len(found) == 1
    record = _published(name)
    if rows := record.complete(EXPERIMENTS[name].trials):
        assert report.text(EXPERIMENTS[name], rows) in found[0]
        assert record.path.with_suffix(".png").stat().st_size > 0
    else:
        assert report.NOT_YET.format(name) in found[0]


def _published(name: str) -> Record:
    """What lies beside the page: results of one module only."""
    path = report.PUBLISHED / f"{name}.jsonl"
    modules = {json.loads(line)["module"] for line in path.read_text().splitlines()} if path.exists() else {""}
    assert len(modules) == 1
    return Record(report.PUBLISHED, name, modules.pop(), "")


def test_two_trees_side_by_side(tmp_path: Path) -> None:
    """Figures that both have, of the module that each measured last, round by round."""
    record = tmp_path / "some.jsonl"
    for tree in ("here", "there"):
        record.unlink(missing_ok=True)
        Record(tmp_path, "some", "former", "boot").add(Trial("some", "pool", 1), [Result({}, {"us": 900.0})], 1.0)
        rows = Record(tmp_path, "some", tree, "boot")
        for turn in (1, 2, 3):
            figures = {"us": (110.0 if tree == "here" else 100.0) * turn, tree: 1.0}
            rows.add(Trial("some", "pool", turn, {"part": "wire"}), [Result({}, figures)], 1.0)
        record.rename(tmp_path / tree)
    shown = beside.text(beside.newest(tmp_path / "here"), beside.newest(tmp_path / "there"))
    assert shown.splitlines()[2:] == [
        "| pool, wire | us | 220 (110 to 330) | 200 (100 to 300) | 1.10 times (1.10 to 1.10) |"
    ]
