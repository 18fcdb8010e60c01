"""Ways to log in: what kubectl makes of a kubeconfig, and what it has programs do for it."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidepool_api.kube import Access, Api, NoAccess, Refused, kubeconfig
from tidepool_api_testing.server import ADMIN_TOKEN, Server

Config = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Writes a kubeconfig that has a user and a cluster, and makes it the one that holds."""

    def write(user: dict[str, Any], name: str = "config", context: str = "here", **cluster: Any) -> Path:
        path = tmp_path / name
        content = {
            "clusters": [{"name": context, "cluster": {"server": "https://127.0.0.1:1/", **cluster}}],
            "users": [{"name": context, "user": user}],
            "contexts": [
                {"name": context, "context": {"cluster": context, "user": context, "namespace": f"ns-{context}"}}
            ],
            "current-context": context,
        }
        path.write_text(json.dumps(content))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return write


def test_of_several_files_the_first_holds(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """And any of their contexts may be chosen."""
    files = [config({"token": "a"}), config({"token": "b"}, "other", "there"), config({"token": "c"}, "third")]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, [*files, "/nowhere"])))
    here, there = kubeconfig.access(), kubeconfig.access("there")
    assert (here.server, here.namespace, here.authorization()) == ("https://127.0.0.1:1", "ns-here", "Bearer a")
    assert (there.namespace, there.authorization()) == ("ns-there", "Bearer b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no kubeconfig that can be read"),
        ("[1]", "no kubeconfig that can be read"),
        ("contexts: [{}]", "no kubeconfig that can be read"),
        ("", "no current context"),
        ("current-context: gone", "has no context 'gone'"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: b}}]}", "has no cluster 'b'"),
    ],
)
def test_what_is_no_kubeconfig_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(NoAccess, match=why):
        kubeconfig.access()


def test_without_a_kubeconfig_there_is_no_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoAccess, match="there is no kubeconfig"):
        kubeconfig.found()


def test_a_login_of_former_times_is_refused(config: Config) -> None:
    config({"auth-provider": {"name": "gcp"}})
    with pytest.raises(NoAccess, match="credential plugin"):
        kubeconfig.access()


def test_files_are_found_beside_their_kubeconfig(config: Config) -> None:
    """A token is read each time: somebody renews it."""
    path = config({"tokenFile": "token"})
    path.with_name("token").write_text("one\n")
    access = kubeconfig.access()
    assert access.authorization() == "Bearer one"
    path.with_name("token").write_text("two\n")
    assert access.authorization() == "Bearer two"


def plugin(path: Path, **status: Any) -> dict[str, Any]:
    """A credential plugin beside the kubeconfig, which counts how often it is run and notes what it was told."""
    program = path / "plugin"
    answer = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    program.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO $GIVEN $1\" >> {path}/runs\nprintf %s '{answer}'\n")
    program.chmod(0o755)
    env = [{"name": "GIVEN", "value": "variable"}]
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": ["word"], "env": env}


@pytest.mark.parametrize(("hours", "runs"), [(None, 1), (1, 1), (-1, 3)])
def test_a_plugin_is_asked_again_when_its_word_is_over(
    config: Config, tmp_path: Path, hours: int | None, runs: int
) -> None:
    until = {} if hours is None else {"expirationTimestamp": f"{datetime.now(UTC) + timedelta(hours=hours):%FT%TZ}"}
    config({"exec": plugin(tmp_path, token="given", **until) | {"provideClusterInfo": True}})
    access = kubeconfig.access()
    assert [access.authorization() for _ in range(2)] == ["Bearer given"] * 2
    said = (tmp_path / "runs").read_text().splitlines()
    assert len(said) == runs
    info, words = said[0].rsplit("}", 1)[0] + "}", said[0].rsplit("}", 1)[1]
    assert words == " variable word"
    assert json.loads(info)["spec"]["cluster"] == {"server": "https://127.0.0.1:1/"}


@pytest.mark.parametrize("command", ["false", "true", "/nowhere/plugin"])
def test_a_plugin_that_fails_is_named(config: Config, command: str) -> None:
    config({"exec": {"apiVersion": "v1", "command": command, "installHint": "install it"}})
    with pytest.raises(NoAccess, match=r"credential plugin gives nothing: .*\. install it"):
        kubeconfig.access()


def self_signed(folder: Path) -> tuple[str, str]:
    """A certificate and its key."""
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=me")
    subprocess.run(["openssl", *new, "-keyout", "key", "-out", "cert"], cwd=folder, check=True, capture_output=True)
    return (folder / "cert").read_text(), (folder / "key").read_text()


def test_a_certificate_may_be_in_the_kubeconfig_a_file_or_a_plugins_word(config: Config, tmp_path: Path) -> None:
    own = self_signed(tmp_path)
    inside = dict(zip(("client-certificate-data", "client-key-data"), map(encoded, own), strict=True))
    given = plugin(tmp_path, clientCertificateData=own[0], clientKeyData=own[1])
    for user in (inside, {"client-certificate": "cert", "client-key": "key"}, {"exec": given}):
        config(user)
        access = kubeconfig.access()
        assert access.certificate == own
        assert isinstance(access.context(), ssl.SSLContext)


