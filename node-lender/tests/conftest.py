"""The daemon, and who borrows from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daemon import Config, Daemon


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the tests that take minutes or boot guests, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes, or boots guests; only with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="module")
def running() -> Iterator[Daemon]:
    with Daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon(running: Daemon) -> Iterator[Daemon]:
    """It lends to nobody before the test and after it."""
    yield running
    running.config = Config(listen=running.config.listen)
    running.reload()
