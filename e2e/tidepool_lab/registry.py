"""A registry (Debian's docker-registry) on the first node's loopback, that the lab's nodes pull from by TLS.

Its certificate is of the lab's own authority: programs are told by `ENVIRONMENT`, containerd by a file of its own.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tidepool_lab import debian, host, nodes, paths

NAME = "registry"
ADDRESS = "localhost:5443"
URL = f"https://{ADDRESS}"
HOSTS = """server = "{url}"
[host."{url}"]
  capabilities = ["pull", "resolve"]
  ca = "{authority}"
"""


def authority() -> Path:
    """The certificate that its own is signed by."""
    return paths.PKI / "ca.crt"


def environment() -> dict[str, str]:
    """What has programs written in Go, such as Helm and skopeo, believe it."""
    return {"SSL_CERT_FILE": str(authority())}


def start() -> None:
    """Starts it, empty, and waits until it answers; the first node's containerd knows it from now on."""
    folder = paths.STATE / NAME
    folder.mkdir()
    config = folder / "config.json"
    config.write_text(json.dumps(settings(folder / "data", ADDRESS, paths.PKI / NAME), indent=1))
    known = folder_of_hosts(nodes.FIRST) / ADDRESS
    known.mkdir(parents=True, exist_ok=True)
    (known / "hosts.toml").write_text(HOSTS.format(url=URL, authority=authority()))
    host.start(NAME, [debian.program("docker-registry"), "serve", config])
    host.wait_until(NAME, _answers, 30, watch=[NAME])


def folder_of_hosts(node: nodes.Node) -> Path:
    """Where a node's containerd looks for what it is to know of registries."""
    return node.state / "registries"


def settings(data: Path, address: str, certificate: Path | None = None) -> dict[str, object]:
    """docker-registry's configuration; with a certificate, whose key lies beside it, it serves TLS."""
    http: dict[str, object] = {"addr": address}
    if certificate:
        http["tls"] = {"certificate": f"{certificate}.crt", "key": f"{certificate}.key"}
    return {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": http,
    }


def asked() -> list[str]:
    """The requests that it has answered, a line each, as web servers log them."""
    return [line for line in (paths.LOGS / f"{NAME}.log").read_text().splitlines() if ' "GET /v2/' in line]


def stop() -> None:
    """Ends it. What it has goes with the lab."""
    host.stop([NAME])


def _answers() -> bool:
    name, _, port = ADDRESS.partition(":")
    ask = host.in_netns(["bash", "-c", f"</dev/tcp/{name}/{port}"])
    return subprocess.run(ask, check=False, capture_output=True).returncode == 0
