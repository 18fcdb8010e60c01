"""What to keep of a run that failed: everything somebody would want to read afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from demo import lab
from tidepool_lab import paths

FOLDER = paths.BUILD / "demo-logs"
OURS = "memorypools,memorypairings,memoryguests"
COLLECTED = {
    "objects.yaml": ("kubectl", "get", OURS, "-A", "-o", "yaml"),
    "events.txt": ("kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp"),
    "pods.txt": ("kubectl", "get", "pods,vmi", "-A", "-o", "wide"),
    "operator.log": ("kubectl", "logs", "-n", lab.SYSTEM, "-l", "app.kubernetes.io/component=operator", "--tail=-1"),
    "agent.log": ("kubectl", "logs", "-n", lab.SYSTEM, "-l", "app.kubernetes.io/component=agent", "--tail=-1"),
}
GUEST = "dmesg; grep -sH '' /sys/kernel/config/tidepool/stats /sys/kernel/config/tidepool/*/*/*; free -m"


def keep(guests: tuple[str, ...]) -> Path:
    """Writes down what can still be had; what cannot says why."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for file, arguments in COLLECTED.items():
        _write(file, partial(lab.call, *arguments, patience=20))
    for name in guests:
        _write(f"{name}.txt", partial(lab.guest, name, GUEST, patience=20))
        _write(f"{name}.console.log", partial(lab.call, "logs", name, patience=20))
    if paths.LOGS.is_dir():
        shutil.copytree(paths.LOGS, FOLDER / "lab", dirs_exist_ok=True)
    return FOLDER


def _write(name: str, source: Callable[[], str]) -> None:
    try:
        text = source()
    except lab.CommandError as error:
        text = str(error)
    (FOLDER / name).write_text(text)
