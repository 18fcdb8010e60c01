"""The chart's monitoring: each object by its own value, and under the labels that somebody looks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidepool_api.metrics import AGENT, OPERATOR
from tidepool_api_testing.chart import CHART, NAMESPACE, RELEASE, helm, rendered

PODS = {"app.kubernetes.io/name": "tidepool", "app.kubernetes.io/instance": "tidepool"}


COMPONENT = {"sourceLabels": ["__meta_kubernetes_pod_label_app_kubernetes_io_component"], "regex": "operator"}


def monitoring(*settings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Its objects by kind and name, under labels by which a Prometheus chooses them."""
    objects = rendered("monitoring", *(f"monitoring.{one}" for one in ("labels.release=prom", *settings)))
    assert all(one["metadata"]["labels"]["release"] == "prom" for one in objects)
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def endpoints(interval: str) -> list[dict[str, Any]]:
    """Those of the operator, and those of all other pods."""
    common = {"port": "metrics", "honorLabels": True} | ({"interval": interval} if interval else {})
    return [common | {"relabelings": [COMPONENT | {"action": action}]} for action in ("keep", "drop")]


def without_metric_relabelings(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "metricRelabelings"} for one in found]


def test_by_default_nothing_needs_the_prometheus_operator() -> None:
    assert set(monitoring()) == {
        ("ConfigMap", "tidepool-monitoring-rules"),
        ("ConfigMap", "tidepool-monitoring-dashboard"),
    }


def test_each_object_can_be_left_out() -> None:
    assert not monitoring("rules.kind=None", "dashboard.enabled=false")
    assert set(monitoring("rules.kind=PrometheusRule", "dashboard.enabled=false")) == {
        ("PrometheusRule", "tidepool-monitoring")
    }


@pytest.mark.parametrize("interval", ["", "15s"])
def test_a_pod_monitor_selects_all_pods(interval: str) -> None:
    found = monitoring("podMonitor.enabled=true", f"podMonitor.interval={interval}")
    spec = found["PodMonitor", "tidepool-monitoring"]["spec"]
    assert spec.keys() == {"selector", "podMetricsEndpoints"}
    assert spec["selector"] == {"matchLabels": PODS}
    assert without_metric_relabelings(spec["podMetricsEndpoints"]) == endpoints(interval)
    assert not [kind for kind, _ in found if kind.startswith("Service")]


@pytest.mark.parametrize("interval", ["", "15s"])
def test_a_service_monitor_selects_a_service_of_all_pods(interval: str) -> None:
    """By the port's name: operator and agents have different numbers."""
    found = monitoring("serviceMonitor.enabled=true", f"serviceMonitor.interval={interval}")
    service, monitor = found["Service", "tidepool-monitoring"], found["ServiceMonitor", "tidepool-monitoring"]
    assert without_metric_relabelings(monitor["spec"]["endpoints"]) == endpoints(interval)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == PODS
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["targetPort"]) == ("metrics", "metrics")
    assert "PodMonitor" not in {kind for kind, _ in found}


@pytest.mark.parametrize(("kind", "where"), [("pod", "podMetricsEndpoints"), ("service", "endpoints")])
def test_what_an_agent_exports_is_taken_for_no_word_of_the_operator(kind: str, where: str) -> None:
    """Else whoever has taken over a node says of any pool that it is degraded, or that an alert fires."""
    found = monitoring(f"{kind}Monitor.enabled=true")[f"{kind.title()}Monitor", "tidepool-monitoring"]
    operator, others = found["spec"][where]
    assert "metricRelabelings" not in operator

    def is_kept(name: str) -> bool:
        for rule in others["metricRelabelings"]:
            assert rule["sourceLabels"] == ["__name__"]
            if bool(re.fullmatch(rule["regex"], name)) != (rule["action"] == "keep"):
                return False
        return True

    rules = yaml.safe_load((CHART / "rules/tidepool.yaml").read_text())["groups"]
    recorded = {rule["record"] for group in rules for rule in group["rules"] if "record" in rule}
    lender = (Path(__file__).parents[2] / "node-lender/src/state.rs").read_text()
    lenders = set(re.findall(r"tidepool_node_lender_\w+", lender))
    assert {name for name in (*OPERATOR, *recorded, "ALERTS", "up", "kubevirt_vmi_info") if is_kept(name)} == set()
    assert {name for name in (*AGENT, *lenders) if not is_kept(name)} == set()
    assert recorded
    assert lenders


@pytest.mark.parametrize("kind", ["PrometheusRule", "ConfigMap"])
def test_rules_are_evaluated_as_often_as_the_values_say(kind: str) -> None:
    def groups(*settings: str) -> list[dict[str, Any]]:
        ((_, found),) = monitoring("dashboard.enabled=false", f"rules.kind={kind}", *settings).items()
        rules = found.get("spec") or yaml.safe_load(found["data"]["tidepool.yaml"])
        return rules["groups"]

    usual, often = groups(), groups("rules.interval=20s")
    assert all("interval" not in group for group in usual)
    assert often == [group | {"interval": "20s"} for group in usual]


def test_grafana_finds_the_dashboard_and_its_folder() -> None:
    def metadata(*settings: str) -> dict[str, Any]:
        found: dict[str, Any] = monitoring(*settings)["ConfigMap", "tidepool-monitoring-dashboard"]["metadata"]
        return found

    assert metadata()["labels"]["grafana_dashboard"] == "1"
    assert "annotations" not in metadata()
    other = metadata("dashboard.labels.board=yes", "dashboard.annotations.grafana_folder=Storage")
    assert other["labels"]["board"] == "yes"
    assert other["annotations"] == {"grafana_folder": "Storage"}


def test_pods_are_scraped_once() -> None:
    settings = [f"--set=monitoring.{one}Monitor.enabled=true" for one in ("pod", "service")]
    answer = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, *settings)
    assert answer.returncode != 0
    assert "would both have every pod scraped: enable one of them" in answer.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("podMonitor.interval", "5m"),  # of which the rules' five minutes hold one sample
        ("serviceMonitor.interval", "30"),
        ("serviceMonitor.interval", "121s"),
        ("rules.interval", "0s"),
        ("rules.kind", "Rule"),
        ("dashboard.enabled", "maybe"),
        ("dashboard.folder", "Storage"),
        ("prometheusOperator", "true"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: str) -> None:
    """And named; how it is said is the schema's."""
    answer = helm("template", RELEASE, str(CHART), f"--set=monitoring.{key}={value}")
    assert answer.returncode != 0
    assert all(part in answer.stderr for part in key.split("."))
