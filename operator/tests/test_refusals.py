"""Somebody's policy refuses a write: everything else goes on, and the user reads where and why."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cast import BORROWS, LENDS, MIB, OPERATOR_TOKEN, PAIRING, Agent, OperatorProcess, connected_pool, wait_for

from tidepool_api import names
from tidepool_api_testing.server import Refused, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = "not on my watch"
WEBHOOK_SECONDS = 30  # that one may have; several writes that wait for one another take longer


@contextmanager
def policy(server: Server, namespace: str, operation: str, is_fine: str, *, resource: str = "") -> Iterator[None]:
    """A policy on a namespace's pairings, in force; `is_fine` is its expression."""
    rule = {"apiGroups": [names.GROUP], "apiVersions": ["*"], "operations": [operation]}
    rule |= {"resources": [resource or names.PAIRINGS]}
    api = "admissionregistration.k8s.io/v1"
    name = f"of-{namespace}"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "there", "expression": f"request.namespace == '{namespace}'"}],
        "validations": [{"expression": is_fine, "message": REFUSED}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    head = {"apiVersion": api, "metadata": {"name": name}}
    server.create(
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )
    try:
        yield
    finally:
        server.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", name)


def is_refused(server: Server, *arguments: str, body: Any = None) -> bool:
    """Whether the policy already refuses that."""
    try:
        server.kubectl(*arguments, "--dry-run=server", body=body)
    except Refused as refusal:
        return REFUSED in str(refusal)
    return False


@contextmanager
def deaf_webhook(server: Server, agent: Agent, resources: str, **more: Any) -> Iterator[str]:
    """A webhook of a namespace that takes the connection and never answers, for what the operator writes; its name."""
    name = f"deaf.{agent.namespace}.example.com"
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resources]}
    with socket.create_server(("127.0.0.1", 0)) as port:
        hook = {
            "name": name,
            "rules": [rule],
            "clientConfig": {"url": f"https://127.0.0.1:{port.getsockname()[1]}/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": agent.namespace}},
            "timeoutSeconds": WEBHOOK_SECONDS,
            "matchConditions": [{"name": "operator", "expression": "request.userInfo.username == 'operator'"}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **more,
        }
        kind = "ValidatingWebhookConfiguration"
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        server.create({**head, "webhooks": [hook]})
        try:
            yield name
        finally:
            server.kubectl("delete", kind, name)


def pairing_of(agent: Agent, borrower: str) -> dict[str, Any]:
    """What the operator would make."""
    spec = {
        "pool": "pool",
        "lender": {"guest": "l", "nodeName": agent.node, "address": "10.0.0.1"},
        "borrower": {"guest": borrower, "nodeName": agent.node},
        "size": "16Mi",
        "reserve": "16Mi",
        "maxLend": "16Mi",
    }
    metadata = {"name": "tried", "namespace": agent.namespace}
    return {"apiVersion": names.API_VERSION, "kind": "MemoryPairing", "metadata": metadata, "spec": spec}


def test_one_refused_pairing_holds_up_no_other(agent: Agent, operator: OperatorProcess) -> None:
    """Issue 28, fault 3: of two borrowers one may not be paired; the other is, and so is another pool's.

    The pool says so in the policy's words and is Degraded, a metric counts it, and when the policy goes it is made.
    """
    server = agent.server
    agent.guest("l", LENDS, total=4 << 30)
    with policy(server, agent.namespace, "CREATE", "object.spec.borrower.guest != 'a'"):
        wait_for(
            "the policy holds",
            lambda: is_refused(server, "create", "--validate=false", "-f", "-", body=pairing_of(agent, "a")),
        )
        for at, (name, labels) in enumerate({"a": BORROWS, "b": BORROWS, "c": {"memory": "none"}}.items()):
            agent.guest(name, labels, address=f"10.0.0.{at + 2}")
        agent.guest("k", {"memory": "much"})
        agent.pool()
        agent.pool("second", lends="much", borrows="none")
        wait_for("the others", lambda: sorted(agent.pairings()) == [PAIRING, "second.c.k"])
        for type_ in ("WriteRefused", "Degraded"):
            wait_for(type_, lambda type_=type_: agent.condition(type_).get("status") == "True")  # type: ignore[misc]
            assert "could not make pairing pool.a.l" in agent.condition(type_)["message"]
            assert REFUSED in agent.condition(type_)["message"]
        wait_for("the other's status", lambda: agent.status("second").get("phase") == "Pending")
        assert not agent.condition("WriteRefused", "second")
        series = f'tidepool_pool_refused_writes{{namespace="{agent.namespace}",pool="pool"}} 1.0'
        wait_for("the metric", lambda: series in operator.get("/metrics"))
        assert operator.figure("tidepool_operator_reconcile_errors_total") >= 1
        wait_for("Event", lambda: ("pool", "WriteRefused") in agent.events())
    wait_for("the pairing", lambda: "pool.a.l" in agent.pairings(), 90)
    wait_for("no refusal", lambda: not agent.condition("WriteRefused"))
    wait_for("no metric", lambda: series not in operator.get("/metrics"))


