"""What the documentation points to is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidepool_lab import paths

_LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=paths.ROOT, capture_output=True, text=True, check=True)
PAGES = [paths.ROOT / name for name in _LISTED.stdout.splitlines()]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
VALUE = re.compile(r"--set(?:-string)? '?([A-Za-z]+(?:\.[A-Za-z]+)*)=")


def anchors(page: Path) -> set[str]:
    """The fragments by which a page's headings are reached, as GitHub makes them."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(page.read_text()))
    return {title.strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page.name} points to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} points to {target}, and there is no such heading"


def test_every_page_of_the_documentation_is_reached() -> None:
    """From the README or from the table of contents, in one step or more."""
    reached: set[Path] = set()
    todo = [paths.ROOT / "README.md", paths.ROOT / "docs/README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (target.partition("#")[0] for target in LINK.findall(page.read_text()) if "://" not in target)
        todo += [(page.parent / link).resolve() for link in links if link]
    runbooks = paths.ROOT / "docs/runbooks"  # the alerts lead to them
    assert {page for page in PAGES if "docs" in page.parts} - reached - set(runbooks.iterdir()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(paths.ROOT)))
def test_values_of_the_chart_that_are_named_exist(page: Path) -> None:
    values: Any = yaml.safe_load((paths.ROOT / "charts/tidepool/values.yaml").read_text())
    for name in VALUE.findall(page.read_text()):
        found = values
        for part in name.split("."):
            free = found == {}  # such as monitoring.labels, in which names are free
            assert free or part in found, f"{page.name} sets {name}, which is no value of the chart"
            found = {} if free else found[part]
