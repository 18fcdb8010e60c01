"""The operator may do what it needs and no more: the chart's roles and policy, tried as its ServiceAccount."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cast import NARROW_TOKEN, OWN_NAMESPACE, Agent, OperatorProcess, connected_pool, identity_of, role, wait_for
from world import pairing

from tidepool_api import names
from tidepool_api.crd import KINDS
from tidepool_api_testing.chart import RIGHTS, for_user, rendered
from tidepool_api_testing.server import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def test_quotas_and_grants_are_for_who_administers_a_namespace() -> None:
    """Whoever may edit there writes pools; nobody who may only look changes anything."""
    roles = {one["metadata"]["name"].rpartition("-")[2]: one for one in rendered("users")}
    labels = {name: {key for key in one["metadata"]["labels"] if "aggregate" in key} for name, one in roles.items()}
    assert labels == {name: {f"rbac.authorization.k8s.io/aggregate-to-{name}"} for name in ("view", "edit", "admin")}
    writing = {name: {(what, verb) for _, what, verb in rights([one])} for name, one in roles.items()}
    assert {verb for _, verb in writing["view"]} == {"get", "list", "watch"}
    assert {what for what, _ in writing["view"]} == {kind.plural for kind in KINDS}
    assert {what for what, verb in writing["edit"] if verb == "create"} == {names.POOLS}
    assert {what for what, verb in writing["admin"] if verb == "create"} == {names.GRANTS, names.QUOTAS}
    assert not [what for what, _ in writing["edit"] | writing["admin"] if "/" in what]


@pytest.fixture(scope="module")
def server(cluster: Server) -> Server:
    """A server with the operator's ServiceAccount as the chart sets it up."""
    cluster.create(*(one for one in rendered("operator") if one["kind"] in RIGHTS))
    return cluster


def test_there_is_no_right_to_secrets() -> None:
    """Neither for operator nor agents nor hooks, whatever the values: no role of the chart names them."""
    for settings in ((), ("operator.namespaces={shop}",), ("agent.providers={Libvirt}",)):
        given = rights(rendered("", *settings))
        assert len({verb for _, _, verb in given}) > 5
        assert not [one for one in given if "secret" in one[1] or "*" in one]


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create", "patch", "update", "delete", "deletecollection"])
def test_of_secrets_it_touches_none(server: Server, verb: str) -> None:
    with pytest.raises(Refused):
        server.kubectl("-n", "default", f"--as={ACCOUNT}", "auth", "can-i", verb, "secrets")


@pytest.fixture
def policies(cluster: Server) -> Iterator[Server]:
    """The operator's policies in force, for as long as a test takes: the other tests' operator is another user."""
    objects = [one for one in rendered("operator") if "Policy" in one["kind"] and "Admission" in one["kind"]]
    cluster.create(*objects)
    yield cluster
    for one in objects:
        cluster.kubectl("delete", one["kind"], one["metadata"]["name"])


@pytest.mark.usefixtures("server")
def test_pairings_are_written_by_the_operator_alone(policies: Server, namespace: str) -> None:
    """Who may do everything makes none and changes none either; their metadata is others', too, and so is deleting."""
    body = {"apiVersion": names.API_VERSION, "kind": "MemoryPairing"}
    body |= {"metadata": {"name": "made", "namespace": namespace}, "spec": pairing("b", "l", 512 << 20).spec.to_dict()}

    def attempt(*arguments: str, user: str = "", body: Any = None) -> str:
        """What the refusal says; empty if there is none."""
        try:
            policies.kubectl("-n", namespace, *([f"--as={user}"] if user else []), *arguments, body=body)
        except Refused as refusal:
            return str(refusal)
        return ""

    make = ("create", "--validate=false", "-f", "-")
    other = {**body, "metadata": {**body["metadata"], "name": "other"}}
    only = "pairings are made and changed by Tidepool's operator only; change the MemoryPool"
    wait_for("the policy holds", lambda: only in attempt(*make, "--dry-run=server", body=other))
    assert attempt(*make, user=ACCOUNT, body=body) == ""
    change = ("patch", "tpair", "made", "--type=merge", "-p")
    identity = json.dumps({"spec": {"borrower": {"identity": identity_of("somebody else")}}})
    assert only in attempt(*change, identity)
    assert attempt(*change, identity, user=ACCOUNT) == ""
    report = ("apply", "--server-side", "--validate=false", "--subresource=status", "-f", "-")
    seen = {key: body[key] for key in ("apiVersion", "kind", "metadata")} | {"status": {"phase": "Connected"}}
    assert "the status of a pairing is what Tidepool's operator and agents see" in attempt(*report, body=seen)
    assert attempt(*report, user=ACCOUNT, body=seen) == ""
    assert attempt(*change, json.dumps({"metadata": {"labels": {"team": "a"}}})) == ""
    assert attempt("delete", "tpair", "made") == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "default", "get", "pods"),
        ("-n", "default", "get", "configmaps"),
        ("-n", "default", "get", "leases"),
        ("-n", OWN_NAMESPACE, "delete", "lease", names.OPERATOR_LEASE),
        ("-n", OWN_NAMESPACE, "get", "lease", "tidepool-agent-n1"),
        ("patch", "node", "n1", "-p", "{}"),
        ("-n", "default", "delete", "tguest", "g"),
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
        server.kubectl("get", "tpool", "-n", "unserved", token=NARROW_TOKEN)
