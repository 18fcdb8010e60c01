"""What is known of tests that ran, in build/xfstests.json: of each, its latest run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tidepool_lab import paths
from xfstests.outcome import Outcome

RESULTS = paths.BUILD / "xfstests.json"
LOGS = paths.BUILD / "xfstests"


def known(file: Path = RESULTS) -> list[Outcome]:
    """All that was kept."""
    return [Outcome(**entry) for entry in json.loads(file.read_text())] if file.exists() else []


def keep(outcome: Outcome, file: Path = RESULTS) -> None:
    """In place of an earlier run of the same test in the same circumstances."""
    others = [one for one in known(file) if one.key != outcome.key]
    file.parent.mkdir(exist_ok=True)
    entries: Iterable[Outcome] = sorted([*others, outcome], key=lambda one: one.key)
    file.write_text(json.dumps([asdict(one) for one in entries], indent=2) + "\n")


def keep_log(outcome: Outcome, text: str) -> Path:
    """What there is to read of a test that did not pass."""
    pool = "pool" if outcome.pool else "without"
    name = f"{outcome.kernel}-{outcome.filesystem}-{outcome.test.replace('/', '-')}-{pool}.log"
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / name).write_text(text)
    return LOGS / name
