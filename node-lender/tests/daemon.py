"""The daemon as a process of this machine's, with a configuration of its own."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import socket
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bed.protocol import KeyPair, point_of
from bed.tidepool import wait_until

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
PAGE, COST = 4096, 4096 + 100  # bytes of a page, and what a grant counts for one
PATIENCE = 60.0
PROCESS_MADVISE, MADV_PAGEOUT = 440, 21


def program() -> Path:
    """What the present sources were built to."""
    folder = Path(os.environ.get("TIDEPOOL_CACHE") or Path.home() / ".cache/tidepool")
    return Path(os.environ.get("NODE_LENDER") or folder / "node-lender/debug/tidepool-node-lender")


@dataclass
class Allowed:
    """What a borrower may have; `quota` in bytes."""

    identity: str
    quota: int = 64 * MIB
    enabled: bool = True

    def toml(self, name: str) -> str:
        enabled = str(self.enabled).lower()
        return f"[borrowers.{name}]\nidentity = '{self.identity}'\nquota = {self.quota}\nenabled = {enabled}\n"


@dataclass
class Config:
    """A configuration, to be changed and taken up by `Daemon.reload`. Sizes in bytes."""

    max_lend: int = 256 * MIB
    reserve: int = 0
    linger_seconds: int = 60
    hold: bool = False
    listen: str = "127.0.0.1:0"
    metrics: str = "127.0.0.1:0"
    borrowers: dict[str, Allowed] = field(default_factory=dict)

    def toml(self, control: Path) -> str:
        lines = [
            f"listen = '{self.listen}'",
            f"metrics = '{self.metrics}'",
            f"control = '{control}'",
            f"max_lend = {self.max_lend}",
            f"reserve = {self.reserve}",
            f"linger_seconds = {self.linger_seconds}",
            f"hold = {str(self.hold).lower()}",
        ]
        return "\n".join([*lines, *(one.toml(name) for name, one in self.borrowers.items())])


class Daemon:
    """`with Daemon() as daemon:` it runs, and lends to nobody yet. `before` goes before its command line."""

    NAME = "pairing"

    def __init__(self, config: Config | None = None, before: tuple[str, ...] = ()) -> None:
        self.config = config or Config()
        self._folder = tempfile.TemporaryDirectory(prefix="node-lender-")
        self._path, self.control = (Path(self._folder.name) / name for name in ("config.toml", "control.sock"))
        Path(self._folder.name).chmod(0o777)
        self._before = before

    def __enter__(self) -> Self:
        self.write()
        self.log = Path(self._folder.name) / "log"
        command = [*self._before, str(program()), "--config", str(self._path)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self._await_port()
        self.lender = point_of(self.state()["identity"])
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        log = self.log.read_text()
        self._folder.cleanup()
        assert code == 0, log
        assert "panicked" not in log, log

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def lend(self, quota: int = 64 * MIB, name: str = NAME) -> KeyPair:
        """Somebody to whom it lends from now on."""
        own = KeyPair()
        self.config.borrowers[name] = Allowed(own.identity, quota)
        self.reload()
        return own

    def reload(self) -> None:
        """Take the configuration as it is now."""
        self.write()
        assert (said := self.say("reload")) == "ok", said

    def say(self, line: str) -> str:
        """What the control socket answers."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE)
            sock.connect(str(self.control))
            sock.sendall(f"{line}\n".encode())
            return sock.makefile().readline().rstrip("\n")

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.say("state"))
        return state

    def lent(self, name: str = NAME) -> dict[str, Any]:
        """What there is with a borrower."""
        (one,) = [one for one in self.state()["borrowers"] if one["name"] == name]
        return dict(one)

    def page_out(self) -> None:
        """Have the kernel reclaim whatever it may of the daemon's private memory, as it does under pressure."""
        descriptor = os.pidfd_open(self.process.pid)
        try:
            for line in Path(f"/proc/{self.process.pid}/maps").read_text().splitlines():
                if match := re.fullmatch(r"([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 *", line):
                    _page_out(descriptor, *(int(end, 16) for end in match.groups()))
        finally:
            os.close(descriptor)

    def write(self) -> None:
        """The configuration to its file, without a word to the daemon."""
        self._path.write_text(self.config.toml(self.control))
        self._path.chmod(0o644)

    def _await_port(self) -> None:
        def listens() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "lends" in self.log.read_text() and self.control.exists()

        wait_until("it listens", listens)
        (port,) = re.findall(r"lends.*address=\S+:(\d+)", self.log.read_text())
        self.port = int(port)


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _page_out(descriptor: int, first: int, end: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    vector = _Vector(first, end - first)
    done = libc.syscall(PROCESS_MADVISE, descriptor, ctypes.byref(vector), 1, MADV_PAGEOUT, 0)
    if done < 0 and ctypes.get_errno() != errno.ENOMEM:  # it is mapped no more
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
