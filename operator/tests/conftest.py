"""A real API server, the operator as a process of its own with the rights of its role, and agents played by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cast import NARROW_TOKEN, OPERATOR_TOKEN, OWN_NAMESPACE, Agent, OperatorProcess, role

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidepool_api_testing.server import Server

pytest_plugins = ["tidepool_api_testing.plugin"]


@pytest.fixture(scope="session")
def api_server_users() -> dict[str, str]:
    """The operator is a user without any right but those of its role; another one has them in some namespaces."""
    return {"operator": OPERATOR_TOKEN, "narrow": NARROW_TOKEN}


@pytest.fixture(scope="session")
def cluster(api_server: Server) -> Server:
    """An API server with the operator's role."""
    api_server.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}},
        *role("operator"),
    )
    return api_server


@pytest.fixture(scope="module")
def operator(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """One operator for all tests of a module that do not stop it."""
    with OperatorProcess(cluster, tmp_path_factory.mktemp("operator") / "log") as process:
        yield process


@pytest.fixture
def own_operator(cluster: Server, namespace: str, tmp_path: Path) -> OperatorProcess:
    """An operator for one namespace, to be started and stopped by the test."""
    return OperatorProcess(cluster, tmp_path / "log", namespaces=namespace)


@pytest.fixture
def agent(cluster: Server, namespace: str) -> Iterator[Agent]:
    """The agent of a node of the test's own."""
    with Agent(cluster, namespace, f"node-of-{namespace}") as one:
        yield one
