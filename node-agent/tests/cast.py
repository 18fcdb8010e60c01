"""The agent as a process, and what KubeVirt would do for it: instances, launcher pods, and their processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import libvirt
from daemon import Daemon, end
from rights import NOBODY, as_in_its_pod

from tidepool_api_testing.chart import rendered
from tidepool_api_testing.server import Refused, Server, free_ports

TOP = Path(__file__).resolve().parents[2]
NAMESPACE = "tidepool-system"
ACCOUNT = "tidepool-agent"
REQUEST = "324Mi"  # of a launcher pod: 100 MiB less than its guest would need

T = TypeVar("T")

_KUBEVIRT = """
import json
from tidepool_lab import gotools, kubevirt
print(json.dumps(kubevirt.crds(gotools.kubevirt_crds())))
"""


def eventually(check: Callable[[], object], seconds: float = 180) -> None:
    """Waits until an assertion holds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            assert check() is not False
        except (AssertionError, KeyError, IndexError, Refused):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
        else:
            return


def at_rest(look: Callable[[], T], seconds: float = 6) -> T:
    """What there is when it has not changed for so long; waits until it is so."""
    found = look()

    def is_unchanged() -> bool:
        nonlocal found
        time.sleep(seconds)
        before, found = found, look()
        return found == before

    eventually(is_unchanged)
    return found


def lab(*arguments: str) -> str:
    """What the lab's command prints."""
    return subprocess.run([TOP / "e2e/lab", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def kubevirt_crds() -> list[dict[str, Any]]:
    """KubeVirt's CRDs, as the lab has them."""
    code = [sys.executable, "-c", _KUBEVIRT]
    answer = subprocess.run(code, cwd=TOP / "e2e", stdout=subprocess.PIPE, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(answer.stdout)
    return found


def agent_rights() -> list[dict[str, Any]]:
    """What the chart lets the agents do: their account, their roles, and the policies that bind each to its node."""
    kinds = ("ServiceAccount", "Role", "ValidatingAdmissionPolicy")
    found = rendered("agent", "agent.providers={KubeVirt,Libvirt}", "nodeLender.enabled=true")
    return [document for document in found if any(kind in document["kind"] for kind in kinds)]


def token_of(server: Server, node: str) -> str:
    """The token that the agent's pod on a node gets from its kubelet."""
    pod = f"tidepool-agent-{node}"
    spec = {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "agent", "image": "x"}]}
    meta = {"name": pod, "namespace": NAMESPACE}
    server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
    return server.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, *bound).strip()


class AgentProcess:
    """`python3 -m tidepool_agent` for a node of its own, with the rights that the chart gives it if set so."""

    def __init__(self, server: Server, node: str, store: Path, *options: str, settings: Sequence[str] = NOBODY) -> None:
        self.node = node
        self._rights = as_in_its_pod(settings)
        self.folder = Path(tempfile.mkdtemp(prefix="tp-", dir="/tmp"))
        self.proc = self.folder / "p"
        self.proc.mkdir()
        account = self.folder / "account"
        account.mkdir()
        cluster = json.loads(server.kubeconfig().read_text())["clusters"][0]["cluster"]
        shutil.copy(cluster["certificate-authority"], account / "ca.crt")
        (account / "token").write_text(token_of(server, node))
        (self.port,) = free_ports(1)
        self._environment = {
            **os.environ,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "NODE_NAME": node,
            "POD_NAMESPACE": NAMESPACE,
        }
        self._options = [f"--store={store}", f"--proc={self.proc}", f"--account={account}"]
        self._options += ["--metrics-address=127.0.0.1", f"--metrics-port={self.port}", *options]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Starts it, and waits until it has seen everything."""
        self.launch()
        eventually(lambda: self.fetch("/readyz") == "ok\n")

    def launch(self) -> None:
        """Starts it."""
        log = (self.folder / "log").open("ab")
        command = [*self._rights, sys.executable, "-m", "tidepool_agent", *self._options]
        self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """Ends it as the kubelet would."""
        self._process.terminate()
        assert self._process.wait(60) == 0, self.log()

    def kill(self) -> None:
        """Ends it in the middle of whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def fetch(self, path: str) -> str:
        """What it serves."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""

    def memory(self) -> int:
        """The most that it has had in memory, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024

    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "log").read_text()


class OperatorProcess:
    """`python3 -m tidepool_operator` for one namespace, as an administrator."""

    def __init__(self, server: Server, namespace: str, folder: Path) -> None:
        (port,) = free_ports(1)
        self._log = folder / "operator.log"
        self._command = [sys.executable, "-m", "tidepool_operator", f"--own-namespace={NAMESPACE}"]
        self._command += [f"--namespaces={namespace}", "--metrics-port=0", f"--health-port={port}"]
        paths = {"PYTHONPATH": f"{TOP / 'operator'}:{TOP / 'crds'}"}
        self._environment = os.environ | paths | {"KUBECONFIG": str(server.kubeconfig())}

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        assert self._process.wait(60) == 0, self._log.read_text()


