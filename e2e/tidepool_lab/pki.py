"""Certificates and kubeconfigs of one lab: its own authority, made anew for each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tidepool_lab import addresses, nodes, paths

IDENTITIES = {
    "apiserver": ("/CN=kube-apiserver", "{server}"),
    "admin": ("/O=system:masters/CN=admin", ""),
    "controller-manager": ("/CN=system:kube-controller-manager", ""),
    "scheduler": ("/CN=system:kube-scheduler", ""),
    "proxy": ("/CN=system:kube-proxy", ""),
    "registry": ("/CN=registry", "IP:127.0.0.1,DNS:localhost"),
    "apiserver-kubelet": ("/O=system:masters/CN=kube-apiserver-kubelet-client", ""),
}
CLIENTS = ("admin", "controller-manager", "scheduler", "proxy")
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def create() -> None:
    """Makes everything, once per lab."""
    if (paths.PKI / "admin.kubeconfig").exists():
        return
    paths.PKI.mkdir(mode=0o700, parents=True, exist_ok=True)
    _authority()
    for name, (subject, names) in IDENTITIES.items():
        _certificate(name, subject, names.format(server=_names_of_server()))
    for node in nodes.possible():
        _certificate(kubelet(node), f"/O=system:nodes/CN=system:node:{node.name}", f"IP:{node.ip},DNS:{node.name}")
    for name in (*CLIENTS, *map(kubelet, nodes.possible())):
        kubeconfig(name).write_text(json.dumps(_kubeconfig(name), indent=1))


def api() -> str:
    """The URL of the API server."""
    return f"https://{addresses.in_url(nodes.FIRST.ip)}:6443"


def _names_of_server() -> str:
    found = ["IP:127.0.0.1", f"IP:{nodes.FIRST.ip}", f"IP:{addresses.chosen().api_service}", "DNS:localhost"]
    return ",".join([*found, "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"])


def kubelet(node: nodes.Node) -> str:
    """The name of a kubelet's certificate, and of its kubeconfig."""
    return f"kubelet-{node.name}"


def kubeconfig(name: str = "admin") -> Path:
    """The kubeconfig of one client."""
    return paths.PKI / f"{name}.kubeconfig"


def _authority() -> None:
    _openssl(
        "req", "-x509", *NEW_KEY, "-days", "30", "-subj", "/CN=tidepool-lab", "-keyout", "ca.key", "-out", "ca.crt",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
    _openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _certificate(name: str, subject: str, names: str) -> None:
    extensions = paths.PKI / f"{name}.ext"
    extensions.write_text("extendedKeyUsage=serverAuth,clientAuth\n" + (f"subjectAltName={names}\n" if names else ""))
    _openssl("req", *NEW_KEY, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    _openssl(
        "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
        "-out", f"{name}.crt", "-extfile", extensions.name,
    )  # fmt: skip


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=paths.PKI, check=True, capture_output=True)


def _kubeconfig(name: str) -> dict[str, object]:
    key = {"client-certificate": str(paths.PKI / f"{name}.crt"), "client-key": str(paths.PKI / f"{name}.key")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": api(), "certificate-authority": str(paths.PKI / "ca.crt")}}],
        "users": [{"name": name, "user": key}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        "current-context": "lab",
    }
