#!/usr/bin/python3
"""Sets this guest up to lend and borrow memory as /etc/tidepool.conf says, without a cluster.

    tidepoolctl apply      loads the module, and makes its settings those of the file; repeat it whenever you like
    tidepoolctl status     what the module says now

A guest's identity is another one each time its module is loaded, and no file can have it. `identity_command` of each
peer says how that peer is asked; who answers to it is believed. apply exits with 1 while a peer does not answer, and
leaves everything of that peer as it is. It needs Python 3.11 and nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

CONFIGURATION = Path("/etc/tidepool.conf")
CONFIGFS = Path("/sys/kernel/config/tidepool")
PATIENCE_SECONDS = 15
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")
IDENTITY = re.compile(r"[a-z0-9-]+:[0-9a-f]{64,}")
Settings = dict[str, str]


class Wrong(Exception):
    """What is asked for cannot be; the text says where and what would be right."""


class Kind(NamedTuple):
    """How a setting of the file becomes an attribute of the module."""

    attribute: str
    text: Callable[[Any], str]


def _bytes(value: Any) -> str:
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)", value) if isinstance(value, str) else None
    if not found:
        raise ValueError('an amount with its unit, such as "2Gi"')
    return str(int(found[1]) * UNITS[found[2]])


def _number(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a number, 0 or more")
    return str(value)


def _flag(value: Any) -> str:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return str(int(value))


def _words(*allowed: str) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return str(value)

    return text


def _two(value: Any) -> str:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("two numbers of microseconds, such as [1500, 40000]")
    return " ".join(map(_number, value))


def _address(value: Any) -> str:
    try:
        return str(ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        raise ValueError("an IPv4 or IPv6 address, not a name") from None


GUEST = {
    "port": Kind("port", _number),
    "lend": Kind("lend_bytes", _bytes),
    "reserve": Kind("reserve_bytes", _bytes),
    "linger_s": Kind("linger_s", _number),
    "verify_one_in": Kind("verify_one_in", _number),
}
LENDER = {
    "address": Kind("address", _address),
    "size": Kind("size_bytes", _bytes),
    "port": Kind("port", _number),
    "strategy": Kind("strategy", _words("NonInclusive", "Exclusive")),
    "encryption": Kind("encryption", _words("AES-GCM", "None")),
    "deadline_us": Kind("deadline_us", _number),
    "breaker": Kind("breaker", _words("Off", "Thresholds", "Automatic")),
    "breaker_short": Kind("breaker_short", _two),
    "breaker_long": Kind("breaker_long", _two),
    "sequential_filter": Kind("sequential_filter", _flag),
}
BORROWER = {"quota": Kind("quota_bytes", _bytes)}
REQUIRED = {"lenders": ("address", "size"), "borrowers": ("quota",)}
PEERS = {"lenders": LENDER, "borrowers": BORROWER}
COMMAND = "identity_command"
# What does not change while its peer is enabled.
FROZEN = ("encryption",)


@dataclass(frozen=True)
class Peer:
    """A guest that lends or borrows, as the file has it."""

    settings: Settings
    command: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """What the file says, in the module's terms; peers by their folders, such as lenders/batch."""

    guest: Settings = field(default_factory=dict)
    peers: Mapping[str, Peer] = field(default_factory=dict)


# --- the file ---------------------------------------------------------------------------------------------------------


