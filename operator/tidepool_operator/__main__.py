"""`python3 -m tidepool_operator`: one process that serves a cluster, or the namespaces that it is given."""

from __future__ import annotations

import os
import sys

# asyncio and aiohttp look the user up for their defaults, and a container's UID has no passwd entry.
os.environ.setdefault("USER", "tidepool")
os.environ.setdefault("HOME", "/tmp")

import kopf
from prometheus_client import MetricsHandler

from tidepool_api import serving
from tidepool_operator import handlers, logs, settings
from tidepool_operator.metrics import Metrics


def main(arguments: list[str]) -> None:
    """Runs until it is told to stop."""
    chosen = settings.parse(arguments)
    logs.set_up(chosen.log_format, chosen.log_level)
    metrics = Metrics()
    if chosen.metrics_port:
        serving.start(chosen.metrics_address, chosen.metrics_port, MetricsHandler)
    kopf.run(
        registry=handlers.build_registry(chosen, metrics),
        standalone=True,
        clusterwide=not chosen.namespaces,
        namespaces=chosen.namespaces,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
