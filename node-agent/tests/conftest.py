"""Real things to test against: a libvirt daemon with guests, and an API server with Tidepool's CRDs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import pytest
from cast import NAMESPACE, agent_rights, kubevirt_crds
from daemon import Daemon, end
from tiny import Kernel, tidepool

from tidepool_agent import hypervisor
from tidepool_agent.errors import GuestError
from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent
from tidepool_api_testing.server import Server

pytest_plugins = ["tidepool_api_testing.plugin"]

BOOT_SECONDS = 120
PATIENCE = 240  # seconds, for what a test has a guest do: nothing is late by its clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="those with guests that boot for minutes, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: with guests that boot for minutes; only with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        others = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session", autouse=True)
def _libvirt_events() -> None:
    hypervisor.start_event_loop()


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The kernel of the guests."""
    return Kernel()


@pytest.fixture(scope="session")
def module() -> Path:
    """tidepool.ko for that kernel."""
    return tidepool()


@pytest.fixture(scope="session")
def cluster(api_server: Server) -> Server:
    """An API server with KubeVirt's CRDs and the agent's rights."""
    api_server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    api_server.apply(*kubevirt_crds())
    api_server.kubectl("wait", "--for=condition=Established", "crd/virtualmachineinstances.kubevirt.io")
    api_server.apply(*agent_rights())
    return api_server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, kernel: Kernel, module: Path) -> Path:
    """A module store with the module for the kernel of the guests."""
    folder = tmp_path_factory.mktemp("store") / kernel.release
    folder.mkdir()
    for file in (module, module.with_name("tidepool.ko.sha256")):
        shutil.copy(file, folder)
    return folder.parent


@pytest.fixture(scope="session")
def daemon(kernel: Kernel) -> Iterator[Daemon]:
    """A libvirt daemon for all tests that do not disturb it."""
    with Daemon(kernel) as one:
        yield one


@pytest.fixture
def own_daemon(kernel: Kernel) -> Iterator[Daemon]:
    """A libvirt daemon that the test may stop."""
    with Daemon(kernel) as one:
        yield one


@pytest.fixture
def started(daemon: Daemon) -> Iterator[Callable[..., libvirt.virDomain]]:
    """Starts guests that end with the test."""
    domains: list[libvirt.virDomain] = []

    def start(name: str, options: str = "", *, channel: bool = True) -> libvirt.virDomain:
        domains.append(daemon.start(name, options, channel=channel))
        return domains[-1]

    yield start
    for domain in domains:
        end(domain)


@pytest.fixture(scope="session")
def agent(daemon: Daemon) -> Iterator[GuestAgent]:
    """The guest agent of a guest that has booted, for tests that leave it as it is."""
    guest = daemon.start("default_one")
    domain = Domain(daemon.uri, "default_one")
    guest_agent = GuestAgent(domain.command)
    wait_for(lambda: guest_agent.blocked() == [])
    yield guest_agent
    domain.close()
    end(guest)


def wait_for(check: Callable[[], bool], seconds: float = BOOT_SECONDS) -> None:
    """Waits until something holds; what a guest cannot answer yet is no failure before the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
        except GuestError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.2)
