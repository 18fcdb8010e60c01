"""The protocol of the QEMU guest agent: JSON out, JSON back, nothing believed that was not checked.

The guest decides what comes back, so sizes, types and encodings are limited here and the rest of the agent can rely
on them. The calls block; whoever makes them brings a thread and a limit of time (see `hypervisor`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidepool_agent import answers
from tidepool_agent.errors import CommandFailed, CommandsBlocked, Frozen, GuestError, Nonsense, Unreachable

# libvirt and qemu-ga fail on larger writes; see guest-file-write's own limit.
CHUNK = 64 * 1024
MAX_ANSWER = answers.MOST_BYTES
MAX_OUTPUT = 1024 * 1024
MAX_NAME = 128
MAX_INTERFACES = 256  # of a guest, and addresses of one
COMMAND_SECONDS = 10
FIRST_POLL, LAST_POLL = 0.01, 0.25

NEEDED = frozenset(
    {
        "guest-get-osinfo",
        "guest-exec",
        "guest-exec-status",
        "guest-file-open",
        "guest-file-write",
        "guest-file-flush",
        "guest-file-close",
    }
)

# A shell and what it has started; all of them hold the output that the guest agent waits for.
KILL = 'kill -9 "$1" $(cat "/proc/$1/task/$1/children")'

# Gives one command to the guest agent: (JSON text, seconds to wait) -> JSON text.
Transport = Callable[[str, int], str]


@dataclass(frozen=True)
class Completed:
    """How a command in the guest ended."""

    code: int
    out: str
    err: str


class GuestAgent:
    """The guest agent of one guest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._left: list[int] = []
        """Processes that did not end in time and may still be there."""

    def blocked(self) -> list[str]:
        """The commands that we need and that the guest agent's configuration forbids, sorted."""
        info = _mapping(self._call("guest-info"), "guest-info")
        commands = info.get("supported_commands")
        if not isinstance(commands, list):
            raise Nonsense("guest-info names no commands")
        enabled = {c["name"] for c in commands if isinstance(c, dict) and c.get("enabled") is True and _is_name(c)}
        if NEEDED - enabled and self._is_frozen():
            raise Frozen
        return sorted(NEEDED - enabled)

    def system(self) -> tuple[str, bool]:
        """What the guest's system calls itself, and whether it is Linux: only there `uname -v` begins with `#`."""
        info = _mapping(self._call("guest-get-osinfo"), "guest-get-osinfo")
        words = [info.get(name) for name in ("pretty-name", "name", "kernel-version")]
        name = next((word for word in words if isinstance(word, str) and word), "one without a name")
        return name[:MAX_NAME], isinstance(words[2], str) and words[2].startswith("#")

    def interfaces(self) -> dict[str, list[str]]:
        """The addresses of each interface, by the guest's own name for it; none where the guest agent may not say."""
        try:
            found = self._ask("guest-network-get-interfaces")
        except (CommandsBlocked, CommandFailed):
            return {}
        each = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return {_name(one): _addresses(one.get("ip-addresses")) for one in each[:MAX_INTERFACES]}

    def run(self, argv: Sequence[str], *, seconds: float = 30) -> Completed:
        """Runs a program in the guest and waits for its end; one that does not end in time is killed.

        Nothing is started while such a one is still there: in a guest that hangs nothing piles up.
        """
        self._reap()
        pid = self._start(argv)
        deadline = time.monotonic() + seconds
        pause = FIRST_POLL
        while True:
            status = self._status(pid)
            if status.get("exited") is True:
                return _completed(status)
            if time.monotonic() > deadline:
                self._kill(pid)
                raise Unreachable(f"{argv[0]} did not end within {seconds:.0f} s in the guest", "CommandTimeout")
            time.sleep(pause)
            pause = min(2 * pause, LAST_POLL)

    def _start(self, argv: Sequence[str]) -> int:
        arguments = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        return _integer(_mapping(self._call("guest-exec", arguments), "guest-exec").get("pid"), "guest-exec: pid")

    def _status(self, pid: int) -> dict[str, object]:
        return _mapping(self._call("guest-exec-status", {"pid": pid}), "guest-exec-status")

    def _kill(self, pid: int) -> None:
        self._left = [pid]
        with contextlib.suppress(GuestError):
            self._left.append(self._start(["/bin/sh", "-c", KILL, "tidepool", str(pid)]))

    def _reap(self) -> None:
        """Forgets what has ended meanwhile; raises Unreachable if something has not."""
        self._left = [pid for pid in self._left if not self._has_ended(pid)]
        if self._left:
            raise Unreachable(
                f"process {self._left[0]} of the agent hangs in the guest, also when it is killed: nothing else is "
                "started there until it ends; the guest's log says what it waits for, and a reboot ends it",
                "CommandTimeout",
            )

    def _has_ended(self, pid: int) -> bool:
        try:
            return self._status(pid).get("exited") is True
        except CommandFailed:  # the guest agent knows no such process: it, or the guest, has been started again
            return True

    def write(self, path: str, data: bytes) -> None:
        """Writes a file in the guest. What the file's kernel side refuses is an error here, too."""
        handle = _integer(self._call("guest-file-open", {"path": path, "mode": "w"}), "guest-file-open: handle")
        try:
            for start in range(0, len(data), CHUNK):
                self._write_chunk(handle, data[start : start + CHUNK])
            # qemu-ga writes through stdio: only now does the kernel see the bytes, and may refuse them.
            self._call("guest-file-flush", {"handle": handle})
        finally:
            self._call("guest-file-close", {"handle": handle})

    def _write_chunk(self, handle: int, chunk: bytes) -> None:
        arguments = {"handle": handle, "buf-b64": base64.b64encode(chunk).decode()}
        answer = _mapping(self._call("guest-file-write", arguments), "guest-file-write")
        if _integer(answer.get("count"), "guest-file-write: count") != len(chunk):
            raise CommandFailed("the guest took only part of a file: is its file system full?")

    def _is_frozen(self) -> bool:
        """Whether a backup has frozen the guest: until it is thawed its agent forbids nearly everything."""
        try:
            return self._ask("guest-fsfreeze-status") == "frozen"
        except (CommandsBlocked, CommandFailed):  # forbidden, too, or a guest agent that cannot freeze
            return False

    def _call(self, command: str, arguments: dict[str, object] | None = None) -> object:
        try:
            return self._ask(command, arguments)
        except CommandsBlocked:
            if self._is_frozen():
                raise Frozen from None
            raise

    def _ask(self, command: str, arguments: dict[str, object] | None = None) -> object:
        request: dict[str, object] = {"execute": command}
        if arguments is not None:
            request["arguments"] = arguments
        answer = self._transport(json.dumps(request), COMMAND_SECONDS)
        if len(answer) > MAX_ANSWER:
            raise Nonsense(f"{command}: an answer of {len(answer)} bytes")
        try:
            document = answers.document(answer)
        except ValueError as error:
            raise Nonsense(f"{command}: the answer is not the JSON of a guest agent") from error
        return _mapping(document, command).get("return")


