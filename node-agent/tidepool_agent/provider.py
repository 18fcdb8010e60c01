"""What the agent has to know about a virtual machine, wherever it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidepool_api import Provider

Key = tuple[str, str]  # namespace and name


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
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] = field(default_factory=dict)
    """The object whose deletion takes the MemoryGuest with it, as an ownerReference."""

    @property
    def key(self) -> Key:
        """Namespace and name, which the MemoryGuest shares."""
        return self.namespace, self.name
