"""The chart's objects of other projects' kinds are what these projects' own CRDs allow, to the last field."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tidepool_api_testing.chart import NAMESPACE, program, rendered
from tidepool_api_testing.server import Refused, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = (
    "monitoring.rules.kind=PrometheusRule",
    "monitoring.rules.interval=20s",
    "monitoring.podMonitor.interval=15s",
    "monitoring.serviceMonitor.interval=15s",
    "openshift.securityContextConstraints=Always",
)
OTHERS = ("monitoring.coreos.com/v1", "security.openshift.io/v1")
# Where in an object of a kind a word that is none must be noticed.
DEEP = {
    "PodMonitor": ("spec", "podMetricsEndpoints", 0),
    "PrometheusRule": ("spec", "groups", 0, "rules", 0),
    "SecurityContextConstraints": (),
    "ServiceMonitor": ("spec", "endpoints", 0),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An API server that serves these kinds."""
    folder = program("published-crds")
    with Server() as one:
        one.kubectl("create", "-f", folder)
        one.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", folder)
        one.kubectl("create", "namespace", NAMESPACE)
        yield one


def objects() -> dict[str, dict[str, Any]]:
    """By kind; one monitor at a time, for the chart takes no two."""
    found = [
        one
        for monitor in ("podMonitor", "serviceMonitor")
        for one in rendered("", *SETTINGS, f"monitoring.{monitor}.enabled=true")
        if one["apiVersion"] in OTHERS
    ]
    return {one["kind"]: one for one in found}


def try_out(server: Server, one: dict[str, Any]) -> None:
    """Raises `Refused` also for a field that the schema does not know."""
    server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", body=one)


def test_each_kind_of_theirs_is_looked_at() -> None:
    """The chart has no other, and each CRD that is fetched is used."""
    crds = [yaml.safe_load(path.read_text()) for path in Path(program("published-crds")).iterdir()]
    assert {one["spec"]["names"]["kind"] for one in crds} == set(objects()) == set(DEEP)


@pytest.mark.parametrize("kind", DEEP)
def test_their_crd_takes_ours(server: Server, kind: str) -> None:
    try_out(server, objects()[kind])


@pytest.mark.parametrize("kind", DEEP)
def test_a_field_that_is_misspelt_is_noticed(server: Server, kind: str) -> None:
    one: Any = objects()[kind]
    place = one
    for step in DEEP[kind]:
        place = place[step]
    place["labls"] = "x"
    with pytest.raises(Refused, match=r"unknown field .*labls"):
        try_out(server, one)
