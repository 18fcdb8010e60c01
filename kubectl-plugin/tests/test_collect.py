"""What is in an archive for a bug report, and what never is."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest
from objects import NOW, guest

from tidepool_api import names
from tidepool_api.kube import Refused
from tidepool_api_testing.chart import rendered
from tidepool_kubectl.cluster import COMPONENT, Unusable
from tidepool_kubectl.collect import Collector, write

SYSTEM = "/api/v1/namespaces/tidepool-system"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzZWNyZXQifQ.c2lnbmF0dXJl"
NOTED = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "tidepool.dev/dry-run": "true"}
LABELS = {"app.kubernetes.io/component": "agent", "helm.sh/chart": "tidepool-0.1.0"}
CONTAINER = {"name": "agent", "image": "tidepool-agent:0.1.0", "env": [{"name": "PASSWORD", "value": "hunter2"}]}
POD = {
    "metadata": {"name": "agent-x", "labels": LABELS, "annotations": {"vault": "hunter2"}},
    "spec": {"nodeName": "n1", "containers": [CONTAINER]},
    "status": {"containerStatuses": [{"name": "agent", "restartCount": 1}]},
}
NODE = {
    "metadata": {"name": "n1", "labels": {"owner": "hunter2"}},
    "status": {"nodeInfo": {"kubeletVersion": "v1.32.0", "machineID": "hunter2"}},
}


class Server:
    """An API server with these answers; it refuses everything else, and knows what it was asked."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def read(self, path: str, **query: str) -> bytes:
        key = path + ("?previous" if "previous" in query else "")
        self.asked.append(key)
        if key not in self._answers:
            raise Refused(403, f"GET {path}", "Forbidden")
        answer = self._answers[key]
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def sound() -> dict[str, Any]:
    one = guest("b")
    one["metadata"] |= {"annotations": NOTED, "managedFields": [{"manager": "m"}]}
    return {
        "/version": {"gitVersion": "v1.32.0"},
        f"/apis/{names.API_VERSION}/memoryguests": {"items": [one]},
        "/api/v1/nodes": {"items": [NODE]},
        f"{SYSTEM}/pods": {"items": [POD]},
        f"{SYSTEM}/pods/agent-x/log": f"asked with Bearer {TOKEN}, or {TOKEN}\nall is well\n".encode(),
        f"{SYSTEM}/pods/agent-x/log?previous": b"I end\n",
        f"{SYSTEM}/pods/agent-x:9477/proxy/metrics": b"tidepool_guest_lent_bytes 1\n",
    }


def collected(server: Server, namespace: str = "") -> tuple[dict[str, str], Collector]:
    """The files of an archive, by their names within its folder."""
    collector = Collector(server.read, namespace=namespace, system="tidepool-system")
    file = io.BytesIO()
    write(file, "folder", collector, NOW)
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        members = {one.name.removeprefix("folder/"): archive.extractfile(one) for one in archive}
        return {name: one.read().decode() for name, one in members.items() if one}, collector


def test_what_may_be_read_is_in_it() -> None:
    found, _ = collected(Server(sound()))
    assert json.loads(found["version.json"]) == {"gitVersion": "v1.32.0"}
    (one,) = json.loads(found["objects/memoryguests.json"])
    assert one["status"]["conditions"]
    assert one["metadata"]["annotations"] == {"tidepool.dev/dry-run": "true"}
    assert "managedFields" not in one["metadata"]
    (pod,) = json.loads(found["system/pods.json"])
    assert (pod["labels"], pod["containers"][0]["image"]) == (LABELS, "tidepool-agent:0.1.0")
    assert json.loads(found["nodes.json"])[0]["kubeletVersion"] == "v1.32.0"
    assert found["logs/agent-x.agent.previous.log"] == "I end\n"
    assert found["metrics/agent-x.txt"] == "tidepool_guest_lent_bytes 1\n"


def serving() -> dict[str, int]:
    """The port of metrics of each component of the chart that has one."""
    found = {}
    for one in rendered("", "nodeLender.enabled=true"):
        template = one.get("spec", {}).get("template", {})
        containers = template.get("spec", {}).get("containers", ())
        ports = {port["name"]: port["containerPort"] for each in containers for port in each.get("ports", ())}
        if "metrics" in ports:
            found[template["metadata"]["labels"][COMPONENT]] = ports["metrics"]
    return found


def test_the_metrics_of_whatever_has_some_are_in_it() -> None:
    """Of operator, agents and node lenders, and of what else the chart may come to have."""
    answers, ports = sound(), serving()
    assert {"agent", "node-lender", "operator"} <= ports.keys()
    pods = [{**POD, "metadata": {"name": f"{one}-x", "labels": {COMPONENT: one}}, "status": {}} for one in ports]
    answers[f"{SYSTEM}/pods"] = {"items": pods}
    answers |= {f"{SYSTEM}/pods/{one}-x:{port}/proxy/metrics": one.encode() for one, port in ports.items()}
    found, _ = collected(Server(answers))
    assert {name: text for name, text in found.items() if name.startswith("metrics/")} == {
        f"metrics/{one}-x.txt": one for one in ports
    }


def test_nothing_secret_is_in_it_or_asked_for() -> None:
    """Neither what the pods were given nor a token that a log has; a line that has one keeps the rest."""
    server = Server(sound())
    found, _ = collected(server)
    assert "hunter2" not in "".join(found.values())
    assert found["logs/agent-x.agent.log"] == "asked with [removed] or [removed]\nall is well\n"
    forbidden = ("secrets", "configmaps", "virtualmachine", "exec")
    assert not [path for path in server.asked if any(word in path for word in forbidden)]


def test_what_could_not_be_read_is_said() -> None:
    """In the archive, too, for whoever gets it."""
    answers = sound()
    del answers[f"{SYSTEM}/pods/agent-x/log?previous"]
    found, collector = collected(Server(answers))
    assert f"{SYSTEM}/pods/agent-x/log (of the container before): Forbidden" in collector.unread
    assert f"/apis/{names.API_VERSION}/memorypools: Forbidden" in collector.unread
    assert all(f"- {one}" in found["index.txt"] for one in collector.unread)
    assert "objects/memorypools.json" not in found


def test_of_one_namespace_it_has_the_objects_of_that_one() -> None:
    server = Server(sound())
    collected(server, "ns")
    assert f"/apis/{names.API_VERSION}/namespaces/ns/memoryguests" in server.asked
    assert f"/apis/{names.API_VERSION}/memoryguests" not in server.asked
    assert f"/apis/{names.API_VERSION}/memorypoolclasses" in server.asked, "they are of no namespace"


def test_without_a_cluster_there_is_nothing_to_collect() -> None:
    def read(_path: str, **_query: str) -> bytes:
        raise Unusable("the API server does not answer")

    with pytest.raises(Unusable):
        write(io.BytesIO(), "folder", Collector(read, namespace="", system="s"), NOW)
