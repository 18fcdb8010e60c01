"""Item 10: what an agent can do with another node's objects, tried with another node's token on a real API server."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cast import NAMESPACE, eventually, token_of
from objects import LENDER, OTHER, pairing_body, within

from tidepool_api import kube, names
from tidepool_api.kube import APPLY, MERGE, Access, Api
from tidepool_api_testing.server import Refused, Server

HEAD = {"apiVersion": names.API_VERSION}
INSTANCE = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "g", "uid": "u"}
NODE = {"apiVersion": "v1", "kind": "Node", "name": "here", "uid": "u"}
GUEST = {
    **HEAD,
    "kind": "MemoryGuest",
    "metadata": {"name": "g", "ownerReferences": [INSTANCE]},
    "spec": {"provider": "KubeVirt", "vm": {"name": "g", "uid": "u"}, "nodeName": "here"},
}
PAIRING = pairing_body(lender="g", borrower="b")
PAIRING["metadata"]["finalizers"].append(names.BORROWER_FINALIZER)
OPERATOR = (f"--as=system:serviceaccount:{NAMESPACE}:tidepool-operator", "--as-group=system:masters")
Object = dict[str, Any]


class Agent:
    """What the agent of a node may do to objects of a namespace, with the agent's own client; raises kube.Refused."""

    def __init__(self, server: Server, token: str, namespace: str, folder: Path) -> None:
        cluster = json.loads(server.kubeconfig().read_text())["clusters"][0]["cluster"]
        file = folder / "token"
        file.write_text(token)
        self._api = Api(
            Access.by_token(cluster["server"], authority=Path(cluster["certificate-authority"]), token=file)
        )
        self._namespace = namespace
        self._url, self._ca, self._token = cluster["server"], cluster["certificate-authority"], token

    def apply(self, one: Object, *, status: bool = False, manager: str = names.AGENT_FIELD_MANAGER) -> None:
        """Applies an object, or its status."""
        path = f"{self._path(one)}/{one['metadata']['name']}{'/status' if status else ''}"
        self._api.apply(path, one, manager=manager)

    def ask(self, method: str, what: str, kind: str, body: Any) -> str:
        """Status and text of the answer to any request about something of the namespace."""
        path = f"{self._url}/api/v1/namespaces/{self._namespace}/{what}?dryRun=All&fieldManager=x"
        headers = {"Content-Type": kind, "Authorization": f"Bearer {self._token}"}
        text = None if method == "GET" else json.dumps(body)
        with urllib3.PoolManager(ca_certs=self._ca, retries=False) as http:
            answer = http.request(method, path, headers=headers, body=text)
            return f"{answer.status} {answer.data.decode()}"

    def merge(self, one: Object, change: Object) -> None:
        """Changes something of an object."""
        self._api.merge(f"{self._path(one)}/{one['metadata']['name']}", change)

    def read(self, one: Object) -> None:
        """Reads an object as anybody else would."""
        self._api.get(f"{self._path(one)}/{one['metadata']['name']}")

    def create(self, one: Object) -> None:
        """Creates an object."""
        self._api.create(self._path(one), one)

    def delete(self, one: Object) -> None:
        """Deletes an object, whichever version it has."""
        path = f"{self._path(one)}/{one['metadata']['name']}"
        answer = self._api.get(self._path(one), fieldSelector=f"metadata.name={one['metadata']['name']}")
        meta = answer["items"][0]["metadata"]
        self._api.delete(path, uid=meta["uid"], version=meta["resourceVersion"])

    def _path(self, one: Object) -> str:
        version, plural = one["apiVersion"], f"{one['kind'].lower()}s"
        return f"/api{'s' if '/' in version else ''}/{version}/namespaces/{self._namespace}/{plural}"


@pytest.fixture(scope="module")
def agents(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Agent]:
    """Agents by node and namespace; the policies are in force."""

    def agent(node: str, namespace: str) -> Agent:
        return Agent(cluster, token_of(cluster, node), namespace, tmp_path_factory.mktemp(node))

    cluster.kubectl("create", "namespace", "policies")
    stranger = agent("nowhere", "policies")
    eventually(lambda: refused(lambda: stranger.apply(within("policies", GUEST)), "of its own node"))
    return agent


