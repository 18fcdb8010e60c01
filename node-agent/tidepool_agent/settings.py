"""What the agent is told when it starts: command line, with the environment of its pod as defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidepool_api import Provider, names
from tidepool_api.kube import ACCOUNT
from tidepool_api.units import parse_quantity


@dataclass(frozen=True)
class Settings:
    """Settings of one agent."""

    node: str
    namespace: str
    store: Path
    metrics_port: int
    metrics_address: str
    proc: Path
    providers: tuple[Provider, ...]
    libvirt_namespace: str
    namespaces: frozenset[str]
    build_in_guests: bool
    account: Path
    concurrency: int
    max_parallel: int
    node_lender: bool
    node_max_lend: int
    node_reserve: int
    node_port: int
    node_metrics_port: int
    verbose: bool


def parse(argv: Sequence[str], environment: dict[str, str] | None = None) -> Settings:
    """The settings; exits with a message if something is missing."""
    env = os.environ if environment is None else environment
    parser = argparse.ArgumentParser(prog="tidepool_agent", description="Tidepool's agent on one node.")
    parser.add_argument("--node", default=env.get("NODE_NAME"), help="name of this node (NODE_NAME)")
    parser.add_argument("--namespace", default=env.get("POD_NAMESPACE"), help="the agent's namespace (POD_NAMESPACE)")
    parser.add_argument("--store", type=Path, default=Path("/usr/share/tidepool/modules"), help="prebuilt modules")
    parser.add_argument("--metrics-address", default="", help="where to serve metrics; all addresses by default")
    parser.add_argument("--metrics-port", type=int, default=names.AGENT_METRICS_PORT)
    parser.add_argument("--proc", type=Path, default=Path("/proc"), help="the host's processes")
    parser.add_argument(
        "--providers",
        type=_providers,
        default=(Provider.KUBEVIRT,),
        help="what runs virtual machines here: KubeVirt, Libvirt (the host's own) or both with a comma",
    )
    parser.add_argument(
        "--libvirt-namespace", default="libvirt", help="where domains of the host's libvirt go that are not Nova's"
    )
    parser.add_argument(
        "--namespaces", type=_names, default=frozenset(), help="whose guests are looked at, with commas; all by default"
    )
    parser.add_argument("--build-in-guests", action="store_true", help="let DKMS build the module in guests that can")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="token and ca.crt for the API server")
    parser.add_argument("--concurrency", type=int, default=8, help="guests talked to at a time; for 5 s each")
    parser.add_argument(
        "--max-parallel", type=int, default=1, help="guests that get another build of the module at the same time"
    )
    parser.add_argument("--node-lender", action="store_true", help="lend the node's own memory, by its node lender")
    parser.add_argument("--node-max-lend", type=_size, default=0, help="the most that the node lends, such as 32Gi")
    parser.add_argument("--node-reserve", type=_size, default=0, help="what stays available on it beside that")
    parser.add_argument("--node-port", type=int, default=names.DEFAULT_PORT, help="on which the node lender listens")
    parser.add_argument("--node-metrics-port", type=int, default=names.NODE_LENDER_METRICS_PORT)
    parser.add_argument("--verbose", action="store_true")
    found = parser.parse_args(argv)
    for option in ("node", "namespace"):
        if not getattr(found, option):
            parser.error(f"--{option} is needed")
    return Settings(**vars(found))


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))


def _size(text: str) -> int:
    return parse_quantity(text)


def _providers(text: str) -> tuple[Provider, ...]:
    return tuple(Provider(word) for word in text.split(","))
