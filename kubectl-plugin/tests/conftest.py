"""A real API server with the CRDs, a user who may look at one namespace only, and a real Chromium."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from tidepool_api_testing.chart import program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

pytest_plugins = ["tidepool_api_testing.plugin"]


@pytest.fixture(scope="session")
def api_server_users() -> dict[str, str]:
    """Somebody who has a namespace and nothing else."""
    return {"tenant": "token-of-a-tenant"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as Debian has it."""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program("chromium")) as launched:
        yield launched
