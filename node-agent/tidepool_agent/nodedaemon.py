"""The way to the node lender's daemon: its folder as its own container has it, below /proc/PID/root.

So neither of them needs a folder of the host. What is in there is the daemon's, and the agent may do more than it: no
link is followed on the way, and nothing is waited for without an end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tidepool_agent.errors import Nonsense
from tidepool_agent.nodelender import CONFIG, CONTROL, FOLDER, NotRunning

ASK_SECONDS = 5.0
MOST_SAID = 1 << 20
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Daemon:
    """The daemon of this node; `proc` has the processes of the host."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def write(self, container: str, text: str) -> None:
        """Puts its configuration in place, whole or not at all; one that is there already stays."""
        with self._folder(container) as folder, _told(container):
            if _present(folder) != text:
                _replace(folder, text)

    def ask(self, container: str, line: str) -> str:
        """What it answers to a line on its control socket."""
        with self._folder(container) as folder, _told(container):
            return _asked(f"/proc/self/fd/{folder}/{CONTROL}", line)

    @contextlib.contextmanager
    def _folder(self, container: str) -> Iterator[int]:
        process = self._process(container)
        with contextlib.ExitStack() as opened, _told(container):
            at = os.open(self._proc / process / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, at)
            for part in FOLDER:
                at = os.open(part, _FOLDER, dir_fd=at)
                opened.callback(os.close, at)
            yield at

    def _process(self, container: str) -> str:
        for one in self._proc.iterdir():
            if one.name.isdigit() and container and container in _text(one / "cgroup"):
                return one.name
        raise NotRunning(f"container {container[:12]} of the node lender has no process (yet)", "NotRunning")


@contextlib.contextmanager
def _told(container: str) -> Iterator[None]:
    """What the kernel refuses, as what is said of the daemon."""
    try:
        yield
    except (FileNotFoundError, ConnectionRefusedError, ProcessLookupError):
        raise NotRunning("the node lender is starting: it has been told what to lend", "Starting") from None
    except PermissionError as error:
        why = "it lacks SYS_PTRACE or DAC_OVERRIDE, or a security module forbids it"
        raise NotRunning(f"the agent may not look at {error.filename or 'the node lender'}: {why}") from None
    except OSError as error:
        raise NotRunning(f"container {container[:12]} of the node lender: {error}", "NotAnswering") from None


def _present(folder: int) -> str | None:
    """The configuration that is there; None where there is none that the agent has written."""
    try:
        at = os.open(CONFIG, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(at, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(at).st_mode)
        return file.read(MOST_SAID).decode("utf-8", "replace") if is_file else None


def _replace(folder: int, text: str) -> None:
    fresh = f".{CONFIG}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)
    at = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(at, "w") as file:
        os.fchmod(at, 0o644)  # whatever the umask: the daemon is another user
        file.write(text)
    os.rename(fresh, CONFIG, src_dir_fd=folder, dst_dir_fd=folder)


def _asked(path: str, line: str) -> str:
    deadline, said = time.monotonic() + ASK_SECONDS, b""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(ASK_SECONDS)
        sock.connect(path)
        sock.sendall(f"{line}\n".encode())
        while not said.endswith(b"\n"):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            part = sock.recv(1 << 16)
            said += part
            if not part or len(said) > MOST_SAID:
                raise Nonsense(f"the node lender's answer to {line} has no end")
    return said.decode("utf-8", "replace").strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # the process has ended
        return ""
