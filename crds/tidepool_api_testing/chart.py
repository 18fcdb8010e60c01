"""What the chart installs, as Helm renders it, and its rights for a user of a test server."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from tidepool_api_testing.binaries import E2E

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHART = E2E.parent / "charts/tidepool"
RELEASE, NAMESPACE = "tidepool", "tidepool-system"
RIGHTS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")

_RBAC = "rbac.authorization.k8s.io"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the lab's Helm; what became of it is for the caller to see."""
    return subprocess.run([program("helm"), *arguments], capture_output=True, text=True, check=False)


@cache
def program(name: str) -> str:
    """Where one of the lab's programs is, which is built now if it never was."""
    ask = [str(E2E / "lab"), "path", name]
    return subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def rendered(component: str = "", *settings: str) -> list[dict[str, Any]]:
    """The chart's objects, or those of one component; raises CalledProcessError when the chart refuses the settings."""
    answer = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, *(f"--set={one}" for one in settings))
    answer.check_returncode()
    found = [one for one in yaml.safe_load_all(answer.stdout) if one]
    return [one for one in found if component in ("", one["metadata"]["labels"]["app.kubernetes.io/component"])]


def for_user(objects: Iterable[dict[str, Any]], user: str) -> Iterator[dict[str, Any]]:
    """The roles and bindings among some objects, under names of their own, for a user."""
    for one in objects:
        if one["kind"] not in RIGHTS:
            continue
        renamed = {**one, "metadata": {**one["metadata"], "name": f"{one['metadata']['name']}-{user}"}}
        if "roleRef" in one:
            renamed["roleRef"] = {**one["roleRef"], "name": f"{one['roleRef']['name']}-{user}"}
            renamed["subjects"] = [{"apiGroup": _RBAC, "kind": "User", "name": user}]
        yield renamed
