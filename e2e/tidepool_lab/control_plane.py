"""etcd, API server, controller-manager, scheduler."""

from __future__ import annotations

from pathlib import Path

from tidepool_lab import addresses, cluster, debian, gotools, host, nodes, paths, pki
from tidepool_lab.progress import step

ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"


def prepare() -> None:
    """Fetches what is not built here."""
    _etcd()


def start() -> None:
    """Starts what is not running and waits until the default ServiceAccount is there (without it no pod starts)."""
    with step("starting the control plane"):
        pki.create()
        if not host.running("etcd"):
            _start_etcd()
        if not host.running("kube-apiserver"):
            _start_apiserver()
        host.wait_until(
            "API server", lambda: cluster.succeeds("get", "--raw", "/readyz"), 120, watch=["etcd", "kube-apiserver"]
        )
        if not host.running("kube-controller-manager"):
            _start_controllers()
        host.wait_until("default ServiceAccount", lambda: cluster.succeeds("get", "serviceaccount", "default"), 60)


def _etcd() -> Path:
    return debian.unpacked("bookworm", "etcd-server") / "usr/bin/etcd"


def _start_etcd() -> None:
    data = paths.STATE / "etcd"
    data.mkdir(mode=0o700, exist_ok=True)
    host.start(
        "etcd",
        [
            _etcd(),
            f"--data-dir={data}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={ETCD_PEER}",
            f"--initial-advertise-peer-urls={ETCD_PEER}",
            f"--initial-cluster=default={ETCD_PEER}",
            "--unsafe-no-fsync",  # a lab's data need not survive a power cut
            "--log-level=warn",
        ],
    )


def _start_apiserver() -> None:
    host.start(
        "kube-apiserver",
        [
            gotools.path("kube-apiserver"),
            f"--etcd-servers={ETCD}",
            f"--bind-address={addresses.chosen().any_host}",
            f"--advertise-address={nodes.FIRST.ip}",
            "--secure-port=6443",
            f"--tls-cert-file={paths.PKI}/apiserver.crt",
            f"--tls-private-key-file={paths.PKI}/apiserver.key",
            f"--client-ca-file={paths.PKI}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={paths.PKI}/sa.pub",
            f"--service-account-signing-key-file={paths.PKI}/sa.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={addresses.chosen().services}",
            f"--kubelet-client-certificate={paths.PKI}/apiserver-kubelet.crt",
            f"--kubelet-client-key={paths.PKI}/apiserver-kubelet.key",
            "--kubelet-preferred-address-types=InternalIP",
        ],
    )


def _start_controllers() -> None:
    common = ["--leader-elect=false", "--bind-address=127.0.0.1"]
    host.start(
        "kube-controller-manager",
        [
            gotools.path("kube-controller-manager"),
            f"--kubeconfig={pki.kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={paths.PKI}/sa.key",
            f"--root-ca-file={paths.PKI}/ca.crt",
            "--use-service-account-credentials",
            *common,
        ],
    )
    host.start(
        "kube-scheduler", [gotools.path("kube-scheduler"), f"--kubeconfig={pki.kubeconfig('scheduler')}", *common]
    )
