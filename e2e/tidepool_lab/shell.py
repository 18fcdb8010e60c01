"""The lab's own way into a guest: one ssh connection over the guest's second interface, shared by every command.

The connection is held by a daemon of the lab that reconnects, so that a command costs no handshake under emulation.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tidepool_lab import guest_image, host, paths
from tidepool_lab.progress import LabError

SOCKETS = paths.RUN / "ssh"
OPTIONS = (
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
    "-o", "BatchMode=yes",
)  # fmt: skip
# A guest under memory pressure may not answer for a while; one whose QEMU is gone is disconnected by the watcher.
KEEPALIVE = ("-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=20")
RECONNECT = 'while :; do "$@"; sleep 0.5; done'


def daemon(guest: str) -> str:
    """The name of the daemon that holds a guest's connection."""
    return f"ssh-{guest}"


def connect(guest: str, netns: Path, key: Path) -> None:
    """Starts the daemon; it goes on trying while the guest boots."""
    SOCKETS.mkdir(mode=0o700, exist_ok=True)
    ssh = [
        "nsenter", f"--net={netns}", "ssh", *OPTIONS, *KEEPALIVE, "-i", str(key), "-M", "-S", str(_socket(guest)), "-N",
        f"root@{guest_image.LAB_INNER}",
    ]  # fmt: skip
    host.start(daemon(guest), ["/bin/sh", "-c", RECONNECT, "sh", *ssh], node=None)


def disconnect(guest: str) -> None:
    """Ends the daemon and its connection."""
    if _socket(guest).exists():
        _ask_holder(guest, "exit")
    host.stop([daemon(guest)], patience=2)
    _socket(guest).unlink(missing_ok=True)


def connected(guest: str) -> bool:
    """Whether commands can be given to the guest now."""
    return _socket(guest).exists() and _ask_holder(guest, "check")


def _ask_holder(guest: str, question: str) -> bool:
    """Asks the process that holds the connection; one that hangs has not said yes."""
    ask = ["ssh", *_through(guest), "-O", question, guest]
    try:
        return subprocess.run(ask, check=False, capture_output=True, timeout=10).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def wait_connected(guest: str, patience: float) -> None:
    """Waits until a guest takes commands."""
    host.wait_until(f"guest {guest}", lambda: connected(guest), patience, watch=[daemon(guest)])


def command(guest: str, words: Sequence[str], *, terminal: bool = False) -> list[str]:
    """What runs a command in a guest, with the input, the outputs and the exit code that the command has there.

    Several words are an argument vector; a single one is a shell command line.
    """
    _require(guest)
    vector = ["bash", "-c", words[0]] if len(words) == 1 else words
    # `exit $?` keeps a shell in between, so that death by a signal is 128 + its number here too.
    return ["ssh", *_through(guest), "-t" if terminal else "-T", guest, f"{shlex.join(vector)}\nexit $?"]


def run(guest: str, words: Sequence[str]) -> int:
    """Runs a command in a guest with this process's input and outputs, and returns its exit code."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return subprocess.run(command(guest, words, terminal=terminal), check=False).returncode


def copy(source: str, destination: str) -> int:
    """Copies files or folders; `GUEST:PATH` on one side."""
    guest = next((name for text in (source, destination) if (name := _guest_of(text))), None)
    if guest is None:
        raise LabError("cp: one side must be GUEST:PATH")
    _require(guest)
    return subprocess.run(["scp", "-q", "-r", "-p", *_through(guest), source, destination], check=False).returncode


def _guest_of(text: str) -> str | None:
    name, colon, _ = text.partition(":")
    return name if colon and "/" not in name else None


def _require(guest: str) -> None:
    """Waits a moment for a guest that is coming back; says what is wrong with one that is not there."""
    if not (paths.GUESTS / guest).exists():
        known = ", ".join(sorted(folder.name for folder in paths.GUESTS.glob("*"))) or "none"
        raise LabError(f"there is no guest {guest!r} in the lab (guests: {known})")
    deadline = time.monotonic() + 60
    while not connected(guest):
        if not host.running(daemon(guest)):
            raise LabError(f"guest {guest} is not running")
        if time.monotonic() > deadline:
            raise LabError(f"guest {guest} takes no commands; see `e2e/lab logs {guest}`")
        time.sleep(0.3)


def _through(guest: str) -> list[str]:
    """ssh options that use the held connection, and fail rather than make another one."""
    return [*OPTIONS, "-o", f"ControlPath={_socket(guest)}", "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]


def _socket(guest: str) -> Path:
    return SOCKETS / guest
