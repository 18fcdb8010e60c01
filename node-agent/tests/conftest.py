"""Real things to test against: a libvirt daemon with guests, and an API server with Tidepool's CRDs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import pytest
from daemon import Daemon, end
from tiny import Kernel, tidepool

from tidepool_agent import hypervisor
from tidepool_agent.errors import GuestError
from tidepool_agent.hypervisor import Domain
from tidepool_agent.qga import GuestAgent

pytest_plugins = ["tidepool_api_testing.plugin"]

BOOT_SECONDS = 120


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
