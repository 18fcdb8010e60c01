"""The operator may do what it needs and no more: the chart's roles and policy, tried as its ServiceAccount."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest
from cast import NARROW_TOKEN, OWN_NAMESPACE, Agent, OperatorProcess, connected_pool, role, wait_for

from tidepool_api import names
from tidepool_api_testing.chart import RIGHTS, for_user, rendered
from tidepool_api_testing.server import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from tidepool_api_testing.server import Server

ACCOUNT = f"system:serviceaccount:{OWN_NAMESPACE}:tidepool-operator"


def rights(objects: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Every group, resource and verb that roles give."""
    return {
        (group, resource, verb)
        for one in objects
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_tests_have_the_rights_of_the_chart() -> None:
    """What the operator can do in these tests it can do in a cluster, and the other way round."""
    assert rights(role("operator")) == rights(rendered("operator"))


@pytest.fixture(scope="module")
def server(cluster: Server) -> Server:
    """A server with the operator's ServiceAccount as the chart sets it up."""
    cluster.create(*(one for one in rendered("operator") if one["kind"] in RIGHTS or "Policy" in one["kind"]))
    return cluster


def secret(name: str, type_: str) -> dict[str, Any]:
    data = {names.KEY_SECRET_ENTRY: base64.b64encode(b"0" * 64).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": type_, "data": data}


def test_of_secrets_it_touches_its_keys_only(server: Server) -> None:
    """It creates and deletes keys of pairings, in any namespace; other Secrets it neither makes, reads nor deletes."""

    def as_operator(*arguments: str, body: Any = None) -> str:
        return server.kubectl("-n", "default", f"--as={ACCOUNT}", *arguments, body=body)

    server.create({**secret("password", "Opaque"), "metadata": {"name": "password", "namespace": "default"}})
    create = ("create", "--validate=false", "-f", "-")

    def is_refused() -> bool:
        try:
            as_operator(*create, body=secret(f"s{time.monotonic_ns()}", "Opaque"))
        except Refused as refusal:
            return "the type tidepool.dev/key, and no others" in str(refusal)
        return False

    wait_for("the policy holds", is_refused)
    as_operator(*create, body=secret("pool.b.l-key", names.KEY_SECRET_TYPE))
    as_operator("delete", "secret", "pool.b.l-key")
    for arguments in (("delete", "secret", "password"), ("get", "secret", "password"), ("get", "secrets")):
        with pytest.raises(Refused):
            as_operator(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "default", "get", "pods"),
        ("-n", "default", "get", "configmaps"),
        ("-n", "default", "get", "leases"),
        ("-n", OWN_NAMESPACE, "delete", "lease", names.OPERATOR_LEASE),
        ("-n", OWN_NAMESPACE, "get", "lease", "tidepool-agent-n1"),
        ("patch", "node", "n1", "-p", "{}"),
        ("-n", "default", "delete", "mg", "g"),
    ],
)
def test_what_it_may_not_do(server: Server, arguments: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="forbidden"):
        server.kubectl(f"--as={ACCOUNT}", *arguments)


def test_of_namespaces_that_it_serves_it_has_the_rights_and_of_no_other(server: Server, tmp_path: Path) -> None:
    """With `operator.namespaces` its rights are bound there, are enough, and it leaves the pools of others alone."""
    for name in ("served", "unserved"):
        server.kubectl("create", "namespace", name)
    granted = list(for_user(rendered("operator", "operator.namespaces={served}"), "narrow"))
    assert "served" in [one["metadata"].get("namespace") for one in granted]
    server.create(*granted)
    narrow = OperatorProcess(server, tmp_path / "log", namespaces="served", token=NARROW_TOKEN)
    with narrow, Agent(server, "served", "n1") as inside, Agent(server, "unserved", "n1") as outside:
        outside.pool()
        connected_pool(inside)
        assert not outside.status()
    with pytest.raises(Refused, match="forbidden"):
        server.kubectl("get", "mp", "-n", "unserved", token=NARROW_TOKEN)
