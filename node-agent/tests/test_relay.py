"""What stands between the agent and programs that say they are a guest's libvirt daemon."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import wait_for

from tidepool_agent import relay
from tidepool_agent.errors import GuestError, Nonsense, Unreachable
from tidepool_agent.hypervisor import Domain
from tidepool_api.units import MIB

CALL, REPLY, EVENT = range(3)
PODS = 100
# Of 256 MiB that an agent may have: what all messages may be together, the threads, and what the relay reads at a time.
MOST_GROWTH = relay.MOST_BEGUN + 24 * MIB

# Each of its daemons is asked by a thread, as by the lane of a guest, three times.
AGENT = """
import re, sys, threading
from pathlib import Path
from tidepool_agent import hypervisor
from tidepool_agent.errors import GuestError

def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def ask(uri):
    for _ in range(3):
        try:
            hypervisor.Domain(lambda: uri, "shop_d").check_running()
        except GuestError:
            pass

hypervisor.start_event_loop()
before = memory("VmRSS")
for _ in range(int(sys.argv[2])):
    threading.Thread(target=ask, args=sys.argv[1:2], daemon=True).start()
sys.stdin.read()
print(before, memory("VmRSS"), memory("VmHWM"), flush=True)
"""


def message(kind: int, payload: bytes = b"", serial: int = 0, size: int | None = None) -> bytes:
    """One of libvirt's RPC; `size` is what it says of itself, if that is not so."""
    told = 28 + len(payload) if size is None else size
    return struct.pack(">7I", told, 0x20008086, 1, 1, kind, serial, 0) + payload