@pytest.mark.parametrize(
    ("kind", "spec"), [("MemoryGrant", {"to": [{"namespace": "somebody"}]}), ("MemoryQuota", {"maxLent": "1Gi"})]
)
def test_what_may_not_be_said_beside_pools_is_an_error(
    agent: Agent, operator: OperatorProcess, kind: str, spec: dict[str, Any]
) -> None:
    """Issue 28, fault 3: no pool has a condition for it, so that the metric counts it, for which there is an alert."""
    server, plural, errors = agent.server, f"{kind.lower()}s", "tidepool_operator_reconcile_errors_total"

    def make(name: str) -> None:
        metadata = {"name": name, "namespace": agent.namespace}
        server.create({"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})

    def is_told(name: str) -> bool:
        return "status" in server.get("-n", agent.namespace, plural, name)

    make("fine")
    wait_for("its status", lambda: is_told("fine"))
    patch = ("patch", plural, "fine", "-n", agent.namespace, "--subresource=status", "--type=merge", "-p")
    with policy(server, agent.namespace, "UPDATE", "false", resource=f"{plural}/status"):
        wait_for("the policy holds", lambda: is_refused(server, *patch, '{"status": {"lent": "3Gi"}}'))
        before = operator.figure(errors)
        make("refused")
        wait_for("an error", lambda: operator.figure(errors) > before, 60)
        assert not is_told("refused")
        assert f"{agent.namespace}/refused" in operator.log()
    wait_for("its status", lambda: is_told("refused"), 90)


def test_what_may_not_be_said_of_a_guest_is_said_of_the_next_and_is_an_error(
    cluster: Server, namespace: str, operator: OperatorProcess
) -> None:
    """Issue 28, fault 3: of two lenders, whose agent is dead, one may not get the condition `LendingPaired`.

    The other has it, and what both hold is in the metric. When the policy goes it is said of the one as well.
    """
    errors, dead = "tidepool_operator_reconcile_errors_total", Agent(cluster, namespace, f"dead-node-of-{namespace}")
    lent = {"namespace": namespace, "guest": "b", "role": "Borrower", "heldBytes": 300 * MIB}
    for name in ("l", "m"):
        dead.guest(name, LENDS, node=dead.node, peers=[lent])
    patch = ("patch", names.GUESTS, "l", "-n", namespace, "--subresource=status", "--type=merge", "-p")
    with policy(cluster, namespace, "UPDATE", "object.metadata.name != 'l'", resource=f"{names.GUESTS}/status"):
        wait_for("the policy holds", lambda: is_refused(cluster, *patch, '{"status": {"role": "Lender"}}'))
        before = operator.figure(errors)
        dead.renew(at="2026-01-01T00:00:00.000000Z")
        wait_for("it is said of the other", lambda: _is_unpaired(dead, "m"))
        wait_for("an error", lambda: operator.figure(errors) > before)
        assert not _is_unpaired(dead, "l")
        assert f"could not say on guest {namespace}/l what it lends: " in operator.log()
        exported = operator.get("/metrics")
        for name in ("l", "m"):
            assert f'tidepool_guest_unpaired_bytes{{guest="{name}",namespace="{namespace}"}}' in exported
    wait_for("it is said of both", lambda: _is_unpaired(dead, "l"), 90)


def _is_unpaired(agent: Agent, guest: str) -> bool:
    """Whether the operator says on a guest that it lends without a pairing, in the place of a dead agent."""
    found = agent.server.get("-n", agent.namespace, names.GUESTS, guest)["status"]["conditions"]
    return ("LendingPaired", "False", "AgentNotResponding") in {
        (one["type"], one["status"], one["reason"]) for one in found
    }


def test_a_pairing_that_may_not_go_says_so_when_its_pool_is_gone(agent: Agent, operator: OperatorProcess) -> None:
    """Issue 28, fault 3: nobody else is left to say it."""
    server = agent.server
    connected_pool(agent)
    with policy(server, agent.namespace, "DELETE", "false"):
        wait_for("the policy holds", lambda: is_refused(server, "delete", "tpair", "-n", agent.namespace, PAIRING))
        none = json.dumps({"metadata": {"finalizers": None}})
        server.kubectl("patch", "tpool", "-n", agent.namespace, "pool", "--type=merge", "-p", none)
        server.kubectl("delete", "tpool", "-n", agent.namespace, "pool", "--wait=false", "--cascade=orphan")
        said = wait_for("it is said", lambda: _refusal(agent))
        assert said["status"] == "True"
        assert f"could not delete pairing {PAIRING}: " in said["message"]
        assert REFUSED in said["message"]
        series = f'tidepool_pool_refused_writes{{namespace="{agent.namespace}",pool="pool"}} 1.0'
        wait_for("the metric", lambda: series in operator.get("/metrics"))
    wait_for("deletion", lambda: agent.pairing(PAIRING)["metadata"].get("deletionTimestamp"), 90)


def _refusal(agent: Agent) -> dict[str, Any]:
    conditions = agent.pairing(PAIRING)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == "WriteRefused"), {})


