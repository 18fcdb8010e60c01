"""kopf talks to the same API server, and as the same, as the operator itself does."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tidepool_api.kube import Access
from tidepool_operator.handlers import connection

if TYPE_CHECKING:
    from pathlib import Path


def test_kopf_has_the_same_access(tmp_path: Path) -> None:
    """Authority and certificate too, be there anything before the first line that OpenSSL reads."""
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=me")
    subprocess.run(["openssl", *new, "-keyout", "key", "-out", "cert"], cwd=tmp_path, check=True, capture_output=True)
    certificate, key = (tmp_path / "cert").read_text(), (tmp_path / "key").read_text()
    access = Access(
        "https://127.0.0.1:1",
        lambda: "Bearer word",
        f"# whose it is\n{certificate}",
        (certificate, key),
        proxy="http://127.0.0.1:2",
    )
    made = connection(access)
    assert made.as_http_headers() == {"Authorization": "Bearer word"}
    assert [one["subject"] for one in made.as_ssl_context().get_ca_certs()] == [((("commonName", "me"),),)]
    assert (made.server, made.proxy_url) == (access.server, access.proxy)
    nobody = connection(Access("https://127.0.0.1:1"))
    assert (nobody.as_http_headers(), nobody.proxy_url) == ({}, None)
