"""`python3 -m tidepool_operator`: one process that serves a cluster, or the namespaces that it is given."""

from __future__ import annotations

import os
import socket
import sys

# asyncio and aiohttp look the user up for their defaults, and a container's UID has no passwd entry.
os.environ.setdefault("USER", "tidepool")
os.environ.setdefault("HOME", "/tmp")

import kopf
from prometheus_client import start_http_server

from tidepool_operator import handlers, logs, settings
from tidepool_operator.metrics import Metrics

# Of IPv6 this is IPv4 as well.
ANY = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def main(arguments: list[str]) -> None:
    """Runs until it is told to stop."""
    chosen = settings.parse(arguments)
    logs.set_up(chosen.log_format, chosen.log_level)
    metrics = Metrics()
    if chosen.metrics_port:
        start_http_server(chosen.metrics_port, addr=chosen.metrics_address or ANY)
    kopf.run(
        registry=handlers.build_registry(chosen, metrics),
        standalone=True,
        clusterwide=not chosen.namespaces,
        namespaces=chosen.namespaces,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
