"""What the documentation says can be checked is checked: links, functions, metrics, manifests, commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tidepool_api import Metric, names

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server

TOP = Path(__file__).parents[2]
TRACKED = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, stdout=subprocess.PIPE, text=True, check=True).stdout
PAGES = [TOP / line for line in TRACKED.split()]
DOCS = [page for page in PAGES if "docs" in page.parts or page.parent == TOP]


def name(page: Path) -> str:
    return str(page.relative_to(TOP))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else (page.parent / path).resolve()
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_functions_that_are_named_are_there() -> None:
    """The way of one page names functions of the module."""
    sources = "".join(file.read_text() for file in (TOP / "kernel-module").glob("*.c"))
    named = set(re.findall(r"`(tide_[a-z_]+)\(\)`", (TOP / "CONTRIBUTING.md").read_text()))
    assert len(named) > 25
    assert [one for one in named if not re.search(rf"^[a-z].*\b{one}\(", sources, flags=re.MULTILINE)] == []


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_metrics_that_are_named_are_exported(page: Path) -> None:
    found = set(re.findall(r"`(tidepool_(?:pool|guest|operator)_[a-z_]+)`", page.read_text()))
    assert {one.removesuffix("_bucket") for one in found} <= set(Metric)


def manifests() -> list[tuple[str, dict[str, Any]]]:
    blocks = [
        (name(page), block)
        for page in DOCS
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    ]
    bodies = [(where, yaml.safe_load(block)) for where, block in blocks]
    return [(where, body) for where, body in bodies if names.GROUP in body.get("apiVersion", "")]


@pytest.mark.parametrize("body", [pytest.param(body, id=where) for where, body in manifests()])
def test_manifests_are_taken_as_they_are(api_server: Server, namespace: str, body: dict[str, Any]) -> None:
    """By a real API server, with no field that it does not know."""
    metadata = body["metadata"] | {"namespace": namespace}
    api_server.kubectl("create", "--validate=strict", "-f", "-", body=body | {"metadata": metadata})


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_programs_of_the_tree_that_are_called_are_there(page: Path) -> None:
    called = re.findall(r"^ {4}((?:e2e|kernel-module)/[\w./-]+)", page.read_text(), flags=re.MULTILINE)
    assert [one for one in called if not (TOP / one).is_file()] == []


def test_the_chart_has_the_values_that_are_set() -> None:
    values = yaml.safe_load((TOP / "charts/tidepool/values.yaml").read_text())
    for page in DOCS:
        for setting in re.findall(r"--set(?:-string)? ([\w.]+)=", page.read_text()):
            head, *rest = setting.split(".")
            there = values[head]
            assert not rest or rest[0] in there, f"{name(page)}: {setting}"
