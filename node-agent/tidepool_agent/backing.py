"""What is behind a guest's memory on its host: pure, from its libvirt domain, its pod's request and the host's swap."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tidepool_api import GuestBacking
from tidepool_api.fields import MOST_BYTES

# What virt-launcher, its libvirt and QEMU itself take of a pod's request. KubeVirt adds a little more to the guest's
# memory, so that a guest which is not overcommitted does not look so.
LAUNCHER_BYTES = 200 << 20

LEAST_SERIAL, MOST_SERIAL = 4, 20  # what names one disk, and as much of it as virtio passes on

_WORD = re.compile(r"[^A-Za-z0-9._+-]")
_KIB = re.compile(r"[0-9]{1,15}")
_SWAP = re.compile(r"^SwapTotal:\s+([0-9]+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class SharedDisk:
    """A disk that other guests may write to as well."""

    target: str
    """The name that the guest most likely has for it."""
    serial: str
    """Its serial number; empty without one."""

    def is_at(self, path: str) -> bool:
        """Whether a path in the guest seems to be that of the disk, or of one of its partitions."""
        name = path.rpartition("/")[2]
        is_named = bool(self.target) and re.fullmatch(rf"{re.escape(self.target)}(p?[0-9]+)?", name) is not None
        return is_named or (len(self.serial) >= LEAST_SERIAL and self.serial[:MOST_SERIAL] in name)

    def is_below(self, found: str) -> bool:
        """Whether it is a disk of the guest's, which says its name and its serial numbers."""
        name, _, serials = found.partition(" ")
        return name == self.target or (len(self.serial) >= LEAST_SERIAL and self.serial[:MOST_SERIAL] in serials)

    @property
    def word(self) -> str:
        """Name and serial number for a script in the guest; none of what a serial number has not."""
        return ":".join(_WORD.sub("", part) for part in (self.target, self.serial[:MOST_SERIAL]))


@dataclass(frozen=True)
class HostSide:
    """How the host holds a guest's memory and disks."""

    size_bytes: int
    """All that it may use now."""
    huge_pages: bool = False
    locked: bool = False
    free_page_reporting: bool = False
    swap: bool = False
    """Whether the host has swap space."""
    shared: tuple[SharedDisk, ...] = ()
    """The disks that are not the guest's alone."""


def host_side(xml: str, *, swap: bool) -> HostSide | None:
    """What a running domain's XML says, in which libvirt counts in KiB; None if it is not what libvirt writes."""
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return None
    kib = (root.findtext("currentMemory") or root.findtext("memory") or "").strip()
    if not _KIB.fullmatch(kib):
        return None
    balloon = root.find("devices/memballoon")
    return HostSide(
        size_bytes=min(int(kib) << 10, MOST_BYTES),
        huge_pages=root.find("memoryBacking/hugepages") is not None,
        locked=root.find("memoryBacking/locked") is not None,
        free_page_reporting=balloon is not None and balloon.get("freePageReporting") == "on",
        swap=swap,
        shared=tuple(_shared(disk) for disk in root.findall("devices/disk[shareable]")),
    )


def _shared(disk: ElementTree.Element) -> SharedDisk:
    target = disk.find("target")
    return SharedDisk("" if target is None else target.get("dev", ""), (disk.findtext("serial") or "").strip())


def has_swap(proc: Path) -> bool:
    """Whether the host has swap space."""
    try:
        found = _SWAP.search((proc / "meminfo").read_text())
    except OSError:
        return False
    return found is not None and int(found[1]) > 0


def described(request: int | None, host: HostSide | None) -> GuestBacking | None:
    """A guest's backing, where its pod requests so many bytes, or where there is no pod; None while it is not known."""
    if host is None:
        return None
    return GuestBacking(
        request_bytes=request,
        overcommitted_bytes=overcommitted(request, host),
        huge_pages=host.huge_pages,
        free_page_reporting=host.free_page_reporting,
        swap=host.swap and not (host.huge_pages or host.locked),
    )


def overcommitted(request: int | None, host: HostSide) -> int:
    """What a guest may use and nobody has promised it; huge pages are its own from the beginning."""
    if request is None or host.huge_pages:
        return 0
    return max(0, host.size_bytes - max(0, request - LAUNCHER_BYTES))
