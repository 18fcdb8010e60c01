"""What the agent has to know about a virtual machine, wherever it comes from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidepool_api import GuestKey, Interface, Provider

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """A virtual machine that runs on this node now."""

    provider: Provider
    namespace: str
    name: str
    uid: str
    domain: str
    """What libvirt calls it."""
    place: str
    """Where its libvirt daemon is, in the provider's words; another place means another daemon."""
    addresses: tuple[str, ...] = ()
    """Those that are of use where nobody names a network, the preferred one first."""
    interfaces: tuple[Interface, ...] = ()
    """All that its provider knows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] = field(default_factory=dict)
    """The object whose deletion takes the MemoryGuest with it, as an ownerReference."""
    title: str = ""
    """What people call it, where that is not its name."""
    request_bytes: int | None = None
    """What its pod requests of the node's memory; None where it has no pod."""
    migrating: bool = False
    """Whether its memory is being copied to another node."""

    @property
    def key(self) -> GuestKey:
        """Namespace and name, which the MemoryGuest shares."""
        return GuestKey(self.namespace, self.name)


@dataclass(frozen=True)
class Ended:
    """A virtual machine that was on this node and runs no more, though its provider still has it."""

    uid: str
    words: str
    """Its state in its provider's words."""


class Source(Protocol):
    """Where machines come from. Apart from `start`, everything is done in the event loop."""

    @property
    def synced(self) -> asyncio.Event:
        """Set once everything that is there has been seen."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to follow what comes and goes."""

    def machines(self) -> Mapping[GuestKey, Machine]:
        """The machines that run on this node."""

    def machine(self, key: GuestKey) -> Machine | None:
        """The machine of that name, if it runs on this node."""

    def ended(self, key: GuestKey) -> Ended | None:
        """How the machine of that name has ended, if it has, was on this node, and is still known."""

    def endpoint(self, machine: Machine) -> str:
        """The URI of the libvirt daemon that runs the machine; blocks, and raises Unreachable."""


def understood(name: str, odd: set[str], read: Callable[[], Machine | None]) -> Machine | None:
    """What its provider says of one machine; None of one that nobody understands, which keeps no other from its agent.

    That is logged once: `odd` are the names of those of which it was.
    """
    try:
        found = read()
    except Exception:
        if name not in odd:
            log.exception("%s is left out: what is said of it is not understood", name)
        odd.add(name)
        return None
    odd.discard(name)
    return found
