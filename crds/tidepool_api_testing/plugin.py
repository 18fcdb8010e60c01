"""Fixtures: `-p tidepool_api_testing.plugin`, or `pytest_plugins` in a conftest.py."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tidepool_api_testing.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long an example takes depends on who else has the machine; what is to be quick is held to `pace`.
settings.register_profile("tidepool", deadline=None)
settings.load_profile("tidepool")

_NUMBERS = itertools.count(1)

# Fixtures that start something: an API server, guests with their libvirt, a browser.
STARTING = frozenset({"api_server", "server", "own_server", "lax_server", "daemon", "own_daemon", "kernel", "browser"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Those of all parts."""
    parser.addoption("--quick", action="store_true", help="only tests that start no server, guest or browser")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what a test of a few minutes has no time for."""
    if not config.getoption("--quick"):
        return
    slow = [one for one in items if STARTING & set(getattr(one, "fixturenames", ()))]
    config.hook.pytest_deselected(items=slow)
    items[:] = [one for one in items if one not in set(slow)]


@pytest.fixture(scope="session")
def api_server_users() -> dict[str, str]:
    """Users of the server beside the administrator, with their tokens; override it to have some."""
    return {}


@pytest.fixture(scope="session")
def api_server(api_server_users: dict[str, str]) -> Iterator[Server]:
    """A real API server with the CRDs."""
    with Server(api_server_users) as server:
        server.install_crds()
        yield server


@pytest.fixture
def namespace(api_server: Server) -> str:
    """A namespace of the test's own."""
    name = f"test-{next(_NUMBERS)}"
    api_server.kubectl("create", "namespace", name)
    return name