@pytest.mark.parametrize("data", [{"authority": "no certificate"}, {"certificate": ("no certificate", "no key")}])
def test_what_is_no_certificate_is_said_so(data: dict[str, Any]) -> None:
    with pytest.raises(NoAccess, match="cannot be read"):
        Api(Access("https://127.0.0.1:1", **data))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_real_api_server_lets_nobody_else_in(api_server: Server, config: Config) -> None:
    """By its certificate, whatever it is called; and by one's token."""
    server = f"https://127.0.0.1:{api_server.port}"
    authority = {"certificate-authority-data": encoded(api_server.certificate.read_text())}
    for cluster in (authority, {"insecure-skip-tls-verify": True}, authority | {"tls-server-name": "kubernetes"}):
        config({"token": ADMIN_TOKEN}, server=server, **cluster)
        assert Api(kubeconfig.access()).get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
    for user, cluster, status in (
        ({"token": "nobody"}, authority, 401),
        ({"token": ADMIN_TOKEN}, {}, 0),
        ({"token": ADMIN_TOKEN}, authority | {"tls-server-name": "somebody.example"}, 0),
        ({"token": ADMIN_TOKEN}, authority | {"proxy-url": "http://127.0.0.1:1"}, 0),
    ):
        config(user, server=server, **cluster)
        with pytest.raises(Refused) as refused:
            Api(kubeconfig.access()).get("/api/v1/namespaces/default")
        assert refused.value.status == status


def test_a_proxy_of_the_environment_is_used(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those whom it says to reach without."""
    config({}, server="https://api.example:6443")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert kubeconfig.access().proxy == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "api.example")
    assert kubeconfig.access().proxy == ""


@pytest.mark.parametrize(
    ("but", "proxy"), [("10.0.0.0/8, example.org", ""), ("10.2.0.0/16", "http://proxy:3128"), ("", "http://proxy:3128")]
)
def test_networks_without_a_proxy(config: Config, monkeypatch: pytest.MonkeyPatch, but: str, proxy: str) -> None:
    """NO_PROXY may name networks, as kubectl has it."""
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", but)
    config({"token": "a"}, server="https://10.1.2.3:6443")
    assert kubeconfig.access().proxy == proxy


def test_a_plugin_without_a_version_is_named(config: Config) -> None:
    """What a kubeconfig lacks is no traceback."""
    config({"exec": {"command": "true"}})
    with pytest.raises(NoAccess, match="credential plugin"):
        kubeconfig.access().authorization()


def test_authorities_may_have_comments_in_any_language(api_server: Server) -> None:
    """OpenSSL takes letters that it knows, and reads what is between the lines of a certificate not at all."""
    authority = f"# Főtanúsítvány\n{api_server.certificate.read_text()}"
    access = Access(f"https://127.0.0.1:{api_server.port}", lambda: f"Bearer {ADMIN_TOKEN}", authority)
    assert Api(access).list_all("/api/v1/namespaces").items


def test_nobody_is_believed_by_an_empty_file(tmp_path: Path) -> None:
    """It does not mean those that the system believes."""
    (tmp_path / "ca.crt").write_text("\n")
    with pytest.raises(NoAccess, match="empty"):
        Access.by_token("https://127.0.0.1:1", authority=tmp_path / "ca.crt", token=tmp_path / "token")


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("fd00:10:96::1", "https://[fd00:10:96::1]:443"),
        ("10.96.0.1", "https://10.96.0.1:443"),
        ("kubernetes.default.svc", "https://kubernetes.default.svc:443"),
    ],
)
def test_a_pod_finds_the_api_server_also_in_an_ipv6_cluster(
    host: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet gives an address without brackets, which no URL takes."""
    assert pod(tmp_path, monkeypatch, host, "443").server == server


def test_a_pod_reaches_an_api_server_by_ipv6(
    api_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers at an IPv6 address, and in its own words: what it does not like is the token."""
    with Relay(api_server.port) as relay:
        access = pod(tmp_path, monkeypatch, "::1", str(relay.port), api_server.certificate.read_text())
        with pytest.raises(Refused, match="Unauthorized"):
            Api(replace(access, server_name="127.0.0.1")).get("/api/v1/nodes")


def pod(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: str, port: str, authority: str = "a certificate"
) -> Access:
    """The access of a pod that the kubelet tells so."""
    (folder / "ca.crt").write_text(authority)
    (folder / "token").write_text("of nobody")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    return Access.in_cluster(folder)


class Relay(socketserver.ThreadingTCPServer):
    """Hands connections to a port of ::1 on to one of 127.0.0.1."""

    address_family = socket.AF_INET6
    daemon_threads = True

    def __init__(self, to: int) -> None:
        super().__init__(("::1", 0), self._hand_on)
        self._to = to
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def _hand_on(self, here: socket.socket, *_: object) -> None:
        with socket.create_connection(("127.0.0.1", self._to)) as there:
            back = threading.Thread(target=_pour, args=(there, here), daemon=True)
            back.start()
            _pour(here, there)
            back.join(5)


def _pour(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
