"""The rights that the chart gives the agent's process, for processes of the tests."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tidepool_api_testing.chart import rendered

# Whom the daemons of the tests have names for, as those of KubeVirt have for the user that is the chart's default.
NOBODY = ("agent.runAsUser=65534", "agent.runAsGroup=65534")
STRANGER = ("agent.runAsUser=65532", "agent.runAsGroup=65532")
ROOT = ("agent.runAsUser=0", "agent.runAsGroup=0")


def as_in_its_pod(settings: Sequence[str]) -> list[str]:
    """What to put before a command that is to have the user and capabilities that the chart sets, and nothing beyond.

    Empty where the tests are not run by root, who alone can become somebody else.
    """
    if os.getuid() != 0:
        return []
    (pod,) = [one["spec"]["template"]["spec"] for one in rendered("agent", *settings) if one["kind"] == "DaemonSet"]
    user = pod["securityContext"]
    added = pod["containers"][0]["securityContext"]["capabilities"]["add"]
    sets = ",".join(["-all", *(f"+{name.lower()}" for name in added)])
    return [
        "setpriv",
        f"--reuid={user['runAsUser']}",
        f"--regid={user['runAsGroup']}",
        "--clear-groups",
        "--no-new-privs",
        f"--bounding-set={sets}",
        f"--inh-caps={sets}",
        f"--ambient-caps={sets}",
    ]
