"""The rules by which documentation is written: each finds what it is for, and nothing in a page that keeps them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tidepool_lab import paths

RULES = {path.stem for path in (paths.E2E / "prose/Tidepool").glob("*.yml")}
GOOD = """
# Troubleshooting

A lender keeps what it gets. `It anew` is code. Behaviour differs by kernel:

- The borrower reads its disk.
- The agent tries again.

| what you see | what to do |
|---|---|
| the guest is paused | resume it |
"""
LONG = " ".join(["word"] * 31)
BAD = {
    "Sentences": [f"A {LONG}.", f"- A {LONG}."],
    "Cells": [f"| a | b |\n|---|---|\n| {LONG}. | c |"],
    "Average": [f"{' '.join(['Word'] + ['word'] * 16)}. {' '.join(['Word'] + ['word'] * 15)}."],
    "Order": [
        "Nor does it wait.",
        "Had it waited, it had lost.",
        "Who waits is lost.",
        "What waits is lost.",
        "Of the pages it keeps two.",
    ],
    "Words": ["Start it anew.", "All but for one.", "The behavior differs.", "The organization.", "It is recognized."],
    "Filler": ["It is very fast.", "Just start it."],
    "Headings": ["## Watch it", "## What it does", "## See:"],
}


CASES = [(rule, text) for rule, texts in BAD.items() for text in texts]


def _found(folder: Path, pages: dict[str, str]) -> tuple[int, dict[str, set[str]]]:
    """How the linter ends, and the rules by which it finds something in each page."""
    for name, text in pages.items():
        (folder / name).write_text(text)
    names = [folder / name for name in pages]
    done = subprocess.run(["e2e/lint", "prose", *names], cwd=paths.ROOT, capture_output=True, text=True, check=False)
    found: dict[str, set[str]] = {name: set() for name in pages}
    for page, rule in re.findall(r"^(\S+):\d+:\d+:Tidepool\.(\w+):", done.stdout, re.MULTILINE):
        found[Path(page).name].add(rule)
    return done.returncode, found


def test_a_good_page_passes(tmp_path: Path) -> None:
    assert _found(tmp_path, {"page.md": GOOD}) == (0, {"page.md": set()})


def test_each_rule_is_tried() -> None:
    assert set(BAD) == RULES


@pytest.fixture(scope="module")
def bad_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What is found in good pages with something bad at their ends; they are none where an average is to be bad."""
    pages = {f"{at}.md": text if rule == "Average" else f"{GOOD}\n{text}\n" for at, (rule, text) in enumerate(CASES)}
    code, found = _found(tmp_path_factory.mktemp("pages"), pages)
    assert code != 0
    return found


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: CASES[at][1][:30])
def test_a_bad_page_is_found(bad_pages: dict[str, set[str]], at: int) -> None:
    """By the rule that is for it, and by no other."""
    assert bad_pages[f"{at}.md"] == {CASES[at][0]}
