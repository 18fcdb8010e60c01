"""The lab that the product's tests share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import released
from product import BORROWER, GUESTS, PATIENCE, SPECS, STRESS, Product

import docs
from demo import evidence, lab, workload
from tidepool_lab import paths


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the tests that take many minutes, too")
    parser.addoption("--upgrade-from", metavar="COMMIT", help="to upgrade from; the latest of which every part differs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes many minutes; only with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        others = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def session_lab() -> Iterator[Product]:
    """The lab, up for all tests of the product."""
    guests = [argument for spec in SPECS for argument in ("--guest", spec)]
    try:
        lab.call("up", *guests, show=True, patience=3600)
        program = workload.build_stress()
        for name in GUESTS:
            lab.call("cp", program, f"{name}:{STRESS}")
        lab.guest(BORROWER, "mountpoint -q /mnt || mount /dev/vdb /mnt")
        yield Product()
    finally:
        lab.call(*shlex.split(docs.command("down"))[1:], show=True)


@pytest.fixture
def product(session_lab: Product, request: pytest.FixtureRequest) -> Iterator[Product]:
    """The lab without any pool; what a failed test leaves is written down and cleaned up for the next one."""
    failed_before = request.session.testsfailed
    yield session_lab
    if request.session.testsfailed > failed_before:
        print(evidence.in_short(evidence.keep(GUESTS, paths.BUILD / "test" / request.node.name)))
        session_lab.revive_lender()
    lab.kubectl("delete", "memorypools", "--all", f"--timeout={PATIENCE}s")


@pytest.fixture(scope="session")
def dist() -> Iterator[released.Dist]:
    """A release of these sources."""
    with released.made() as one:
        yield one


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin of these sources, where kubectl finds it."""
    program = tmp_path / "kubectl-tidepool"
    libraries = f"{paths.ROOT}/kubectl-plugin:{paths.ROOT}/crds"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={libraries} exec {sys.executable} -m tidepool_kubectl "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
