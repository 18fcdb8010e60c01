"""What to keep of a run that failed: everything somebody would want to read afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from demo import lab
from tidepool_lab import paths

FOLDER = paths.BUILD / "demo-logs"
SHORT_LINES = 60
OURS = "memorypools,memorypairings,memoryguests"
CONDITIONS = (
    "{{range .items}}{{$name := .metadata.name}}{{with .status}}{{range .conditions}}"
    '{{$name}}: {{.type}}={{.status}} {{.reason}}: {{.message}}{{"\\n"}}'
    "{{end}}{{end}}{{end}}"
)
COLLECTED = {
    "conditions.txt": ("kubectl", "get", OURS, "-A", "-o", f"go-template={CONDITIONS}"),
    "objects.yaml": ("kubectl", "get", OURS, "-A", "-o", "yaml"),
    "events.txt": ("kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp"),
    "pods.txt": ("kubectl", "get", "pods,vmi", "-A", "-o", "wide"),
    "operator.log": ("kubectl", "logs", "-n", lab.SYSTEM, "-l", "app.kubernetes.io/component=operator", "--tail=-1"),
    "agent.log": ("kubectl", "logs", "-n", lab.SYSTEM, "-l", "app.kubernetes.io/component=agent", "--tail=-1"),
}
# Whether the guest's timer and its disks go on, for an emulator may lose an interrupt; then what waits and cannot be
# interrupted, with its stack, and the kernel's last words. Not by SysRq: that writes into the kernel log, where the
# next test takes it for a complaint.
BLOCKED = (
    "interrupts() { grep -E 'LOC:|req' /proc/interrupts; }; "
    "interrupts; i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; interrupts; "
    "grep -sH '' /sys/block/vd*/inflight; "
    "grep -ls '^State:.D' /proc/[0-9]*/task/[0-9]*/status | "
    'while read -r status; do (cd "${status%/status}" && cat comm stack); done; dmesg | tail -n 12'
)
GUEST = (
    "dmesg; ps -eo pid,stat,wchan:24,args; free -m; "
    "grep -sH '' /sys/kernel/config/tidepool/stats /sys/kernel/config/tidepool/*/*/*"
)


def keep(guests: tuple[str, ...], folder: Path = FOLDER) -> Path:
    """Writes down what can still be had; what cannot says why."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file, arguments in COLLECTED.items():
        _write(folder / file, partial(lab.call, *arguments, patience=20))
    for name in guests:
        _write(folder / f"{name}.txt", partial(lab.guest, name, GUEST, patience=20))
        _write(folder / f"{name}.blocked.txt", partial(lab.guest, name, BLOCKED, patience=20))
        _write(folder / f"{name}.console.log", partial(lab.call, "logs", name, patience=20))
    if paths.LOGS.is_dir():
        shutil.copytree(paths.LOGS, folder / "lab", dirs_exist_ok=True)
    return folder


def in_short(folder: Path) -> str:
    """Of what was kept: what waits for something in the guests, and the conditions, the beginning of each."""
    files = [*sorted(folder.glob("*.blocked.txt")), folder / "conditions.txt"]
    return "\n".join(f"--- {file.name}\n{_beginning(file.read_text())}" for file in files)


def _beginning(text: str) -> str:
    return "\n".join(text.splitlines()[:SHORT_LINES])


def _write(file: Path, source: Callable[[], str]) -> None:
    try:
        text = source()
    except lab.CommandError as error:
        text = str(error)
    file.write_text(text)
