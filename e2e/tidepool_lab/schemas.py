"""JSON schemas of Kubernetes' own kinds for kubeconform, generated from the API server that the lab runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tidepool_lab import debian, gotools, store
from tidepool_lab.progress import step

# A server for as long as one question takes: its own network and process namespace, which ends with the script.
QUESTION = """
set -e
ip link set lo up
ip addr add 10.99.0.1/24 dev lo
echo token,admin,1,system:masters >tokens
openssl genrsa -out sa.key 2048 2>/dev/null
"$ETCD" --data-dir etcd --unsafe-no-fsync --log-level error >etcd.log 2>&1 &
"$APISERVER" --etcd-servers http://127.0.0.1:2379 --cert-dir certs --token-auth-file tokens --authorization-mode RBAC \
    --advertise-address 10.99.0.1 \
    --service-account-issuer https://localhost --service-account-key-file sa.key \
    --service-account-signing-key-file sa.key --service-cluster-ip-range 10.96.0.0/16 >apiserver.log 2>&1 &
ask="$KUBECTL --server https://127.0.0.1:6443 --insecure-skip-tls-verify --token token get --raw"
for _ in $(seq 120); do
    if $ask /readyz >/dev/null 2>&1; then exec $ask /openapi/v2 >openapi.json; fi
    sleep 1
done
tail apiserver.log >&2
exit 1
"""
# Refers to itself, so it cannot be written out; the API server checks it when the CRD is applied.
ENDLESS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def folder() -> Path:
    """The schemas of the pinned Kubernetes version, in a file per kind and version."""
    return store.entry("schemas", f"{gotools.KUBERNETES_VERSION}-{store.digest(QUESTION)}", _generate)


def _generate(out: Path) -> None:
    with step(f"generating the schemas of Kubernetes {gotools.KUBERNETES_VERSION} from its API server"):
        work = out / "server"
        work.mkdir()
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "ETCD": str(debian.unpacked("bookworm", "etcd-server") / "usr/bin/etcd"),
            "APISERVER": str(gotools.path("kube-apiserver")),
            "KUBECTL": str(gotools.path("kubectl")),
        }
        alone = ["unshare", "--net", "--pid", "--fork", "--kill-child"]
        subprocess.run([*alone, "bash", "-c", QUESTION], cwd=work, env=env, check=True)
        _write(json.loads((work / "openapi.json").read_text())["definitions"], out)
        subprocess.run(["rm", "-r", work], check=True)


def _write(definitions: dict[str, Any], out: Path) -> None:
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            if name.endswith(f".{kind['kind']}"):
                group = kind["group"].split(".")[0]
                parts = [kind["kind"].lower(), *([group] if group else []), kind["version"]]
                (out / f"{'-'.join(parts)}.json").write_text(json.dumps(_resolved(schema, definitions)))


def _resolved(node: Any, definitions: dict[str, Any]) -> Any:
    """The schema without references, and closed: a property that it does not name is an error."""
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        return {} if name == ENDLESS else _resolved(definitions[name], definitions)
    if node.get("format") == "int-or-string":
        return {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    closed = {key: _resolved(value, definitions) for key, value in node.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed
