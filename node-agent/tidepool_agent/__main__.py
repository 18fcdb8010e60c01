"""Starts the agent: `python3 -m tidepool_agent`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from prometheus_client import CollectorRegistry

from tidepool_agent import hypervisor, server, settings
from tidepool_agent.balloondevice import BalloonDevice
from tidepool_agent.cluster import Cluster
from tidepool_agent.controller import Controller
from tidepool_agent.donors import Donors
from tidepool_agent.donors import Tools as DonorTools
from tidepool_agent.host import Host
from tidepool_agent.kubevirt import Instances
from tidepool_agent.metrics import Figures
from tidepool_agent.nodedaemon import Daemon
from tidepool_agent.nodelender import Terms
from tidepool_agent.nodeworker import Kernel, NodeWorker, Surroundings
from tidepool_agent.provider import Machine, Source
from tidepool_agent.session import Session
from tidepool_agent.settings import Settings
from tidepool_agent.store import Store
from tidepool_agent.worker import Tools
from tidepool_api import GuestKey, Provider
from tidepool_api.kube import Access, Api


def main() -> None:
    """Runs until the pod is stopped."""
    chosen = settings.parse(sys.argv[1:])
    level = logging.DEBUG if chosen.verbose else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    hypervisor.start_event_loop()
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_run(chosen))
    # A thread that waits for a daemon which hangs must not keep the pod: there is nothing left to save.
    logging.shutdown()
    os._exit(0)


async def _run(chosen: Settings) -> None:
    task = asyncio.current_task()
    if task:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    controller, figures = _assemble(chosen)
    registry = CollectorRegistry()
    registry.register(figures)
    checks = {"/healthz": controller.alive, "/readyz": controller.ready}
    server.start(chosen.metrics_address, chosen.metrics_port, registry, checks)
    await controller.run()


def _assemble(chosen: Settings) -> tuple[Controller, Figures]:
    """The parts of the agent, connected."""
    store, figures = Store(chosen.store), Figures()
    slots = asyncio.Semaphore(chosen.concurrency)
    api = Api(Access.in_cluster(chosen.account))

    def touched(key: GuestKey) -> None:
        controller.touched(key)

    def departed(uid: str) -> None:
        cluster.departed(uid)

    def connect(machine: Machine) -> Session:
        endpoint = sources[machine.provider].endpoint
        return Session(machine, endpoint=endpoint, store=store, slots=slots, proc=chosen.proc, gathered=donors.found)

    def source(provider: Provider) -> Source:
        if provider is Provider.LIBVIRT:
            return Host(chosen.proc, chosen.libvirt_namespace, touched, departed)
        return Instances(api, chosen.node, chosen.proc, touched)

    sources = {provider: source(provider) for provider in chosen.providers}
    cluster = Cluster(api, chosen.node, list(sources.values()), touched, namespaces=chosen.namespaces)
    turns = asyncio.Semaphore(chosen.max_parallel)

    def lends() -> bool:
        return lender is not None and lender.lends()

    def balloon(machine: Machine) -> BalloonDevice:
        return BalloonDevice(lambda: sources[machine.provider].endpoint(machine), machine.domain)

    donors = Donors(DonorTools(cluster, figures, balloon, lends, touched))
    tools = Tools(cluster, store, figures, turns, connect, may_build=chosen.build_in_guests, donors=donors)
    lender = _lender(chosen, api, cluster, figures, donors)
    controller = Controller(tools, chosen.namespace, lender)
    return controller, figures


def _lender(chosen: Settings, api: Api, cluster: Cluster, figures: Figures, donors: Donors) -> NodeWorker | None:
    """What looks after the node itself, if that lends."""
    if not chosen.node_lender:
        return None
    around = Surroundings(api, chosen.node, chosen.namespace)
    terms = Terms(chosen.node_max_lend, chosen.node_reserve, chosen.node_port, chosen.node_metrics_port)
    daemon, kernel, home = Daemon(chosen.proc), Kernel(chosen.proc), chosen.namespace
    return NodeWorker(cluster, figures, around, daemon, kernel, terms, home, donors.gathered)


if __name__ == "__main__":
    main()