@contextlib.contextmanager
def false_daemon(folder: Path, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A program that listens where a daemon would, and serves each connection, once a call has come, by a thread.

    Yields the path of its socket.
    """
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(2 * PODS)

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.recv(len(message(CALL)))
                serve(connection)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield str(path)
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def talk(path: str) -> Iterator[tuple[socket.socket, relay.Way]]:
    """A client that goes through the relay."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        with relay.way_to(path) as way:
            client.connect(way.path)
            client.sendall(message(CALL))
            yield client, way


def until_end(client: socket.socket) -> bytes:
    """All that comes until somebody hangs up."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def error_of(path: str) -> GuestError:
    """What is said of a guest with such a daemon."""
    with pytest.raises(GuestError) as caught:
        Domain(lambda: f"qemu+unix:///session?socket={path}", "shop_d").check_running()
    return caught.value


def test_a_hundred_false_daemons_take_little_of_an_agents_memory(tmp_path: Path) -> None:
    """Each says that a message comes, sends all of it but a byte, and stops."""
    asked = []

    def serve(connection: socket.socket) -> None:
        asked.append(connection)
        connection.sendall(message(REPLY, bytes(relay.MOST_BYTES - 29), size=relay.MOST_BYTES))
        until_end(connection)

    with false_daemon(tmp_path, serve) as path:
        command = [sys.executable, "-c", textwrap.dedent(AGENT), f"qemu+unix:///session?socket={path}", str(PODS)]
        agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        wait_for(lambda: len(asked) >= PODS, 60)
        time.sleep(2)
        told, _ = agent.communicate("")
    before, after, most = (int(one) << 10 for one in told.split())
    assert after - before < MOST_GROWTH
    assert most - before < 2 * MOST_GROWTH


@pytest.mark.parametrize("size", [relay.MOST_BYTES + 1, 24 * MIB, 0xFFFFFFFF, 27, 0])
def test_a_daemon_that_announces_what_none_sends_is_named(tmp_path: Path, size: int) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(message(REPLY, size=size))
        until_end(connection)

    with false_daemon(tmp_path, serve) as path:
        error = error_of(path)
    assert isinstance(error, Nonsense)
    assert re.search(rf"a message of {size} bytes, of at most {relay.MOST_BYTES}; look at what runs", str(error))


@pytest.mark.parametrize(
    "said",
    [b"", message(REPLY, b"half", size=1000), message(REPLY)[:13], message(EVENT), message(EVENT)[:4]],
    ids=["nothing", "half an answer", "half a header", "something else", "a size"],
)
def test_a_call_that_is_not_answered_in_time_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Also while the connection is made, of which libvirt itself gives up nothing."""
    monkeypatch.setattr(relay, "ANSWER_SECONDS", 0.5)

    def serve(connection: socket.socket) -> None:
        connection.sendall(said)
        until_end(connection)

    with false_daemon(tmp_path, serve) as path:
        begin = time.monotonic()
        error = error_of(path)
        assert 0.4 < time.monotonic() - begin < 10
    assert isinstance(error, Unreachable)
    assert error.reason == "HypervisorUnreachable"


def test_a_message_that_nobody_has_asked_for_has_to_end_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client waits for nothing, and would keep what has come of it."""
    monkeypatch.setattr(relay, "ANSWER_SECONDS", 0.5)

    def serve(connection: socket.socket) -> None:
        connection.sendall(message(REPLY) + message(EVENT, b"half", size=1000))
        until_end(connection)

    with false_daemon(tmp_path, serve) as path, talk(path) as (client, _):
        assert until_end(client) == message(REPLY) + message(EVENT, b"half", size=1000)


@pytest.mark.parametrize("kind", [REPLY, EVENT])
def test_a_daemon_that_talks_unasked_is_hung_up_on(tmp_path: Path, kind: int) -> None:
    def serve(connection: socket.socket) -> None:
        while True:
            connection.sendall(message(kind))

    with false_daemon(tmp_path, serve) as path, talk(path) as (client, way):
        assert len(until_end(client)) < 1 << 20
        assert way.refused == "answers that nobody has asked for"


def test_keepalive_goes_on_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for, and seldom: here as seldom as it may be."""
    monkeypatch.setattr(relay, "UNASKED_A_SECOND", 100)

    def serve(connection: socket.socket) -> None:
        connection.sendall(message(REPLY))
        for _ in range(60):
            time.sleep(0.012)
            connection.sendall(message(EVENT))

    with false_daemon(tmp_path, serve) as path, talk(path) as (client, _):
        assert until_end(client) == message(REPLY) + 60 * message(EVENT)


def test_what_is_said_arrives_as_it_was_however_it_is_cut(tmp_path: Path) -> None:
    """Calls and answers of all sizes, in pieces that end anywhere; the end of one is the other's end."""
    chance = random.Random(7)
    answers = [message(REPLY, chance.randbytes(chance.choice([0, 1, 900, 300_000])), at) for at in range(40)]
    calls = [message(CALL, chance.randbytes(chance.choice([0, 3, 90_000])), at) for at in range(39)]
    heard: list[bytes] = []

    def send(connection: socket.socket, data: bytes) -> None:
        while data:
            at = chance.choice([1, 5, 27, 28, 29, 5000, 200_000])
            connection.sendall(data[:at])
            data = data[at:]

    def serve(connection: socket.socket) -> None:
        want = sum(map(len, calls))
        while sum(map(len, heard)) < want:
            heard.append(connection.recv(1 << 16))
        send(connection, b"".join(answers))

    with false_daemon(tmp_path, serve) as path, talk(path) as (client, way):
        send(client, b"".join(calls))
        assert until_end(client) == b"".join(answers)
    assert b"".join(heard) == b"".join(calls)
    assert way.refused == ""


def test_who_hangs_up_is_not_waited_for(tmp_path: Path) -> None:
    """A client that is gone leaves nothing behind, though the daemon never reads what it was sent."""
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.settimeout(20)
        with contextlib.suppress(ConnectionError):
            connection.sendall(message(REPLY))
            time.sleep(0.5)
            while connection.recv(1 << 16):
                pass
        ended.set()

    with false_daemon(tmp_path, serve) as path:
        with talk(path) as (client, _):
            client.recv(1 << 16)
            client.sendall(10 * message(CALL, bytes(90_000)))
        assert ended.wait(20)


def test_a_daemon_that_takes_nobody_in_does_not_answer(tmp_path: Path) -> None:
    """Its queue is full, and to connect would be to wait for ever."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(path)
        assert isinstance(error_of(path), Unreachable)
