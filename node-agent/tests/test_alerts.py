"""The chart's rules: what they ask for is exported, and every alert has its page and its test."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cast import TOP, lab
from objects import machine, observation, pairing, want
from test_metrics import samples_of

from tidepool_agent import report
from tidepool_agent.errors import CommandsBlocked, Frozen, GuestError
from tidepool_agent.guestfs import Peer, Side
from tidepool_agent.metrics import Figures, Sample
from tidepool_agent.report import Finding
from tidepool_api.metrics import DESCRIPTIONS, MetricType
from tidepool_api_testing.chart import CHART, rendered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RUNBOOKS = TOP / "docs/runbooks"
FOLDER = CHART / "rules"
GROUPS = yaml.safe_load((FOLDER / "tidepool.yaml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
AGGREGATION = re.compile(r"(?:without \(pod, instance\)|by \((?![^)]*\b(?:pod|instance)\b)[^)]*\)) \(")
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def exported() -> set[str]:
    """The names of all series; a histogram has three."""
    names = {str(name) for name in DESCRIPTIONS}
    histograms = {name for name, one in DESCRIPTIONS.items() if one.type is MetricType.HISTOGRAM}
    return names | {f"{name}_{end}" for name in histograms for end in ("bucket", "count", "sum")} - histograms


def asked(query: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:[a-z]+:)?tidepool_[a-z_]+(?::[a-z0-9]+)?", query))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_what_a_rule_asks_for_is_there(rule: dict[str, Any]) -> None:
    assert asked(rule["expr"])
    assert asked(rule["expr"]) <= exported() | RECORDED


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    """A severity, a summary, and a page with the four sections, none of them empty."""
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook_url"] == f"RUNBOOKS/{name}.md"
    title, *parts = re.split(r"^## ", (RUNBOOKS / f"{name}.md").read_text(), flags=re.MULTILINE)
    assert title.strip() == f"# {name}"
    assert [part.partition("\n")[0] for part in parts] == SECTIONS
    assert all(part.partition("\n")[2].strip() for part in parts)


def test_there_is_no_page_without_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)


def test_pages_ask_for_metrics_that_are_there() -> None:
    for page in RUNBOOKS.glob("*.md"):
        queries = re.findall(r"tidepool_[a-z_]+(?=[\[{])", page.read_text())
        assert set(queries) <= exported() | RECORDED, page.name


def beside_aggregations(query: str) -> str:
    """What of a query stands outside every aggregation that leaves out whose pod a figure comes from."""
    while found := AGGREGATION.search(query):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(query[end], 0)
            end += 1
        query = query[: found.start()] + query[end:]
    return query


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_outlives_the_pod_that_reports(rule: dict[str, Any]) -> None:
    """Issue 28, fault 13: whose pod a figure comes from is no label of it, or a restart would begin its time anew."""
    if not rule["expr"].startswith("absent("):
        assert asked(beside_aggregations(rule["expr"])) <= RECORDED


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("max without (pod, instance) (tidepool_a) > 0", set()),
        ("sum by (namespace) (rate(tidepool_a[5m])) / sum by (namespace) (tidepool_b) < 1", set()),
        ("sum by (namespace) (tidepool_a) + tidepool_b", {"tidepool_b"}),
        ("sum by (namespace, pod) (tidepool_a)", {"tidepool_a"}),
        ("sum without (pod) (tidepool_a)", {"tidepool_a"}),
    ],
)
def test_aggregations_are_seen(query: str, left: set[str]) -> None:
    assert asked(beside_aggregations(query)) == left


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_firing_and_not_firing(name: str) -> None:
    tests = yaml.safe_load((FOLDER / "tests.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", []) if case["alertname"] == name]
    assert {bool(case["exp_alerts"]) for case in cases} == {True, False}


def constant(name: str, labels: Iterable[tuple[str, str]], value: float) -> dict[str, str]:
    """A series that stays as it is for two hours."""
    named = ",".join(f"{key}={json.dumps(text)}" for key, text in labels)
    return {"series": f"{name}{{{named}}}", "values": f"{value:f}x120"}


def firing(figures: Figures, file: Path) -> set[str]:
    """The alerts that fire when an agent has exported this for two hours, and an operator acts: Prometheus says so."""
    exports = [constant(*key, value) for key, value in samples_of(figures).items()]
    acts = constant("tidepool_operator_leading", (), 1)
    none = [{"alertname": name, "eval_time": "2h", "exp_alerts": []} for name in ALERTS]
    test = {"interval": "1m", "input_series": [*exports, acts], "alert_rule_test": none}
    rules = {"rule_files": [str(FOLDER / "tidepool.yaml")], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(json.dumps(rules))
    done = subprocess.run([lab("path", "promtool"), "test", "rules", file], capture_output=True, text=True, check=False)
    found = set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr))
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    return found


@pytest.mark.parametrize(
    ("why", "alerts"), [(Frozen(), set()), (CommandsBlocked(["guest-exec"]), {"TidepoolGuestUnsupported"})]
)
def test_a_guest_that_a_backup_has_frozen_raises_no_alert(why: GuestError, alerts: set[str], tmp_path: Path) -> None:
    """Issue 28, fault 9: a lender is frozen under its agent, another before its agent starts. One that forbids it does.

    What is exported is what the agent makes of it.
    """
    lends, figures = want(Side.BORROWERS, pairing()), Figures()
    peer = Peer({"enabled": "1", "state": "Connected"}, {"lent_pages": 256})
    seen = observation(loaded=True, peers={lends.key: peer})
    well = Finding(seen=seen, paired=frozenset({lends.name}))
    before = report.guest(machine(), "node1", well, (lends,), None).status
    ill = replace(well, unreachable=why)
    for name, found in (("watched", ill), ("found", replace(ill, seen=None))):
        fresh = report.guest(machine(name), "node1", found, (lends,), before)
        figures.judge(machine(name).key, fresh.status.conditions)
    figures.put(machine("watched").key, Sample(seen, "KubeVirt", {lends.name: ("pool", "pool.p1")}, stale=True))
    assert firing(figures, tmp_path / "tests.json") == alerts


def test_rules_are_a_config_map_or_the_prometheus_operators() -> None:
    """With the runbooks' address in place, and labels by which a Prometheus chooses them."""
    address = "https://example.org/runbooks"
    settings = (f"monitoring.runbooks={address}", "monitoring.labels.release=prom")
    (plain,) = [one for one in rendered("", *settings) if one["metadata"]["name"] == "tidepool-monitoring-rules"]
    objects = rendered("", *settings, "monitoring.rules.kind=PrometheusRule")
    (own,) = [one for one in objects if one["kind"] == "PrometheusRule"]
    rules = own["spec"]
    assert yaml.safe_load(plain["data"]["tidepool.yaml"]) == rules
    for alert in [rule for rule in rules["groups"][1]["rules"] if "alert" in rule]:
        assert alert["annotations"]["runbook_url"] == f"{address}/{alert['alert']}.md"
    for one in (plain, own):
        assert one["metadata"]["labels"]["release"] == "prom"
