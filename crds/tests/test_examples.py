"""The pools and grants that the documentation shows are such as the API server takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tidepool_api import names

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md")), TOP / "e2e/demo/pool.yaml"]


def _shown(page: Path) -> list[dict[str, Any]]:
    """The objects of a page; a pool that is shown without its head gets one."""
    text = page.read_text()
    blocks = [text] if page.suffix == ".yaml" else re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [yaml.safe_load(block) for block in blocks]
    head = {"apiVersion": names.API_VERSION, "kind": "MemoryPool", "metadata": {"name": "shown"}}
    return [head | one for one in found if "spec" in one and names.GROUP in one.get("apiVersion", names.API_VERSION)]


EXAMPLES = [(page.name, one) for page in PAGES for one in _shown(page)]


def test_there_are_examples() -> None:
    assert {"README.md", "first-pool.md", "pool.yaml"} <= {name for name, _ in EXAMPLES}


@pytest.mark.parametrize("example", [one for _, one in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_an_example_is_accepted(api_server: Server, example: dict[str, Any]) -> None:
    metadata = {name: value for name, value in example["metadata"].items() if name != "namespace"}
    body = [example | {"metadata": metadata}]
    api_server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", body=body)
