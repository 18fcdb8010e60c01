"""Connections: so many at a time, and each for so long. Who is slow costs one of them for some seconds, and no more."""

from __future__ import annotations

import errno
import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer, make_server

from tidepool_kubectl.cluster import Unusable
from tidepool_kubectl.ui.view import Reading
from tidepool_kubectl.ui.web import ADDRESS, App

AT_A_TIME = 8
ASK_SECONDS = 5.0  # for a whole request, however many pieces it comes in
TAKE_SECONDS = 20.0  # for a whole answer
LONGEST_LINE = 65536


class Within(io.RawIOBase):
    """What comes from a socket until a time; raises TimeoutError then."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        """The time begins now."""
        self._connection, self._end = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As much as is there."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Answering(ServerHandler):
    request_handler: Quiet

    def log_exception(self, exc_info: Any) -> None:
        """Who does not take the answer is nobody's trouble."""
        if not isinstance(exc_info[1], TimeoutError | ConnectionError):
            super().log_exception(exc_info)


class Quiet(WSGIRequestHandler):
    """Answers one request, and says nothing of it on the terminal."""

    server: WSGIServer
    ask_seconds, take_seconds = ASK_SECONDS, TAKE_SECONDS

    def setup(self) -> None:
        """The request has to be there in time, all of it."""
        super().setup()
        self.rfile = io.BufferedReader(Within(self.connection, self.ask_seconds))

    def handle(self) -> None:
        """Who says nothing, says it too slowly or goes away in the middle is nobody's trouble."""
        with suppress(TimeoutError, ConnectionError):
            self.raw_requestline = self.rfile.readline(LONGEST_LINE + 1)
            if len(self.raw_requestline) > LONGEST_LINE:
                self.requestline = self.request_version = self.command = ""
                self.send_error(414)
            elif self.parse_request():
                self.connection.settimeout(self.take_seconds)
                self._answer()

    def _answer(self) -> None:
        request, answer = cast("IO[bytes]", self.rfile), cast("IO[bytes]", self.wfile)
        answering = _Answering(request, answer, self.get_stderr(), self.get_environ(), multithread=True)
        answering.request_handler = self
        app = self.server.get_app()
        assert app  # it is served from the start
        answering.run(app)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the base
        """Nothing of requests: their paths have the token in them."""


class Few(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and so many at a time: the next ones wait until there is room."""

    daemon_threads = True
    request_queue_size = 64  # that wait

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._room = BoundedSemaphore(AT_A_TIME)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Waits for room, and no longer than somebody may take."""
        self._room.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Makes room for the next one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()


@contextmanager
def server(read: Callable[[], Reading], port: int) -> Iterator[tuple[Few, str]]:
    """What answers until it is interrupted, and the address. Raises `Unusable` where the port cannot be had."""
    app = App(read)
    try:
        listening = make_server(ADDRESS, port, app, server_class=Few, handler_class=Quiet)
    except OSError as error:
        raise Unusable(f"cannot listen at {ADDRESS}:{port}: {why_not(error)}") from error
    with listening:
        yield listening, f"http://{ADDRESS}:{listening.server_port}/{app.token}/"


def why_not(error: OSError) -> str:
    """What keeps one from a port, and what would be right."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "you have no right to this port; give --port 1024 to 65535, or leave it out for any that is free"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; give another --port, or leave it out for any that is free"
    return str(error.strerror)
