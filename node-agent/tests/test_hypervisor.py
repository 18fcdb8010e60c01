"""Item 8: guests and daemons that are late, gone or hang: an error within a known time, and nobody else waits."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import libvirt
import libvirt_qemu  # type: ignore[import-untyped]
import pytest
from conftest import wait_for
from daemon import Daemon

from tidepool_agent.errors import CommandsBlocked, Nonsense, Paused, Unreachable
from tidepool_agent.hypervisor import Domain, Lane
from tidepool_agent.qga import GuestAgent

Start = Callable[..., libvirt.virDomain]


def reason_of(domain: Domain) -> str:
    with pytest.raises(Unreachable) as caught:
        GuestAgent(domain.command).blocked()
    return caught.value.reason


def test_a_guest_agent_that_is_late_is_not_connected_until_it_is(daemon: Daemon, started: Start) -> None:
    started("default_late", "test.late=8")
    domain = Domain(daemon.uri, "default_late")
    assert reason_of(domain) == "NotConnected"
    wait_for(lambda: GuestAgent(domain.command).blocked() == [])


def test_a_guest_without_the_channel_is_told_from_one_that_is_late(daemon: Daemon, started: Start) -> None:
    started("default_bare", channel=False)
    assert reason_of(Domain(daemon.uri, "default_bare")) == "NotConfigured"


def test_a_guest_that_does_not_exist_is_not_running(daemon: Daemon) -> None:
    """And what is said of it is for people: libvirt's own words are not."""
    nobody = Domain(daemon.uri, "default_nobody")
    assert reason_of(nobody) == "NotRunning"
    with pytest.raises(Unreachable, match=r"^the virtual machine does not run: "):
        nobody.check_running()


def test_a_domain_with_metadata_beyond_reason_is_not_looked_at(daemon: Daemon, started: Start) -> None:
    """Whoever has a shell in the virt-launcher may write it, and each element is thirty times as long in memory."""
    domain, element = started("default_padded"), libvirt.VIR_DOMAIN_METADATA_ELEMENT
    known = Domain(daemon.uri, "default_padded")
    for elements, is_read in ((1000, True), (60_000, False)):
        domain.setMetadata(element, f"<e>{'<a/>' * elements}</e>", "p", "http://example.com/p", 0)
        if is_read:
            assert "default_padded" in known.description()
        else:
            with pytest.raises(Nonsense, match="look at the metadata"):
                known.description()


def test_a_daemon_that_is_not_there_yet_is_said_in_words(tmp_path: Path) -> None:
    domain = Domain(lambda: f"qemu+unix:///session?socket={tmp_path}/none", "default_nobody")
    with pytest.raises(Unreachable, match=r"^the virtual machine's libvirt does not answer: ") as caught:
        domain.command("{}", 1)
    assert caught.value.reason == "HypervisorUnreachable"


TEST_HOST = """<node><domain type='test'><name>shop_d</name><memory unit='MiB'>512</memory>
<os><type>hvm</type></os></domain></node>"""


def test_an_answer_that_is_no_text_is_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libvirt that does not look at what the guest has written passes it on, and its binding cannot read it."""
    monkeypatch.setattr(libvirt.virConnect, "setKeepAlive", lambda *_: 0)
    monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", lambda *_: b'{"return": "\xff"}'.decode())
    file = tmp_path / "host.xml"
    file.write_text(TEST_HOST)
    with pytest.raises(Nonsense, match="no UTF-8"):
        Domain(lambda: f"test://{file}", "shop_d").command("{}", 1)


def test_blocked_commands_are_named(daemon: Daemon, started: Start) -> None:
    started("default_blocked", "test.blocked=guest-exec,guest-file-open")
    agent = GuestAgent(Domain(daemon.uri, "default_blocked").command)
    wait_for(lambda: agent.blocked() == ["guest-exec", "guest-file-open"])
    with pytest.raises(CommandsBlocked, match="allow-rpcs"):
        agent.run(["/bin/true"])


def test_a_guest_that_hangs_costs_a_limited_time(daemon: Daemon, started: Start) -> None:
    """The guest is paused: its agent is connected and silent."""
    guest = started("default_hangs")
    domain = Domain(daemon.uri, "default_hangs")
    wait_for(lambda: GuestAgent(domain.command).blocked() == [])
    guest.suspend()
    begin = time.monotonic()
    with pytest.raises(Unreachable, match=r"does not (run|answer)"):
        GuestAgent(domain.command).blocked()
    assert time.monotonic() - begin < 60
    with pytest.raises(Paused, match="the virtual machine is paused;"):
        domain.check_running()
    guest.resume()
    domain.check_running()
    wait_for(lambda: GuestAgent(domain.command).blocked() == [])


def test_a_daemon_that_hangs_holds_up_only_its_own_guest(own_daemon: Daemon) -> None:
    """A stopped daemon answers nothing; the lane gives up, says so at once the next time, and recovers."""

    async def scenario() -> None:
        lane = Lane("test")
        domain = Domain(own_daemon.uri, "default_nobody")
        os.kill(own_daemon.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unreachable, match="no answer"):
                await lane.call(lambda: reason_of(domain), 1)
            begin = time.monotonic()
            with pytest.raises(Unreachable, match="not come back"):
                await lane.call(lambda: reason_of(domain), 60)
            assert time.monotonic() - begin < 20
        finally:
            os.kill(own_daemon.process.pid, signal.SIGCONT)
        for _ in range(600):
            await asyncio.sleep(0.1)
            try:
                assert await lane.call(lambda: reason_of(domain), 5) == "NotRunning"
                break
            except Unreachable:
                continue
        else:
            raise AssertionError
        lane.close(domain.close)

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(5))
def test_whoever_waits_can_be_cancelled_when_the_answer_comes(turns: int) -> None:
    """An answer that comes so many turns of the loop before does not undo it: a worker would never end."""

    async def worker(lane: Lane, answer: threading.Event) -> None:
        await lane.call(answer.wait, 30)
        await asyncio.sleep(30)

    async def scenario() -> None:
        lane, answer = Lane("test"), threading.Event()
        waiting = asyncio.create_task(worker(lane, answer))
        await asyncio.sleep(0.05)
        answer.set()
        time.sleep(0.2)  # noqa: ASYNC251 - it arrives while the loop is busy
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=20)
        assert waiting.cancelled()
        lane.close(lambda: None)

    asyncio.run(scenario())


def test_a_connection_that_is_lost_is_made_again(own_daemon: Daemon) -> None:
    domain = Domain(own_daemon.uri, "default_nobody")
    assert reason_of(domain) == "NotRunning"
    own_daemon.restart()
    wait_for(lambda: reason_of(domain) == "NotRunning")
