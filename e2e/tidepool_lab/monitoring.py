"""Prometheus (Debian's), scraping every pod of the chart that says it has metrics; on request only."""

from __future__ import annotations

import json
from pathlib import Path

from tidepool_lab import debian, host, paths, pki

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
