"""Parses what the probe prints, into the state of one guest: kernel, memory, module, peers and their figures.

The text comes from the guest and is believed only as far as it fits: names are matched against what we would write
ourselves, numbers are limited, and what is neither is left out or refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidepool_agent.appmem import AppMemory, appmem
from tidepool_agent.backing import HostSide
from tidepool_agent.errors import Nonsense
from tidepool_agent.histogram import Histogram, histograms
from tidepool_agent.mapped import Mapped, mapped
from tidepool_api import Interface, is_identity
from tidepool_api.fields import MOST_COUNT

TREE = "/sys/kernel/config/tidepool"
SWAP_FILE = "/var/lib/tidepool/file"  # in which the script notes where it is
PAGE = 4096
MAX_NUMBER = MOST_COUNT
MAX_POINTS = 16
MAX_PEERS = 128  # the module itself takes 64 borrowers, and a pool gives 8 lenders
GHOST_OFF = "Off"
LOCKDOWN = "/sys/kernel/security/lockdown"

_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
_WORD = re.compile(r"[A-Za-z0-9._+~-]{0,64}")
_PEER = re.compile(rf"{TREE}/(borrowers|lenders)/(?!\.\.?/)([A-Za-z0-9._-]{{1,63}})/([a-z_]{{1,32}})")
_STAT = re.compile(r"([a-z][a-z0-9_]{0,47}) ([0-9]{1,20})")
_REASON = re.compile(r"[A-Z][A-Za-z]{0,31}")
_MEMORY = re.compile(r"\s*([0-9]{1,13}) kB")
_UPTIME = re.compile(r"([0-9]{1,12}\.[0-9]{2}) .*")
_STALL = re.compile(r"(some|full) avg10=[0-9.]+ avg60=([0-9]{1,3})\..*")
_REFAULTS = re.compile(r"workingset_refault(?:_file)? ([0-9]{1,18})")
_POINT = re.compile(r"hit_ratio ([0-9]{1,18}) ([01]\.[0-9]{4})")

# What a guest would miss: /proc/meminfo's own words.
_WORKING_SET = ("Active(anon)", "Inactive(anon)", "Active(file)", "Unevictable")


class Side(StrEnum):
    """The two kinds of peer directory, by the name of their parent."""

    BORROWERS = "borrowers"
    LENDERS = "lenders"


@dataclass(frozen=True)
class Peer:
    """One peer directory: its attributes as text, its counters, its latencies by name."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The module's word for the connection."""
        return self.attributes.get("state", "")

    @property
    def reason(self) -> str | None:
        """The module's word for why there is no connection; None if there is one, or no word."""
        found = self.attributes.get("reason", "")
        return found if _REASON.fullmatch(found) else None

    @property
    def identity(self) -> str | None:
        """By which identity it is known; None if it has not been given one."""
        return _identity(self.attributes.get("identity", ""))

    @property
    def enabled(self) -> bool:
        """Whether the peer is in use."""
        return self.attributes.get("enabled") == "1"


@dataclass(frozen=True)
class Module:
    """The module as it is loaded in the guest."""

    version: str
    srcversion: str
    identity: str | None = None
    """Its public key, drawn when it was loaded."""
    settings: Mapping[str, str] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    ghost: str = ""
    """Its ghost mode; empty if it has none."""
    curve: tuple[tuple[int, float], ...] = ()
    """What the ghost mode found out: bytes of a pool, and the part of the reads that it would have answered."""
    references: int = 0
    """The reads that this is about."""
    sampled_references: int = 0
    """Those of them that were followed."""


@dataclass(frozen=True)
class Observation:
    """What one probe found."""

    boot_id: str
    release: str
    total_bytes: int
    available_bytes: int
    working_set_bytes: int | None = None
    uptime: float = 0.0
    """Seconds since it was booted."""
    stalls: Mapping[str, int] = field(default_factory=dict)
    """Percent of the last minute, by `memory some`, `io full` and so on; empty if the kernel does not measure it."""
    refaults: int | None = None
    """Pages that were read again soon after they were evicted, since it was booted."""
    refusal: str = ""
    """Which modules its kernel does not take: `ModulesDisabled` (none any more), `SignatureRequired`, or empty."""
    module: Module | None = None
    peers: Mapping[tuple[Side, str], Peer] = field(default_factory=dict)
    mapped: Mapping[str, Mapped] = field(default_factory=dict)
    """The block devices that the agent has made, by name."""
    has_target: bool = False
    """Whether device-mapper has the target that puts lenders in front of a disk."""
    has_swap_file: bool = False
    """Whether a file system of the guest has a swap file that the agent has made."""
    app: AppMemory | None = None
    """The module for programs' memory; None where it is not loaded."""
    installed: bool = False
    """Whether the guest has a module of its own."""
    buildable: bool = False
    """Whether it has what it takes to build one: DKMS, a compiler, and the headers of its kernel."""
    host: HostSide | None = None
    """How the host holds its memory, which the guest does not know."""
    interfaces: tuple[Interface, ...] = ()
    """Those that its guest agent knows, where it is asked."""

    def side(self, side: Side) -> dict[str, Peer]:
        """The peers of one kind by name."""
        return {name: peer for (kind, name), peer in self.peers.items() if kind is side}


