"""Prometheus (Debian's), scraping every pod of the chart that says it has metrics; on request only.

Debian builds it without Kubernetes' service discovery. In its place a daemon of the lab writes down what that would
find: the pods with a container port called `metrics`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

from tidepool_lab import cluster, debian, host, paths
from tidepool_lab.addresses import in_url
from tidepool_lab.progress import LabError

NAME, DISCOVERY = "prometheus", "prometheus-discovery"
LOOK_EVERY = 2
ADDRESS = "127.0.0.1:9090"
RULES = paths.ROOT / "charts/tidepool/rules/tidepool.yaml"


def program(name: str) -> Path:
    """Prometheus, or promtool, which comes with it."""
    return debian.unpacked("bookworm", "prometheus") / "usr/bin" / name


def start() -> None:
    """Starts it in the lab's network namespace, and what tells it whom to scrape, unless they run."""
    if not host.running(DISCOVERY):
        code = [sys.executable, "-m", "tidepool_lab.monitoring"]
        host.start(DISCOVERY, code, env={"PYTHONPATH": str(paths.E2E)}, node=None)
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
    return _ask("query", query=expression)


def query_range(expression: str, seconds: float, step: float) -> list[dict[str, Any]]:
    """What it would have answered in the last seconds, every `step` of them: series with `values`."""
    end = time.time()
    return _ask("query_range", query=expression, start=end - seconds, end=end, step=step)


def _ask(what: str, **parameters: object) -> list[dict[str, Any]]:
    if not host.running(NAME):
        raise LabError("no Prometheus is up; start it with `e2e/lab up --prometheus`")
    address = f"http://{ADDRESS}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    code = "import sys, urllib.request as r; sys.stdout.write(r.urlopen(sys.argv[1], timeout=30).read().decode())"
    command = host.in_netns([sys.executable, "-c", code, address])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"Prometheus refused {parameters['query']!r}: {done.stderr.strip().splitlines()[-1]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)["data"]["result"]
    return found


def _config() -> dict[str, object]:
    """The chart's pods and rules."""
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "tidepool", "honor_labels": True, "file_sd_configs": [{"files": [str(_targets_file())]}]}
        ],
    }


def _targets_file() -> Path:
    return paths.STATE / "prometheus-targets.json"


def targets(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What to scrape, in the form of Prometheus' file_sd."""
    return [
        {
            "targets": [f"{in_url(pod['status']['podIP'])}:{port['containerPort']}"],
            "labels": {"pod": pod["metadata"]["name"], "node": pod["spec"]["nodeName"]},
        }
        for pod in pods
        if pod["status"].get("podIP") and "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if port.get("name") == "metrics"
    ]


def main() -> None:
    """Keeps the file true until killed."""
    known: list[dict[str, Any]] | None = None
    while True:
        try:
            pods = json.loads(cluster.kubectl("get", "pods", "-n", cluster.SYSTEM, "-o", "json"))["items"]
        except LabError as error:
            print(error, flush=True)
        else:
            if (found := targets(pods)) != known:
                fresh = _targets_file().with_suffix(".new")
                fresh.write_text(json.dumps(found, indent=1))
                fresh.rename(_targets_file())
                known = found
        time.sleep(LOOK_EVERY)


if __name__ == "__main__":
    main()