def parse(text: str) -> Wanted:
    """The file; raises Wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"it is not TOML: {error}") from error
    _only(document, {"guest", *PEERS}, "")
    peers = {}
    for side, kinds in PEERS.items():
        for name, said in _table(document, side, "").items():
            where = f"{side}.{name}"
            if not NAME.fullmatch(name):
                raise Wrong(f"[{where}]: a name has 1 to 63 of A-Z a-z 0-9 . _ -, and no dot first")
            peers[f"{side}/{name}"] = _peer(said, kinds, REQUIRED[side], where)
    return Wanted(_settings(_table(document, "guest", ""), GUEST, "guest"), peers)


def _peer(said: Any, kinds: Mapping[str, Kind], required: tuple[str, ...], where: str) -> Peer:
    if not isinstance(said, dict):
        raise Wrong(f"{where}: it must be a table, [{where}]")
    for name in (*required, COMMAND):
        if name not in said:
            raise Wrong(f"[{where}]: {name} is missing")
    command = said[COMMAND]
    if not isinstance(command, list) or not command or not all(isinstance(one, str) for one in command):
        raise Wrong(f'[{where}] {COMMAND}: it must be a list of words, such as ["ssh", "tidepool@10.0.0.5"]')
    settings = {name: value for name, value in said.items() if name != COMMAND}
    return Peer(_settings(settings, kinds, where), tuple(command))


def _table(document: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise Wrong(f"{where}{name}: it must be a table, [{name}]")
    return found


def _settings(said: Mapping[str, Any], kinds: Mapping[str, Kind], where: str) -> Settings:
    _only(said, set(kinds), f"[{where}] ")
    found = {}
    for name, value in said.items():
        try:
            found[kinds[name].attribute] = kinds[name].text(value)
        except ValueError as error:
            raise Wrong(f"[{where}] {name} is {value!r}: it must be {error}") from None
    return found


def _only(said: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(said) - known):
        raise Wrong(f"{where}{unknown[0]}: there is no such setting; there are {', '.join(sorted(known))}")


# --- what is to be done -----------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A write into an attribute, or a folder that comes (`+`) or goes (`-`)."""

    path: str
    value: str


@dataclass(frozen=True)
class Seen:
    """What the module has: its own attributes, and those of each peer by its folder."""

    guest: Settings = field(default_factory=dict)
    peers: Mapping[str, Settings] = field(default_factory=dict)


def steps(wanted: Wanted, identities: Mapping[str, str], seen: Seen) -> Iterator[Step]:
    """What makes the module's settings those that are wanted, in an order that it takes; nothing where they are.

    `identities` are those of the peers that answered; the others stay as they are.
    """
    for folder in seen.peers.keys() - wanted.peers.keys():
        yield from (Step(f"{folder}/enabled", "0"), Step(folder, "-"))
    stopped = set()
    if _differ(wanted.guest, seen.guest, ("port",)):
        stopped = {one for one, has in seen.peers.items() if one.startswith("borrowers/") and has.get("enabled") == "1"}
        stopped &= wanted.peers.keys()
        yield from (Step(f"{folder}/enabled", "0") for folder in sorted(stopped))
    yield from (Step(name, value) for name, value in wanted.guest.items() if seen.guest.get(name) != value)
    for folder, peer in wanted.peers.items():
        has = dict(seen.peers.get(folder, {}))
        if folder in stopped:
            has["enabled"] = "0"
        if folder in identities:
            yield from _peer_steps(folder, peer.settings | {"identity": identities[folder]}, has)
        elif folder in stopped:
            yield Step(f"{folder}/enabled", "1")


def _peer_steps(folder: str, settings: Settings, has: Settings) -> Iterator[Step]:
    if not has:
        yield Step(folder, "+")
    is_enabled = has.get("enabled") == "1"
    if is_enabled and _differ(settings, has, FROZEN):
        yield Step(f"{folder}/enabled", "0")
        is_enabled = False
    yield from (Step(f"{folder}/{name}", value) for name, value in settings.items() if has.get(name) != value)
    if not is_enabled:
        yield Step(f"{folder}/enabled", "1")


def _differ(wanted: Settings, seen: Settings, names: tuple[str, ...]) -> bool:
    return any(name in wanted and seen.get(name) != wanted[name] for name in names)


# --- the module, and the peers ----------------------------------------------------------------------------------------


