"""libvirt: a connection to the daemon that runs one guest, which may be lost or hang at any time.

Every libvirt call blocks, and a daemon or guest agent that hangs would block it for ever. So each guest has one
thread of its own for its calls, and whoever waits for a call waits for a limited time: a guest that hangs costs its
own thread, and others no more than the moment after which a session makes room for them. While a call is stuck, further
ones for that guest fail at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import libvirt
import libvirt_qemu  # type: ignore[import-untyped]

from tidepool_agent import answers, relay
from tidepool_agent.errors import CommandFailed, CommandsBlocked, GuestError, Nonsense, Paused, Unreachable

log = logging.getLogger(__name__)

T = TypeVar("T")
# A daemon that does not answer these many seconds times these many tries is given up.
KEEPALIVE_SECONDS, KEEPALIVE_TRIES = 5, 3

_COMMAND = re.compile(r"guest-[a-z-]+")
_SILENT = (
    "NotResponding",
    "the guest agent does not answer: the guest hangs, is very busy, or is just booting or going down",
)
_STOPPED = (
    "NotRunning",
    "the virtual machine does not run: libvirt is about to start it, or has just ended it",
)
_REASONS = {
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE: _SILENT,
    libvirt.VIR_ERR_AGENT_UNSYNCED: _SILENT,
    libvirt.VIR_ERR_OPERATION_INVALID: _STOPPED,
    libvirt.VIR_ERR_NO_DOMAIN: _STOPPED,
    libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED: (
        "NotConfigured",
        "the virtual machine has no channel for a guest agent: add org.qemu.guest_agent.0 to it and start it again",
    ),
}
# What the guest's owner may not know, by libvirt's reason for a pause.
_PAUSES = {
    libvirt.VIR_DOMAIN_PAUSED_IOERROR: ": its disk has failed, or there is no room left for it",
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION: " while it migrates",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY: " while it migrates",
    libvirt.VIR_DOMAIN_PAUSED_SAVE: " while it is saved",
    libvirt.VIR_DOMAIN_PAUSED_SNAPSHOT: " while a snapshot is taken of it",
}


def start_event_loop() -> None:
    """Starts libvirt's event loop, which keepalive needs, and keeps its errors from stderr. Once per process."""
    relay.start()
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run_events, name="libvirt-events", daemon=True).start()


def _run_events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


class Domain:
    """One guest as its libvirt daemon knows it; connects when first used and again after a loss."""

    def __init__(self, uri: Callable[[], str], name: str) -> None:
        self._uri = uri
        self._name = name
        self._connection: libvirt.virConnect | None = None
        self._domain: libvirt.virDomain | None = None
        self._way: relay.Way | None = None

    def command(self, text: str, seconds: int) -> str:
        """Gives one command to the guest agent; raises Nonsense if the answer is no text."""
        try:
            answer: str = libvirt_qemu.qemuAgentCommand(self._connected(), text, seconds, 0)
        except libvirt.libvirtError as error:
            raise self._translated(error) from None
        except UnicodeDecodeError as error:  # libvirt passes on what the guest has written
            raise Nonsense("the guest agent's answer is no UTF-8") from error
        return answer

    def check_running(self) -> None:
        """Raises Paused if the machine is: its guest agent would only be waited for."""
        try:
            state, reason = self._connected().state()
        except libvirt.libvirtError as error:
            raise self._translated(error) from None
        if state == libvirt.VIR_DOMAIN_PAUSED:
            raise Paused(_PAUSES.get(reason, ""))
        if state == libvirt.VIR_DOMAIN_PMSUSPENDED:
            raise Paused(": its own kernel has suspended it")

    def description(self) -> str:
        """Its XML, as it is now; raises Nonsense if that is more than any machine takes to be described."""
        try:
            xml: str = self._connected().XMLDesc()
        except libvirt.libvirtError as error:
            raise self._translated(error) from None
        if answers.has_too_many_parts(xml):
            raise Nonsense(
                f"its libvirt describes it in more than {answers.MOST_PARTS} elements and attributes; "
                "look at the metadata in its domain"
            )
        return xml

    def close(self) -> None:
        """Drops the connection, if there is one."""
        connection, self._connection, self._domain = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()

    def _connected(self) -> libvirt.virDomain:
        if self._connection is None or self._domain is None or not self._connection.isAlive():
            self.close()
            self._connection = self._opened()
            self._connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_TRIES)
            self._domain = self._connection.lookupByName(self._name)
        return self._domain

    def _opened(self) -> libvirt.virConnect:
        """Through the relay, where a socket leads to the daemon: it may be anybody's."""
        before, at, path = self._uri().partition("socket=")
        if not at:
            return libvirt.open(before)
        with relay.way_to(path) as self._way:
            return libvirt.open(f"{before}{at}{self._way.path}")

    def _translated(self, error: libvirt.libvirtError) -> GuestError:
        """What a person is told; libvirt's own words, which are for its developers, go to the log."""
        code, text = error.get_error_code(), error.get_error_message() or str(error)
        log.debug("%s: %s", self._name, text)
        if self._way and self._way.refused:
            self.close()
            return Nonsense(f"its libvirt sends {self._way.refused}; look at what runs in the virtual machine's pod")
        if "has been disabled" in text or "has been blocked" in text:
            return CommandsBlocked(_COMMAND.findall(text) or [text])
        if "is not connected" in text:
            return Unreachable(
                "the guest agent is not connected: it runs only once the guest has booted; if it stays so, install and "
                "start qemu-guest-agent in the guest",
                "NotConnected",
            )
        if code in _REASONS:
            reason, words = _REASONS[code]
            return Unreachable(words, reason)
        if error.get_error_domain() == libvirt.VIR_FROM_RPC or code in (
            libvirt.VIR_ERR_NO_CONNECT,
            libvirt.VIR_ERR_SYSTEM_ERROR,
        ):
            self.close()
            return Unreachable(
                "the virtual machine's libvirt does not answer: it is just starting, has ended, or hangs",
                "HypervisorUnreachable",
            )
        return CommandFailed(text)


class Lane:
    """The one thread through which all calls of one guest go. It does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """Runs a blocking function; after the given time it is left behind, and the guest counts as not responding."""
        if self._last is not None and not self._last.done():
            raise Unreachable("an earlier call to the guest has not come back yet", "Hanging")
        future: Future[T] = Future()
        self._last = future
        self._calls.put((function, future))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            raise Unreachable(f"no answer from the guest's libvirt within {seconds:.0f} s", "Hanging") from None

    def close(self, last: Callable[[], None]) -> None:
        """Lets the thread end, after the call it is in and a last one."""
        self._calls.put((last, Future()))
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the call gets it
                future.set_exception(error)
            else:
                future.set_result(result)
