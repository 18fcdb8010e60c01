"""Who plays in the tests against a real API server: the operator as a process, and agents by hand."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidepool_api import Provider, names
from tidepool_api_testing.server import Refused, Server, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPERATOR_TOKEN = "operator-of-a-test-server"
NARROW_TOKEN = "operator-of-some-namespaces"
OWN_NAMESPACE = "tidepool-system"
GIB = 1 << 30
MIB = 1 << 20
PATIENCE_SECONDS = 40.0  # less than the operator's with an agent

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Looks again and again until there is something."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := look():
                return found
        except (Refused, OSError):
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds} s")
        time.sleep(0.2)


def identity_of(name: str, load: int = 0) -> str:
    """The public key of a guest's module; each time that it is loaded it draws another."""
    return f"x25519:{hashlib.sha256(f'{name} {load}'.encode()).hexdigest()}"


def instance(name: str, uid: str) -> dict[str, Any]:
    """The reference from the guest to the instance that it is."""
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": uid}


def role(user: str) -> list[dict[str, Any]]:
    """The rights that the operator needs, and no more."""

    def rule(group: str, resources: str, verbs: str) -> dict[str, Any]:
        return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}

    rules = [
        rule(names.GROUP, "memorypools", "get list watch patch"),
        rule(names.GROUP, "memorypairings", "get list watch create patch delete"),
        rule(names.GROUP, "memorypools/status memorypairings/status memorygrants/status memoryquotas/status", "patch"),
        rule(names.GROUP, "memoryguests memorygrants memoryquotas", "get list watch"),
        rule(names.GROUP, "memoryguests memoryguests/status", "patch"),
        rule(names.GROUP, "memorypoolclasses", "list watch"),
        rule("", "nodes", "list watch"),
        rule("", "events", "create"),
        rule("coordination.k8s.io", "leases", "get list create update"),
        rule("apiextensions.k8s.io", "customresourcedefinitions", "list watch"),
    ]
    api = "rbac.authorization.k8s.io/v1"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    return [
        {"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules},
        {
            "apiVersion": api,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


class OperatorProcess:
    """`python3 -m tidepool_operator` against the test server."""

    def __init__(
        self,
        server: Server,
        log: Path,
        *,
        namespaces: str = "",
        is_ready_at_once: bool = True,
        token: str = OPERATOR_TOKEN,
        kubeconfig: Path | None = None,
        program: Sequence[str] = ("-m", "tidepool_operator"),
    ) -> None:
        self._kubeconfig = kubeconfig or server.kubeconfig(token)
        self._program = program
        self._log = log
        self._namespaces = namespaces
        self._is_ready_at_once = is_ready_at_once
        self.metrics_port, self.health_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        variables = {
            "KUBECONFIG": str(self._kubeconfig),
            "TIDEPOOL_NAMESPACES": self._namespaces,
            "TIDEPOOL_LOG_FORMAT": "json",
        }
        flags = [
            f"--metrics-port={self.metrics_port}",
            f"--health-port={self.health_port}",
            "--health-address=127.0.0.1",
        ]
        starts = self.log().count('"ready: ')
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, *flags], env=os.environ | variables, stderr=log
            )
        if self._is_ready_at_once:
            wait_for("operator ready", lambda: self.log().count('"ready: ') > starts, 40)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self.terminate()
        finally:
            self._process.kill()

    def terminate(self) -> None:
        """Tells it to end, and waits for that."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """Ends it without notice."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self, *, frozen: bool) -> None:
        """Stops the process where it is, or lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def memory(self) -> int:
        """The most that it has had in memory, in bytes."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    def figure(self, name: str) -> float:
        """The sum of a metric over its labels; 0 when there is none."""
        lines = [line for line in self.get("/metrics").splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def log(self) -> str:
        """What it said so far."""
        return self._log.read_text() if self._log.exists() else ""

    def get(self, path: str) -> str:
        """An HTTP answer of the metrics or health port."""
        port = self.metrics_port if path == "/metrics" else self.health_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=15) as answer:
            text: str = answer.read().decode()
        return text


class Agent:
    """A node's agent, played by hand: guests, status of pairings, finalizers, and the lease that it renews."""

    def __init__(self, server: Server, namespace: str, node: str) -> None:
        self.server, self.namespace, self.node = server, namespace, node
        self._dead = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever)

    def __enter__(self) -> Self:
        self._join(self.node)
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """No further renewal."""
        self._dead.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _join(self, node: str) -> None:
        """Has a node in the cluster."""
        self.server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}, manager="kubelet")

    def renew(self, at: str = "") -> None:
        """Renews the lease."""
        metadata = {"name": names.agent_lease(self.node), "namespace": OWN_NAMESPACE, "labels": names.LEASE_LABELS}
        time_ = at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.server.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": {"renewTime": time_, "holderIdentity": "agent"},
            },
            manager=names.AGENT_FIELD_MANAGER,
        )

    def _renew_for_ever(self) -> None:
        while not self._dead.wait(names.LEASE_RENEW_SECONDS):
            with contextlib.suppress(Refused):  # the next time, then
                self.renew()

    def guest(
        self,
        name: str,
        labels: dict[str, str],
        *,
        address: str = "10.0.0.1",
        total: int = 2 * GIB,
        available: int | None = None,
        node: str = "",
        ready: bool = True,
        provider: Provider = Provider.KUBEVIRT,
        owned: bool = True,
        terms: dict[str, Any] | None = None,
        **report: Any,
    ) -> None:
        """Publishes a guest, or what is new about it; `report` are further fields of its status, None takes one out.

        One that is not `owned` is made up: there is no such machine. `terms` are what a node may lend, which is no
        virtual machine.
        """
        if node:
            self._join(node)
        head = {"apiVersion": names.API_VERSION, "kind": "MemoryGuest"}
        metadata = {"name": name, "namespace": self.namespace}
        vm = {"name": name, "uid": name if provider is Provider.LIBVIRT else f"uid-{name}"}
        spec = {"provider": provider, "vm": vm, "nodeName": node or self.node}
        owner = instance(**vm) if provider is Provider.KUBEVIRT else self._home(node or self.node)
        whole = metadata | {"labels": labels, "ownerReferences": [owner] if owned else []}
        self.server.apply({**head, "metadata": whole, "spec": spec}, manager=names.AGENT_FIELD_MANAGER)
        condition = {
            "type": "Ready",
            "status": str(ready),
            "reason": "Reachable" if ready else "NotConnected",
            "message": "" if ready else "install qemu-guest-agent in the guest",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        memory = {"totalBytes": total, "availableBytes": total - 100 * MIB if available is None else available}
        status = {"addresses": [address], "memory": memory, "role": "None", "conditions": [condition]}
        status |= {"identity": identity_of(name), "node": terms, **report}
        status = {field: value for field, value in status.items() if value is not None}
        self.server.apply_status({**head, "metadata": metadata, "status": status}, names.AGENT_FIELD_MANAGER)

    def _home(self, node: str) -> dict[str, Any]:
        """The reference from a guest without Kubernetes to the node that it is on."""
        uid = self.server.get("node", node)["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}

    def delete_guest(self, name: str) -> None:
        """The virtual machine is gone."""
        self.server.kubectl("delete", "tguest", "-n", self.namespace, name)

    def report(self, pairing: str, side: str, **block: Any) -> None:
        """Applies one side's block of a pairing's status.

        Its guest has been given the identity that its peer has by then, unless `block` says otherwise.
        """
        manager = names.LENDER_FIELD_MANAGER if side == "lender" else names.BORROWER_FIELD_MANAGER
        metadata = {"name": pairing, "namespace": self.namespace}
        head = {"apiVersion": names.API_VERSION, "kind": "MemoryPairing"}
        peer = self.pairing(pairing)["spec"]["borrower" if side == "lender" else "lender"]
        given = {"peerIdentity": peer["identity"]} if "identity" in peer else {}
        self.server.apply_status({**head, "metadata": metadata, "status": {side: given | block}}, manager)

    def connect(self, pairing: str, **figures: Any) -> None:
        """Both sides of a pairing are set up and connected."""
        self.wait_for_names(pairing)
        self.report(pairing, "lender", state="Connected", bootID="1")
        self.report(pairing, "borrower", state="Connected", bootID="1", **figures)

    def wait_for_names(self, pairing: str) -> None:
        """Waits until a pairing names the identities of both its guests."""
        wait_for("identities", lambda: all("identity" in self.pairing(pairing)["spec"][end] for end in ENDS))

    def release(self, pairing: str, side: str) -> None:
        """This side is torn down; the finalizer goes, against a version that may have changed in between."""

        def remove() -> bool:
            present = self.pairing(pairing)["metadata"]
            left = [name for name in present["finalizers"] if name != f"{names.GROUP}/{side}"]
            patch = json.dumps({"metadata": {"finalizers": left, "resourceVersion": present["resourceVersion"]}})
            self.server.kubectl("patch", "tpair", "-n", self.namespace, pairing, "--type=merge", "-p", patch)
            return True

        wait_for(f"{side} released", remove)

    def pool(
        self, name: str = "pool", *, lends: str = "spare", borrows: str = "short", size: str = "512Mi", **more: Any
    ) -> None:
        """What the user writes; `more` are further fields of the spec."""
        self.server.apply(
            {
                "apiVersion": names.API_VERSION,
                "kind": "MemoryPool",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "lenders": {"selector": {"matchLabels": {"memory": lends}}, "maxLend": "1Gi"},
                    "borrowers": {"selector": {"matchLabels": {"memory": borrows}}, "size": size},
                    "encryption": "None",
                    **more,
                },
            }
        )

    def auto_pool(self, name: str = "pool", *, team: str = "a", cool_down: str = "10m") -> None:
        """A pool that chooses by itself who of a team lends and who borrows."""
        self.server.apply(
            {
                "apiVersion": names.API_VERSION,
                "kind": "MemoryPool",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "role": "Auto",
                    "selector": {"matchLabels": {"team": team}},
                    "coolDown": cool_down,
                    "lenders": {"maxLend": "1Gi"},
                    "borrowers": {"size": "512Mi"},
                },
            }
        )

    def pairing(self, name: str) -> Any:
        """A pairing as it is now."""
        return self.server.get("-n", self.namespace, "tpair", name)

    def pairings(self) -> dict[str, Any]:
        """All pairings by name."""
        items = self.server.get("-n", self.namespace, "tpair")["items"]
        return {one["metadata"]["name"]: one for one in items}

    def status(self, name: str = "pool") -> dict[str, Any]:
        """The status of a pool."""
        found: dict[str, Any] = self.server.get("-n", self.namespace, "tpool", name).get("status", {})
        return found

    def condition(self, type_: str, name: str = "pool") -> dict[str, Any]:
        """A condition of a pool."""
        found = [one for one in self.status(name).get("conditions", []) if one["type"] == type_]
        return found[0] if found else {}

    def wait_for_reason(
        self, type_: str, reason: str, name: str = "pool", seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """Waits until a condition of a pool has that reason."""

        def look() -> dict[str, Any]:
            found = self.condition(type_, name)
            return found if found.get("reason") == reason else {}

        return wait_for(f"{type_} because of {reason}", look, seconds)

    def is_gone(self, kind: str, name: str) -> bool:
        """Whether an object is gone."""
        return not self.server.kubectl("get", kind, "-n", self.namespace, name, "--ignore-not-found").strip()

    def events(self) -> list[tuple[str, str]]:
        """Object and reason of every Event."""
        items = self.server.get("-n", self.namespace, "events")["items"]
        return [(one["involvedObject"]["name"], one["reason"]) for one in items]


ENDS = ("lender", "borrower")
LENDS = {"memory": "spare"}
BORROWS = {"memory": "short"}
PAIRING = "pool.b.l"


def connected_pool(agent: Agent, provider: Provider = Provider.KUBEVIRT) -> str:
    """A pool with one connected pairing; returns the pairing's UID."""
    agent.guest("l", LENDS, provider=provider)
    agent.guest("b", BORROWS, address="10.0.0.2", provider=provider)
    agent.pool()
    wait_for("pairing", lambda: agent.pairing(PAIRING).get("status"))
    agent.connect(PAIRING)
    wait_for("Ready", lambda: agent.status()["phase"] == "Ready")
    return str(agent.pairing(PAIRING)["metadata"]["uid"])