class Module:
    """The module's tree in configfs."""

    def __init__(self, root: Path = CONFIGFS) -> None:
        self._root = root

    def load(self) -> None:
        """Loads the module, if it is not there; raises Wrong."""
        if self._root.is_dir():
            return
        done = subprocess.run(["modprobe", "-a", "configfs", "tidepool"], capture_output=True, text=True, check=False)
        if done.returncode or not self._root.is_dir():
            raise Wrong(f"the module cannot be loaded: {done.stderr.strip() or f'there is no {self._root}'}; see dmesg")

    def seen(self) -> Seen:
        """What it has now."""
        guest = self._attributes("", (kind.attribute for kind in GUEST.values()))
        peers = {}
        for side, kinds in PEERS.items():
            names = [kind.attribute for kind in kinds.values()] + ["identity", "enabled"]
            for folder in sorted(path for path in (self._root / side).iterdir() if path.is_dir()):
                peers[f"{side}/{folder.name}"] = self._attributes(f"{side}/{folder.name}", names)
        return Seen(guest, peers)

    def read(self, path: str) -> str:
        """An attribute, without the end of its line; empty where there is none."""
        try:
            return (self._root / path).read_text().strip()
        except FileNotFoundError:
            return ""

    def do(self, step: Step) -> None:
        """Raises Wrong with what the module says."""
        path = self._root / step.path
        try:
            if step.value == "+":
                path.mkdir()
            elif step.value == "-":
                path.rmdir()
            else:
                path.write_text(step.value)
        except OSError as error:
            raise Wrong(f"{step.path}: the module refuses {step.value!r}: {error.strerror}; see dmesg") from error

    def _attributes(self, folder: str, names: Any) -> Settings:
        return {name: self.read(f"{folder}/{name}".lstrip("/")) for name in names}


def ask(command: tuple[str, ...]) -> str:
    """A peer's identity; raises Wrong where it does not answer with one."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Wrong(f"`{' '.join(command)}`: {error}") from error
    said = done.stdout.strip()
    if done.returncode or not IDENTITY.fullmatch(said):
        why = done.stderr.strip().splitlines()[-1:] or [f"{said[:80]!r} is no identity"]
        raise Wrong(f"`{' '.join(command)}`: {why[0]}")
    return said


# --- the commands -----------------------------------------------------------------------------------------------------


def apply(configuration: Path, module: Module) -> int:
    """Returns an exit code; raises Wrong."""
    try:
        wanted = parse(configuration.read_text())
    except (OSError, Wrong) as error:
        raise Wrong(f"{configuration}: {error}") from error
    module.load()
    identities, silent = {}, 0
    for folder, peer in wanted.peers.items():
        try:
            identities[folder] = ask(peer.command)
        except Wrong as error:
            silent += 1
            print(f"tidepoolctl: {folder} does not say who it is: {error}", file=sys.stderr)
    for step in steps(wanted, identities, module.seen()):
        module.do(step)
        print(f"{step.path} {step.value}")
    return 1 if silent else 0


def status(module: Module) -> int:
    """Returns an exit code."""
    if not module.read("version"):
        print("the module is not loaded")
        return 1
    print(f"tidepool {module.read('version')}, {module.read('identity')}")
    is_well = True
    for folder in module.seen().peers:
        state, reason = module.read(f"{folder}/state"), module.read(f"{folder}/reason")
        counters = dict(line.split(None, 1) for line in module.read(f"{folder}/stats").splitlines() if " " in line)
        pages = counters.get("catalog_pages") or counters.get("lent_pages") or "0"
        is_well = is_well and state in ("Connected", "Listening")
        print(f"{folder}: {state}{f' ({reason})' if reason else ''}, {int(pages) * 4096 >> 20}Mi")
    return 0 if is_well else 1


def main(arguments: list[str] | None = None) -> int:
    """Returns an exit code: 0 all is as it should be, 1 not yet, 2 cannot be."""
    parser = argparse.ArgumentParser(prog="tidepoolctl", description="memory of other guests, without a cluster")
    parser.add_argument("command", choices=("apply", "status"))
    parser.add_argument("--file", type=Path, default=CONFIGURATION, help=f"instead of {CONFIGURATION}")
    options = parser.parse_args(arguments)
    try:
        return apply(options.file, Module()) if options.command == "apply" else status(Module())
    except Wrong as error:
        print(f"tidepoolctl: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
