"""Where the lab keeps the programs of a cluster; it builds what its cache lacks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

E2E = Path(__file__).resolve().parents[2] / "e2e"

_ASK = """
from tidepool_lab import debian, gotools
print(debian.unpacked("bookworm", "etcd-server") / "usr/bin/etcd")
print(gotools.path("kube-apiserver"))
print(gotools.path("kubectl"))
"""


@dataclass(frozen=True)
class Binaries:
    """The programs that a test server needs."""

    etcd: Path
    apiserver: Path
    kubectl: Path


def find() -> Binaries:
    """The programs, from the lab's cache; the lab's progress goes to this process's standard error."""
    answer = subprocess.run([sys.executable, "-c", _ASK], cwd=E2E, stdout=subprocess.PIPE, text=True, check=True)
    return Binaries(*map(Path, answer.stdout.split()))
