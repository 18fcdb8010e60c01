"""How the operator is started: a flag for everything, and an environment variable for every flag."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidepool_api.names import OPERATOR_METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_NAMESPACE = "tidepool-system"


@dataclass(frozen=True)
class Settings:
    """What was asked for."""

    own_namespace: str = DEFAULT_NAMESPACE
    namespaces: tuple[str, ...] = ()  # none: all of the cluster
    metrics_address: str = ""  # none: all of the host's
    metrics_port: int = OPERATOR_METRICS_PORT
    health_address: str = ""
    health_port: int = 8080
    log_format: str = "text"
    log_level: str = "INFO"


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings; flags win over the environment."""
    chosen = _parser(environment).parse_args(arguments)
    return Settings(
        own_namespace=chosen.own_namespace,
        namespaces=tuple(sorted({name for name in chosen.namespaces.split(",") if name})),
        metrics_address=chosen.metrics_address,
        metrics_port=chosen.metrics_port,
        health_address=chosen.health_address,
        health_port=chosen.health_port,
        log_format=chosen.log_format,
        log_level=chosen.log_level.upper(),
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m tidepool_operator",
        description="The operator of Tidepool. Flags may be given as variables: TIDEPOOL_LOG_FORMAT, say.",
    )

    def flag(name: str, default: str, text: str, kind: type = str, choices: Sequence[str] | None = None) -> None:
        variable = "TIDEPOOL_" + name.upper().replace("-", "_")
        value = kind(environment.get(variable) or default)
        parser.add_argument(
            f"--{name}", default=value, type=kind, choices=choices, help=f"{text} (default: {default!r})"
        )

    own = environment.get("POD_NAMESPACE", DEFAULT_NAMESPACE)
    flag("own-namespace", own, "the namespace in which the agents have their leases; POD_NAMESPACE is heeded too")
    flag("namespaces", "", "namespaces to serve, separated by commas; empty for all of the cluster")
    flag("metrics-address", "", "where to serve /metrics; empty for all addresses")
    flag("metrics-port", str(OPERATOR_METRICS_PORT), "the port of /metrics; 0 for none", int)
    flag("health-address", "", "where to serve /healthz and /readyz; empty for all addresses")
    flag("health-port", "8080", "the port of these; 0 for none", int)
    flag("log-format", "text", "how to log", choices=("text", "json"))
    flag("log-level", "INFO", "how much to log: DEBUG, INFO, WARNING or ERROR")
    return parser