def test_a_write_that_hangs_holds_up_no_other(agent: Agent, operator: OperatorProcess) -> None:
    """Two pools; the pairings of one meet a webhook of thirty seconds that never answers.

    The other is served long before it would have answered; the first says that there is no answer, then which webhook
    it is.
    """
    server = agent.server
    agent.guest("l", LENDS)
    agent.guest("k", {"memory": "much"})
    of_pool = {"matchLabels": {names.POOL_LABEL: "pool"}}
    with deaf_webhook(server, agent, names.PAIRINGS, objectSelector=of_pool) as webhook:
        wait_for("the webhook is asked", lambda: _hangs(agent))
        for at in range(12):
            agent.guest(f"b{at}", BORROWS, address=f"10.0.1.{at}")
        agent.guest("c", {"memory": "none"}, address="10.0.0.3")
        begin = time.monotonic()
        agent.pool(size="16Mi")
        agent.pool("second", lends="much", borrows="none")
        wait_for("the other", lambda: "second.c.k" in agent.pairings())
        agent.connect("second.c.k")
        wait_for("the other is said to be ready", lambda: agent.status("second").get("phase") == "Ready")
        said = wait_for("it is said", lambda: agent.condition("WriteRefused").get("message", ""))
        assert "could not make pairing pool.b" in said
        assert time.monotonic() - begin < WEBHOOK_SECONDS
        wait_for("it is named", lambda: webhook in agent.condition("WriteRefused").get("message", ""))
        assert operator.figure("tidepool_operator_leading") == 1
    wait_for("pairings", lambda: len(agent.pairings()) == 13, 90)
    wait_for("no refusal", lambda: not agent.condition("WriteRefused"))


def test_a_namespace_where_everything_hangs_holds_up_no_other(
    cluster: Server, agent: Agent, operator: OperatorProcess
) -> None:
    """Sixteen pools: pairings, statuses, finalizers and Events; the operator keeps its Lease and serves the next."""
    with deaf_webhook(cluster, agent, "*/*"):
        wait_for("the webhook is asked", lambda: _hangs(agent))
        for at in range(16):
            agent.guest(f"l{at}", {"memory": f"spare-{at}"}, address=f"10.0.2.{at}")
            agent.guest(f"b{at}", {"memory": f"short-{at}"}, address=f"10.0.1.{at}")
            agent.pool(f"pool-{at}", lends=f"spare-{at}", borrows=f"short-{at}")
        wait_for("many hang", lambda: operator.log().count(f"{agent.namespace}: could not") > 10)
        other = f"{agent.namespace}-other"
        cluster.kubectl("create", "namespace", other)
        with Agent(cluster, other, f"node-of-{other}") as honest:
            begin = time.monotonic()
            connected_pool(honest)
            assert time.monotonic() - begin < WEBHOOK_SECONDS
            honest.pool(size="256Mi")
            wait_for("an edit", lambda: honest.pairing(PAIRING)["spec"]["size"] == "256Mi", WEBHOOK_SECONDS)
        assert operator.figure("tidepool_operator_leading") == 1
    wait_for("all are served", lambda: len(agent.pairings()) == 16, 120)


def _hangs(agent: Agent) -> bool:
    """Whether the webhook is asked already."""
    body = pairing_of(agent, "a")
    body["metadata"]["labels"] = {names.POOL_LABEL: "pool"}
    options = ("--validate=false", "--dry-run=server", "--request-timeout=1s", "-f", "-")
    try:
        agent.server.kubectl("create", *options, body=body, token=OPERATOR_TOKEN)
    except Refused:
        return True
    return False
