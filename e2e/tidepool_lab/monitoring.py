"""Prometheus (Debian's), scraping every pod of the chart that says it has metrics; on request only."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from tidepool_lab import debian, host, paths, pki
from tidepool_lab.progress import LabError

NAME = "prometheus"
ADDRESS = "127.0.0.1:9090"
RULES = paths.ROOT / "charts/tidepool/rules/tidepool.yaml"


def program(name: str) -> Path:
    """Prometheus, or promtool, which comes with it."""
    return debian.unpacked("bookworm", "prometheus") / "usr/bin" / name


def start() -> None:
    """Starts it in the lab's network namespace, unless it runs."""
    if host.running(NAME):
        return
    config = paths.STATE / "prometheus.json"
    config.write_text(json.dumps(_config(), indent=1))  # JSON is YAML
    data = paths.STATE / "prometheus"
    host.start(
        NAME,
        [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            f"--web.listen-address={ADDRESS}",
        ],
    )


def query(expression: str) -> list[dict[str, Any]]:
    """What Prometheus answers now: samples with their labels (`metric`) and `value`; raises `LabError`."""
    if not host.running(NAME):
        raise LabError("no Prometheus is up; start it with `e2e/lab up --prometheus`")
    address = f"http://{ADDRESS}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    code = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=30).read().decode())"
    command = host.in_netns([sys.executable, "-c", code, address])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"Prometheus refused {expression!r}: {done.stderr.strip().splitlines()[-1]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["data"]["result"]
    return found


def _config() -> dict[str, object]:
    """Pods that the chart made, on their container port called `metrics`, and the chart's rules."""
    api = {
        "api_server": pki.API,
        "tls_config": {
            "ca_file": str(paths.PKI / "ca.crt"),
            "cert_file": str(paths.PKI / "admin.crt"),
            "key_file": str(paths.PKI / "admin.key"),
        },
    }
    meta = "__meta_kubernetes_pod"
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "tidepool",
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": ["tidepool-system"]}, **api}],
                "relabel_configs": [
                    {"source_labels": [f"{meta}_container_port_name"], "regex": "metrics", "action": "keep"},
                    {"source_labels": [f"{meta}_name"], "target_label": "pod"},
                    {"source_labels": [f"{meta}_node_name"], "target_label": "node"},
                ],
            }
        ],
    }
