"""What is said of pools that are older than classes, and of going back, against an API server without a lab."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

import pytest
from product import POOL, Object

import docs
from tidepool_api import Classes, MemoryPool, MemoryPoolClass, complete, crd, names
from tidepool_api.fields import VALIDATIONS
from tidepool_api_testing.binaries import find
from tidepool_api_testing.server import Refused, Server

(KIND,) = (one for one in crd.KINDS if one.model is MemoryPool)
OURS = ("memorypool", "-n", "default", POOL)
LENDERS, BORROWERS = ({"selector": {"matchLabels": {"memory": what}}} for what in ("spare", "short"))
WRITTEN: Object = {"lenders": LENDERS | {"maxLend": "1Gi"}, "borrowers": BORROWERS | {"size": "512Mi"}}
SILENT: Object = WRITTEN | {"lenders": LENDERS}
GIVEN: Object = {
    "lenders": {"reserve": "512Mi", "overcommitted": "Lend", "spread": 2},
    "coolDown": "5m",
    "strategy": "Exclusive",
    "encryption": "None",
    "filter": "Sequential",
    "network": {"cidrs": ["10.20.0.0/16"]},
    "port": 7471,
    "deadline": "1s",
    "latency": {"mode": "Off"},
    "maxUnavailable": 1,
}


@pytest.fixture(scope="module")
def api_server() -> Iterator[Server]:
    """A real API server; the tests bring CRDs of one time or another."""
    with Server() as one:
        yield one


@pytest.fixture
def server(api_server: Server) -> Iterator[Server]:
    """The same, without any pool at the end."""
    yield api_server
    api_server.kubectl("delete", "memorypools", "--all", "-n", "default")


def bring(server: Server, body: Object) -> None:
    """Makes a CRD what it is to be, and waits until it is served so."""
    server.apply(body)
    server.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", body["metadata"]["name"])


def former_crd(monkeypatch: pytest.MonkeyPatch) -> Object:
    """The CRD of pools as it was: a default for each field that is left to the class now, and maxLend required."""
    with monkeypatch.context() as patch:
        patch.setattr(crd, "_leave_to_class", lambda _: None)
        body = crd.build(KIND)
    spec: Object = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["className"]
    spec[VALIDATIONS] = [one for one in spec[VALIDATIONS] if "className" not in one["rule"]]
    spec["properties"]["lenders"]["required"] = ["maxLend"]
    return body


def pool_of(spec: Object, name: str = POOL) -> Object:
    """A pool as somebody writes it."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": names.API_VERSION, "kind": "MemoryPool", "metadata": metadata, "spec": spec}


def do(server: Server, lines: list[str]) -> None:
    """Runs commands as a shell would."""
    kubectl = shlex.join([str(find().kubectl), f"--kubeconfig={server.kubeconfig()}"])
    for line in lines:
        script = f'kubectl() {{ {kubectl} "$@"; }}\n{docs.filled_in(line)}'
        subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL)


def with_class(server: Server, given: Object) -> MemoryPool:
    """The pool that is there with what the default class gives."""
    metadata = {"name": "gold", "annotations": {names.DEFAULT_CLASS_ANNOTATION: "true"}}
    gold = MemoryPoolClass.parse({"metadata": metadata, "spec": given})
    return complete(MemoryPool.parse(server.get(*OURS)), Classes({"gold": gold}))


def test_a_pool_that_is_older_than_classes_gets_what_its_class_gives(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, until the commands have removed all that the API server had filled in, and nothing else."""
    bring(server, former_crd(monkeypatch))
    server.create(pool_of(WRITTEN))
    bring(server, crd.build(KIND))
    assert with_class(server, GIVEN).source.given.said() == {"network": GIVEN["network"]}
    do(server, docs.commands("class-fields"))
    assert server.get(*OURS)["spec"] == WRITTEN | {"role": "Selected", "paused": False}
    assert with_class(server, GIVEN).source.given.said() == GIVEN
    assert with_class(server, {}).spec == MemoryPool.parse(pool_of(WRITTEN)).spec
    do(server, docs.commands("class-fields"))


def test_a_version_without_classes_finds_what_the_class_gave(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent pool is refused there; with the values of its class it is valid, and the same as before."""
    bring(server, crd.build(KIND))
    server.create(pool_of(SILENT))
    given = GIVEN | {"lenders": GIVEN["lenders"] | {"maxLend": "2Gi"}}
    before = with_class(server, given)
    status = {"className": "gold", "fromClass": before.source.given.said()}
    server.apply_status({key: one for key, one in pool_of({}).items() if key != "spec"} | {"status": status})
    do(server, docs.commands("class-values"))
    after = MemoryPool.parse(server.get(*OURS))
    assert (after.spec, with_class(server, given).source.given.said()) == (before.spec, {})
    bring(server, former_crd(monkeypatch))
    server.kubectl("label", *OURS, "valid=yes")
    with pytest.raises(Refused, match=r"spec\.lenders\.maxLend: Required value"):
        server.create(pool_of(SILENT, "silent"))


def test_a_pool_is_held(server: Server) -> None:
    bring(server, crd.build(KIND))
    server.create(pool_of(SILENT))
    do(server, docs.commands("pause"))
    assert MemoryPool.parse(server.get(*OURS)).is_held
