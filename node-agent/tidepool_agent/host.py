"""The libvirt of the host as a source of guests: an OpenStack compute host, or any other with a system libvirt.

One thread asks it for its domains, when libvirt says that something has changed and every few seconds. While the
daemon does not answer the machines stay what they were: their guests run without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import libvirt

from tidepool_agent import nova
from tidepool_agent.errors import Unreachable
from tidepool_agent.hypervisor import KEEPALIVE_SECONDS, KEEPALIVE_TRIES
from tidepool_agent.kubevirt import is_socket
from tidepool_agent.provider import Machine, understood
from tidepool_api import GuestKey

log = logging.getLogger(__name__)

LIST_EVERY = 10.0
LEAVING_EVERY = 2.0  # while one migrates: that it was given up is told by no event
SOCKETS = ("run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock")
HAS_LEFT = (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED)
# A domain that waits for its memory to arrive, or whose memory has left, is not here: it is at the other end.
ELSEWHERE = frozenset(
    {
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP),
    }
)
OVER = frozenset({libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED, libvirt.VIR_DOMAIN_SHUTDOWN})
# By polkit, for want of polkit, or because the host has no name for the agent's user or group.
REFUSED = re.compile("authentication (failed|unavailable|cancelled)|system bus|Failed to find (user|group) record")


def uri(proc: Path) -> str:
    """Where the host's daemon listens: seen through its first process, so that nothing of it has to be mounted."""
    for name in SOCKETS:
        socket = proc / "1/root" / name
        if is_socket(socket):
            return f"qemu+unix:///system?socket={socket}"
    raise Unreachable("the host has no libvirt daemon that listens (yet)", "HypervisorUnreachable")


class Host:
    """The domains of this host. `touched` is told which guest a change is about, `departed` who was migrated away."""

    def __init__(
        self,
        proc: Path,
        namespace: str,
        touched: Callable[[GuestKey], None],
        departed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.synced = asyncio.Event()
        self._proc, self._namespace, self._touched, self._departed = proc, namespace, touched, departed
        self._machines: dict[GuestKey, Machine] = {}
        self._wake = threading.Event()
        self._leaving: set[str] = set()
        """The domains, by UUID, that may be migrating: only these are asked, for one that hangs answers late."""
        self._odd: set[str] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to follow."""
        threading.Thread(target=self._follow, args=(loop,), name="libvirt of the host", daemon=True).start()

    def machines(self) -> Mapping[GuestKey, Machine]:
        """The machines that run on this host."""
        return self._machines

    def machine(self, key: GuestKey) -> Machine | None:
        """The machine of that name, if it runs on this host."""
        return self._machines.get(key)

    def ended(self, _key: GuestKey) -> None:
        """Libvirt does not say of a domain that is off whether it was to be."""

    def endpoint(self, _machine: Machine) -> str:
        """Where the libvirt daemon of the machine listens."""
        return uri(self._proc)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        complaint = ""
        while not loop.is_closed():
            try:
                with _connection(self._proc) as connection:
                    complaint = ""
                    self._follow_one(loop, connection)
            except (libvirt.libvirtError, Unreachable) as error:
                if str(error) != complaint:
                    log.warning("the host's libvirt: %s", error)
                complaint = str(error)
            except RuntimeError:  # the event loop has ended
                return
            self._wake.wait(LIST_EVERY)

    def _follow_one(self, loop: asyncio.AbstractEventLoop, connection: libvirt.virConnect) -> None:
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lived, loop)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, self._changed, None)
        connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_MIGRATION_ITERATION, self._may_leave, None)
        self._leaving = {domain.UUIDString() for domain in _active(connection)}
        while connection.isAlive():
            self._wake.clear()
            found = {machine.key: machine for machine in self._running(connection)}
            loop.call_soon_threadsafe(self._replace, found)
            self._wake.wait(LEAVING_EVERY if self._leaving else LIST_EVERY)

    def _changed(self, *_: Any) -> None:
        self._wake.set()

    def _lived(
        self, _: libvirt.virConnect, domain: libvirt.virDomain, event: int, detail: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        if (event, detail) == HAS_LEFT:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(self._departed, domain.UUIDString())
        self._wake.set()

    def _may_leave(self, _connection: libvirt.virConnect, domain: libvirt.virDomain, *_: Any) -> None:
        self._leaving.add(domain.UUIDString())
        self._wake.set()

    def _running(self, connection: libvirt.virConnect) -> Iterator[Machine]:
        present = _active(connection)
        for gone in self._leaving - {domain.UUIDString() for domain in present}:
            self._leaving.discard(gone)
        self._odd &= {_name(domain) for domain in present}
        for domain in present:
            if machine := understood(_name(domain), self._odd, functools.partial(self._machine, domain)):
                yield machine

    def _machine(self, domain: libvirt.virDomain) -> Machine | None:
        """The machine of a domain; None of one that is not here, or has ended meanwhile."""
        with contextlib.suppress(libvirt.libvirtError):
            state = tuple(domain.state())
            if state in ELSEWHERE or state[0] in OVER:
                return None
            leases, migrating = _leases(domain), self._is_leaving(domain)
            return nova.machine(domain.XMLDesc(), self._namespace, leases, migrating=migrating)
        return None

    def _is_leaving(self, domain: libvirt.virDomain) -> bool:
        """Whether its memory is being copied to another host; once that is over it is not asked any more."""
        uuid = domain.UUIDString()
        if uuid not in self._leaving:
            return False
        self._leaving.discard(uuid)  # before it is asked: what begins meanwhile puts it there again
        migrates = _migrates(domain)
        if migrates:
            self._leaving.add(uuid)
        return migrates

    def _replace(self, found: dict[GuestKey, Machine]) -> None:
        old, self._machines = self._machines, found
        self.synced.set()
        for key in old.keys() | found.keys():
            if old.get(key) != found.get(key):
                self._touched(key)


@contextlib.contextmanager
def _connection(proc: Path) -> Iterator[libvirt.virConnect]:
    connection = _opened(uri(proc))
    try:
        connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_TRIES)
        yield connection
    finally:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()


def _opened(address: str) -> libvirt.virConnect:
    try:
        return libvirt.open(address)
    except libvirt.libvirtError as error:
        if not REFUSED.search(str(error)):
            raise
        advice = f"it does not serve user {os.geteuid()} of group {os.getegid()}, see agent.runAsUser: {error}"
        raise Unreachable(advice, "HypervisorUnreachable") from None


def _active(connection: libvirt.virConnect) -> list[libvirt.virDomain]:
    found: list[libvirt.virDomain] = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
    return found


def _name(domain: libvirt.virDomain) -> str:
    return f"domain {domain.name()}"


def _migrates(domain: libvirt.virDomain) -> bool:
    """Whether libvirt is migrating it away; of one that arrives libvirt does not say what becomes of it."""
    try:
        job: dict[str, Any] = domain.jobStats()
    except libvirt.libvirtError:
        return False
    return bool(job.get(libvirt.VIR_DOMAIN_JOB_OPERATION) == libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT)


def _leases(domain: libvirt.virDomain) -> dict[str, list[str]]:
    """The addresses that libvirt's own networks have given to the domain; none where it has no such networks."""
    try:
        interfaces = domain.interfaceAddresses(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE)
    except libvirt.libvirtError:
        return {}
    return {name: [address["addr"] for address in one["addrs"] or ()] for name, one in interfaces.items()}
