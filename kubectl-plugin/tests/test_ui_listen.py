"""`kubectl tidepool ui`: connections that are slow, silent or many, and ports that cannot be had."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from ui_page import Shown, borrower, reading, served

from tidepool_kubectl.ui import listen
from tidepool_kubectl.ui.listen import Quiet, why_not

if TYPE_CHECKING:
    from tidepool_api_testing.server import Server
    from tidepool_kubectl.ui.view import Reading

PATIENCE = 20.0  # seconds; what is waited for comes in a fraction of one


@contextmanager
def connected(shown: Shown, count: int = 1) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(shown.place, timeout=PATIENCE)) for _ in range(count)]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def shown_reading() -> Reading:
    return reading(borrower())


def test_who_says_nothing_is_no_trouble(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A connection without a request ends without a word on the terminal."""
    monkeypatch.setattr(Quiet, "ask_seconds", 0.1)
    with served(shown_reading) as shown, connected(shown) as (silent,):
        assert silent.recv(1) == b""
    assert capfd.readouterr() == ("", "")


def test_who_asks_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte is in time, and the request is not."""
    monkeypatch.setattr(Quiet, "ask_seconds", 0.5)
    with served(shown_reading) as shown, connected(shown) as (slow,):
        slow.settimeout(0.1)
        until(lambda: is_over(slow))


def is_over(slow: socket.socket) -> bool:
    """Sends a byte, and sees whether anybody still takes it."""
    try:
        slow.sendall(b"G")
        return slow.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_who_does_not_take_the_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An answer larger than what the kernel keeps for it ends after a while, and says nothing on the terminal."""
    monkeypatch.setattr(Quiet, "take_seconds", 0.3)
    monkeypatch.setattr("tidepool_kubectl.ui.web.map_of", lambda now: {"at": now.at, "much": "x" * (64 << 20)})
    with served(shown_reading) as shown, connected(shown) as (slow,):
        slow.sendall(f"GET {shown.path}api/map HTTP/1.0\r\nHost: {shown.host}\r\n\r\n".encode())
        until(lambda: threads() == 1)
        until(lambda: threads() == 0)
    assert capfd.readouterr() == ("", "")


def threads() -> int:
    """Those that answer."""
    return sum("process_request_thread" in one.name for one in threading.enumerate())


def test_no_more_threads_than_a_few_and_all_come_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connect; who has waited behind all the silent ones is answered."""
    monkeypatch.setattr(Quiet, "ask_seconds", 1.0)
    with served(shown_reading) as shown, connected(shown, listen.AT_A_TIME + 4):
        until(lambda: threads() == listen.AT_A_TIME)
        assert shown.call("GET", shown.path).status == 200
        assert threads() <= listen.AT_A_TIME
        until(lambda: threads() == 0)


def test_a_line_without_end_is_refused() -> None:
    with served(shown_reading) as shown:
        assert shown.call("GET", f"{shown.path}{'x' * 70_000}").status == 414


# --- ports ------------------------------------------------------------------------------------------------------------


def ui(api_server: Server, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The command, which ends at once where the port cannot be had."""
    command = [*before, sys.executable, "-m", "tidepool_kubectl", "ui", "--no-browser", "-n", "default", *arguments]
    variables = {"KUBECONFIG": str(api_server.kubeconfig()), "COLUMNS": "200"}
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=60)


def test_a_port_that_is_in_use_is_said(api_server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = ui(api_server, "--port", str(port))
    said = "the port is in use; give another --port, or leave it out for any that is free"
    assert (answer.returncode, answer.stderr) == (2, f"tidepool: cannot listen at 127.0.0.1:{port}: {said}\n")


def test_a_port_without_the_right_to_it_is_said(api_server: Server) -> None:
    """As somebody without the capability, which root has."""
    without = ("setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service")
    answer = ui(api_server, "--port", "80", before=without)
    said = "you have no right to this port; give --port 1024 to 65535, or leave it out for any that is free"
    assert (answer.returncode, answer.stderr) == (2, f"tidepool: cannot listen at 127.0.0.1:80: {said}\n")


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_no_port_is_said(api_server: Server, port: str) -> None:
    answer = ui(api_server, f"--port={port}")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
    assert "--port" in answer.stderr
    assert port in answer.stderr


def test_another_reason_is_not_taken_for_the_ports() -> None:
    """Where 127.0.0.1 itself is missing, no other port helps."""
    assert why_not(OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")) == "Cannot assign requested address"


def test_without_the_closing_slash_it_leads_there() -> None:
    """What the page names is looked for in its folder: without the slash that would be another one."""
    with served(shown_reading) as shown:
        answer = shown.call("GET", shown.path.removesuffix("/"))
        assert (answer.status, answer.headers["Location"]) == (http.client.PERMANENT_REDIRECT, shown.path)
        assert shown.call("GET", shown.path[:-2]).status == 403
