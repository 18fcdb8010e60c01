"""The node: containerd with runc and the bridge CNI plugin, kubelet, kube-proxy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tidepool_lab import cluster, debian, gotools, host, images, paths, pki
from tidepool_lab.progress import step

PODS = "10.88.0.0/16"
SOCKET = paths.RUN / "containerd.sock"
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
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{run}/runc"
"""


def prepare() -> None:
    """Fetches what is not built here."""
    _containerd()
    _cni_plugins()


def start() -> None:
    """Starts what is not running, loads the images and waits until the node is ready for pods."""
    if not host.running("containerd"):
        with step("starting containerd and loading the images"):
            _start_containerd()
            load(sorted(images.ARCHIVES.glob("*.tar")))
    with step("starting the node"):
        if not host.running("kubelet"):
            _start_kubelet()
        if not host.running("kube-proxy"):
            _start_proxy()
        host.wait_until("node Ready", _ready, 120, watch=DAEMONS)


def load(archives: Iterable[Path]) -> None:
    """Imports image archives where kubelet finds them."""
    for archive in archives:
        subprocess.run(
            [_containerd() / "bin/ctr", "-a", SOCKET, "-n", "k8s.io", "images", "import", archive],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def stop_pods() -> None:
    """Removes every pod from containerd, so that nothing has to be killed."""
    if host.running("containerd"):
        remove = [str(gotools.path("crictl")), "--runtime-endpoint", f"unix://{SOCKET}", "rmp", "-f", "-a"]
        with suppress(subprocess.TimeoutExpired):  # what it did not get done is killed later
            subprocess.run(remove, check=False, capture_output=True, timeout=60)


def _containerd() -> Path:
    return debian.unpacked("bookworm", "containerd", "runc") / "usr"


def _cni_plugins() -> Path:
    return debian.unpacked("bookworm", "containernetworking-plugins") / "usr/lib/cni"


def _start_containerd() -> None:
    usr = _containerd()
    _write_cni()
    config = paths.STATE / "containerd.toml"
    config.write_text(
        CONTAINERD.format(
            state=paths.STATE,
            run=paths.RUN,
            socket=SOCKET,
            pause=images.PAUSE,
            cni=_cni_plugins(),
            runc=usr / "sbin/runc",
        )
    )
    search = f"{usr}/bin:{usr}/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    host.start("containerd", [usr / "bin/containerd", "-c", config], env={"PATH": search})
    version = [str(usr / "bin/ctr"), "-a", str(SOCKET), "version"]
    host.wait_until(
        "containerd",
        lambda: subprocess.run(version, check=False, capture_output=True).returncode == 0,
        30,
        watch=["containerd"],
    )


def _write_cni() -> None:
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(paths.RUN / "cni"),
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    folder = paths.STATE / "cni"
    folder.mkdir(exist_ok=True)
    (folder / "10-pods.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}))


def _start_kubelet() -> None:
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{host.CGROUP}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": host.NODE_IP,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(paths.PKI / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(paths.PKI / "kubelet.crt"),
        "tlsPrivateKeyFile": str(paths.PKI / "kubelet.key"),
        "resolvConf": "",
        "podLogsDir": str(paths.STATE / "pod-logs"),
        "volumePluginDir": str(paths.RUN / "kubelet/plugins"),
        "makeIPTablesUtilChains": False,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree"), "1%"
        ),
        "imageGCHighThresholdPercent": 100,  # imported images cannot be pulled again
    }
    file = paths.STATE / "kubelet.json"
    file.write_text(json.dumps(config, indent=1))
    host.start(
        "kubelet",
        [
            gotools.path("kubelet"),
            f"--config={file}",
            f"--kubeconfig={pki.kubeconfig('kubelet')}",
            f"--root-dir={paths.RUN}/kubelet",
            f"--hostname-override={pki.NODE}",
            f"--node-ip={host.NODE_IP}",
            "--v=1",
        ],
    )


def _start_proxy() -> None:
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "lab-kube-proxy"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}],
        }
    )
    host.start(
        "kube-proxy",
        [
            gotools.path("kube-proxy"),
            f"--kubeconfig={pki.kubeconfig('proxy')}",
            f"--hostname-override={pki.NODE}",
            f"--cluster-cidr={PODS}",
            "--proxy-mode=iptables",
            "--masquerade-all",
            "--healthz-bind-address=127.0.0.1:10256",
            "--metrics-bind-address=127.0.0.1:10249",
            "--conntrack-max-per-core=0",
            "--nodeport-addresses=primary",
        ],
    )


def _ready() -> bool:
    node = cluster.get("node", pki.NODE)
    conditions = node["status"].get("conditions", []) if node else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
