"""The balloon of one guest as its libvirt daemon has it: its figures, its size, and what was last told to it.

That is noted in the metadata of the running domain. It ends with the domain, goes with it to another node, and is there
for the next agent when this one has ended in the middle of something.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree

import libvirt

from tidepool_agent.balloon import Figures, Note
from tidepool_agent.errors import GuestError
from tidepool_agent.hypervisor import Domain
from tidepool_api import names

log = logging.getLogger(__name__)

KIB = 1024
URI = f"https://{names.GROUP}/libvirt/balloon/1.0"
PREFIX, ELEMENT = "tidepool", "balloon"
NOTE = f"metadata/{{{URI}}}{ELEMENT}"
LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
# What keeps the pages of a balloon from the node: by their place in the domain, and in words.
_PINNED = {
    "memoryBacking/hugepages": "its memory is huge pages, which the node has set apart for it",
    "memoryBacking/locked": "its memory is locked",
    "devices/hostdev[@type='pci']": "a device of the host is passed through to it, for which its memory is locked",
    "devices/hostdev[@type='mdev']": "a device of the host is passed through to it, for which its memory is locked",
    "devices/memory": "part of its memory was plugged in, which its balloon does not count",
}


class Pinned(GuestError):
    """What a balloon takes from this guest its node does not get."""

    reason = "MemoryPinned"


class NoBalloon(GuestError):
    """There is none."""

    reason = "NoBalloon"


@dataclass(frozen=True)
class Sight:
    """A balloon at one time."""

    figures: Figures
    note: Note | None
    """What was noted of it, if anything was."""
    period: int
    """How often the driver is asked for figures, in seconds; 0 for never."""
    barred: GuestError | None = None
    """Why nothing can be gathered by it."""
    deflates: bool = False
    """Whether the guest takes out of it by itself what it needs before it kills a program (autodeflate)."""


class Described(NamedTuple):
    """What a domain's XML says of its balloon; fields as those of Sight."""

    note: Note | None
    period: int
    barred: GuestError | None
    deflates: bool


class BalloonDevice(Domain):
    """The balloon of one guest; connects when first used, by a connection of its own. All calls block."""

    def look(self) -> Sight:
        """How it is now; raises Paused while the guest's driver could do nothing."""
        self.check_running()
        with self._spoken() as domain:
            seen = figures(domain.memoryStats(), domain.maxMemory() * KIB, domain.info()[2] * KIB)
        return Sight(seen, *described(self.description()))

    def tell(self, note: Note) -> None:
        """Has the guest have so much memory. It is noted before: what was begun the next agent knows of."""
        self.note(note)
        with self._spoken() as domain:
            domain.setMemoryFlags(note.target // KIB, LIVE)

    def note(self, note: Note) -> None:
        """Notes what the balloon was told."""
        reached = "yes" if note.reached else "no"
        text = f"<{ELEMENT} target='{note.target // KIB}' reached='{reached}' period='{note.period}'/>"
        with self._spoken() as domain:
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, PREFIX, URI, LIVE)

    def forget(self) -> None:
        """Takes the note away: the balloon is nobody's."""
        with self._spoken() as domain:
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, None, PREFIX, URI, LIVE)

    def ask_every(self, seconds: int) -> None:
        """Has the driver asked for figures so often; 0 for never. Without that they are only older."""
        with self._spoken() as domain, contextlib.suppress(libvirt.libvirtError):
            domain.setMemoryStatsPeriod(seconds, LIVE)

    @contextlib.contextmanager
    def _spoken(self) -> Iterator[libvirt.virDomain]:
        """The domain; what libvirt refuses is said in words."""
        try:
            yield self._connected()
        except libvirt.libvirtError as error:
            raise self._translated(error) from None


def figures(stats: dict[str, int], full: int, current: int) -> Figures:
    """What libvirt says in KiB, but for what it counts.

    Some of it is the guest's own word, which may be any number: no guest has more than it was given.
    """
    actual = min(stats["actual"] * KIB if "actual" in stats else current, full)
    available = stats.get("usable", stats.get("unused"))
    resident = stats.get("rss")
    return Figures(
        at=time.time(),
        updated=float(stats.get("last_update", 0)),
        full=full,
        actual=actual,
        available=None if available is None else min(available * KIB, actual),
        resident=None if resident is None else resident * KIB,
        swapped_in=stats.get("swap_in", 0) * KIB,
        major_faults=stats.get("major_fault", 0),
    )


def described(xml: str) -> Described:
    """What a domain's XML says of its balloon."""
    root = ElementTree.fromstring(xml)
    found = root.find(NOTE)
    device = root.find("devices/memballoon")
    if device is None or device.get("model") == "none":
        none = NoBalloon("the virtual machine has no balloon: give it one (memballoon, model virtio)")
        return Described(None, 0, none, deflates=False)
    stats = device.find("stats")
    period = _number(stats.get("period")) if stats is not None else 0
    pinned = next((words for path, words in _PINNED.items() if root.find(path) is not None), "")
    barred = Pinned(f"{pinned}: what its balloon holds would be of no use to anybody") if pinned else None
    return Described(None if found is None else _noted(found), period, barred, device.get("autodeflate") == "on")


def has_note(xml: str) -> bool:
    """Whether a domain's XML says that its balloon was told something; False if it is not what libvirt writes."""
    try:
        return ElementTree.fromstring(xml).find(NOTE) is not None
    except ElementTree.ParseError:
        return False


def _noted(found: Any) -> Note | None:
    target = _number(found.get("target")) * KIB
    return Note(target, found.get("reached") == "yes", _number(found.get("period"))) if target else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 15 else 0