def parse(text: str) -> Observation:
    """The state of a guest from `PATH:LINE` lines; raises Nonsense if what every guest has is not there."""
    files = _files(text.splitlines())
    memory = _memory(files.get("/proc/meminfo", []))
    return Observation(
        boot_id=_only(files, "/proc/sys/kernel/random/boot_id", _BOOT_ID),
        release=_only(files, "/proc/sys/kernel/osrelease", _RELEASE),
        total_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        working_set_bytes=_working_set(memory),
        uptime=float(_first(files, "/proc/uptime", _UPTIME) or 0),
        stalls=_stalls(files, "memory") | _stalls(files, "io"),
        refaults=_number(_first(files, "/proc/vmstat", _REFAULTS)),
        refusal=_refusal(files),
        module=_module(files),
        peers=_peers(files),
        mapped=mapped(files),
        app=appmem(files),
        has_swap_file=SWAP_FILE in files,
        has_target="/sys/module/tidepool_block/srcversion" in files,
        installed="yes" in files.get("installed", []),
        buildable="yes" in files.get("buildable", []),
    )


def _files(lines: Iterable[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        path, colon, content = line.partition(":")
        if colon:
            files[path].append(content)
    return files


def _only(files: Mapping[str, list[str]], path: str, pattern: re.Pattern[str]) -> str:
    lines = files.get(path, [])
    if len(lines) != 1 or not pattern.fullmatch(lines[0]):
        raise Nonsense(f"the guest's {path} is not what a kernel writes there")
    return lines[0]


def _first(files: Mapping[str, list[str]], path: str, pattern: re.Pattern[str]) -> str | None:
    """What the pattern's group finds in the first line that it fits."""
    matches = filter(None, map(pattern.fullmatch, files.get(path, [])))
    return next((match[1] for match in matches), None)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _working_set(memory: Mapping[str, int]) -> int | None:
    return sum(memory[name] for name in _WORKING_SET) if memory.keys() >= set(_WORKING_SET) else None


def _stalls(files: Mapping[str, list[str]], resource: str) -> dict[str, int]:
    matches = filter(None, map(_STALL.fullmatch, files.get(f"/proc/pressure/{resource}", [])))
    return {f"{resource} {match[1]}": min(int(match[2]), 100) for match in matches}


def _refusal(files: Mapping[str, list[str]]) -> str:
    """What the kernel says of modules; a lockdown of either kind takes signed ones only."""
    if files.get("/proc/sys/kernel/modules_disabled") == ["1"]:
        return "ModulesDisabled"
    locked = any(f"[{level}]" in line for line in files.get(LOCKDOWN, []) for level in ("integrity", "confidentiality"))
    enforced = files.get("/sys/module/module/parameters/sig_enforce") == ["Y"]
    return "SignatureRequired" if locked or enforced else ""


def _memory(lines: Iterable[str]) -> dict[str, int]:
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        match = _MEMORY.fullmatch(value)
        if match:
            found[name] = int(match[1]) * 1024
    return found


def _module(files: Mapping[str, list[str]]) -> Module | None:
    if "/sys/module/tidepool/version" not in files:
        return None
    settings = {name: _word(files, f"{TREE}/{name}") for name in ("port", "lend_bytes", "reserve_bytes", "hold")}
    found = files.get(f"{TREE}/ghost_curve", [])
    counts = _stats(found)
    return Module(
        version=_word(files, "/sys/module/tidepool/version"),
        srcversion=_word(files, "/sys/module/tidepool/srcversion"),
        identity=_identity(next(iter(files.get(f"{TREE}/identity", [])), "")),
        settings={name: value for name, value in settings.items() if value},
        stats=_stats(files.get(f"{TREE}/stats", [])),
        latency=histograms(files.get(f"{TREE}/latency", [])),
        ghost=_word(files, f"{TREE}/ghost"),
        curve=_curve(found),
        references=counts.get("references", 0),
        sampled_references=counts.get("sampled_references", 0),
    )


def _identity(text: str) -> str | None:
    return text if is_identity(text) else None


def _curve(lines: Iterable[str]) -> tuple[tuple[int, float], ...]:
    matches = filter(None, map(_POINT.fullmatch, lines))
    points = sorted({int(match[1]): min(float(match[2]), 1.0) for match in matches}.items())
    return tuple(points[:MAX_POINTS])


def _word(files: Mapping[str, list[str]], path: str) -> str:
    first = next(iter(files.get(path, [])), "")
    return first if _WORD.fullmatch(first) else ""


def _peers(files: Mapping[str, list[str]]) -> dict[tuple[Side, str], Peer]:
    contents: dict[tuple[Side, str], dict[str, list[str]]] = defaultdict(dict)
    for path, lines in files.items():
        match = _PEER.fullmatch(path)
        key = (Side(match[1]), match[2]) if match else None
        if match and key and (key in contents or len(contents) < MAX_PEERS):
            contents[key][match[3]] = lines
    return {key: _peer(attributes) for key, attributes in contents.items()}


def _peer(contents: dict[str, list[str]]) -> Peer:
    stats, latency = contents.pop("stats", []), contents.pop("latency", [])
    attributes = {name: lines[0][:256] for name, lines in contents.items() if lines}
    return Peer(attributes, _stats(stats), histograms(latency))


def _stats(lines: Iterable[str]) -> dict[str, int]:
    matches = filter(None, map(_STAT.fullmatch, lines))
    return {match[1]: min(int(match[2]), MAX_NUMBER) for match in matches}
