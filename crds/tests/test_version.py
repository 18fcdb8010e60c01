"""One version, and one licence but for the module: every part says the same of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).parents[2]
VERSION = (TOP / "VERSION").read_text().strip()
PACKAGES = sorted([*TOP.glob("*/pyproject.toml"), TOP / "clients/python/pyproject.toml"])


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: file.parent.name)
def test_a_package_has_it(file: Path) -> None:
    assert tomllib.loads(file.read_text())["project"]["version"] == VERSION
    for module in file.parent.glob("tidepool_*/__init__.py"):
        stated = re.findall(r'^__version__ = "(.*)"$', module.read_text(), flags=re.MULTILINE)
        assert stated in ([], [VERSION]), "e2e/version writes it"


def test_the_chart_has_it() -> None:
    chart = yaml.safe_load((TOP / "charts/tidepool/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_changes_have_it_on_top() -> None:
    """Above it is at most the version that is being worked on."""
    headings = re.findall(r"^## (\S+?)(, not released yet)?$", (TOP / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    versions = [version for version, _ in headings]
    assert VERSION in versions[:2]
    assert all(unreleased for _, unreleased in headings[: versions.index(VERSION)])


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: file.parent.name)
def test_a_package_says_its_licence(file: Path) -> None:
    assert tomllib.loads(file.read_text())["project"]["license"] == {"text": "Apache-2.0"}


def test_the_module_says_its_licence() -> None:
    """GPL-2.0-only, file by file, as the kernel wants it said; what it shares with programs may go into theirs."""
    sources = list((TOP / "kernel-module").glob("*/*.[ch]"))
    assert len(sources) > 60
    spoken = {file.relative_to(TOP / "kernel-module"): file.read_text().partition("\n")[0] for file in sources}
    kernel = "SPDX-License-Identifier: GPL-2.0-only"
    others = {str(file): first for file, first in spoken.items() if kernel not in first}
    both = "/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0) */"
    assert others == {str(file): both for file in spoken if file.parts[0] == "uapi"}
    assert "uapi/wire.h" in others
    assert "Version 2, June 1991" in (TOP / "kernel-module/LICENSE").read_text()