def refused(action: Callable[[], object], why: str) -> bool:
    """Whether it is, and for that reason."""
    try:
        action()
    except kube.Refused as error:
        return why in str(error)
    return False


def test_a_guest_is_its_own_nodes_until_that_lets_it_go(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """Item 10: made, reported and deleted by the agent of its node only; item 8: handed over when it migrates.

    Issue 28, fault 4: who else may let it go is the operator, for an agent that is dead.
    """
    here, there = agents("here", namespace), agents("there", namespace)
    guest, status = within(namespace, GUEST), within(namespace, GUEST, status={"role": "Lender"})
    moved = within(namespace, GUEST, nodeName="there")
    assert refused(lambda: there.apply(guest), "of its own node (there) only")
    here.apply(guest)
    here.apply(status, status=True)
    for attempt in (
        lambda: there.apply(status, status=True),
        lambda: there.apply(moved),
        lambda: there.delete(guest),
        lambda: there.merge(guest, {"metadata": {"labels": {"tier": "gold"}}}),
        lambda: there.merge(guest, {"metadata": {"annotations": {names.LEAVING_ANNOTATION: "x"}}}),
    ):
        assert refused(attempt, "node")
    leaving = within(namespace, guest)
    leaving["metadata"]["annotations"] = {names.LEAVING_ANNOTATION: "2026-01-01T00:00:00Z"}
    here.apply(leaving)
    assert refused(lambda: there.delete(guest), "has not let it go")
    there.apply(moved)
    assert refused(lambda: here.apply(guest), "has not let it go")
    moved["metadata"]["annotations"] = leaving["metadata"]["annotations"]
    cluster.apply(moved, manager=names.AGENT_FIELD_MANAGER)
    here.apply(guest)
    here.delete(guest)


def test_what_an_agent_reports_keeps_nobody_from_deleting_what_is_his(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """A guest that is made up would block the deletion of what it is said to belong to, and that of its namespace."""
    here, guest = agents("here", namespace), within(namespace, GUEST)
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "g", "uid": "v"}
    made_up = within(namespace, guest)
    for owners in (
        [INSTANCE | {"blockOwnerDeletion": True}],
        [INSTANCE | {"name": "another"}],
        [INSTANCE | {"apiVersion": "kubevirt.io/v0"}],
        [INSTANCE | {"uid": "another"}],
        [INSTANCE, deployment],
        [NODE],
    ):
        made_up["metadata"]["ownerReferences"] = owners
        assert refused(lambda: here.apply(made_up), "belongs to the VirtualMachineInstance of its name"), owners
    made_up["metadata"]["ownerReferences"] = []
    assert refused(lambda: here.apply(made_up), "has 0 entries; a MemoryGuest has one when it is made")
    made_up["metadata"] |= {"ownerReferences": [INSTANCE], "finalizers": ["example.com/kept"]}
    assert refused(lambda: here.apply(made_up), "by a finalizer")
    here.apply(guest)
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    assert refused(lambda: here.merge(guest, kept), "by a finalizer")
    cluster.kubectl("patch", "tguest", "g", "-n", namespace, "--type=merge", "-p", json.dumps(kept))
    guest["metadata"]["labels"] = {"a": "b"}
    here.apply(guest)
    cluster.kubectl("patch", "tguest", "g", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    here.delete(guest)


def test_a_guest_is_no_larger_than_its_machine_makes_it(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """The operator keeps those of all agents; what others add to one keeps its agent from nothing."""
    here, patch = agents("here", namespace), ("patch", "tguest", "g", "-n", namespace, "--type=merge", "-p")
    guest = within(namespace, GUEST)

    def with_(**meta: Any) -> Object:
        return guest | {"metadata": guest["metadata"] | meta}

    def labels(count: int) -> dict[str, str]:
        return {f"{'a' * 200}.b/{'k' * 50}{at}": "v" * 63 for at in range(count)}

    no_more = "metadata.labels has 161 entries; a MemoryGuest has 160 at most"
    for padded, why in (
        (with_(labels=labels(161)), no_more),
        (with_(annotations={"tidepool.dev/a": ""}), "no annotation of tidepool.dev but leaving"),
        (with_(annotations={"a": "x" * 1025}), "others of 1024 characters at most"),
        (with_(annotations={f"a{at}": "" for at in range(17)}), "metadata.annotations has 17 entries"),
        (with_(annotations={names.LEAVING_ANNOTATION: "x" * 100}), "which is a time"),
    ):
        assert refused(functools.partial(here.apply, padded), why)
        assert refused(functools.partial(here.create, padded), why)
    here.apply(with_(labels=labels(160)))
    assert refused(lambda: here.apply(with_(labels=labels(161))), no_more)
    assert refused(lambda: here.merge(guest, {"metadata": {"annotations": {"tidepool.dev/a": ""}}}), "no annotation of")
    for at in range(2, 5):  # a machine comes back under its name, and somebody has kept what the last one was
        more = [INSTANCE | {"uid": f"u{one}"} for one in range(2, at + 1)]
        here.merge(guest, {"metadata": {"ownerReferences": [INSTANCE, *more]}, "spec": {"vm": {"uid": f"u{at}"}}})
    more.append(INSTANCE | {"uid": "u5"})
    change: Object = {"metadata": {"ownerReferences": [INSTANCE, *more]}, "spec": {"vm": {"uid": "u5"}}}
    assert refused(lambda: here.merge(guest, change), "has 5 entries")
    assert refused(lambda: here.merge(guest, {"metadata": {"ownerReferences": None}}), "has 0 entries")
    others = {"labels": {f"b{at}": "" for at in range(50)}, "annotations": {"b": "x" * 1000}}
    cluster.kubectl(*patch, json.dumps({"metadata": others}))
    here.apply(with_(labels=labels(159), annotations={names.LEAVING_ANNOTATION: "2026-01-01T00:00:00Z"}))
    here.apply(within(namespace, guest, status={"role": "Lender"}), status=True)
    here.apply(with_(labels=labels(159)))


def test_a_domain_is_made_up_in_no_namespace_but_those_of_domains(agents: Callable[..., Agent], namespace: str) -> None:
    """A guest made up where an agent has none would lend to others there, or borrow from them, without a grant."""
    domain = within(namespace, GUEST, provider="Libvirt")
    domain["metadata"]["ownerReferences"] = [NODE | {"uid": "of the node"}]
    assert refused(lambda: agents("here", namespace).apply(domain), "in the namespace of its project")


def test_a_node_is_reported_by_itself_alone_and_where_its_administrators_are(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """A node that was taken over lends in no other's name, and makes up no lender in the namespace of a tenant."""
    here, there = agents("here", NAMESPACE), agents("there", NAMESPACE)
    node = within(NAMESPACE, GUEST, provider="Node")
    node["metadata"] |= {"name": "here", "ownerReferences": [NODE]}
    assert refused(lambda: there.apply(node), "of its own node (there) only")
    claimed = within(NAMESPACE, node, nodeName="there")
    assert refused(lambda: there.apply(claimed), "metadata.name here is not the node there")
    tenant = within(namespace, node)
    assert refused(lambda: agents("here", namespace).apply(tenant), "and that in namespace tidepool-system")
    here.apply(node)
    here.apply(within(NAMESPACE, node, status={"identity": LENDER}), status=True)
    forged = within(NAMESPACE, node, status={"identity": OTHER})
    assert refused(lambda: there.apply(forged, status=True), "of its own node (there) only")
    with pytest.raises(Refused, match="reported by the agent of the guest's node, and by nobody else"):
        cluster.create(within(namespace, node))
    assert refused(lambda: there.delete(node), "has not let it go")
    here.delete(node)


def test_each_end_of_a_pairing_is_its_nodes(cluster: Server, agents: Callable[..., Agent], namespace: str) -> None:
    """Item 10: status blocks and finalizers; the spec, and what follows from both ends, are the operator's."""
    here, there = agents("here", namespace), agents("there", namespace)
    cluster.create(within(namespace, PAIRING))
    lends = within(namespace, PAIRING, status={"lender": {"state": "Listening"}})
    borrows = within(namespace, PAIRING, status={"borrower": {"state": "Connecting"}})
    here.apply(lends, status=True, manager=names.LENDER_FIELD_MANAGER)
    there.apply(borrows, status=True, manager=names.BORROWER_FIELD_MANAGER)
    lost = {"lender": {"state": "Failed"}}
    assert refused(lambda: there.apply(within(namespace, PAIRING, status=lost), status=True), "whose agent reports it")
    assert refused(lambda: here.apply(within(namespace, PAIRING, status={"phase": "Failed"}), status=True), "operator")
    changes: tuple[Object, ...] = ({"spec": {"size": "32Mi"}}, {"metadata": {"labels": {"a": "b"}}})
    for change in changes:
        assert refused(lambda change=change: here.merge(PAIRING, change), "nothing of a pairing but its finalizers")
    both: Object = {"metadata": {"finalizers": []}}
    mine: Object = {"metadata": {"finalizers": [names.BORROWER_FINALIZER]}}
    assert refused(lambda: here.merge(PAIRING, both), "finalizers of its own node")
    here.merge(PAIRING, mine)
    there.merge(PAIRING, both)


def test_who_a_guest_is_says_its_own_nodes_agent_alone(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """No other agent, and not even who may do everything: pairings are made of that word. Nobody else makes one up."""
    here, there = agents("here", namespace), agents("there", namespace)
    here.apply(within(namespace, GUEST))
    here.apply(within(namespace, GUEST, status={"identity": LENDER}), status=True)
    claimed = within(namespace, GUEST, status={"identity": OTHER})
    assert refused(lambda: there.apply(claimed, status=True), "of its own node (there) only")
    patch = ("patch", "tguest", "g", "-n", namespace, "--type=merge")
    why = "a MemoryGuest is reported by the agent of the guest's node, and by nobody else"
    made_up = within(namespace, GUEST)
    made_up["metadata"]["name"] = "made-up"
    with pytest.raises(Refused, match=why):
        cluster.create(made_up)
    for change in (
        {"status": {"identity": OTHER}},
        {"status": {"identity": None}},
        {"status": {"addresses": ["10.0.0.66"]}},
        {"spec": {"nodeName": "there"}},
        {"spec": {"vm": {"uid": "another"}}},
    ):
        part = ("--subresource=status",) if "status" in change else ()
        with pytest.raises(Refused, match=why):
            cluster.kubectl(*patch, *part, "-p", json.dumps(change))
    cluster.kubectl(*patch, "-p", json.dumps({"metadata": {"labels": {"a": "b"}}}))
    here.apply(claimed, status=True)


def test_the_operator_says_in_a_dead_agents_place_what_is_still_lent_and_nothing_else(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """Its right to patch the status of guests is one to a condition, and to no identity, address or figure."""
    here = agents("here", namespace)
    ready, paired = (
        {"type": type_, "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_ in ("Ready", "LendingPaired")
    )
    seen = {"identity": LENDER, "addresses": ["10.0.0.1"], "conditions": [ready]}
    here.apply(within(namespace, GUEST))
    here.apply(within(namespace, GUEST, status=seen), status=True)
    patch = ("patch", "tguest", "g", "-n", namespace, "--type=merge", "--subresource=status")
    for change in (
        {"identity": OTHER},
        {"identity": None},
        {"addresses": ["10.0.0.66"]},
        {"role": "Lender"},
        {"conditions": [paired]},
        {"conditions": [ready | {"status": "False"}, paired]},
        {"conditions": [ready, paired], "moduleVersion": "6.6.6"},
    ):
        with pytest.raises(Refused, match="is reported by the agent of the guest's node"):
            cluster.kubectl(*patch, *OPERATOR, "-p", json.dumps({"status": change}))
    said = json.dumps({"status": {"conditions": [ready, paired]}})
    with pytest.raises(Refused, match="is reported by the agent of the guest's node"):
        cluster.kubectl(*patch, "-p", said)
    cluster.kubectl(*patch, *OPERATOR, "-p", said)
    cluster.kubectl(*patch, *OPERATOR, "-p", json.dumps({"status": {"conditions": [ready]}}))


def test_from_whom_memory_is_gathered_says_the_operator_alone(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """Not who labels guests, not another agent, and not that of the guest's own node: a pool is what says it."""
    here = agents("here", namespace)
    marked = within(namespace, GUEST)
    marked["metadata"]["annotations"] = {names.BALLOON_ANNOTATION: "16Mi"}
    assert refused(lambda: here.apply(marked), "is the operator's")
    here.apply(within(namespace, GUEST))
    assert refused(lambda: here.apply(marked), "is the operator's")
    patch = ("patch", "tguest", "g", "-n", namespace, "--type=merge")
    said, unsaid = (json.dumps({"metadata": {"annotations": {names.BALLOON_ANNOTATION: one}}}) for one in ("2Gi", None))
    with pytest.raises(Refused, match=r"change spec\.lenders\.nodes\.balloon of the MemoryPool"):
        cluster.kubectl(*patch, "-p", said)
    cluster.kubectl(*patch, *OPERATOR, "-p", said)
    with pytest.raises(Refused, match=r"change spec\.lenders\.nodes\.balloon of the MemoryPool"):
        cluster.kubectl(*patch, "-p", unsaid)
    cluster.kubectl(*patch, "-p", json.dumps({"metadata": {"labels": {"a": "b"}}}))
    here.apply(within(namespace, GUEST))
    meta = cluster.get("tguest", "g", "-n", namespace)["metadata"]
    assert meta["annotations"] == {names.BALLOON_ANNOTATION: "2Gi"}


SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, "stringData": {"key": "topsecret123"}}


def test_of_secrets_an_agent_gets_nothing_by_any_verb(
    cluster: Server, agents: Callable[..., Agent], namespace: str
) -> None:
    """Not even by what is quoted when a change is refused: a right to patch was one to read all of them."""
    cluster.create(within(namespace, SECRET))
    here, secret = agents("here", namespace), within(namespace, SECRET)
    (content,) = cluster.get("secret", "password", "-n", namespace)["data"].values()
    copied = [{"op": "copy", "from": "/data/key", "path": "/type"}]
    tries: list[tuple[str, str, str, Any]] = [
        ("PATCH", "/password", "application/json-patch+json", copied),
        ("PATCH", "/password", MERGE, {"metadata": {"labels": {"a": "b"}}}),
        ("PATCH", "/password", APPLY, secret),
        ("PUT", "/password", "application/json", secret),
        ("POST", "", "application/json", secret),
        *((method, name, "application/json", {}) for method in ("GET", "DELETE") for name in ("", "/password")),
    ]
    for method, name, kind, body in tries:
        answer = here.ask(method, f"secrets{name}", kind, body)
        assert answer.startswith("403 "), f"{method} {kind}: {answer}"
        assert content not in answer


def test_an_agent_speaks_for_its_node_only(agents: Callable[..., Agent], namespace: str) -> None:
    """Item 10: its Lease, and the source of its Events."""
    here = agents("here", NAMESPACE)
    lease: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": NAMESPACE}}
    for node, possible in (("here", True), ("there", False)):
        lease["metadata"]["name"] = names.agent_lease(node)
        assert refused(lambda: here.apply(lease), "its own Lease") != possible
    lease["metadata"]["name"] = names.agent_lease("here")
    for wrong in (
        {"finalizers": ["example.com/kept"]},
        {"ownerReferences": [NODE | {"name": "there"}]},
        {"ownerReferences": [NODE | {"apiVersion": "v0"}]},  # of which there is no kind: it would stay for ever
    ):
        kept: Object = lease | {"metadata": lease["metadata"] | wrong}
        assert refused(functools.partial(here.apply, kept), "goes with its node"), wrong
    event: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": namespace},
        "involvedObject": {**HEAD, "kind": "MemoryGuest", "name": "g", "namespace": namespace},
        "reason": "Tried",
        "source": {"component": names.AGENT_FIELD_MANAGER, "host": "there"},
    }
    speaker = agents("here", namespace)
    assert refused(lambda: speaker.create(event), "names its node")
    event["source"]["host"] = "here"
    speaker.create(event)


def test_a_token_without_a_node_writes_nothing(
    cluster: Server, agents: Callable[..., Agent], namespace: str, tmp_path: Path
) -> None:
    """Item 10: one that was not made for a pod, as somebody who may create tokens would get it."""
    assert agents
    token = cluster.kubectl("create", "token", "tidepool-agent", "-n", NAMESPACE).strip()
    stranger = Agent(cluster, token, namespace, tmp_path)
    assert refused(lambda: stranger.apply(within(namespace, GUEST)), "does not say on which node")
