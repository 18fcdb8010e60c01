"""Options of the kernel tests: which kernel, which file system, and whether the long ones run too."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from bed.guest import Guest
from bed.pair import Pair


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kernel", default="6.1", help="which kernel the guests boot (6.1, 6.12, 7.2, debug)")
    parser.addoption("--filesystem", help="only what is parametrised by file system, and of that only this one")
    parser.addoption("--long", action="store_true", help="the tests that take minutes, too")
    parser.addoption("--load-seconds", default=300, help="how long test_load.py goes on (300; an hour is 3600)")


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    config.addinivalue_line("markers", "long: takes minutes; only with --long")
    config.addinivalue_line("markers", "debug: needs what only the debug kernel has")


SLOWEST = (
    *("test_transparent", "test_kept", "test_block", "test_resume", "test_values", "test_hooks", "test_behind"),
    *("test_stress", "test_faults", "test_catalog", "test_handshake", "test_lender", "test_network", "test_pages"),
    *("test_breaker", "test_deadlines", "test_lanes", "test_clients", "test_memory"),
)
"""Files that take a minute and more, by how long, as they go first: of two workers none is left alone at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    others = [item for item in items if not _wanted(config, item)]
    config.hook.pytest_deselected(items=others)
    order = {name: place for place, name in enumerate(SLOWEST)}
    wanted = (item for item in items if item not in others)
    items[:] = sorted(wanted, key=lambda item: order.get(item.path.stem, len(order)))


def _wanted(config: pytest.Config, item: pytest.Item) -> bool:
    if item.get_closest_marker("long") and not config.getoption("--long"):
        return False
    if item.get_closest_marker("debug") and config.getoption("--kernel") != "debug":
        return False
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return config.getoption("--filesystem") in (None, parameters.get("filesystem"))


@pytest.fixture(scope="session")
def kernel(pytestconfig: pytest.Config) -> str:
    """Name of the kernel under test."""
    return str(pytestconfig.getoption("--kernel"))


@pytest.fixture(scope="module")
def bare_pair(kernel: str) -> Iterator[Pair]:
    """Two guests without data disk, shared by the tests of one file; the module is not loaded."""
    pair = Pair(kernel, disk=None, borrower_mem="256M", lender_mem="256M", processors=1)
    with pair:
        yield pair


@pytest.fixture
def loaded(bare_pair: Pair) -> Iterator[Guest]:
    """A guest with the module loaded and nobody configured, before the test and after it."""
    if not bare_pair.b.loaded:
        bare_pair.b.load()
    yield bare_pair.borrower
    bare_pair.b.remove_peers()
