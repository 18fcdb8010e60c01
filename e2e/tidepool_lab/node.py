"""What runs on a node: containerd with runc and the bridge CNI plugin, kubelet, kube-proxy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from tidepool_lab import addresses, cluster, debian, gotools, host, images, paths, pki, registry
from tidepool_lab.nodes import Node
from tidepool_lab.progress import step

DAEMONS = ("containerd", "kubelet", "kube-proxy")

CONTAINERD = """version = 2
root = "{state}/containerd"
state = "{run}/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{run}/runc"
"""

PROXIES = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "lab-kube-proxy"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}],
}


def prepare() -> None:
    """Fetches what is not built here."""
    _containerd()
    _cni_plugins()


def start(nodes: Sequence[Node]) -> None:
    """Starts what is not running, side by side, and waits until the nodes are ready for pods."""
    cluster.apply(PROXIES)
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(_start, nodes))


def _start(node: Node) -> None:
    if not host.running(node.daemon("containerd")):
        with step(f"starting containerd of {node.name} and loading the images"):
            _start_containerd(node)
            load(node, sorted(images.ARCHIVES.glob("*.tar")))
    with step(f"starting {node.name}"):
        if not host.running(node.daemon("kubelet")):
            _start_kubelet(node)
        if not host.running(node.daemon("kube-proxy")):
            _start_proxy(node)
        host.wait_until(f"{node.name} Ready", partial(_ready, node), 120, watch=daemons(node))


def daemons(node: Node) -> list[str]:
    """The names of its daemons."""
    return [node.daemon(kind) for kind in DAEMONS]


def load(node: Node, archives: Iterable[Path]) -> None:
    """Imports image archives where its kubelet finds them."""
    for archive in archives:
        subprocess.run(
            [_containerd() / "bin/ctr", "-a", node.socket, "-n", "k8s.io", "images", "import", archive],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def stop_pods(node: Node) -> None:
    """Removes every pod from its containerd, so that nothing has to be killed."""
    if host.running(node.daemon("containerd")):
        remove = [str(gotools.path("crictl")), "--runtime-endpoint", f"unix://{node.socket}", "rmp", "-f", "-a"]
        with suppress(subprocess.TimeoutExpired):  # what it did not get done is killed later
            subprocess.run(remove, check=False, capture_output=True, timeout=60)


def _containerd() -> Path:
    return debian.unpacked("bookworm", "containerd", "runc") / "usr"


def _cni_plugins() -> Path:
    return debian.unpacked("bookworm", "containernetworking-plugins") / "usr/lib/cni"


def _start_containerd(node: Node) -> None:
    usr = _containerd()
    for folder in (node.state, node.run):
        folder.mkdir(exist_ok=True)
    _write_cni(node)
    config = node.state / "containerd.toml"
    config.write_text(
        CONTAINERD.format(
            state=node.state,
            run=node.run,
            socket=node.socket,
            pause=images.PAUSE,
            registries=registry.folder_of_hosts(node),
            cni=_cni_plugins(),
            runc=usr / "sbin/runc",
        )
    )
    search = f"{usr}/bin:{usr}/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    name = node.daemon("containerd")
    host.start(name, [usr / "bin/containerd", "-c", config], env={"PATH": search}, node=node)
    version = [str(usr / "bin/ctr"), "-a", str(node.socket), "version"]
    host.wait_until(
        name,
        lambda: subprocess.run(version, check=False, capture_output=True).returncode == 0,
        30,
        watch=[name],
    )


def _write_cni(node: Node) -> None:
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(node.run / "cni"),
            "ranges": [[{"subnet": node.pods}]],
            "routes": [{"dst": addresses.chosen().everywhere}],
        },
    }
    folder = node.state / "cni"
    folder.mkdir(exist_ok=True)
    (folder / "10-pods.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}))


def _start_kubelet(node: Node) -> None:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "address": node.ip,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(paths.PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(paths.PKI / f"{pki.kubelet(node)}.crt"),
        "tlsPrivateKeyFile": str(paths.PKI / f"{pki.kubelet(node)}.key"),
        "resolvConf": "",
        "podLogsDir": str(node.state / "pod-logs"),
        "volumePluginDir": str(node.run / "kubelet/plugins"),
        "makeIPTablesUtilChains": False,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree"), "1%"
        ),
        "imageGCHighThresholdPercent": 100,  # imported images cannot be pulled again
    }
    file = node.state / "kubelet.json"
    file.write_text(json.dumps(config, indent=1))
    host.start(
        node.daemon("kubelet"),
        [
            gotools.path("kubelet"),
            f"--config={file}",
            f"--kubeconfig={pki.kubeconfig(pki.kubelet(node))}",
            f"--root-dir={node.run}/kubelet",
            f"--hostname-override={node.name}",
            f"--node-ip={node.ip}",
            "--node-labels=kubevirt.io/schedulable=true",  # as KubeVirt's handler says that its node runs guests
            "--v=1",
        ],
        node=node,
    )


def _start_proxy(node: Node) -> None:
    host.start(
        node.daemon("kube-proxy"),
        [
            gotools.path("kube-proxy"),
            f"--kubeconfig={pki.kubeconfig('proxy')}",
            f"--hostname-override={node.name}",
            f"--cluster-cidr={addresses.chosen().pods}",
            "--proxy-mode=iptables",
            "--masquerade-all",
            "--healthz-bind-address=127.0.0.1:10256",
            "--metrics-bind-address=127.0.0.1:10249",
            "--conntrack-max-per-core=0",
            "--nodeport-addresses=primary",
        ],
        node=node,
    )


def _ready(node: Node) -> bool:
    found = cluster.get("node", node.name)
    conditions = found["status"].get("conditions", []) if found else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
