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
