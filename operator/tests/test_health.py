"""An operator that cannot reach its API server: at its start, and later without a word of anybody that it cannot."""

from __future__ import annotations

import importlib.metadata
import socket
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.error import HTTPError

import pytest
from cast import BORROWS, LENDS, OPERATOR_TOKEN, PAIRING, Agent, OperatorProcess, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidepool_api_testing.server import Server

# As the operator is started, but for a watch that is given up sooner.
IMPATIENT = """
import sys
from tidepool_operator import __main__, handlers
handlers.WATCH_SILENCE_SECONDS = 4
__main__.main(sys.argv[1:])
"""


@dataclass
class Connection:
    """One that goes through the wire; `is_forgotten` drops what is sent on it, and tells nobody."""

    ends: tuple[socket.socket, socket.socket]
    used: float = field(default_factory=time.monotonic)
    is_forgotten: bool = False

    def pump(self, source: int) -> None:
        """Carries bytes one way until an end closes."""
        try:
            while data := self.ends[source].recv(65536):
                if source == 0:
                    self.used = time.monotonic()
                if not self.is_forgotten:
                    self.ends[1 - source].sendall(data)
        except OSError:
            pass
        if not self.is_forgotten:
            for end in self.ends:
                end.close()


class Wire:
    """What lies between the operator and its API server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._port = server.port
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._connections: list[Connection] = []
        text = server.kubeconfig(OPERATOR_TOKEN).read_text()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(text.replace(f":{server.port}", f":{self._listener.getsockname()[1]}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def connect(self) -> None:
        """Lets the API server be reached; before, connections are refused."""
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self, idle: float) -> None:
        """Drops without a word what is sent on connections on which the operator has said nothing for so long."""
        for one in self._connections:
            one.is_forgotten = time.monotonic() - one.used > idle

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            one = Connection((client, socket.create_connection(("127.0.0.1", self._port))))
            self._connections.append(one)
            for source in (0, 1):
                threading.Thread(target=one.pump, args=(source,), daemon=True).start()


def says(operator: OperatorProcess, path: str) -> int:
    """The status of an answer."""
    try:
        operator.get(path)
    except HTTPError as error:
        return error.code
    return 200


def test_an_operator_that_waits_for_its_api_server_is_alive(cluster: Server, tmp_path: Path) -> None:
    """The kubelet need not start it again; it is ready once it knows what is there."""
    with Wire(cluster, tmp_path) as wire:
        operator = OperatorProcess(
            cluster, tmp_path / "log", is_ready_at_once=False, kubeconfig=wire.kubeconfig, namespaces="default"
        )
        with operator:
            wait_for("tried", lambda: operator.log().count("cannot read the objects") > 1)
            assert (says(operator, "/healthz"), says(operator, "/readyz"), says(operator, "/")) == (200, 503, 404)
            wire.connect()
            wait_for("ready", lambda: says(operator, "/readyz") == 200)
            assert says(operator, "/healthz") == 200


def peering(lifetime: int) -> dict[str, Any]:
    """Another operator that uses kopf, and wants all others to pause."""
    seen = {"priority": 1000, "lastseen": "2100-01-01T00:00:00", "lifetime": lifetime}
    return {
        "apiVersion": "kopf.dev/v1",
        "kind": "ClusterKopfPeering",
        "metadata": {"name": "default"},
        "status": {"somebody": seen},
    }


@pytest.fixture
def foreign_peering(cluster: Server) -> Iterator[None]:
    """The peering of an operator that is none of ours, as kopf finds it by itself."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    kinds = {"kind": "ClusterKopfPeering", "plural": "clusterkopfpeerings", "singular": "clusterkopfpeering"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {"group": "kopf.dev", "scope": "Cluster", "names": kinds, "versions": [version]},
    }
    cluster.apply(crd)
    cluster.kubectl("wait", "--for=condition=Established", "crd/clusterkopfpeerings.kopf.dev")
    cluster.apply(peering(3600))
    yield
    cluster.kubectl("delete", "crd", "clusterkopfpeerings.kopf.dev")


@pytest.mark.usefixtures("foreign_peering")
def test_connections_that_are_forgotten_and_a_peering_of_others_hold_nobody_up(
    cluster: Server, agent: Agent, tmp_path: Path
) -> None:
    """Something in between drops idle connections, so watches, without a word; they are made anew after a while.

    All the while another operator wants all that use kopf to pause. Passes when a pool gets its pairing before the
    objects are listed anew.
    """
    with Wire(cluster, tmp_path) as wire:
        wire.connect()
        log = tmp_path / "log"
        with OperatorProcess(cluster, log, kubeconfig=wire.kubeconfig, program=("-c", IMPATIENT)):
            time.sleep(2)
            wire.forget(1)
            agent.guest("l", LENDS)
            agent.guest("b", BORROWS, address="10.0.0.2")
            agent.pool()
            wait_for("pairing", lambda: PAIRING in agent.pairings(), 30)


def test_no_kopf_is_allowed_that_is_older_than_the_one_that_is_tested() -> None:
    """Issue 28, fault 11: older ones know no end of a watch on which nothing comes."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert f"kopf>={importlib.metadata.version('kopf')}" in project["dependencies"]
