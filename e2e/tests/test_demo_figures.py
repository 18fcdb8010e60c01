"""The demo's arithmetic: what it reads out of the module's text and the agent's metrics, and when it is content."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from demo import fio, metrics, module, plot, readme, verdict
from demo.figures import DEPTHS, Figures, Measured, RoundTrip, table
from tidepool_lab import paths

TREE = module.TREE
READING = f"""
{TREE}/stats:misses 7
{TREE}/stats:warnings 0
{TREE}/lenders/a/stats:get_hits 90
{TREE}/lenders/a/stats:get_late 1
{TREE}/lenders/b/stats:get_hits 9
{TREE}/lenders/b/stats:get_misses 2
{TREE}/borrowers/c/stats:get_hits 5
{TREE}/lenders/a/latency:get 1023 80
{TREE}/lenders/b/latency:get 1279 20
{TREE}/lenders/a/latency:ping 1 3
 254      16 vdb 4711 0 37688 100 0 0 0 0 0 0 0
""".strip()


def test_a_reading_sums_its_peers() -> None:
    reading = module.parse(READING)
    assert (reading.module["misses"], reading.borrowing["get_hits"], reading.lending["get_hits"]) == (7, 99, 5)
    assert reading.gets == {1023.0: 80, 1279.0: 20}
    assert reading.disk_reads == 4711


def test_a_difference_is_what_happened_between() -> None:
    after = module.parse(READING.replace("get_hits 90", "get_hits 190").replace("vdb 4711", "vdb 4712"))
    between = module.difference(module.parse(READING), after)
    assert module.remote_hits(between) == 100
    assert module.remote_misses(between) == 0
    assert (between.disk_reads, between.gets) == (1, {})


def test_every_read_from_disk_counts_as_a_miss() -> None:
    assert module.remote_misses(module.parse(READING)) == 7
    assert module.hit_ratio(module.parse(READING)) == pytest.approx(99 / 106)


def test_without_hits_the_ratio_is_zero() -> None:
    assert module.hit_ratio(module.Reading()) == 0


@pytest.mark.parametrize(("quantile", "expected"), [(0.0, 895), (0.4, 959), (0.8, 1023), (0.9, 1151), (1.0, 1279)])
def test_quantiles_are_interpolated_within_a_bucket(quantile: float, expected: float) -> None:
    assert module.quantile_us({1023.0: 80, 1279.0: 20}, quantile) == pytest.approx(expected, abs=1)


def test_quantiles_of_nothing_and_of_the_last_bucket() -> None:
    assert module.quantile_us({}, 0.5) == 0
    assert module.quantile_us({1023.0: 1, module.INFINITE: 9}, 0.99) == 1023


def test_metrics_are_summed_by_label() -> None:
    text = (
        '# HELP x_total f\nx_total{guest="a",pairing="1"} 3.0\nx_total{guest="a",pairing="2"} 4\nx_total{guest="b"} 9\n'
    )
    assert metrics.total(text, "x_total", guest="a") == 7
    assert metrics.total(text, "x_total") == 16
    assert metrics.total(text, "x_total", guest="c") is None
    assert metrics.total("y 1", "x") is None


def test_fio_remarks_are_skipped() -> None:
    job = {"read": {"iops": 12.5, "clat_ns": {"percentile": {"50.000000": 2000, "99.000000": 9000}}}, "error": 0}
    assert fio.parse("fio: note\n" + json.dumps({"jobs": [job]})) == fio.Reads(12.5, 2.0, 9.0, 0)


def measured(hits: int, misses: int, iops: float = 500.0) -> Measured:
    borrowing = {"get_hits": hits, "get_hits_buffer": 1 if hits else 0}
    return Measured(fio.Reads(iops, 1, 2, 0), module.Reading({"misses": misses}, borrowing, {}, {511.0: hits}, misses))


@pytest.fixture
def figures() -> Figures:
    return Figures(
        kernel="6.1.0-1-cloud-amd64",
        machine="2 cores",
        file_mib=768,
        baseline={depth: measured(0, 5000, 170) for depth in DEPTHS},
        pooled={depth: measured(5000, 100) for depth in DEPTHS},
        encrypted={depth: measured(4000, 100, 400) for depth in DEPTHS},
        served=9998,
        exported={"hits": 10000.0},
        lent_bytes=1 << 29,
        used_bytes=1 << 29,
        raw=RoundTrip(400, 900),
        checksum_before="abc",
        checksum_after="abc",
        checksum_encrypted="abc",
        memory_bytes={"borrower": 512 << 20, "lender": 1536 << 20},
    )


def test_a_good_run_is_content(figures: Figures) -> None:
    assert verdict.failures(figures) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"checksum_after": "abd"}, "differently"),
        ({"checksum_encrypted": "abd"}, "differently with encryption"),
        ({"encrypted": {depth: measured(4000, 600) for depth in DEPTHS}}, "hit ratio with encryption"),
        ({"served": 9000}, "has sent 9000"),
        ({"warnings": ["borrower: tidepool: warning"]}, "borrower: tidepool: warning"),
        ({"pooled": {depth: measured(5000, 600) for depth in DEPTHS}}, "hit ratio"),
        ({"pooled": {depth: measured(0, 0) for depth in DEPTHS}, "served": 0}, "hit ratio"),
    ],
)
def test_a_bad_run_says_what_is_wrong(figures: Figures, change: dict[str, object], word: str) -> None:
    assert word in "\n".join(verdict.failures(replace(figures, **change)))  # type: ignore[arg-type]  # fields by name


def test_the_json_has_what_others_look_for(figures: Figures, tmp_path_factory: pytest.TempPathFactory) -> None:
    names = (
        "kernel baseline_iops_qd1 pooled_iops_qd1 baseline_iops_qd16 pooled_iops_qd16 remote_hit_ratio get_p50_us "
        "get_p99_us raw_rtt_p50_us disk_reads_pooled checksum_ok encrypted_iops_qd1 encrypted_iops_qd16 "
        "encrypted_hit_ratio encrypted_get_p50_us encrypted_get_p99_us"
    )
    result = figures.as_json()
    assert set(names.split()) <= set(result)
    assert result["disk_reads_pooled"] == 200
    assert result["remote_hit_ratio"] == pytest.approx(0.9804, abs=1e-4)
    assert json.loads(json.dumps(result)) == result
    assert result["encrypted_hit_ratio"] == pytest.approx(0.9756, abs=1e-4)
    assert result["encrypted_iops_qd16"] == 400
    assert "depth 16, with pool" in table(figures)
    assert "depth 16, encrypted" in table(figures)
    picture = tmp_path_factory.mktemp("plot") / "demo.png"
    plot.draw(result, picture)
    assert picture.stat().st_size > 10_000


def test_a_page_takes_the_figures_over(figures: Figures) -> None:
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    fresh = readme.replaced(text, readme.section(figures.as_json()))
    assert "old" not in fresh
    assert "**500 IO/s**" in fresh
    assert "98.0%" in fresh
    assert readme.replaced(fresh, readme.section(figures.as_json())) == fresh
    assert "| 1 | 170 | **400** |" in readme.headline(figures.as_json())


@pytest.mark.parametrize("name", readme.PARTS)
def test_pages_have_a_place_for_figures_and_look_like_them(figures: Figures, name: str) -> None:
    """But for the figures themselves, each page says what would be made of them today."""
    page = (paths.ROOT / name).read_text()
    fresh = readme.replaced(page, readme.PARTS[name](figures.as_json()))
    words = re.compile(r"[A-Za-z]{3,}")
    assert [set(words.findall(line)) for line in fresh.splitlines() if line.startswith("|")] == [
        set(words.findall(line)) for line in page.splitlines() if line.startswith("|")
    ]
