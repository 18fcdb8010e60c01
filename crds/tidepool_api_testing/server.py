"""One etcd and one kube-apiserver on loopback, in a folder of their own, for as long as the tests of a session run."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tidepool_api import kube
from tidepool_api_testing.binaries import Binaries, find
from tidepool_api_testing.reader import Reader

ADMIN_TOKEN = "admin-of-a-test-server"
CRDS = Path(__file__).resolve().parents[1] / "yaml"
START_SECONDS = 90
# What is no kind.
CATEGORIES = ("all", "tidepool")


NOT_ASKED = "TLS handshake timeout"  # what kubectl says then; nothing was sent


class Refused(Exception):
    """kubectl failed; the text is what it said."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in bound]


def _plain(arguments: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Kind, name and namespace of what kubectl is asked for; None if it is asked for more than that."""
    words, namespace = list(arguments), "default"
    if "-n" in words:
        at = words.index("-n")
        namespace = words[at + 1]
        del words[at : at + 2]
    everywhere = "-A" in words
    words = [word for word in words if word != "-A"]
    if not 1 <= len(words) <= 2 or any(word.startswith("-") or "," in word or "/" in word for word in words):
        return None
    if words[0] in CATEGORIES:
        return None
    return words[0], "".join(words[1:]), "" if everywhere else namespace


class Server:
    """A running API server, and kubectl against it."""

    def __init__(self, tokens: dict[str, str] | None = None) -> None:
        """`tokens` gives further users, each with the token by which it is known."""
        self._tokens = tokens or {}
        self._binaries: Binaries = find()
        self._folder = Path(tempfile.mkdtemp(prefix="tidepool-api-"))
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start_etcd()
            self._start_apiserver()
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends both, the API server first, and removes their folder."""
        for process in reversed(self._running):
            process.kill()
            process.wait()
        shutil.rmtree(self._folder)

    def restart_apiserver(self, pause: float) -> None:
        """Kills the API server and starts it again after a pause; etcd keeps everything."""
        process = self._running.pop()
        process.kill()
        process.wait()
        time.sleep(pause)
        self._start_apiserver()
        self._wait()

    @property
    def certificate(self) -> Path:
        """By which the server is known."""
        return self._folder / "pki/apiserver.crt"

    def kubeconfig(self, token: str = ADMIN_TOKEN) -> Path:
        """A kubeconfig for whoever has that token."""
        path = self._folder / f"{hashlib.sha256(token.encode()).hexdigest()[:16]}.kubeconfig"
        if path.exists():
            return path
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.certificate),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        fresh = path.with_suffix(f".{threading.get_ident()}")
        fresh.write_text(json.dumps(content))
        return fresh.rename(path)

    def kubectl(self, *arguments: str, body: Any = None, token: str = ADMIN_TOKEN) -> str:
        """Runs kubectl, with an object (or several in a list) on its standard input; raises `Refused`."""
        objects = body if isinstance(body, list) else [body]
        text = None if body is None else json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        command: list[str | Path] = [self._binaries.kubectl, f"--kubeconfig={self.kubeconfig(token)}", *arguments]
        answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        while answer.returncode and NOT_ASKED in answer.stderr:  # a machine so busy that it takes ten seconds
            answer = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise Refused(answer.stderr.strip())
        return answer.stdout

    def get(self, *arguments: str) -> Any:
        """What `kubectl get -o json` gives."""
        asked = _plain(arguments)
        if asked is None:
            return json.loads(self.kubectl("get", "-o", "json", *arguments))
        try:
            return self._reader.get(*asked)
        except kube.Refused as error:
            raise Refused(f"Error from server ({error.reason}): {error.why}") from None

    @cached_property
    def _reader(self) -> Reader:
        access = kube.Access(
            f"https://127.0.0.1:{self.port}", lambda: f"Bearer {ADMIN_TOKEN}", self.certificate.read_text()
        )
        return Reader(kube.Api(access))

    def create(self, *objects: dict[str, Any]) -> None:
        """Creates objects; it is the server that judges them, not kubectl."""
        self.kubectl("create", "--validate=false", "-f", "-", body=list(objects))

    def apply(self, *objects: dict[str, Any], manager: str = "kubectl") -> None:
        """Applies objects on the server's side."""
        self.kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", "-", body=list(objects))

    def apply_status(self, one: dict[str, Any], manager: str = "kubectl") -> None:
        """Applies the status of one object."""
        options = ("--server-side", "--validate=false", f"--field-manager={manager}", "--subresource=status")
        self.kubectl("apply", *options, "-f", "-", body=[one])

    def install_crds(self) -> None:
        """Installs the CRDs and waits until they are served."""
        self.kubectl("apply", "--server-side", "-f", str(CRDS))
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))

    def _start(self, *command: str | Path) -> None:
        log = (self._folder / f"{Path(command[0]).name}.log").open("wb")
        with log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder)
        self._running.append(process)

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        data = self._folder / "etcd"
        data.mkdir(mode=0o700)
        self._start(
            self._binaries.etcd,
            f"--data-dir={data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _start_apiserver(self) -> None:
        key = self._folder / "accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        users = [f"{ADMIN_TOKEN},admin,admin,system:masters"]
        users += [f"{token},{user},{user}" for user, token in self._tokens.items()]
        tokens = self._folder / "tokens.csv"
        tokens.write_text("\n".join(users))
        self._start(
            self._binaries.apiserver,
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self._folder / 'pki'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--watch-cache=true",
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if dead := [one for one in self._running if one.poll() is not None]:
                raise RuntimeError(f"{dead[0].args!r} ended: {self._logs()}")
            try:
                self.kubectl("get", "--raw", "/readyz")
                self.kubectl("get", "namespace", "default")
            except Refused:
                time.sleep(0.2)
            else:
                return
        raise TimeoutError(f"the API server is not ready after {START_SECONDS} s: {self._logs()}")

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log"))