def _name(one: dict[str, object]) -> str:
    return text if isinstance(text := one.get("name"), str) else ""


def _addresses(found: object) -> list[str]:
    each = found[:MAX_INTERFACES] if isinstance(found, list) else []
    return [text for one in each if isinstance(one, dict) and isinstance(text := one.get("ip-address"), str)]


def _completed(status: dict[str, object]) -> Completed:
    if status.get("out-truncated") is True:
        raise Nonsense("guest-exec-status: more output than the guest agent can hold")
    if "exitcode" in status:
        code = _integer(status["exitcode"], "guest-exec-status: exitcode")
    else:  # ended by a signal: as a shell would number it
        code = 128 + _integer(status.get("signal", 0), "guest-exec-status: signal")
    return Completed(code, _text(status.get("out-data", "")), _text(status.get("err-data", "")))


def _text(data: object) -> str:
    if not isinstance(data, str) or len(data) > 2 * MAX_OUTPUT:
        raise Nonsense("guest-exec-status: the output is too large or no text")
    try:
        return base64.b64decode(data, validate=True)[:MAX_OUTPUT].decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        raise Nonsense("guest-exec-status: the output is not base64") from error


def _mapping(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Nonsense(f"{what}: not an object")
    return value


def _integer(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise Nonsense(f"{what}: not an integer")
    return value


def _is_name(command: dict[str, object]) -> bool:
    return isinstance(command.get("name"), str)