class Machine:
    """A VirtualMachineInstance with its launcher pod, the process in it, and the guest."""

    def __init__(self, server: Server, daemon: Daemon, agent: AgentProcess, namespace: str, name: str) -> None:
        self._server, self._daemon, self._agent = server, daemon, agent
        self.namespace, self.name = namespace, name
        self.domain: libvirt.virDomain | None = None

    def start(self, options: str = "", **labels: str) -> Self:
        """Everything that happens when KubeVirt starts a machine."""
        self.domain = self._daemon.start(f"{self.namespace}_{self.name}", options)
        container = f"{self.namespace}-{self.name}-container"
        self._process(container)
        self._server.create(self._instance(labels))
        uid = self._server.get("vmi", self.name, "-n", self.namespace)["metadata"]["uid"]
        self._run_launcher(f"virt-launcher-{self.name}", uid, container)
        return self

    def _run_launcher(self, name: str, uid: str, container: str) -> None:
        pod = self._pod(name, uid)
        self._server.create(pod)
        running = {"name": "compute", "containerID": f"containerd://{container}", "state": {"running": {}}}
        statuses = [running | {"ready": True, "restartCount": 0, "image": "x", "imageID": "x"}]
        self._server.apply_status({**pod, "status": {"phase": "Running", "containerStatuses": statuses}})

    def prepare(self, agent: AgentProcess) -> None:
        """What KubeVirt says before it migrates a guest to another node."""
        state = {"targetPod": f"virt-launcher-{self.name}-target", "targetNode": agent.node}
        body = {"metadata": {}, "status": {"migrationState": state}}
        self._server.kubectl("patch", "vmi", self.name, "-n", self.namespace, "--type=merge", "-p", json.dumps(body))

    def migrate(self, agent: AgentProcess) -> None:
        """Everything that an agent sees of a migration to another node; the guest itself stays as it is."""
        self._agent = agent
        container = f"{self.namespace}-{self.name}-target"
        self._process(container)
        uid = self._server.get("vmi", self.name, "-n", self.namespace)["metadata"]["uid"]
        self._run_launcher(f"virt-launcher-{self.name}-target", uid, container)
        status = {"nodeName": agent.node, "migrationState": {"completed": True}}
        moved = {"metadata": {"labels": {"kubevirt.io/nodeName": agent.node}}, "status": status}
        patch = ("vmi", self.name, "-n", self.namespace, "--type=merge", "-p", json.dumps(moved))
        self._server.kubectl("patch", *patch)
        source = f"virt-launcher-{self.name}"
        self._server.kubectl("delete", "-n", self.namespace, "--force", "pod", source)

    def delete(self) -> None:
        """Deletes the instance and ends the guest."""
        if self.domain:
            end(self.domain)
        self._server.kubectl("delete", "-n", self.namespace, "--ignore-not-found", "vmi", self.name)
        pod = f"virt-launcher-{self.name}"
        self._server.kubectl("delete", "-n", self.namespace, "--ignore-not-found", "--force", "pod", pod)

    def guest(self) -> dict[str, Any]:
        """Its MemoryGuest."""
        found: dict[str, Any] = self._server.get("tguest", self.name, "-n", self.namespace)
        return found

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition of its MemoryGuest."""
        return condition(self.guest()["status"], kind)

    def _process(self, container: str) -> None:
        folder = self._agent.proc / str(1000 + len(list(self._agent.proc.iterdir())))
        folder.mkdir()
        (folder / "root").symlink_to(self._daemon.folder)
        (folder / "comm").write_text("virtqemud\n")
        (folder / "cgroup").write_text(f"0::/kubepods/{container}\n")

    def _instance(self, labels: dict[str, str]) -> dict[str, Any]:
        return {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {"kubevirt.io/nodeName": self._agent.node, **labels},
            },
            "spec": {"domain": {"devices": {}}},
            "status": {
                "phase": "Running",
                "nodeName": self._agent.node,
                "interfaces": [{"name": "default", "ipAddress": "10.9.8.7", "ipAddresses": ["10.9.8.7"]}],
            },
        }

    def _pod(self, name: str, uid: str) -> dict[str, Any]:
        compute = {"name": "compute", "image": "x", "resources": {"requests": {"memory": REQUEST}}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": uid},
                "ownerReferences": [
                    {
                        "apiVersion": "kubevirt.io/v1",
                        "kind": "VirtualMachineInstance",
                        "name": self.name,
                        "uid": uid,
                        "controller": True,
                    }
                ],
            },
            "spec": {"nodeName": self._agent.node, "containers": [compute]},
        }


def condition(status: dict[str, Any], kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition."""
    found = next(one for one in status.get("conditions", []) if one["type"] == kind)
    return found["status"], found["reason"], found["message"]
