"""The operator under test: its process with the rights of its role, and its figures."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidepool_api import Metric
from tidepool_api_testing.server import free_ports

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

TOKEN = "operator-of-a-scale-run"
START_SECONDS = 900


class Operator:
    """A running operator."""

    def __init__(self, server: Server, log: Path) -> None:
        self._server, self._log = server, log
        self._metrics, self._health = free_ports(2)

    def __enter__(self) -> Self:
        environment = os.environ | {"KUBECONFIG": str(self._server.kubeconfig(TOKEN))}
        flags = [f"--metrics-port={self._metrics}", f"--health-port={self._health}"]
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "tidepool_operator", *flags]
            self._process = subprocess.Popen(command, env=environment, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while "ready: " not in self._log.read_text():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.__exit__()
                raise TimeoutError(f"the operator is not ready: {self._log.read_text()[-2000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):  # on a busy machine; the figures are there by then
            self._process.wait(30)
        self._process.kill()

    def rss_mib(self) -> int:
        """Resident memory."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(found[1]) // 1024 if found else 0

    def processor_seconds(self) -> float:
        """What it has had of the machine's processors so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def writes(self) -> float:
        """Objects written so far."""
        return self._sum(f"{Metric.API_WRITES}{{")

    def passes(self) -> float:
        """Passes over namespaces so far."""
        return self._sum(f"{Metric.RECONCILES} ")

    def plan_seconds(self) -> float:
        """What it took to plan all pools of a namespace, in the mean."""
        return self._sum(f"{Metric.PASS_PLAN_SECONDS}_sum") / self._sum(f"{Metric.PASS_PLAN_SECONDS}_count")

    def _sum(self, series: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))
