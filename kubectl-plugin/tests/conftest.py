"""A real API server with the CRDs, and a user who may look at one namespace only."""

from __future__ import annotations

import pytest

pytest_plugins = ["tidepool_api_testing.plugin"]


@pytest.fixture(scope="session")
def api_server_users() -> dict[str, str]:
    """Somebody who has a namespace and nothing else."""
    return {"tenant": "token-of-a-tenant"}
