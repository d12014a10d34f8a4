"""The head of an HTTP request: read within a time and a size, and parsed strictly.

    GET /api/scene?x=1 HTTP/1.1      request line: method, target, version
    Host: 127.0.0.1:8000             fields
                                     a blank line ends the head; no request has a body

Whatever is not certainly a request is refused with a status. Each byte is looked at once, so a
head costs no more than its length.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

MAX_HEAD_BYTES = 64 << 10
MAX_FIELDS = 100
METHODS = ("GET", "HEAD")
_END = b"\r\n\r\n"
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST = re.compile(rf"({_TOKEN}) (/[\x21-\x7e]*) HTTP/([0-9])\.([0-9])")
_FIELD = re.compile(rf"({_TOKEN}):[ \t]*([^\r\n]*)")
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::([0-9]{1,5}))?")


class Refused(Exception):
    """A request that is answered with an error status; the connection is then closed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Head:
    """A request without a body."""

    method: str
    target: str
    """path and query, as they were sent"""
    minor_version: int
    """1 for HTTP/1.1"""
    fields: Mapping[str, str]
    """by lower-case name"""
    host: str
    """the name in the Host field, in lower case, an IPv6 address without brackets"""
    port: int

    @property
    def keeps_open(self) -> bool:
        """Whether the client may send another request on this connection."""
        return self.minor_version == 1 and "close" not in self.fields.get("connection", "").lower()


class HeadReader:
    """The heads of one connection, one after another."""

    def __init__(self, connection: socket.socket, idle_s: float, head_s: float) -> None:
        self._connection = connection
        self._idle_s, self._head_s = idle_s, head_s
        self._rest = b""

    def read(self) -> bytes | None:
        """The next head without its blank line; None if the client is gone or says nothing.

        A head that has begun must be complete in time: a client that sends a byte now and then
        would otherwise keep its connection for ever.
        """
        found, piece, scanned = bytearray(), self._rest, 0
        deadline = time.monotonic() + (self._head_s if piece else self._idle_s)
        while True:
            found += piece
            end = found.find(_END, max(scanned - len(_END) + 1, 0))
            length = end if end >= 0 else len(found)
            if _CONTROL.search(found, scanned, length):
                raise Refused(400, "the request contains control characters")
            if length > MAX_HEAD_BYTES:
                raise Refused(431, f"a request has at most {MAX_HEAD_BYTES:,} bytes")
            if end >= 0:
                self._rest = bytes(found[end + len(_END) :])
                return bytes(found[:end])
            scanned = length
            arrived = self._piece(deadline)
            if arrived is None and found:
                raise Refused(408, "the request was not complete in time")
            if not arrived:
                return None
            if not found:
                deadline = time.monotonic() + self._head_s
            piece = arrived

    def _piece(self, deadline: float) -> bytes | None:
        """What has arrived; empty if the client closed, None if nothing came in time."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv(MAX_HEAD_BYTES)
        except TimeoutError:
            return None


def parse_head(data: bytes) -> Head:
    """The request that a head contains; raises `Refused` if it is not exactly one."""
    line, *lines = data.decode("latin-1").split("\r\n")
    matched = _REQUEST.fullmatch(line)
    if matched is None:
        raise Refused(400, "the request line is malformed; expected: GET /path HTTP/1.1")
    method, target, major, minor = matched.groups()
    if major != "1":
        raise Refused(505, "expected HTTP/1.0 or HTTP/1.1")
    if method not in METHODS:
        raise Refused(405, "only GET and HEAD are answered here")
    fields = _fields(lines)
    if "transfer-encoding" in fields or fields.get("content-length", "0").strip("0"):
        raise Refused(413, "a request has no body here")
    host, port = parse_host(fields.get("host", ""))
    return Head(method, target, min(int(minor), 1), fields, host, port)


def parse_host(text: str) -> tuple[str, int]:
    """Name and port of a Host field; port 80 if it has none."""
    matched = _HOST.fullmatch(text.lower())
    port = int(matched[3] or 80) if matched else 0
    if matched is None or port > 65535:
        raise Refused(400, "the Host field is missing or malformed; expected: Host: NAME:PORT")
    return matched[1] or matched[2], port


def _fields(lines: list[str]) -> dict[str, str]:
    if len(lines) > MAX_FIELDS:
        raise Refused(431, f"a request has at most {MAX_FIELDS} header fields")
    fields: dict[str, str] = {}
    for line in lines:
        matched = _FIELD.fullmatch(line)
        if matched is None:
            raise Refused(400, "a header field is malformed; expected: Name: value")
        name, value = matched[1].lower(), matched[2].strip(" \t")
        if name in fields and name in ("host", "content-length"):
            raise Refused(400, f"the field {matched[1]} is given twice")
        joint = "; " if name == "cookie" else ", "
        fields[name] = f"{fields[name]}{joint}{value}" if name in fields else value
    return fields
