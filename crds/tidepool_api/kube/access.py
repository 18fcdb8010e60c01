"""Where the API server is, how it is known, and as whom it is talked to."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoAccess(Exception):
    """There is no way to a cluster; the text says why."""


def _nobody() -> str:
    return ""


@dataclass(frozen=True)
class Access:
    """One API server, and an identity."""

    server: str
    authorization: Callable[[], str] = _nobody
    """Gives the value of that header, at each request anew; empty for none. Raises NoAccess."""
    authority: str = ""
    """Whose certificates are believed, in PEM; empty for those that the system believes."""
    certificate: tuple[str, str] | None = None
    """The client's own, and its key, in PEM."""
    is_insecure: bool = False
    """Whether any certificate is believed."""
    server_name: str = ""
    """What the certificate is to be for, where that is not the server's address."""
    proxy: str = ""
    namespace: str = "default"

    @classmethod
    def by_token(cls, server: str, *, authority: Path, token: Path) -> Self:
        """With a token in a file, which the kubelet replaces before it expires. Raises NoAccess."""
        believed = authority.read_text()
        if not believed.strip():
            raise NoAccess(f"{authority} is empty: it must hold the certificate of the API server's authority")
        return cls(server.rstrip("/"), lambda: f"Bearer {token.read_text().strip()}", believed)

    @classmethod
    def in_cluster(cls, account: Path = ACCOUNT) -> Self:
        """The API server of the cluster that this pod runs in."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        return cls.by_token(f"https://{host}:{port}", authority=account / "ca.crt", token=account / "token")

    def context(self) -> ssl.SSLContext:
        """What TLS goes by; raises NoAccess."""
        authority = self.authority.encode("ascii", "ignore").decode()  # comments between certificates may be anything
        try:
            made = ssl.create_default_context(cadata=authority or None)
            if self.certificate:
                with tempfile.TemporaryDirectory() as folder:  # OpenSSL takes them from files only
                    file = Path(folder, "pem")
                    file.write_text("\n".join(self.certificate))
                    made.load_cert_chain(file)
        except ssl.SSLError as error:
            raise NoAccess(f"a certificate, or its key, cannot be read: {error}") from error
        if self.is_insecure:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        return made
