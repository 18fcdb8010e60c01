"""As kubectl logs in: by kubeconfigs, several files included, and by the credential plugins that they name.

Written out because the official library, which would do it, is 70 MB of generated classes that nothing else here uses.
Apart from the client, for agents have no kubeconfig and are to stay small.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from tidepool_api.kube.access import ACCOUNT, Access, NoAccess

Entry = Mapping[str, Any]


def found() -> Access:
    """The access of the pod that this runs in, or else that of whoever starts it; raises NoAccess."""
    is_pod = "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "token").exists()
    return Access.in_cluster() if is_pod else access()


def access(context: str | None = None) -> Access:
    """The access that a context gives, or the current one; raises NoAccess."""
    config = _merged(_files())
    name = context or config.current
    if not name:
        raise NoAccess("the kubeconfig has no current context: choose one with --context")
    chosen = config.entry("context", name)
    cluster = config.entry("cluster", chosen.get("cluster", ""))
    user = config.entry("user", chosen["user"]) if chosen.get("user") else {}
    server = str(cluster.get("server", "")).rstrip("/")
    authorization, certificate = _identity(user, cluster)
    return Access(
        server,
        authorization,
        _pem(cluster, "certificate-authority"),
        certificate,
        is_insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name", ""),
        proxy=cluster.get("proxy-url") or _proxy(server),
        namespace=chosen.get("namespace") or "default",
    )


# --- the files --------------------------------------------------------------------------------------------------------


@dataclass
class _Config:
    """What several files say together: of each name the first holds."""

    current: str = ""
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def entry(self, kind: str, name: str) -> Entry:
        if (kind, name) not in self.entries:
            raise NoAccess(f"the kubeconfig has no {kind} {name!r}")
        return self.entries[kind, name]


def _files() -> list[Path]:
    named = [Path(one) for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    return named or [Path.home() / ".kube/config"]


def _merged(files: Sequence[Path]) -> _Config:
    config, there = _Config(), [one for one in files if one.exists()]
    if not there:
        raise NoAccess(f"there is no kubeconfig: {', '.join(map(str, files))}")
    for file in there:
        try:
            content = yaml.safe_load(file.read_text()) or {}
            config.current = config.current or content.get("current-context") or ""
            for kind in ("context", "cluster", "user"):
                for one in content.get(f"{kind}s") or ():
                    config.entries.setdefault((kind, one["name"]), _anchored(one.get(kind) or {}, file.parent))
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise NoAccess(f"{file} is no kubeconfig that can be read: {error}") from error
    return config


def _anchored(entry: Entry, folder: Path) -> Entry:
    """An entry whose files are named from anywhere, and not from the folder of its kubeconfig."""
    files = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
    found = {**entry, **{name: str(folder / entry[name]) for name in files if entry.get(name)}}
    plugin = entry.get("exec")
    if plugin and os.sep in plugin["command"]:
        found["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return found


def _pem(entry: Entry, name: str) -> str:
    """Something that is in the kubeconfig itself, or in a file of its own."""
    try:
        if data := entry.get(f"{name}-data"):
            return base64.b64decode(data).decode()
        return Path(entry[name]).read_text() if entry.get(name) else ""
    except (OSError, ValueError) as error:
        raise NoAccess(f"{name} of the kubeconfig cannot be read: {error}") from error


def _proxy(server: str) -> str:
    """The proxy of the environment, if it is for this server."""
    parts, proxies = urlsplit(server), getproxies()
    host = parts.hostname or ""
    is_direct = proxy_bypass(host) or any(_is_within(host, one.strip()) for one in proxies.get("no", "").split(","))
    return "" if is_direct else proxies.get(parts.scheme, "")


def _is_within(host: str, network: str) -> bool:
    """Whether a host is an address of that network, as NO_PROXY names them to kubectl."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


# --- who asks ---------------------------------------------------------------------------------------------------------


def _identity(user: Entry, cluster: Entry) -> tuple[Callable[[], str], tuple[str, str] | None]:
    """The header and the certificate of a user."""
    own = (_pem(user, "client-certificate"), _pem(user, "client-key"))
    certificate = own if all(own) else None
    if file := user.get("tokenFile"):
        return lambda: f"Bearer {Path(file).read_text().strip()}", certificate
    if token := user.get("token"):
        return lambda: f"Bearer {token}", certificate
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        return lambda: f"Basic {basic}", certificate
    if user.get("exec"):
        plugin = _Plugin(user["exec"], cluster)
        return plugin.authorization, certificate or plugin.certificate()
    if user.get("auth-provider"):
        raise NoAccess("the kubeconfig logs in by auth-provider, which is no more: use a credential plugin (exec)")
    return lambda: "", certificate


class _Plugin:
    """A program that gives credentials for a while (client.authentication.k8s.io)."""

    def __init__(self, spec: Entry, cluster: Entry) -> None:
        self._spec, self._cluster = spec, cluster
        self._lock = threading.Lock()
        self._given: Entry = {}

    def authorization(self) -> str:
        token = self._credential().get("token")
        return f"Bearer {token}" if token else ""

    def certificate(self) -> tuple[str, str] | None:
        given = self._credential()
        own = (given.get("clientCertificateData", ""), given.get("clientKeyData", ""))
        return own if all(own) else None

    def _credential(self) -> Entry:
        with self._lock:
            if not self._given or _is_over(self._given):
                self._given = self._ask()
            return self._given

    def _ask(self) -> Entry:
        try:
            command = [self._spec["command"], *(self._spec.get("args") or ())]
            variables = {one["name"]: one["value"] for one in self._spec.get("env") or ()}
            variables["KUBERNETES_EXEC_INFO"] = json.dumps(self._info())
            heard = None if self._may_ask() else subprocess.DEVNULL
            answer = subprocess.run(
                command, env=os.environ | variables, stdin=heard, stdout=subprocess.PIPE, check=True
            )
            given: Entry = json.loads(answer.stdout)["status"]
            _is_over(given)
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError, TypeError, AttributeError) as error:
            hint = self._spec.get("installHint", "")
            raise NoAccess(f"the kubeconfig's credential plugin gives nothing: {error}. {hint}".strip()) from error
        return given

    def _may_ask(self) -> bool:
        """Whether the program may ask somebody: there is a terminal."""
        return self._spec.get("interactiveMode", "IfAvailable") != "Never" and sys.stdin.isatty()

    def _info(self) -> Entry:
        spec: dict[str, Any] = {"interactive": self._may_ask()}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = {name: self._cluster[name] for name in _TOLD if name in self._cluster}
        return {"apiVersion": self._spec["apiVersion"], "kind": "ExecCredential", "spec": spec}


_TOLD = ("server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")


def _is_over(given: Entry) -> bool:
    until = given.get("expirationTimestamp")
    return until is not None and datetime.fromisoformat(until) <= datetime.now(UTC)
