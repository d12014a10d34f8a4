"""An HTTP server for browsers on this machine, which no client can stop or exhaust.

Python's `http.server` waits for ever for a client that stays silent, and starts a thread for
everybody who connects. Here a head has a deadline and a size (`http_head`), a response that nobody
reads is given up, and connections are counted. Only GET and HEAD exist.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from slipstream.serve.http_head import METHODS, Head, HeadReader, Refused, parse_head

MAX_CONNECTIONS = 512
"""a browser opens up to six for each page"""
PIECE_BYTES = 1 << 18
DRAIN_BYTES = 1 << 20
DRAIN_S = 1.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class HttpServer(socketserver.ThreadingTCPServer):
    """Listens at an address; each connection is handled by a thread of its own."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    idle_s = 60.0
    """how long a connection may be open between two requests"""
    head_s = 10.0
    """how long a request may take to arrive"""
    write_s = 30.0
    """how long a client may take to accept a piece of a response"""

    def __init__(self, host: str, port: int, handler: type[HttpHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__((host, port), handler)
        self.server_port: int = self.server_address[1]

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            # Without free file descriptors, the waiting connection is found again at once.
            time.sleep(0.05)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.settimeout(0)
            with suppress(OSError):
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser may close the connection in the middle of a response."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class HttpHandler(socketserver.BaseRequestHandler, ABC):
    """One connection, kept open for several requests; subclasses define `answer`."""

    server: HttpServer
    request: socket.socket
    fields: Mapping[str, str] = {}
    """sent with every response"""

    @abstractmethod
    def answer(self, head: Head) -> None:
        """Send the response to a GET or HEAD; may raise `Refused`."""

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        heads = HeadReader(self.request, self.server.idle_s, self.server.head_s)
        self.keeps_open = True
        while self.keeps_open:
            # Until a request has been understood, the connection does not outlive its answer.
            self.keeps_open, self.is_head = False, False
            try:
                found = heads.read()
                if found is None:
                    return
                head = parse_head(found)
                self.is_head = head.method == "HEAD"
                self.keeps_open = head.keeps_open
                self.answer(head)
            except Refused as refused:
                self._refuse(refused)
            except (TimeoutError, ConnectionError):
                return

    def _refuse(self, refused: Refused) -> None:
        if refused.status in (400, 405, 408, 413, 431, 505):
            self.keeps_open = False
        allow = {"Allow": ", ".join(METHODS)} if refused.status == 405 else {}
        self.send(refused.status, f"{refused}\n".encode(), "text/plain; charset=utf-8", allow)
        if not self.keeps_open:
            self._drain()

    def _drain(self) -> None:
        """Read what the client still sends: closing before would destroy the response."""
        self.request.shutdown(socket.SHUT_WR)
        deadline, left = time.monotonic() + DRAIN_S, DRAIN_BYTES
        while left > 0 and (left_s := deadline - time.monotonic()) > 0:
            self.request.settimeout(left_s)
            piece = self.request.recv(PIECE_BYTES)
            if not piece:
                return
            left -= len(piece)

    # ---- sending ------------------------------------------------------------------------------

    def send(
        self, status: int, body: bytes, kind: str, fields: Mapping[str, str] | None = None
    ) -> None:
        """A whole response."""
        self.send_head(status, kind, {"Content-Length": str(len(body)), **(fields or {})})
        if not self.is_head:
            self.write(body)

    def send_head(self, status: int, kind: str, fields: Mapping[str, str]) -> None:
        from email.utils import formatdate

        about = {"Date": formatdate(usegmt=True), "Content-Type": kind, **self.fields, **fields}
        if not self.keeps_open:
            about["Connection"] = "close"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in about.items()]
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def write(self, data: bytes) -> None:
        """Send bytes; raises TimeoutError if the client does not take them."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            # The timeout is for the whole call, however often the client takes a byte.
            self.request.settimeout(self.server.write_s)
            self.request.sendall(view[start : start + PIECE_BYTES])
