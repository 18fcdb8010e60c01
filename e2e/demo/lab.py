"""`e2e/lab` from Python: its verbs as functions that raise when a command fails and can be interrupted at any time.

What is asked again and again (kubectl, a command in a guest) is run as the lab would run it, without starting it first.
Every command runs in a session of its own, so that an interrupt reaches it once, from here, whoever was signalled: a
terminal signals all of us, `kill` only one.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tidepool_lab import cluster, paths, shell
from tidepool_lab.progress import LabError

LAB = paths.ROOT / "e2e/lab"
SYSTEM = cluster.SYSTEM
INTERRUPT_PATIENCE = 60


class CommandError(Exception):
    """A command of the lab failed; says which one and what it printed."""

    def __init__(self, command: str, code: int, output: str) -> None:
        super().__init__(f"`{command}` ended with {code}\n{output.strip()}".rstrip())
        self.code = code
        self.output = output


def call(*arguments: str | Path, stdin: str | None = None, patience: float = 600, show: bool = False) -> str:
    """Runs a verb of the lab and returns what it prints; `show` lets the user see it instead."""
    name = shlex.join(map(str, arguments))
    process = _popen([str(LAB), *map(str, arguments)], show=show, stdin=stdin is not None)
    return _result(process, name, patience, stdin)


def guest(name: str, command: str, *, patience: float = 600) -> str:
    """Runs a shell command line in a guest."""
    return _result(_in_guest(name, command), f"{name}: {command}", patience)


class Job:
    """A command that goes on in a guest while the caller does something else."""

    def __init__(self, name: str, command: str) -> None:
        self._command = f"{name}: {command}"
        self._process = _in_guest(name, command)

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def result(self, patience: float) -> str:
        """What it printed, once it has ended well."""
        return _result(self._process, self._command, patience)


def start(name: str, command: str) -> Job:
    """Starts a shell command line in a guest."""
    return Job(name, command)


def kubectl(*arguments: str, stdin: str | None = None, patience: float = 300) -> str:
    """kubectl, as the cluster's administrator."""
    command = cluster.command("kubectl", arguments)
    process = _popen(command, show=False, stdin=stdin is not None, environment=cluster.environment())
    return _result(process, shlex.join(("kubectl", *arguments)), patience, stdin)


def get(*arguments: str) -> Any:
    """An object or a list of objects; None when there is no such object."""
    text = kubectl("get", "--ignore-not-found", "-o", "json", *arguments)
    return json.loads(text) if text.strip() else None


def items(*arguments: str) -> list[Any]:
    """The objects of a kind; for none at all kubectl prints nothing."""
    found = get(*arguments)
    return list(found["items"]) if found else []


def metrics(component: str, port: int) -> str:
    """What a pod of ours exports, read through the API server as `kubectl port-forward` users would."""
    selector = f"app.kubernetes.io/component={component}"
    pods = items("pods", "-n", SYSTEM, "-l", selector)
    running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
    return "".join(
        kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{name}:{port}/proxy/metrics") for name in running
    )


def is_up() -> bool:
    """Whether a lab runs on this machine."""
    try:
        call("status")
    except CommandError as error:
        return "no lab is up" not in error.output
    return True


def _in_guest(name: str, command: str) -> subprocess.Popen[str]:
    try:
        words = shell.command(name, [command])
    except LabError as error:
        raise CommandError(f"{name}: {command}", 1, str(error)) from None
    return _popen(words, show=False, stdin=False)


def _result(process: subprocess.Popen[str], name: str, patience: float, stdin: str | None = None) -> str:
    """What a command prints, once it has ended well; whatever happens, it does not go on after this."""
    try:
        output, errors = process.communicate(stdin, timeout=patience)
    except subprocess.TimeoutExpired:
        _end(process)
        raise CommandError(name, -1, f"no end within {patience:.0f} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        raise CommandError(name, process.returncode, f"{output or ''}{errors or ''}")
    return output or ""


def _popen(
    command: list[str], *, show: bool, stdin: bool, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    output: IO[str] | int = sys.stderr if show else subprocess.PIPE
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        text=True,
        env=environment,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupts a command and all that it has started, and waits for it."""
    for number, patience in ((signal.SIGINT, INTERRUPT_PATIENCE), (signal.SIGKILL, None)):
        if process.poll() is None:
            os.killpg(process.pid, number)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return
