"""kubectl and Helm against the lab's API server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from tidepool_lab import gotools, host, pki
from tidepool_lab.progress import LabError

SYSTEM = "tidepool-system"  # the namespace that the chart is installed in


def command(program: str, arguments: Sequence[str]) -> list[str]:
    """`kubectl` or `helm` as it runs in the lab's network namespace."""
    return host.in_netns([gotools.path(program), *arguments])


def environment() -> dict[str, str]:
    """The environment in which both find the lab."""
    return dict(os.environ, KUBECONFIG=str(pki.kubeconfig()))


def kubectl(*arguments: str, stdin: str | None = None) -> str:
    """Runs kubectl and returns what it prints; an error says what kubectl said."""
    done = subprocess.run(
        command("kubectl", arguments), env=environment(), input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LabError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def succeeds(*arguments: str) -> bool:
    """Whether kubectl exits with 0."""
    done = subprocess.run(command("kubectl", arguments), env=environment(), capture_output=True, check=False)
    return done.returncode == 0


def get(*arguments: str) -> Any:
    """An object (or list) as the API returns it; None when there is no such object."""
    text = kubectl("get", "--ignore-not-found", "-o", "json", *arguments)
    return json.loads(text) if text.strip() else None


def apply(*documents: dict[str, Any]) -> None:
    """Server-side apply."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(items))
